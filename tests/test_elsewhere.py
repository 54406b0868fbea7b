"""Saved models read where vtkit is not installed: by transformers 4.57 with the sentence-transformers of that time, in
an environment that the Makefile makes, and by the newest of both.

Every kind of encoder gives the same vectors there, and every tokenizer the same token ids. One process for each version
reads all folders; together with making them that takes 35 seconds of one core.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import layouts
import numpy as np
import pytest
import torch
from command_line import python
from families import FAMILIES, LONGER, OUTPUT, UNTIED, moved, source_of
from scipy.sparse import csr_matrix
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from tiny import CASED, TOKENS, collection, encoder, shuffled, texts, tokenizer
from transformers import (
    AutoModelForMaskedLM,
    BertTokenizer,
    ModernBertConfig,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
)

from vtkit.encoder.asymmetric import WholeEncoder, query_table, with_sides
from vtkit.encoder.calibration import TokenTargets, calibrate
from vtkit.encoder.casing import change_encoder, change_tokenizer
from vtkit.encoder.checkpoint import as_sparse_encoder, save_encoder
from vtkit.encoder.families import as_array, with_plain_head
from vtkit.encoder.folding import fold_map_of, fold_vectors, folds
from vtkit.encoder.query_tables import filled_up, with_query_table, with_static_queries
from vtkit.encoder.sides import encode_side
from vtkit.settings.casing import CasingSection
from vtkit.vocabulary.saved import save_tokenizer

ROOT = Path(__file__).resolve().parent.parent
OLDER = ROOT / ".venv-4.57" / "bin" / "python"
PYTHONS = {"4.57": str(OLDER), "newest": sys.executable}
NEWER_FAMILIES = {"jina-v3", "nomic"}
"""Architectures that transformers has only since 5."""

TEXTS = [
    *texts(4),
    "",
    "River RIVER oslo Oslo rIVER the wild 서울",
    "Ünknown 字 river [MASK] [CLS] <mask>oak <mask> stone",
    "  two  spaces, and it's (done). ",
    " ".join(["willow"] * 60),
]
DOCUMENTS = [document.contents for document in collection(48, seed=4).documents]


def cased(folder: Path, **casing: Any) -> SparseEncoder:
    ours = encoder(folder, tokens=CASED)
    change_encoder(ours, CasingSection(**casing))
    return ours


def calibrated(folder: Path) -> SparseEncoder:
    ours = encoder(folder, "distilbert")
    targets = TokenTargets(np.arange(len(TOKENS)), 500, 0.5, 1.0)
    calibrate(ours, DOCUMENTS, 0.02, "pooled", 48, shift=0.1, tokens=targets)
    return ours


def table_and_casing(folder: Path, output: Any) -> SparseEncoder:
    ours = with_static_queries(encoder(folder, tokens=CASED), "idf", DOCUMENTS)
    change_encoder(ours, CasingSection(input="lowercase", output=output))
    return ours


def learned(folder: Path) -> WholeEncoder:
    weights = np.random.default_rng(0).gamma(1.0, size=len(TOKENS)).astype(np.float32)
    ours = with_query_table(encoder(folder, "roberta", activation="log1p_relu"), weights, frozen=False)
    ours.prompts["document"] = "oak "
    return ours


def two_models(folder: Path, *, shared: bool) -> WholeEncoder:
    """Queries by a model of their own; ``shared``: by the documents', with another pooling."""
    documents, queries = encoder(folder / "documents"), encoder(folder / "queries", seed=1, pooling="sum")
    pair, prompts = [documents[0], queries[1]] if shared else list(queries), {"query": "river ", "document": ""}
    asking = SparseEncoder(modules=pair, device="cpu", prompts=prompts)
    return with_sides(documents, documents, asking, prompts=prompts)


def limited(folder: Path) -> SparseEncoder:
    ours = encoder(folder, "distilbert", pooling="sum", activation="log1p_relu")
    ours.prompts, ours.max_active_dims, ours.max_seq_length = {"query": "oak ", "document": "river "}, 9, 12
    return ours


