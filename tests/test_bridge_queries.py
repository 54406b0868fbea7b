"""Queries in another language through the translations of a run's own transfer."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import tiny
from command_line import invoke
from typer.testing import Result

import vtkit
from vtkit.data.retrieval import RetrievalSet
from vtkit.pipeline.run import run
from vtkit.search.bridge_queries import RECORD, weighted
from vtkit.system.errors import DataError
from vtkit.transfer.methods.bitext import read_bitext
from vtkit.transfer.query_bridge import query_translations
from vtkit.vocabulary.pair import pair_of


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
    tiny.encoder(folder / "work").save_pretrained(str(folder / "encoder"))
    words = tuple(word[::-1] for word in tiny.WORDS)
    letters = (*tiny.LETTERS, *(f"##{letter}" for letter in tiny.LETTERS))
    tiny.tokenizer((*tiny.ROLES.values(), *letters, *words)).save_pretrained(str(folder / "target"))
    tiny.write_collection(folder / "backwards", in_other_words(tiny.collection(60)))
    lines = [*tiny.WORDS, *tiny.texts(200, seed=5)]
    text = "".join(f"{line}\t{reversed_words(line)}\n" for line in lines)
    (folder / "pairs.tsv").write_text(text, "utf-8")
    (folder / "bridge.toml").write_text(
        '[recipe]\nname = "bridge"\nlanguage = "de"\n[source]\nmodel = "./encoder"\n'
        '[vocabulary]\nkind = "existing"\ntokenizer = "./target"\n'
        '[transfer]\nmethod = "parallel"\nparallel.files = ["pairs.tsv"]\n'
        '[index]\nlexical = "bm25"\n[evaluate]\nsets = ["backwards"]\n',
        "utf-8",
    )
    run(folder / "bridge.toml", runs=folder / "runs", threads=1)
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
    value = found.cell("bridge (deployed)", str(collection)).evaluated.measures["RR@1000"]
    assert value == pytest.approx(np.mean(own))
    assert value != found.cell("bridge", str(collection)).evaluated.measures["RR@1000"]


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
