"""Queries in another language through the translations of a run's own transfer."""

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import tiny
import torch
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding
from tiny import unicoil
from typer.testing import Result

import vtkit
from vtkit.data.retrieval import RetrievalSet
from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.folding import set_folding
from vtkit.encoder.sides import EncoderQueries
from vtkit.encoder.static_queries import StaticQueries
from vtkit.encoder.transformer_queries import TransformerQueries
from vtkit.pipeline.search import open_searcher
from vtkit.search.analysers import analyser
from vtkit.search.bridge_queries import RECORD, weighted
from vtkit.search.words import cut_words, terms_of_pieces
from vtkit.system.errors import DataError
from vtkit.transfer.methods.bitext import read_bitext
from vtkit.transfer.query_bridge import query_translations
from vtkit.vocabulary.pair import pair_of
from vtkit.vocabulary.tokenizer_file import tokenizer_digest


def test_weights_by_hand() -> None:
    """Four documents, df (1, 2, 0). s0 is t0 alone: df 1. s1 is t1 or t2: df ½ · 2 = 1. s2 has no translation."""
    table = sp.csr_matrix([[1.0, 0, 0], [0, 0.5, 0.5], [0, 0, 0]])
    idf = math.log(1 + 3.5 / 1.5)
    found = weighted(table, np.array([1.0, 2.0, 0.0]), 4).toarray()
    assert found == pytest.approx(np.array([[idf, 0, 0], [0, idf / 2, idf / 2], [0, 0, 0]]))


def test_translations_of_seen_tokens_are_those_of_the_text_and_others_stand_for_themselves() -> None:
    """``otter`` is in no pair and in both vocabularies; ``heron`` is in no pair and in the source only."""
    target = tiny.tokenizer((*tiny.ROLES.values(), *tiny.LETTERS, "elppa", "rebma", "otter"))
    pair = pair_of(tiny.tokenizer(), target)
    pairs = [("apple", "elppa"), ("amber", "rebma"), ("apple amber", "elppa rebma")] * 3
    table = query_translations(read_bitext(pair, pairs), pair)

    def row(word: str) -> dict[str, float]:
        found = table[pair.source.tokenizer.convert_tokens_to_ids(word)]
        names = target.convert_ids_to_tokens(found.indices.tolist())
        return dict(zip(names, found.data.tolist(), strict=True))

    assert row("apple")["elppa"] > 0.9
    assert row("amber")["rebma"] > 0.9
    assert row("otter") == {"otter": 1.0}
    assert row("heron") == {}
    sums = np.asarray(table.sum(axis=1)).ravel()
    assert np.allclose(sums[sums > 0], 1.0)


def reversed_words(text: str) -> str:
    return " ".join(word[::-1] for word in text.split())


