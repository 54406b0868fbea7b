"""Documents as an index holds them: their own tokens raised, units raised to a power, in a run and outside of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny
from command_line import invoke, python, succeeds
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import sparse
from sentence_transformers import SparseEncoder
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.encoder.asymmetric import WholeEncoder
from vtkit.encoder.checkpoint import load_encoder
from vtkit.encoder.documents import (
    IDF,
    LONG,
    MASS,
    QUANTILE,
    Dimensions,
    Length,
    as_indexed,
    held_tokens,
    idf_weights,
    pruned,
    rule_of,
    with_own_tokens,
)
from vtkit.encoder.folding import set_folding
from vtkit.encoder.masked import mask_dimensions
from vtkit.encoder.sides import encode_side
from vtkit.evaluation.systems import SparseSystem
from vtkit.pipeline.run import run
from vtkit.search.exact import ExactIndex
from vtkit.search.segments import generation_of
from vtkit.search.stored_vectors import read_vectors, row_sums
from vtkit.settings.index import IndexSection
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import DataError

CASED = (*tiny.shuffled(1), "Raven", "RAVEN", "Maple")
TEXTS = [*tiny.texts(30, seed=4), "Raven RAVEN stone", "maple " * 60 + "zephyr", ""]


def matrix(index: ExactIndex) -> np.ndarray:
    """The documents of an index, (documents, dimensions)."""
    return index.by_document().toarray()


def indexed(made: Path) -> np.ndarray:
    return matrix(ExactIndex.load(generation_of(made / "index" / "set") / "postings"))


def corpus_of(made: Path) -> Path:
    return made.parents[1] / "set" / "corpus.jsonl"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SparseEncoder:
    """An encoder with a masked dimension, `raven`."""
    ours = tiny.encoder(tmp_path_factory.mktemp("own"))
    mask_dimensions(ours[0].auto_model, [tiny.TOKENS.index("raven")])
    return ours


def test_weights_rise_by_the_quantile_where_texts_hold_the_token(encoder: SparseEncoder) -> None:
    vectors = encode_side(encoder, TEXTS, "document", 32)
    rise = np.quantile(vectors.data, QUANTILE)
    wanted = vectors.toarray()
    for row, text in enumerate(TEXTS):  # whole texts, though 32 tokens are encoded
        for token in set(encoder.tokenizer.tokenize(text)) - {"[UNK]", "[SEP]", "raven"}:
            wanted[row, tiny.TOKENS.index(token)] += rise
    found = as_indexed(encoder, vectors, TEXTS, IndexSection(own_tokens=True))
    np.testing.assert_allclose(found.toarray(), wanted, rtol=1e-5)
    assert not found[:, [tiny.TOKENS.index("raven")]].nnz
    assert found[TEXTS.index("maple " * 60 + "zephyr"), tiny.TOKENS.index("zephyr")] >= np.float32(rise)


def test_folded_case_variants_rise_once_by_eye(tmp_path: Path) -> None:
    ours = tiny.encoder(tmp_path, tokens=CASED)
    set_folding(ours, True)
    vectors = sparse.csr_matrix(np.array([[2.0, 2.0]], dtype=np.float32))
    vectors.resize(1, len(CASED))
    held = held_tokens(ours, ["Raven raven RAVEN Maple"], IndexSection(own_tokens=True))
    raised, _ = with_own_tokens(ours, lambda: [vectors], lambda: [held])
    (found,) = raised()
    raised = {CASED[number]: found[0, number] for number in found.nonzero()[1]}
    assert {name: weight for name, weight in raised.items() if name in ("raven", "maple")} == {"raven": 2, "maple": 2}
    assert not raised.keys() & {"Raven", "RAVEN", "Maple"}


def test_a_rare_document_without_any_weight_is_found_by_eye(encoder: SparseEncoder) -> None:
    """No dimension is active, and then c is 1."""
    empty = sparse.csr_matrix((2, len(tiny.TOKENS)), dtype=np.float32)
    found = as_indexed(encoder, empty, ["olive reef olive", ""], IndexSection(own_tokens=True))
    held = sorted(tiny.TOKENS.index(word) for word in ("olive", "reef"))
    assert found.indices.tolist() == held
    assert found.data.tolist() == [1, 1]


def test_where_dimensions_are_no_tokens_or_only_own_ones_it_is_refused(tmp_path: Path) -> None:
    sections = {"recipe": {"name": "r", "language": "en"}, "vocabulary": {"kind": "source"}}
    for source in ({"kind": "unicoil"}, {"units": {}, "corpus": ["x"]}):
        sections["source"] = {"model": "x", **source}
        assert Recipe.model_validate(sections)
        with pytest.raises(ValidationError, match=r"remove index\.own_tokens"):
            Recipe.model_validate({**sections, "index": {"own_tokens": True}})
    whole = WholeEncoder(modules=list(tiny.encoder(tmp_path)), device="cpu")
    names = Tokenizer(models.WordLevel({f"{unit}": unit for unit in range(40)}, unk_token="0"))
    whole.output_tokenizer = PreTrainedTokenizerFast(tokenizer_object=names)
    vectors = sparse.csr_matrix((1, len(tiny.TOKENS)), dtype=np.float32)
    with pytest.raises(DataError, match=r"remove index\.own_tokens"):
        as_indexed(whole, vectors, ["olive"], IndexSection(own_tokens=True))


@pytest.fixture(scope="module")
def own_tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a folded encoder with own tokens, IDF, and the twelve largest weights of a document."""
    folder = tmp_path_factory.mktemp("made")
    documents = [Document(f"d{n}", "", text) for n, text in enumerate(TEXTS) if text]
    found = RetrievalSet("x", documents, [Query("q", "raven")], {"q": {"d30": 1}})
    more = """\
[casing]
output = "fold"
[index]
own_tokens = true
document_weighting = "geng"
top_dimensions = 12
document_length = 32
query_encoder = "idf"
"""
    return tiny.finished_run(folder, found, "own", "set", more, tokens=CASED)


