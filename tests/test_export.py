"""Models and indexes handed over to engines: what they get ranks as vtkit does, and runs where vtkit is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import scipy.sparse as sp
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from tokenizers import Tokenizer

from vtkit import export_for, load_encoder
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.folding import set_folding
from vtkit.errors import RecipeError
from vtkit.export import documents
from vtkit.export.documents import Collection, Entry
from vtkit.export.network import MODEL, TermWeights, check_onnx, fold_members, write_onnx
from vtkit.runs.run import run
from vtkit.runs.search import open_searcher
from vtkit.search.exact import ExactIndex
from vtkit.search.searcher import Documents

CASED = (*tiny.TOKENS, "Apple", "APPLE", "Raven", "##Ing")


def program(folder: Path, *arguments: str, **environment: str) -> str:
    """What a program of an export prints, run as its user runs it, from another folder and without this vtkit."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(folder / arguments[0]), *arguments[1:]],
        env=clean | environment, cwd=folder.parent, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def replayed(folder: Path, **environment: str) -> float:
    """The share of expected results that ``index.py replay`` finds."""
    found = re.search(r"(\d+) of (\d+) results as expected", program(folder, "index.py", "replay", **environment))
    assert found is not None
    assert int(found[2]) > 0
    return int(found[1]) / int(found[2])


@pytest.fixture(scope="module")
def transferred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose queries have a table, calibrated, in one index with BM25's terms."""
    folder = tmp_path_factory.mktemp("transferred")
    save_encoder(tiny.encoder(folder / "work"), folder / "encoder")
    tiny.tokenizer(tiny.shuffled(1)).save_pretrained(str(folder / "target"))
    collection = tiny.collection(60)
    tiny.write_collection(folder / "collection", collection)
    tiny.add_training_queries(folder / "collection", collection)
    (folder / "tiny.toml").write_text(
        '[recipe]\nname = "tiny"\nlanguage = "en"\n[source]\nmodel = "./encoder"\n'
        '[vocabulary]\nkind = "existing"\ntokenizer = "./target"\n[transfer]\nmethod = "subtoken"\n'
        '[calibrate]\ntarget_activation = 0.2\ndefinition = "pooled"\ncorpus = ["collection"]\nquery_encoder = "idf"\n'
        '[index]\nlexical = "bm25"\n[evaluate]\nsets = ["collection"]\n',
        "utf-8",
    )
    return run(folder / "tiny.toml", runs=folder / "runs", threads=1)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose queries are encoded as documents are, without BM25's terms."""
    return tiny.finished_run(tmp_path_factory.mktemp("plain"), tiny.collection(40, seed=3))


def by_engine(logits: Any, mask: Any) -> Any:
    """What engines make of logits by themselves."""
    return (np.log1p(np.maximum(logits, 0)) * mask[..., None]).max(axis=1)


@pytest.mark.parametrize(
    ("settings", "fold", "kept"),
    [
        *(({"architecture": name}, None, None) for name in tiny.ARCHITECTURES),
        ({"activation": "log1p_relu"}, None, None),
        ({"pooling": "sum"}, None, None),
        ({"tokens": CASED}, "max", None),
        ({"tokens": CASED}, "sum", None),
        ({}, None, 9),
    ],
    ids=str,
)
def test_the_onnx_file_gives_the_vectors_of_the_encoder(
    tmp_path: Path, settings: dict[str, Any], fold: Any, kept: int | None
) -> None:
    encoder = tiny.encoder(tmp_path, **settings)
    encoder.max_active_dims = kept
    set_folding(encoder, fold)
    write_onnx(encoder, tmp_path)
    texts = ["", "Apple raven APPLE", *tiny.texts(20, words=(1, 30))]
    checked = check_onnx(encoder, tmp_path, texts, 32)
    assert checked.largest_difference < 1e-4
    assert checked.quantised_cosine is not None
    session = onnxruntime.InferenceSession(str(tmp_path / MODEL))
    own = encode(encoder, texts[:4], 32).toarray()
    tokens = encoder.tokenizer(texts[:4], padding=True, return_tensors="np")
    names = {each.name for each in session.get_inputs()}
    logits, weights = session.run(None, {name: tokens[name] for name in names})
    np.testing.assert_allclose(weights, own, atol=1e-4)
    same = np.allclose(by_engine(logits, tokens["attention_mask"]), own, atol=1e-4)
    assert same == TermWeights(encoder).pools_elsewhere