def rotated(folder: Path) -> SparseEncoder:
    """ModernBERT with other rotations and another pattern of attention than the defaults of either version."""
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=len(TOKENS), hidden_size=32, intermediate_size=48, num_hidden_layers=5, num_attention_heads=2,
        max_position_embeddings=48, local_attention=8, pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2,
        sep_token_id=3, global_attn_every_n_layers=2,
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
        },
    )  # fmt: skip
    model = AutoModelForMaskedLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, 0.2)
    return as_sparse_encoder(model, tokenizer(), folder)


def of_family(family: str, *, tied: bool) -> Callable[[Path], SparseEncoder]:
    tokens = shuffled(4, pad=FAMILIES[family][1].get("pad_token_id", 0))
    return lambda folder: as_sparse_encoder(
        with_plain_head(source_of(family, tokens, tied=tied)), tokenizer(tokens), folder
    )


MODELS: dict[str, Callable[[Path], SparseEncoder]] = {
    **{family: of_family(family, tied=True) for family in FAMILIES},
    **{f"{family}, untied": of_family(family, tied=False) for family in UNTIED},
    "modernbert, rotated": rotated,
    "casing: keep": lambda folder: cased(folder),
    "casing: lowercase": lambda folder: cased(folder, input="lowercase"),
    "casing: mask": lambda folder: cased(folder, output="mask"),
    "casing: map": lambda folder: cased(folder, output="map", input="lowercase"),
    "casing: fold": lambda folder: cased(folder, output="fold"),
    "calibrated": calibrated,
    "limited": limited,
    "table: idf": lambda folder: with_static_queries(encoder(folder), "idf", DOCUMENTS),
    "table: binary": lambda folder: with_static_queries(encoder(folder, "modernbert"), "binary", []),
    "table: learned": learned,
    "table: idf, map": lambda folder: table_and_casing(folder, "map"),
    "table: idf, fold": lambda folder: table_and_casing(folder, "fold"),
    "queries: a model": lambda folder: two_models(folder, shared=False),
    "queries: another pooling": lambda folder: two_models(folder, shared=True),
    "head only": lambda folder: moved(folder, OUTPUT),
    "head only, longer": lambda folder: moved(folder, LONGER, architecture="roberta"),
    "head only, table: binary": lambda folder: with_static_queries(moved(folder, OUTPUT), "binary", []),
}


def of_roberta() -> PreTrainedTokenizerFast:
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    letters = layouts.tokenizer("byte-level").backend_tokenizer.get_vocab()
    tokens = [*specials, *sorted(token for token in letters if len(token) == 1), "Ġo", "ak"]
    return RobertaTokenizer({token: n for n, token in enumerate(tokens)}, [("Ġ", "o"), ("a", "k")])