def test_a_run_and_a_collection_in_memory_have_the_same_index(own_tokens: Path) -> None:
    ours, index = load_encoder(str(own_tokens / "model")), IndexSection(document_length=32, own_tokens=True)
    texts = [text for text in TEXTS if text]
    candidates = encode_side(ours, texts, "document", 32, top_dimensions=48)  # four times as many as are kept
    every = as_indexed(ours, candidates, texts, index).toarray()
    factors = np.load(generation_of(own_tokens / "index" / "set") / IDF)
    found = indexed(own_tokens)
    largest = -np.sort(-every * factors, axis=1)[:, :12]
    np.testing.assert_allclose(-np.sort(-found, axis=1)[:, :12], largest, rtol=1e-4)
    np.testing.assert_allclose(found[found > 0], (every * factors)[found > 0], rtol=1e-4)
    section = IndexSection(document_length=32, own_tokens=True, top_dimensions=12, document_weighting="geng")
    collection = RetrievalSet("x", [Document(str(n), "", text) for n, text in enumerate(texts)], [], {})
    memory = SparseSystem.over(ours, collection, section).index.postings
    np.testing.assert_allclose(matrix(memory), found, rtol=1e-4)


def run_of_units(place: Path, index: str) -> Path:
    tiny.embedder(place / "embedder")
    documents = [Document(f"d{number}", "", text) for number, text in enumerate(tiny.texts(300, seed=1))]
    found = RetrievalSet("set", documents, [Query("q", documents[3].text)], {"q": {"d3": 1}})
    tiny.write_collection(place / "set", found)
    (place / "units.toml").write_text(f"""\
[recipe]
name = "units"
language = "en"
[source]
model = "./embedder"
steps = 100
texts = 300
corpus = ["./set"]
units = {{size = 64, active = 4}}
[vocabulary]
kind = "source"
[index]
{index}
[evaluate]
sets = ["./set"]
models = ["transfer"]
""")
    return run(place / "units.toml", runs=place / "runs", threads=1)


@pytest.fixture(scope="module")
def saturated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of units with IDF and the four largest weights of a document."""
    settings = 'top_dimensions = 4\ndocument_weighting = "geng"'
    return run_of_units(tmp_path_factory.mktemp("summed"), settings)


@pytest.fixture(scope="module")
def by_rule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of units, indexed as they are by default."""
    return run_of_units(tmp_path_factory.mktemp("rule"), "")


