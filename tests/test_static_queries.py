"""The queries of an inference-free encoder without its documents' side: the same vectors, and nothing heavy loaded."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from command_line import python
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from support import refused
from tiny import TOKENS, collection, encoder, shuffled, tokenizer, write_collection
from transformers import AutoTokenizer

import vtkit
from vtkit.api import encode_texts, index_vectors
from vtkit.encoder.asymmetric import output_tokenizer, with_sides
from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.folding import set_folding
from vtkit.encoder.query_tables import binary_weights, idf_query_weights, with_query_table
from vtkit.encoder.sides import encode_side
from vtkit.encoder.static_queries import StaticQueries
from vtkit.encoder.transformer_queries import TransformerQueries
from vtkit.system.errors import DataError
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.tokenizer_file import TokenizerFile, tokenizer_digest

DOCUMENTS = [document.contents for document in collection(30, seed=3).documents]


@pytest.fixture(scope="module", params=[None, "BertTokenizer"])
def model(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """An encoder whose queries take a table of IDF, with a prompt for its documents and more rows than tokens.

    A tokenizer of its own class, which BERT's models have, is rebuilt when it is loaded, and then lower-cases.
    """
    made = tmp_path_factory.mktemp("made")
    plain = encoder(made)
    plain[0].auto_model.resize_token_embeddings(len(TOKENS) + 5)
    plain.prompts = {"document": "pine "}
    save_encoder(with_query_table(plain, idf_query_weights(plain, DOCUMENTS), frozen=True), made / "model")
    if request.param is not None:
        for file in (made / "model").glob("*/tokenizer_config.json"):
            file.write_text(json.dumps({**json.loads(file.read_text()), "tokenizer_class": request.param}))
    return made / "model"


@pytest.fixture(scope="module")
def both(model: Path) -> tuple[StaticQueries, SparseEncoder]:
    static = StaticQueries.load(str(model))
    assert static is not None
    return static, load_encoder(str(model))


@given(
    queries=st.lists(
        st.lists(st.sampled_from([*TOKENS, "fjord", "River", "7", "."]), max_size=12).map(" ".join), max_size=4
    ),
    length=st.integers(1, 20),
)
def test_vectors_are_those_of_the_whole_encoder(
    both: tuple[StaticQueries, SparseEncoder], queries: list[str], length: int
) -> None:
    static, whole = both
    found, wanted = static.encode(queries, length), encode_side(whole, queries, "query", length)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found.toarray(), wanted.toarray())
    assert tokenizer_digest(static.output_tokenizer) == tokenizer_digest(output_tokenizer(whole))


def test_a_query_by_hand(tmp_path: Path) -> None:
    plain = encoder(tmp_path)
    weights = binary_weights(plain)
    weights[TOKENS.index("river")] = 2.5
    with_table = with_query_table(plain, weights, frozen=True)
    with_table.prompts["query"] = "oak "
    save_encoder(with_table, tmp_path / "model")
    static = StaticQueries.load(str(tmp_path / "model"))
    (row,) = static.encode(["river river stone"], 64).toarray()
    assert {TOKENS[place]: row[place] for place in np.flatnonzero(row)} == {"oak": 1, "river": 2.5, "stone": 1}


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_tokenizer_file_is_what_transformers_makes_of_it(side: str, tmp_path: Path) -> None:
    made = tokenizer()
    made.truncation_side = side
    made.save_pretrained(str(tmp_path))
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text("utf-8"))
    ours, theirs = TokenizerFile.load(tmp_path, settings), AutoTokenizer.from_pretrained(str(tmp_path))
    assert tokenizer_digest(ours) == tokenizer_digest(theirs)
    assert len(ours) == len(theirs)
    assert ours.model_max_length == theirs.model_max_length
    assert Vocabulary(ours).special == Vocabulary(theirs).special
    assert Vocabulary(ours).legible == Vocabulary(theirs).legible
    assert ours.cls_token == "[CLS]"
    assert ours.bos_token is None
    queries = ["river stone river", "", "Ünknown stone", " ".join(TOKENS[10:60])]
    for options in ({}, {"add_special_tokens": False}):
        for length in (3, 8):
            cut = theirs(queries, truncation=True, max_length=length, **options)["input_ids"]
            assert ours(queries, truncation=True, max_length=length, **options) == {"input_ids": cut}
        whole = theirs(queries, **options)["input_ids"]
        assert ours(queries, **options) == {"input_ids": whole}


def test_a_file_that_transformers_would_change_is_left_to_it(model: Path) -> None:
    plain, rebuilt = StaticQueries.load(str(model)), StaticQueries.load(str(model), "another digest")
    of_bert = "BertTokenizer" in (model / "query_0_SparseStaticEmbedding" / "tokenizer_config.json").read_text("utf-8")
    for found in (plain, rebuilt):
        assert isinstance(found.tokenizer, TokenizerFile) is not of_bert


def with_binary(made: SparseEncoder) -> SparseEncoder:
    return with_query_table(made, binary_weights(made), frozen=True)


def other(kind: str, made: SparseEncoder) -> SparseEncoder:
    """An encoder whose queries cannot be looked up in a table alone."""
    match kind:
        case "folded":
            set_folding(made, True)
            return with_binary(made)
        case "limited":
            made.max_active_dims = 3
            return with_binary(made)
        case "of another vocabulary":
            return with_binary(with_sides(made, made, output=tokenizer(shuffled(3))))
        case "of two models":
            return with_sides(made, made, made)
    return made


@pytest.mark.parametrize("kind", ["shared", "folded", "limited", "of another vocabulary", "of two models"])
def test_other_encoders_are_left_to_the_loader(kind: str, tmp_path: Path) -> None:
    save_encoder(other(kind, encoder(tmp_path)), tmp_path / "model")
    assert StaticQueries.load(str(tmp_path / "model")) is None


def test_damage_is_told(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "query_0_SparseStaticEmbedding" / "model.safetensors").write_bytes(b"\x08")
    refused(DataError, r"query table of .* cannot be loaded", StaticQueries.load, str(tmp_path / "model"))
    refused(DataError, "there is no such folder", StaticQueries.load, str(tmp_path / "gone"))


SEARCH = """
import sys
from vtkit.cli import main
*unneeded, folder = sys.argv[1:]
sys.argv = ["vtkit", "search", folder, "river stone", "--json"]
try:
    main()
