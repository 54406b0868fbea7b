"""What each word of a query adds to a score."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding
from test_unicoil import unicoil

from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.folding import set_folding
from vtkit.encoder.sides import EncoderQueries
from vtkit.encoder.static_queries import StaticQueries
from vtkit.encoder.transformer_queries import TransformerQueries
from vtkit.pipeline.search import open_searcher
from vtkit.search.analysers import analyser
from vtkit.search.words import cut_words, terms_of_pieces
from vtkit.vocabulary.tokenizer_file import tokenizer_digest


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
    counted = terms_of_pieces(analyser("ja"), "東京の人口", pieces)
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