def test_an_index_holds_the_fourth_root_of_sums(saturated: Path) -> None:
    """Those of plain sentence-transformers, by the equation: of the largest sixteen those that hold .85 of the sum of
    fourth roots, weighted, the largest four, over the length."""
    plain = SparseEncoder(str(saturated / "model"), device="cpu")
    assert plain[1].pooling_strategy == "sum"
    documents = [json.loads(line)["text"] for line in corpus_of(saturated).open()]
    sums = plain.encode_document(documents).to_dense().numpy()
    roots = encode_side(load_encoder(str(saturated / "model")), documents, "query", 512).toarray()
    np.testing.assert_allclose(roots**2, sums, rtol=1e-3, atol=3e-4)  # logits are around 30: float32 rounds their ends
    largest = -np.sort(-(sums**0.25), axis=1)
    fewest = (np.cumsum(largest, axis=1) < MASS * largest.sum(1, keepdims=True) - 1e-4).sum(1).clip(max=15)
    kept = np.where(sums**0.25 >= largest[np.arange(len(sums)), fewest][:, None], sums, 0)
    assert (kept > 0).sum() < 0.9 * (sums > 0).sum()
    factors = idf_weights((kept > 0).sum(0), len(documents), "geng")
    weighted = kept**0.25 * factors
    b = (kept > 0).sum(1).mean() / ((kept > 0).sum(1).mean() + LONG)
    wanted = weighted / (1 - b + b * weighted.sum(1, keepdims=True) / weighted.sum(1).mean())
    place = generation_of(saturated / "index" / "set")
    assert np.load(place / IDF) == pytest.approx(factors)
    vectors = indexed(saturated)
    assert (vectors > 0).sum(1).max() <= 4
    np.testing.assert_allclose(vectors[vectors > 0], wanted[vectors > 0], rtol=1e-3)
    assert -np.sort(-vectors[5])[:4] == pytest.approx(-np.sort(-wanted[5])[:4], rel=1e-3)


def test_the_mass_and_the_length_of_documents_by_eye() -> None:
    """Of 4, 3, 2, 1 the first two hold .7; the sums are 10 and 2, so that L / L̄ is 10 / 6 and 2 / 6."""
    vectors = sparse.csr_matrix(np.array([[1.0, 4, 3, 2], [0, 2, 0, 0]], dtype=np.float32))
    kept, removed = pruned(vectors, None, 0.7)
    assert kept.toarray().tolist() == [[0, 4, 3, 0], [0, 2, 0, 0]]
    assert (removed.weights_removed, removed.mass_removed) == (2, 3)
    assert pruned(vectors, 3, 0.95)[0].toarray().tolist() == [[0, 4, 3, 2], [0, 2, 0, 0]]
    tiny_ones = sparse.csr_matrix(np.array([[1e10, 1e-10, 1e-11]], dtype=np.float32))
    assert pruned(tiny_ones, 2)[0].indices.tolist() == [0, 1], "weights that a sum of all loses"
    found = Length(0.7, 0.3, 6.0).divided(kept, row_sums(vectors)).toarray()
    np.testing.assert_allclose(found, [[0, 4 / 1.2, 3 / 1.2, 0], [0, 2 / 0.8, 0, 0]], rtol=1e-6)


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=5, max_size=5), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(1, 5)),
    st.sampled_from([0.2, 0.5, 0.75, 1.0]),
)
def test_of_each_document_the_fewest_weights_stay_that_hold_the_mass(
    rows: list[list[int]], count: int | None, mass: float
) -> None:
    vectors = sparse.csr_matrix(np.array(rows, dtype=np.float32))
    for row, found in zip(rows, pruned(vectors, count, mass)[0].toarray(), strict=True):
        fewest = next(n for n in range(6) if sum(sorted(row)[5 - n :]) >= mass * sum(row))
        assert sorted(found[found > 0]) == sorted(sorted(filter(None, row))[::-1][: min(fewest, count or 5)])