def test_dimensions_that_fold_into_one_by_hand() -> None:
    (first, has_first), (second, has_second) = fold_members(np.asarray([0, 1, 0, 1]))
    assert has_first.tolist() == [True, True, False, False]
    assert first[:2].tolist() == [0, 1]
    assert has_second.tolist() == [True, True, False, False]
    assert second[:2].tolist() == [2, 3]


@given(st.data())
def test_a_part_of_the_postings_is_the_rows_of_the_documents(data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 9))
    dense = np.asarray(
        data.draw(st.lists(st.sampled_from([0.0, 0.0, 0.5, 1.25, 3.0]), min_size=rows * width, max_size=rows * width)),
        dtype=np.float32,
    ).reshape(rows, width)
    index = ExactIndex.build(sp.csr_matrix(dense))
    collection = Collection(index, Documents(Path("unused"), np.arange(rows + 1)))
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    np.testing.assert_array_equal(collection.rows(start, stop).toarray(), dense[start:stop])
    queries = sp.csr_matrix(dense[:3])
    ids, scores = index.search(queries, 4)
    for row, found in enumerate(collection.search(queries, 4)):
        assert [score for _, score in found] == pytest.approx([score for score in scores[row] if score > 0])
        assert {number for number, _ in found} <= set(range(rows))
        assert len(found) == (ids[row] >= 0).sum()


def test_an_export_ranks_as_the_run_where_vtkit_is_not(transferred: Path, plain: Path, tmp_path: Path) -> None:
    for source in (transferred, plain):
        out = tmp_path / source.parent.parent.name / "out"
        exported = export_for(source, "onnx", out)
        assert exported.documents == (60 if source is transferred else 40)
        assert exported.results_kept is None
        program(out, "index.py", "load")
        assert replayed(out) == 1.0
        found = program(out, "index.py", "search", "maple raven", PYTHONPATH=str(Path(__file__).parents[1]))
        wanted = next(open_searcher(source, model=None, collection=None).search(["maple raven"], 10))
        assert [line.split()[2] for line in found.splitlines()] == [result.id for result in wanted.results]


def test_queries_encoded_by_the_export_are_those_of_the_run(transferred: Path, plain: Path, tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("maple raven\nOak, oak!\n쭖 zephyr\n" + "river " * 200 + "\n", "utf-8")
    for source in (transferred, plain):
        out = tmp_path / source.parent.parent.name / "out"
        assert export_for(source, "onnx", out, queries=queries).queries == 4
        said = program(out, "encode.py", "--check", PYTHONPATH=str(Path(__file__).parents[1]))
        assert float(said.split()[-3]) < 1e-4
    vector = json.loads(program(out, "encode.py", "--document", "maple raven"))
    encoder = load_encoder(out)
    own = encode(encoder, ["maple raven"], 48).tocoo()
    assert vector == pytest.approx(dict(zip(map(str, own.col.tolist()), own.data.tolist(), strict=True)), abs=1e-4)


def test_a_folded_table_gives_the_same_queries_outside(tmp_path: Path) -> None:
    from vtkit.encoder.query_tables import binary_weights, with_query_table

    encoder = tiny.encoder(tmp_path, tokens=CASED)
    set_folding(encoder, "sum")
    save_encoder(with_query_table(encoder, binary_weights(encoder), frozen=True), tmp_path / "model")
    queries = tmp_path / "queries.txt"
    queries.write_text("Apple apple raven\nAPPLE\n", "utf-8")
    export_for(tmp_path / "model", "onnx", tmp_path / "out", queries=queries)
    assert float(program(tmp_path / "out", "encode.py", "--check").split()[-3]) == 0
    first = json.loads((tmp_path / "out" / "replay.jsonl").read_text("utf-8").splitlines()[0])
    assert sorted(first["vector"].values()) == [1.0, 2.0]


def test_a_model_alone_is_exported_without_documents(tmp_path: Path) -> None:
    save_encoder(tiny.encoder(tmp_path, "roberta"), tmp_path / "model")
    exported = export_for(tmp_path / "model", "onnx", tmp_path / "out")
    assert exported.documents == 0
    assert not (tmp_path / "out" / "index.py").exists()
    assert float(program(tmp_path / "out", "encode.py", "--check").split()[-3]) < 1e-4
    plain, own = SparseEncoder(str(tmp_path / "out")), SparseEncoder(str(tmp_path / "model"))
    assert torch.equal(plain.encode(["maple"]).to_dense(), own.encode(["maple"]).to_dense())


def test_files_load_in_older_libraries(plain: Path, tmp_path: Path) -> None:
    export_for(plain, "onnx", tmp_path / "out")
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text("utf-8"))
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    special = json.loads((tmp_path / "out" / "special_tokens_map.json").read_text("utf-8"))
    assert special["pad_token"] == "[PAD]"
    assert {"config.json", "model.safetensors"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).truncation is None