def in_other_words(found: RetrievalSet) -> RetrievalSet:
    """The documents in a language whose words are written backwards; the queries stay."""
    documents = [replace(each, text=reversed_words(each.text)) for each in found.documents]
    return replace(found, documents=documents)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over documents in the language written backwards, with a dictionary and sentences."""
    folder = tmp_path_factory.mktemp("bridge")
    words = tuple(word[::-1] for word in tiny.WORDS)
    letters = (*tiny.LETTERS, *(f"##{letter}" for letter in tiny.LETTERS))
    lines = [*tiny.WORDS, *tiny.texts(200, seed=5)]
    text = "".join(f"{line}\t{reversed_words(line)}\n" for line in lines)
    (folder / "pairs.tsv").write_text(text, "utf-8")
    tiny.finished_run(
        folder, in_other_words(tiny.collection(60)), "bridge", "backwards", '[index]\nlexical = "bm25"\n', "de",
        (*tiny.ROLES.values(), *letters, *words), transfer='method = "parallel"\nparallel.files = ["pairs.tsv"]\n',
    )  # fmt: skip
    return folder


def says(*arguments: str | Path) -> Result:
    return invoke("search", *arguments)


def test_queries_of_the_source_are_searched_as_the_words_of_the_documents(place: Path) -> None:
    """An encoder of random weights finds little by them, but each word is searched as its own translation alone."""
    queries = [each.text for each in tiny.collection(60).queries[:20]]
    for query in queries:
        shown = says(place / "runs" / "bridge", query, "--query-language", "en", "--json")
        assert shown.exit_code == 0, shown.output
        tokens = {token for token, _ in json.loads(shown.stdout)["tokens"] if not token.startswith("bm25:")}
        assert tokens == {word[::-1] for word in query.split()}
        assert json.loads(shown.stdout)["results"]
    own = json.loads(says(place / "runs" / "bridge", queries[0], "--json").stdout)
    assert not {token for token, _ in own["tokens"]} >= {word[::-1] for word in queries[0].split()}


def test_evaluate_sends_queries_through_the_translations_too(place: Path) -> None:
    folder, collection = place / "runs" / "bridge", place / "backwards"
    found = vtkit.evaluate(folder, collection, query_language="en", measures=["RR@1000"], language="en")
    queries = tiny.collection(60).queries
    results = vtkit.search_run(folder, [each.text for each in queries], top=60, query_language="en")
    own = [
        next((1 / hit.rank for hit in hits if hit.id == f"d{query.id[1:]}"), 0.0)
        for query, hits in zip(queries, results, strict=True)
    ]
    value = found.result("bridge (deployed)", str(collection)).measures["RR@1000"]
    assert value == pytest.approx(np.mean(own))
    assert value != found.result("bridge", str(collection)).measures["RR@1000"]


def test_a_run_without_translations_and_another_language_are_refused(place: Path, tmp_path: Path) -> None:
    folder = tiny.finished_run(tmp_path, tiny.collection(20))
    refused = says(folder, "apple", "--query-language", "en")
    assert isinstance(refused.exception, DataError)
    assert "transfer.parallel.files" in str(refused.exception)
    (record,) = (place / "runs" / "artifacts").glob(f"transfer-*/bridge/{RECORD}")
    before = record.read_text("utf-8")
    record.write_text(json.dumps(json.loads(before) | {"language": "en"}), "utf-8")
    refused = says(place / "runs" / "bridge", "apple", "--query-language", "fr")
    record.write_text(before, "utf-8")
    assert isinstance(refused.exception, DataError)
    assert "is 'fr', but this run translates from its source's language, 'en'" in str(refused.exception)


# What each word of a query adds to a score.


def splade(folder: Path, pooling: str = "max") -> SparseEncoder:
    return as_sparse_encoder(tiny.model("bert"), tiny.tokenizer(), folder / "work", pooling, "relu")


def with_a_table(folder: Path) -> SparseEncoder:
    document, weights = tiny.encoder(folder / "work"), torch.linspace(0.1, 2, len(tiny.TOKENS))
    table = SparseStaticEmbedding(tiny.tokenizer(), weights, frozen=True)
    router = Router.for_query_document([table], [document[0], document[1]])
    SparseEncoder(modules=[router], device="cpu").save(str(folder / "plain"), create_model_card=False)
    return load_encoder(str(folder / "plain"))


def folded(folder: Path) -> SparseEncoder:
    made = splade(folder)
    set_folding(made, True)
    return made


KINDS: dict[str, Callable[[Path], SparseEncoder]] = {
    "maximum": splade,
    "sum": lambda folder: splade(folder, "sum"),
    "uniCOIL": unicoil,
    "table": with_a_table,
    "folded": folded,
}


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_pooled_are_the_query(kind: str, tmp_path: Path) -> None:
    made = KINDS[kind](tmp_path)
    made.prompts["query"] = "oak "
    save_encoder(made, tmp_path / "model")
    name, text = str(tmp_path / "model"), "river stone river maple"
    whole = load_encoder(name)
    digest = tokenizer_digest(EncoderQueries(whole).output_tokenizer)
    light = StaticQueries.load(name, digest) or TransformerQueries.load(name, digest)
    assert (light is None) == (kind in ("uniCOIL", "folded"))
    for queries in (EncoderQueries(whole), light):
        for length in (4, 64) if queries is not None else ():
            alone, ends = queries.by_token(text, length)
            pooled = alone.sum(axis=0) if kind == "sum" else alone.max(axis=0).toarray()[0]
            expected = queries.encode([text], length).toarray()[0]
            assert expected.any()
            np.testing.assert_allclose(np.asarray(pooled).ravel(), expected, atol=1e-5)
            words = [tiny_word for end in ends if end for tiny_word in [("oak " + text)[:end].split()[-1]]]
            assert words == ["oak", "river", "stone", "river", "maple"][: len(words)]
            assert len(words) > 1


@given(st.text(max_size=60))
def test_pieces_are_the_text(text: str) -> None:
    pieces = cut_words(text)
    assert "".join(text[piece.start : piece.stop] for piece in pieces) == text
    assert all(piece.word in ("", text[piece.start : piece.stop]) for piece in pieces)


@pytest.mark.parametrize("language", ["en", "ko", "ja", "th", "ar"])
@given(text=st.text("ab 東京の人수도는คะแนนمدن.'-", max_size=30))
def test_every_term_of_a_query_belongs_to_a_word(language: str, text: str) -> None:
    cut = analyser(language)
    whole, parts = Counter(cut(text)), sum(terms_of_pieces(cut, text, cut_words(text)), Counter())
    assert not whole.keys() - parts.keys()


def test_terms_of_japanese_words_by_hand() -> None:
    """A pair that reaches over the edge of a word belongs to the second."""
    pieces = cut_words("東京の人口")
    counted = list(terms_of_pieces(analyser("ja"), "東京の人口", pieces))
    terms = {piece.word: set(counts) for piece, counts in zip(pieces, counted, strict=True)}
    assert terms == {"東京": {"東", "京", "東京"}, "の": {"の", "京の"}, "人口": {"人", "口", "の人", "人口"}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose index has BM25's terms."""
    lexical = '[index]\nlexical = "bm25"\n'
    return tiny.finished_run(tmp_path_factory.mktemp("run"), tiny.collection(60), more=lexical)