def from_the_left() -> PreTrainedTokenizerFast:
    made = tokenizer()
    made.add_special_tokens({"extra_special_tokens": ["oslo", "<q>"]})
    made.padding_side = made.truncation_side = "left"
    made.model_max_length = 17
    made(TEXTS, padding=True, truncation=True, max_length=9)  # leaves its marks in the library's tokenizer.json
    return made


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    **{kind: lambda kind=kind: layouts.tokenizer(kind) for kind in layouts.KINDS},
    "BertTokenizer": lambda: BertTokenizer({token: n for n, token in enumerate(TOKENS)}, do_lower_case=True),
    "BertTokenizer, cased": lambda: BertTokenizer({token: n for n, token in enumerate(CASED)}, do_lower_case=False),
    "RobertaTokenizer": of_roberta,
    "lowercase": lambda: change_tokenizer(tokenizer(CASED), CasingSection(input="lowercase"))[0],
    "map": lambda: change_tokenizer(tokenizer(CASED), CasingSection(input="lowercase", output="map"))[0],
    "filled up": lambda: filled_up(tokenizer(), 140),
    "from the left": from_the_left,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, SparseEncoder]]:
    """Where everything is saved, and the encoders themselves."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "texts.json").write_text(json.dumps(TEXTS), encoding="utf-8")
    made = {}
    for name, make in MODELS.items():
        made[name] = make(folder / "work" / name)
        save_encoder(made[name], folder / "models" / name)
    for name, make_tokenizer in TOKENIZERS.items():
        save_tokenizer(make_tokenizer(), folder / "tokenizers" / name)
    return folder, made


@pytest.fixture(scope="module", params=PYTHONS)
def read(request: pytest.FixtureRequest, saved: tuple[Path, Any]) -> dict[str, Any]:
    """What another process read, in which vtkit cannot be imported."""
    version, (folder, _) = request.param, saved
    if version == "4.57" and not OLDER.exists():
        pytest.skip("needs an environment with transformers 4.57: make .venv-4.57/.installed (from the package index)")
    out = folder / f"{version}.json"
    reader, clean = ROOT / "tests" / "plain_reader.py", ("PYTHONPATH",)
    python(reader, folder, out, cwd=folder, program=PYTHONS[version], without=clean, HF_HUB_OFFLINE="1")
    found: dict[str, Any] = json.loads(out.read_text("utf-8"))
    assert found["versions"][0].startswith("4.57." if version == "4.57" else "5.")
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_encoder_gives_the_same_vectors_elsewhere(
    name: str, read: dict[str, Any], saved: tuple[Path, dict[str, SparseEncoder]]
) -> None:
    found, ours = read["models"][name], saved[1][name]
    if name in NEWER_FAMILIES and read["versions"][0].startswith("4."):
        assert "does not recognize this architecture" in found
        return
    assert isinstance(found, dict), found
    fold = folds(ours)
    for side in ("query", "document"):
        vectors = np.array(found[side], dtype=np.float32)
        if fold:  # the one thing that only vtkit does
            vectors = fold_vectors(csr_matrix(vectors), fold_map_of(ours)).toarray()
        wanted = encode_side(ours, TEXTS, side, 1000).toarray()
        assert (wanted > 0).any()
        np.testing.assert_allclose(vectors, wanted, rtol=1e-5, atol=1e-5, err_msg=side)
    pooling = ours[1]
    if (pooling.pooling_strategy, pooling.activation_function, ours.max_active_dims) == ("max", "relu", None):
        # the root is a plain Hugging Face folder of the document side
        assert not ours.prompts.get("document")
        np.testing.assert_allclose(found["splade"], found["document"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_saved_tokenizer_gives_its_tokens_elsewhere(name: str, read: dict[str, Any], saved: tuple[Path, Any]) -> None:
    found, ours = read["tokenizers"][name], TOKENIZERS[name]()
    assert isinstance(found, dict), found
    padded = ours(TEXTS, padding=True, truncation=True, max_length=20)
    assert found["ids"] == ours(TEXTS)["input_ids"]
    assert found["words"] == ours(TEXTS, add_special_tokens=False)["input_ids"]
    assert found["padded"] == {output: padded[output] for output in sorted(padded)}
    assert found["vocabulary"] == ours.get_vocab()
    assert found["special tokens"] == ours.special_tokens_map
    assert found["all special ids"] == sorted(set(ours.all_special_ids))
    assert found["longest"] == ours.model_max_length
    assert found["sides"] == [ours.padding_side, ours.truncation_side]
    folder = saved[0] / "tokenizers" / name
    assert json.loads((folder / "tokenizer_config.json").read_text("utf-8"))["tokenizer_class"] == (
        "PreTrainedTokenizerFast"
    )
    listed = json.loads((folder / "special_tokens_map.json").read_text("utf-8"))
    named = {role: token["content"] if isinstance(token, dict) else token for role, token in listed.items()}
    extra = named.pop("additional_special_tokens", [])
    assert (named, extra) == (ours.special_tokens_map, ours.extra_special_tokens)


@pytest.mark.parametrize("name", [name for name in MODELS if "table" in name])
def test_a_folder_with_a_query_table_is_laid_out_as_opensearchs(
    name: str, saved: tuple[Path, dict[str, SparseEncoder]]
) -> None:
    folder = saved[0] / "models" / name
    router = json.loads((folder / "router_config.json").read_text("utf-8"))
    query, document = "query_0_SparseStaticEmbedding", "document_1_SpladePooling"
    assert router["structure"] == {"query": [query], "document": ["", document]}
    assert {path.name for path in folder.iterdir() if path.is_dir()} - {"output_tokenizer"} == {query, document}
    table = query_table(saved[1][name])
    listed = SparseStaticEmbedding.from_json(str(folder / "idf.json"), table.tokenizer)
    np.testing.assert_array_equal(as_array(listed.weight), as_array(table.weight))
    assert len(json.loads((folder / "idf.json").read_text("ascii"))) == len(table.weight)
