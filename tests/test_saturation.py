"""Documents of summed units, saturated as BM25 saturates term frequencies."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from command_line import invoke
from scipy import sparse
from sentence_transformers import SparseEncoder

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.encoder.checkpoint import load_encoder
from vtkit.encoder.idf import IDF, idf_weights
from vtkit.encoder.saturation import FILE, K1, B, Saturation, saturates
from vtkit.pipeline.run import run as run_recipe
from vtkit.search.analysers import analyser
from vtkit.search.bm25 import bm25_impacts
from vtkit.search.exact import ExactIndex

TEXTS = ["maple raven maple", "raven", "maple raven stone river river river", "stone"]


def test_saturated_counts_times_idf_are_the_impacts_of_bm25() -> None:
    cut = analyser("en", "words")
    wanted, terms = bm25_impacts(TEXTS, cut)
    counts = terms.counts(TEXTS).astype(np.float32)
    mean = counts.sum() / len(TEXTS)
    frequencies = np.bincount(counts.indices, minlength=counts.shape[1])
    found = Saturation(0.9, cut.b, float(mean)).applied(counts).multiply(idf_weights(frequencies, len(TEXTS), "geng"))
    np.testing.assert_allclose(found.toarray(), wanted.toarray(), rtol=1e-5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose units are summed, with IDF and the ten largest weights of a document."""
    place = tmp_path_factory.mktemp("summed")
    tiny.embedder(place / "embedder")
    documents = [Document(f"d{number}", "", text) for number, text in enumerate(tiny.texts(300, seed=1))]
    found = RetrievalSet("set", documents, [Query("q", documents[3].text)], {"q": {"d3": 1}})
    tiny.write_collection(place / "set", found)
    (place / "summed.toml").write_text("""\
[recipe]
name = "summed"
language = "en"
[source]
model = "./embedder"
steps = 100
texts = 300
corpus = ["./set"]
units = {size = 64, active = 4, pooling = "sum"}
[vocabulary]
kind = "source"
[index]
top_dimensions = 10
document_weighting = "geng"
[evaluate]
sets = ["./set"]
models = ["transfer"]
""")
    return run_recipe(place / "summed.toml", runs=place / "runs", threads=1)


def held(postings: Path) -> np.ndarray:
    """The documents of an index, (documents, units)."""
    index = ExactIndex.load(postings)
    return sparse.csc_matrix((index.weights, index.documents, index.starts)).toarray()


def indexed(run: Path) -> np.ndarray:
    return held(run / "index" / "set" / "postings")


def test_an_index_holds_saturated_sums(run: Path) -> None:
    """Those of plain sentence-transformers, by the equation: largest forty, saturated, weighted, largest ten."""
    plain = SparseEncoder(str(run / "model"), device="cpu")
    assert plain[1].pooling_strategy == "sum"
    assert saturates(load_encoder(str(run / "model")))
    documents = [json.loads(line)["text"] for line in (run.parents[1] / "set" / "corpus.jsonl").open()]
    sums = plain.encode_document(documents).to_dense().numpy()
    kept = np.where(sums >= -np.sort(-sums, axis=1)[:, 39:40], sums, 0)
    lengths = kept.sum(1, keepdims=True) / kept.sum(1).mean()
    factors = idf_weights((kept > 0).sum(0), len(documents), "geng")
    wanted = kept / (kept + K1 * (1 - B + B * lengths)) * factors
    place = run / "index" / "set"
    assert np.load(place / IDF) == pytest.approx(factors)
    vectors = indexed(run)
    assert (vectors > 0).sum(1).max() <= 10
    np.testing.assert_allclose(vectors[vectors > 0], wanted[vectors > 0], rtol=1e-3)
    assert -np.sort(-vectors[5])[:10] == pytest.approx(-np.sort(-wanted[5])[:10], rel=1e-3)


def test_an_index_outside_a_run_is_saturated_too(run: Path, tmp_path: Path) -> None:
    corpus = str(run.parents[1] / "set" / "corpus.jsonl")
    vectors, index = (str(tmp_path / name) for name in ("vectors", "index"))
    encoded = ["encode", str(run / "model"), corpus, "--out", vectors, "--top-dimensions", "40"]
    settings = ["--set", "top_dimensions=10", "--set", "document_weighting=geng"]
    for arguments in (encoded, ["index", vectors, "--out", index, *settings]):
        done = invoke(*arguments)
        assert done.exit_code == 0, done.output
    np.testing.assert_allclose(held(tmp_path / "index" / "postings"), indexed(run), rtol=1e-3)


def test_an_export_encodes_further_documents_as_the_index_holds_them(run: Path, tmp_path: Path) -> None:
    assert (run / "index" / "set" / FILE).is_file()
    done = invoke("export", str(run), "--for", "qdrant", "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    text = json.loads((run.parents[1] / "set" / "corpus.jsonl").open().readline())["text"]
    command = [sys.executable, "encode.py", "--document", text]
    said = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, encoding="utf-8", env=os.environ)
    assert said.returncode == 0, said.stderr
    found = {int(number): weight for number, weight in json.loads(said.stdout).items()}
    row = indexed(run)[0]
    assert found == pytest.approx({int(number): float(row[number]) for number in row.nonzero()[0]}, rel=1e-3)