def test_words_sum_to_the_score(finished: Path) -> None:
    searcher = open_searcher(finished, model=None, collection=None)
    (plain,), (found,) = (list(searcher.search(["river, Stone stone?"], 5, why=why)) for why in (False, True))
    assert [each.id for each in found.results] == [each.id for each in plain.results]
    assert not any(each.words for each in plain.results)
    assert not any(token.startswith("bm25:") for token, _ in found.tokens)
    for each in found.results:
        assert sum(part.score for part in each.words) == pytest.approx(each.score, abs=1e-3)
        assert [part.score for part in each.words] == sorted((part.score for part in each.words), reverse=True)
        assert {part.word for part in each.words} <= {"river", "stone", ""}
        for part in each.words:
            assert part.score == pytest.approx(part.encoder + part.bm25, abs=1e-4)
            own = {term for run in analyser("en").runs(part.word) for term in analyser("en").terms(run)}
            assert {term for term, _ in part.terms} <= own
    best = found.results[0]
    assert searcher.explain(found.query, best.id).words == best.words


def test_a_document_with_one_word_of_two_has_bm25_for_that_word_only(finished: Path) -> None:
    searcher = open_searcher(finished, model=None, collection=None)
    texts = [json.loads(line) for line in searcher.documents.path.read_text("utf-8").splitlines()]
    other = next(each for each in texts if "river" in each["text"].split() and "oak" not in each["text"])
    parts = {part.word: part for part in searcher.explain("oak river", other["_id"]).words}
    assert parts["river"].bm25 > 0
    assert "oak" not in parts or not parts["oak"].bm25