finally:
    assert not set(unneeded) & set(sys.modules), "a search of this index needs none of them"
"""


def test_a_search_imports_neither_torch_nor_what_loads_models(model: Path, tmp_path: Path) -> None:
    vtkit.encode_texts(model, write_collection(tmp_path / "beir", collection(30, seed=3)), tmp_path / "vectors")
    vtkit.index_vectors(tmp_path / "vectors", tmp_path / "index")
    root = str(Path(vtkit.__file__).parents[1])
    unneeded = ["torch", "sentence_transformers"]
    if "BertTokenizer" not in (model / "query_0_SparseStaticEmbedding" / "tokenizer_config.json").read_text("utf-8"):
        unneeded.append("transformers")  # which alone knows how BERT's tokenizer is built anew
    found = json.loads(python("-c", SEARCH, *unneeded, tmp_path / "index", PYTHONPATH=root))
    query = encode_side(load_encoder(str(model)), ["river stone"], "query", 64)
    assert found["tokens"] == [[TOKENS[place], pytest.approx(weight, abs=1e-4)] for weight, place in sorted(
        zip(query.data, query.indices, strict=True), reverse=True)]  # fmt: skip


# A query encoded with transformers alone has the vector that the whole encoder gives it.


ARCHITECTURES = ("bert", "distilbert", "roberta", "modernbert")
QUERIES = [*tiny.texts(20), "", "one"]


def change(file: Path, **settings: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **settings}), encoding="utf-8")


@pytest.mark.parametrize(("pooling", "activation"), [("max", "relu"), ("max", "log1p_relu"), ("sum", "relu")])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_transformer_of_queries_alone_gives_the_vectors_of_the_whole_encoder(
    architecture: str, pooling: str, activation: str, tmp_path: Path
) -> None:
    model = tiny.model(architecture)
    made = as_sparse_encoder(model, tiny.tokenizer(), tmp_path / "work", pooling, activation)
    made.prompts["query"] = "query "
    save_encoder(made, tmp_path / "model")
    whole = load_encoder(str(tmp_path / "model"))
    light = TransformerQueries.load(str(tmp_path / "model"), tokenizer_digest(whole.tokenizer))
    for length in (5, 64):
        expected = encode_side(whole, QUERIES, "query", length)
        assert expected.nnz
        found = light.encode(QUERIES, length)
        assert found.shape == expected.shape
        assert np.allclose(found.toarray(), expected.toarray(), atol=1e-6)


def test_what_a_query_side_alone_cannot_do_is_left_to_the_whole_encoder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    encoder = tiny.encoder(tmp_path / "work")
    digest = tokenizer_digest(encoder.tokenizer)

    def loads() -> bool:
        return TransformerQueries.load(str(folder), digest) is not None

    save_encoder(encoder, folder)
    assert loads()
    change(folder / "config_sentence_transformers.json", max_active_dims=3)
    assert not loads()
    set_folding(encoder, True)
    save_encoder(encoder, tmp_path / "folded")
    assert TransformerQueries.load(str(tmp_path / "folded"), digest) is None


def test_a_search_neither_imports_sentence_transformers_nor_looks_for_garbage_in_libraries(tmp_path: Path) -> None:
    save_encoder(tiny.encoder(tmp_path / "work"), tmp_path / "model")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(tiny.texts(10)), encoding="utf-8")
    encode_texts(str(tmp_path / "model"), texts, tmp_path / "vectors")
    index_vectors(tmp_path / "vectors", tmp_path / "index")
    script = (
        "import gc, sys; from vtkit.cli import main; sys.argv = ['vtkit', 'search', 'index', 'one']\n"
        "passes = []; gc.callbacks.append(lambda phase, found: passes.append(found['generation']))\n"
        "try: main()\nexcept SystemExit as ended: assert not ended.code\n"
        "assert 'sentence_transformers' not in sys.modules\n"
        "assert gc.isenabled() and len(gc.get_objects()) < gc.get_freeze_count()\n"
        "assert 2 not in passes"
    )
    python("-c", script, cwd=tmp_path)


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {"prompts": {"search": "oak "}, "default_prompt_name": "search"},
        {"prompts": {"query": None, "search": "oak "}, "default_prompt_name": "search"},
        {"prompts": {"query": "river ", "passage": "pine "}, "default_prompt_name": "query"},
        {"prompts": {"document": "pine "}, "default_prompt_name": None},
    ],
)
def test_prompts_are_chosen_as_the_library_chooses_them(table: bool, settings: dict[str, Any], tmp_path: Path) -> None:
    plain = encoder(tmp_path)
    whole = with_query_table(plain, idf_query_weights(plain, DOCUMENTS), frozen=True) if table else plain
    save_encoder(whole, tmp_path / "model")
    file = tmp_path / "model" / "config_sentence_transformers.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | settings))
    name, owner = str(tmp_path / "model"), SparseEncoder(str(tmp_path / "model"), device="cpu")
    queries = ["stone willow", "river"]
    wanted = owner.encode_query(queries).to_dense().numpy()
    loaded = load_encoder(name)
    light = StaticQueries.load(name) if table else TransformerQueries.load(name, tokenizer_digest(loaded.tokenizer))
    assert light is not None
    for found in (light.encode(queries, 48), encode_side(loaded, queries, "query", 48)):
        np.testing.assert_allclose(found.toarray(), wanted, rtol=1e-5, atol=1e-6)
    found = encode_side(loaded, queries, "document", 48)
    np.testing.assert_allclose(found.toarray(), owner.encode_document(queries).to_dense().numpy(), rtol=1e-5, atol=1e-6)


def test_an_encoder_in_memory_has_the_prompts_that_the_library_gives_it(tmp_path: Path) -> None:
    plain = encoder(tmp_path)
    plain.prompts, plain.default_prompt_name = {"passage": "pine ", "search": "oak "}, "search"
    for side, owner in (("query", plain.encode_query), ("document", plain.encode_document)):
        found = encode_side(plain, ["stone willow"], side, 48)
        np.testing.assert_allclose(found.toarray(), owner(["stone willow"]).to_dense().numpy(), rtol=1e-5, atol=1e-6)