def test_an_export_goes_on_where_it_was_killed(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PART_BYTES", 2_000)
    whole, out = tmp_path / "whole", tmp_path / "out"
    export_for(plain, "onnx", whole)
    names = sorted(path.name for path in (whole / "documents").iterdir())
    assert len(names) > 3
    entries = Collection.entries

    def killed(self: Collection, start: int, stop: int) -> Iterator[Entry]:
        yield from entries(self, start, stop)
        if start:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Collection, "entries", killed)
        with pytest.raises(KeyboardInterrupt):
            export_for(plain, "onnx", out)
    assert not out.exists()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / ".out.unfinished").glob("*.onnx")}
    kept |= {path: path.stat().st_mtime_ns for path in (tmp_path / ".out.unfinished").glob("documents/*.jsonl")}
    assert len(kept) == 3
    export_for(plain, "onnx", out)
    assert {out / path.relative_to(tmp_path / ".out.unfinished"): time for path, time in kept.items()} == {
        path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name in {each.name for each in kept}
    }
    for path in whole.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (out / path.relative_to(whole)).read_bytes(), path.name
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "whole"]


def test_half_an_export_of_something_else_is_not_gone_on_with(plain: Path, tmp_path: Path) -> None:
    left = tmp_path / ".out.unfinished"
    (left / "documents").mkdir(parents=True)
    (left / "documents" / "part-00000.jsonl").write_text("of another run")
    (left / ".made_from").write_text("another")
    export_for(plain, "onnx", tmp_path / "out")
    assert "another run" not in (tmp_path / "out" / "documents" / "part-00000.jsonl").read_text("utf-8")


def test_what_cannot_be_exported_is_said(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(RecipeError, match="already exists"):
        export_for(plain, "onnx", tmp_path / "there")
    with pytest.raises(RecipeError, match="no target 'solr'"):
        export_for(plain, "solr", tmp_path / "out")  # type: ignore[arg-type]
    save_encoder(tiny.encoder(tmp_path), tmp_path / "model")
    with pytest.raises(RecipeError, match="--collection are for runs"):
        export_for(tmp_path / "model", "onnx", tmp_path / "out", collection="x")
    with pytest.raises(RecipeError, match="--top-dimensions is for documents"):
        export_for(tmp_path / "model", "onnx", tmp_path / "out", top_dimensions=3)


def test_fewer_dimensions_are_the_largest_and_their_loss_is_measured(plain: Path, tmp_path: Path) -> None:
    exported = export_for(plain, "onnx", tmp_path / "out", top_dimensions=4)
    assert exported.results_kept is not None
    assert 0 < exported.results_kept < 1
    lines = (tmp_path / "out" / "documents" / "part-00000.jsonl").read_text("utf-8").splitlines()
    assert max(len(json.loads(line)["vector"]) for line in lines) == 4
    program(tmp_path / "out", "index.py", "load")
    assert replayed(tmp_path / "out") == 1.0