def test_units_are_indexed_by_the_rule(by_rule: Path) -> None:
    """Of the fourth roots of the sums of plain sentence-transformers the largest that hold .85 of their sum, times that
    of IDF, over 1 − b + b L / L̄ with b = n / (n + 1000)."""
    documents = [json.loads(line)["text"] for line in corpus_of(by_rule).open()]
    sums = SparseEncoder(str(by_rule / "model"), device="cpu").encode_document(documents).to_dense().numpy()
    roots = sums**0.25
    largest = -np.sort(-roots, axis=1)
    fewest = (np.cumsum(largest, axis=1) < MASS * roots.sum(1, keepdims=True) - 1e-4).sum(1)
    kept = np.where(roots >= largest[np.arange(len(documents)), fewest][:, None], roots, 0)
    weighted = kept * idf_weights((kept > 0).sum(0), len(documents), "geng") ** 0.25
    b = (kept > 0).sum(1).mean() / ((kept > 0).sum(1).mean() + LONG)
    wanted = weighted / (1 - b + b * weighted.sum(1, keepdims=True) / weighted.sum(1).mean())
    found = indexed(by_rule)
    assert 0.5 < (found > 0).sum() / (sums > 0).sum() < 0.95
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)


def test_the_rule_is_for_units_and_gives_way_to_settings(by_rule: Path, encoder: SparseEncoder) -> None:
    units, tokens = (Dimensions.of(each) for each in (load_encoder(str(by_rule / "model")), encoder))
    assert rule_of(units, IndexSection(), 250) == ("geng-root", MASS, 0.2)
    assert rule_of(tokens, IndexSection(), 250) == ("none", 1, 0)
    settings = IndexSection(document_weighting="geng", mass=0.5, length=0.1)
    assert {rule_of(each, settings, 250) for each in (units, tokens)} == {("geng", 0.5, 0.1)}
    assert rule_of(units, IndexSection(document_weighting="none", mass=1, length=0), 250) == ("none", 1, 0)


# outside of runs

RUNS = {
    "by_rule": ([], []),
    "own_tokens": (
        ["--max-length", "32", "--top-dimensions", "48"],
        ["own_tokens=true", "top_dimensions=12", "document_weighting=geng"],
    ),
    "saturated": (["--top-dimensions", "16"], ["top_dimensions=4", "document_weighting=geng"]),
}


@pytest.mark.parametrize("name", RUNS)
def test_an_index_outside_of_runs_is_the_same(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    made, (options, settings) = request.getfixturevalue(name), RUNS[name]
    for arguments in (
        ["encode", made / "model", corpus_of(made), "--out", tmp_path / "vectors", *options],
        ["index", tmp_path / "vectors", "--out", tmp_path / "index", *(f"--set={each}" for each in settings)],
    ):
        succeeds(*arguments)
    found = matrix(ExactIndex.load(generation_of(tmp_path / "index") / "postings"))
    np.testing.assert_allclose(found, indexed(made), rtol=1e-3)


@pytest.mark.parametrize("name", RUNS)
def test_an_export_encodes_further_documents_as_the_index_holds_them(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made, out = request.getfixturevalue(name), tmp_path / "out"
    assert " vectors of documents over " in succeeds("export", made, "--for", "qdrant", "--out", out).stdout
    texts = [json.loads(line)["text"] for line in corpus_of(made).open(encoding="utf-8")][:40]
    said = python("encode.py", "--document", *texts, cwd=out)
    for line, row in zip(said.splitlines(), indexed(made)[:40], strict=True):
        found = {int(number): weight for number, weight in json.loads(line).items()}
        assert found == pytest.approx({int(number): float(row[number]) for number in row.nonzero()[0]}, rel=1e-3)


def test_the_share_that_is_kept_is_chosen_when_documents_are_encoded(by_rule: Path, tmp_path: Path) -> None:
    """Of the fourth roots of sums as few as hold it; the index takes no other."""
    roots = {}
    for share in ("1", "0.5"):
        folder = tmp_path / share
        succeeds("encode", by_rule / "model", corpus_of(by_rule), "--out", folder, "--mass", share)
        vectors = read_vectors(folder / "vectors")
        roots[share] = sparse.csr_matrix((vectors.data**0.5, vectors.indices, vectors.indptr), vectors.shape)
    sums, held = row_sums(roots["1"]), row_sums(roots["0.5"])
    least = np.array([row.data.min() for row in roots["0.5"]])
    assert (held >= 0.5 * sums * (1 - 1e-6)).all()
    assert (held - least < 0.5 * sums * (1 + 1e-6)).all()
    refused = invoke("index", tmp_path / "0.5", "--out", tmp_path / "index", "--set=mass=0.7")
    assert "vtkit encode --mass" in str(refused.exception)
    succeeds("index", tmp_path / "0.5", "--out", tmp_path / "index")
