"""Encoders in the layouts that the hub has: modules under their older names, routers, and weights in every form.

The reference is plain sentence-transformers, which loads the same folder.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from command_line import python
from hub_server import Hub, serving
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from support import refused
from tokenizers.normalizers import BertNormalizer
from transformers import (
    AutoModelForMaskedLM,
    BigBirdConfig,
    BigBirdForMaskedLM,
)

from vtkit.encoder.asymmetric import query_table
from vtkit.encoder.checkpoint import load_encoder, save_encoder
from vtkit.encoder.dense import encode_dense, load_dense
from vtkit.encoder.model_folder import model_folder, weight_files
from vtkit.encoder.sides import encode_side
from vtkit.encoder.static_queries import StaticQueries
from vtkit.system.errors import DataError
from vtkit.system.runtime import bf16_is_fast
from vtkit.training.teachers import DenseTeacher, SparseTeacher, load_teacher
from vtkit.transfer.embedders import embed
from vtkit.transfer.methods.semantic import load_table

TEXTS = ["river stone amber", "pebble", "the falcon and the heron"]
SHAPE = {
    "vocab_size": len(tiny.TOKENS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 64,
}  # fmt: skip
OLD = "sentence_transformers.sparse_encoder.models"


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def splade(folder: Path, kind: str = f"{OLD}.MLMTransformer", pooling: str = f"{OLD}.SpladePooling") -> Path:
    """A SPLADE as sentence-transformers 5.0 to 5.3 saved it."""
    tiny.bare(folder)
    modules = enumerate([("", kind), ("1_SpladePooling", pooling)])
    parts = {
        "modules": [{"idx": n, "name": str(n), "path": path, "type": of} for n, (path, of) in modules],
        "sentence_bert_config": {"max_seq_length": 32, "do_lower_case": False},
        "config_sentence_transformers": {
            "model_type": "SparseEncoder",
            "__version__": {"sentence_transformers": "5.0.0", "transformers": "4.51.3", "pytorch": "2.7.0"},
            "prompts": {"query": "", "document": ""}, "default_prompt_name": None, "similarity_fn_name": "dot",
        },
        "1_SpladePooling/config": {
            "pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": None,
        },
    }  # fmt: skip
    for name, content in parts.items():
        write(folder / f"{name}.json", content)
    return folder


def router(folder: Path) -> Path:
    """An encoder as OpenSearch publishes them: queries are looked up, the documents' transformer is at the root."""
    splade(folder)
    (folder / "1_SpladePooling").rename(folder / "document_1_SpladePooling")
    write(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}])
    query, document = "query_0_SparseStaticEmbedding", ["", "document_1_SpladePooling"]
    types = zip((query, *document), ("SparseStaticEmbedding", "MLMTransformer", "SpladePooling"), strict=True)
    routes = {
        "types": {path: f"{OLD}.{kind}" for path, kind in types},
        "structure": {"query": [query], "document": document},
        "parameters": {"default_route": "document", "allow_empty_key": True},
    }
    write(folder / "router_config.json", routes)
    weights = torch.linspace(0.1, 6.0, len(tiny.TOKENS))
    SparseStaticEmbedding(tiny.tokenizer(), weights).save(str(folder / query))
    write(folder / query / "config.json", {"frozen": False})
    write(folder / "idf.json", dict(zip(tiny.TOKENS, weights.tolist(), strict=True)))
    (folder / "query_token_weights.txt").write_text("".join(f"{weight}\n" for weight in weights.tolist()))
    return folder


def embedder(folder: Path) -> Path:
    """A dense embedder of a transformer, its mean, and unit vectors."""
    made = tiny.dense(folder / "model")
    shutil.rmtree(made / "2_Normalize", ignore_errors=True)  # git keeps no folder without files
    return made


def state(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def tied(folder: Path) -> dict[str, torch.Tensor]:
    """The weights with the decoder's, which share the memory of the embeddings, as torch.save of a model has them."""
    return AutoModelForMaskedLM.from_pretrained(folder).state_dict()


def pickle_only(folder: Path, weights: dict[str, torch.Tensor] | None = None, *, legacy: bool = False) -> Path:
    weights = state(folder) if weights is None else weights
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    return folder


def pickled_shards(folder: Path) -> Path:
    weights = state(folder)
    (folder / "model.safetensors").unlink()
    shards = {n: f"pytorch_model-0000{n + 1}-of-00003.bin" for n in range(3)}
    places = {name: shards[n % 3] for n, name in enumerate(weights)}
    for shard in shards.values():
        torch.save({name: weights[name] for name in weights if places[name] == shard}, folder / shard)
    size = sum(tensor.nbytes for tensor in weights.values())
    write(folder / "pytorch_model.bin.index.json", {"metadata": {"total_size": size}, "weight_map": places})
    return folder


def older_names(folder: Path) -> Path:
    """LayerNorm's weights as google-bert/bert-base-uncased names them, in safetensors and in the pickle."""
    from safetensors.torch import save_file

    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in state(folder).items()
    }
    assert any(name.endswith("gamma") for name in weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def halved(folder: Path) -> Path:
    from safetensors.torch import save_file

    save_file({n: t.half() for n, t in state(folder).items()}, folder / "model.safetensors", {"format": "pt"})
    write(folder / "config.json", json.loads((folder / "config.json").read_text()) | {"dtype": "float16"})
    return folder


def plain(folder: Path) -> SparseEncoder:
    return SparseEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})


def assert_same(encoder: SparseEncoder, folder: Path) -> None:
    """Both sides of ``encoder`` give the vectors that the library's own encoder gives."""
    reference = plain(folder)
    for side, encode in (("query", reference.encode_query), ("document", reference.encode_document)):
        theirs = encode(TEXTS).to_dense().numpy()
        ours = encode_side(encoder, TEXTS, side, 32).toarray()
        assert np.count_nonzero(theirs) > 0
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


NEW = "sentence_transformers.sparse_encoder.modules"


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [
        (f"{OLD}.MLMTransformer", f"{OLD}.SpladePooling"),
        (f"{OLD}.MLMTransformer.MLMTransformer", f"{OLD}.SpladePooling.SpladePooling"),
        (f"{NEW}.mlm_transformer.MLMTransformer", f"{NEW}.splade_pooling.SpladePooling"),
        (f"{NEW}.MLMTransformer", f"{OLD}.SpladePooling"),
    ],
)
def test_modules_under_older_names_are_those_of_today(kind: str, pooling: str, tmp_path: Path) -> None:
    folder = splade(tmp_path / "model", kind, pooling)
    encoder = load_encoder(str(folder))
    assert_same(encoder, folder)
    assert [type(module) for module in encoder] == [Transformer, SpladePooling]
    assert encoder.max_seq_length == 32
    save_encoder(encoder, tmp_path / "saved")
    types = [module["type"] for module in json.loads((tmp_path / "saved" / "modules.json").read_text())]
    assert types == [f"{OLD}.{name}" for name in ("MLMTransformer", "SpladePooling")]  # which every version reads
    assert_same(load_encoder(str(tmp_path / "saved")), folder)


@pytest.mark.parametrize("form", ["safetensors", "pickle"])
def test_opensearchs_routers_give_the_librarys_vectors_on_both_sides(form: str, tmp_path: Path) -> None:
    folder = router(tmp_path / "model")
    if form == "pickle":
        pickle_only(folder)
    encoder = load_encoder(str(folder))
    assert query_table(encoder) is not None
    assert [type(module) for module in encoder] == [Transformer, SpladePooling]
    assert_same(encoder, folder)
    save_encoder(encoder, tmp_path / "saved")
    assert_same(load_encoder(str(tmp_path / "saved")), folder)


def test_a_router_is_a_sparse_encoder_whose_queries_are_looked_up_without_it(tmp_path: Path) -> None:
    folder = router(tmp_path / "model")
    queries = StaticQueries.load(str(folder))
    theirs = plain(folder).encode_query(TEXTS).to_dense().numpy()
    np.testing.assert_allclose(queries.encode(TEXTS, 32).toarray(), theirs, atol=1e-5)
    assert isinstance(load_teacher(str(folder), (16, 32), "finetune.teachers"), SparseTeacher)
    refused(DataError, "is a sparse encoder", embed, TEXTS, str(folder))


def beside_a_pickle(folder: Path) -> Path:
    (folder / "pytorch_model.bin").write_bytes(b"never opened")
    return folder


FORMS: dict[str, Callable[[Path], Path]] = {
    "safetensors beside a pickle": beside_a_pickle, "gamma and beta": older_names, "half precision": halved,
    "pickle": pickle_only, "pickle in torch's format before 1.6": lambda folder: pickle_only(folder, legacy=True),
    "pickle with tied weights": lambda folder: pickle_only(folder, tied(folder)),
    "pickle with gamma and beta": lambda folder: pickle_only(older_names(folder)),
    "pickle in half precision": lambda folder: pickle_only(halved(folder)), "pickled shards": pickled_shards,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_weights_in_every_form_give_the_librarys_vectors_in_single_precision(form: str, tmp_path: Path) -> None:
    folder = FORMS[form](splade(tmp_path / "model"))
    encoder = load_encoder(str(folder))
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}
    assert_same(encoder, folder)


@pytest.mark.parametrize("form", FORMS)
def test_a_bare_masked_language_model_loads_from_every_form(form: str, tmp_path: Path) -> None:
    """naver/splade-v3's layout, without modules.json."""
    folder = FORMS[form](tiny.bare(tmp_path / "model"))
    expected = load_encoder(str(tiny.bare(tmp_path / "whole"))).encode(TEXTS).to_dense()
    atol = 2e-2 if "half" in form else 1e-5
    torch.testing.assert_close(load_encoder(str(folder)).encode(TEXTS).to_dense(), expected, atol=atol, rtol=0)


def test_an_embedder_in_bge_m3s_layout(tmp_path: Path) -> None:
    folder = pickle_only(embedder(tmp_path))
    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    (folder / "colbert_linear.pt").write_bytes(b"never opened")
    torch.save({"weight": torch.ones(1, 8), "bias": torch.zeros(1)}, folder / "sparse_linear.pt")
    (folder / "sentencepiece.bpe.model").write_bytes(b"beside tokenizer.json")
    write(folder / "onnx" / "config.json", {"model_type": "nothing known"})
    (folder / "onnx" / "model.onnx_data").write_bytes(b"0" * 1000)
    np.testing.assert_allclose(encode_dense(load_dense(str(folder), "embedder"), TEXTS, "query"), expected, atol=1e-5)
    unit = expected[1] / np.linalg.norm(expected[1])
    np.testing.assert_allclose(embed([TEXTS[1]], str(folder))[0], unit, atol=1e-2 if bf16_is_fast() else 1e-5)
    table = load_table(str(folder))[1]
    np.testing.assert_array_equal(table, torch.load(folder / "pytorch_model.bin")["embeddings.word_embeddings.weight"])
    assert isinstance(load_teacher(str(folder), (16, 32), "finetune.teachers"), DenseTeacher)


def test_a_big_bird_in_kobigbirds_layout(tmp_path: Path) -> None:
    """big_bird, with both a tokenizer.json and a vocab.txt."""
    folder = tmp_path / "model"
    torch.manual_seed(3)
    config = BigBirdConfig(**SHAPE, attention_type="original_full", pad_token_id=0, sep_token_id=3)
    BigBirdForMaskedLM(config).save_pretrained(folder)
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.normalizer = BertNormalizer(lowercase=False)
    tokenizer.save_pretrained(str(folder))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tiny.TOKENS))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    write(folder / "tokenizer_config.json", settings | {"tokenizer_class": "BertTokenizer", "do_lower_case": False})
    pickle_only(folder)
    encoder = load_encoder(str(folder))
    assert encoder.tokenizer.tokenize("river stone") == ["river", "stone"]
    reference = SparseEncoder(modules=[Transformer(str(folder), transformer_task="fill-mask"), SpladePooling("max")])
    theirs = reference.encode_document(TEXTS).to_dense().cpu().numpy()
    np.testing.assert_allclose(encode_side(encoder, TEXTS, "document", 32).toarray(), theirs, atol=1e-5)


class Harm:
    """Runs a command when it is opened as a pickle usually is."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self.marker}'",)


def loaders(folder: Path) -> list[Callable[[], object]]:
    return [
        lambda: load_encoder(str(folder)),
        lambda: load_table(str(folder)),
        lambda: load_teacher(str(folder), (16, 32), "finetune.teachers"),
        lambda: embed(["a"], str(folder)),
    ]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("place", ["alone", "among the weights"])
def test_a_pickle_that_would_run_code_runs_none(place: str, legacy: bool, tmp_path: Path) -> None:
    folder, marker = tiny.bare(tmp_path / "model"), tmp_path / "ran"
    harm = Harm(marker)
    content = harm if place == "alone" else {**state(folder), "harm": harm}
    pickle_only(folder, content, legacy=legacy)
    for load in loaders(folder):
        refused(DataError, r"pytorch_model\.bin is refused by .*weights-only.*\.system\)", load)
    assert not marker.exists()


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_pickle_that_was_cut_short_is_damaged(share: float, legacy: bool, tmp_path: Path) -> None:
    folder = pickle_only(tiny.bare(tmp_path / "model"), legacy=legacy)
    file = folder / "pytorch_model.bin"
    os.truncate(file, int(share * file.stat().st_size))
    for load in loaders(folder):
        refused(DataError, r"pytorch_model\.bin is damaged or cut short", load)


@pytest.mark.parametrize("content", [[torch.zeros(2)], {}, {"model": {"weight": torch.zeros(2)}}, {"epoch": 3}])
def test_a_pickle_that_holds_no_weights_says_so(content: object, tmp_path: Path) -> None:
    folder = pickle_only(tiny.bare(tmp_path / "model"), content)
    refused(DataError, r"pytorch_model\.bin does not hold weights", load_encoder, str(folder))


def test_weights_of_another_architecture_and_those_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    """The libraries would make up the weights that are missing, at random."""
    other = tiny.model("distilbert").state_dict()
    loads: list[tuple[Path, Callable[[str], object]]] = [
        (tiny.bare(tmp_path / "encoder"), load_encoder),
        (tiny.cross_encoder(tmp_path / "cross"), lambda name: load_teacher(name, (16, 32), "finetune.teachers")),
        (embedder(tmp_path / "dense"), lambda name: load_dense(name, "embedder")),
    ]
    for folder, load in loads:
        pickle_only(folder, other)
        refused(DataError, r"its weights lack .* tensors of a Bert.*another model's", load, str(folder))
    folder = tiny.bare(tmp_path / "model")
    weights = state(folder)
    next(iter(weights.values()))[0] = torch.nan
    pickle_only(folder, weights)
    refused(DataError, r"weights are not finite numbers", load_encoder, str(folder))


def test_an_index_of_pickled_shards_leads_nowhere_else_and_a_missing_one_is_named(tmp_path: Path) -> None:
    folder = pickled_shards(tiny.bare(tmp_path / "model"))
    shard = folder / "pytorch_model-00002-of-00003.bin"
    shard.unlink()
    with pytest.raises(DataError, match=rf"lacks the shard {re.escape(shard.name)}, which pytorch_model\.bin\.index"):
        load_encoder(str(folder))
    for name in ("../outside.bin", "weights.bin", "model-00001-of-00001.safetensors"):
        write(folder / "pytorch_model.bin.index.json", {"weight_map": {"a": name}})
        refused(DataError, rf"lacks the shard {re.escape(name)}, which", load_encoder, str(folder))


@pytest.mark.parametrize(
    ("name", "kind", "code", "nearest"),
    [
        ("opensearch-neural-sparse-encoding-doc-v3-gte", "new", "Alibaba-NLP/new-impl", "encoding-doc-v3-distill"),
        ("gte-multilingual-base", "new", "Alibaba-NLP/new-impl", "BAAI/bge-m3"),
        ("gte-multilingual-mlm-base", "new", "Alibaba-NLP/new-impl", "FacebookAI/xlm-roberta-base"),
        ("mine", "new", "Alibaba-NLP/new-impl", "gte-modernbert-base"),
        ("mine", "mine", "me/mine", "with an architecture of transformers"),
    ],
)
def test_code_of_a_models_own_is_refused_with_the_nearest_model_that_needs_none(
    name: str, kind: str, code: str, nearest: str, tmp_path: Path
) -> None:
    folder = tiny.bare(tmp_path / name)
    config = json.loads((folder / "config.json").read_text())
    own = {"model_type": kind, "auto_map": {"AutoModel": f"{code}--modeling.NewModel"}}
    write(folder / "config.json", config | own)
    refused(DataError, rf"names code that comes with the model.*{nearest}", model_folder, str(folder))


def test_the_fewest_weights_that_load_are_fetched() -> None:
    assert weight_files(["pytorch_model.bin", "model.safetensors", "model.fp16.safetensors"]) == ["model.safetensors"]
    shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    everything = ["pytorch_model.bin", "model.safetensors.index.json", "tf_model.h5", "flax_model.msgpack", *shards]
    assert weight_files(everything) == ["model.safetensors.index.json", *shards]
    assert weight_files(["embeddings.safetensors", "onnx.bin"]) == ["embeddings.safetensors"]


SCRIPT = """
import json, sys
from vtkit.encoder.model_folder import find_model
from vtkit.system.errors import VtkitError
answers = []
for name in sys.argv[1:]:
    try:
        answers.append(str(find_model(name)))
    except VtkitError as error:
        answers.append(f"{type(error).__name__}: {error}")
print(json.dumps(answers))
"""


def content(folder: Path, *, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in files.items() if name not in without}


def find_on_hub(server: Hub, cache: Path, *names: str) -> list[str]:
    """Where a process that may download finds the models, or what it says."""
    hub = {"HF_ENDPOINT": server.url, "HF_HUB_CACHE": str(cache), "VTKIT_DOWNLOAD": "1"}
    answers: list[str] = json.loads(python("-c", SCRIPT, *names, without=("HF_",), **hub).splitlines()[-1])
    return answers


def test_downloads_fetch_what_loads_and_pickles_only_where_there_are_no_safetensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clutter = {
        "README.md": b"a model", "onnx/model.onnx": b"0" * 2000, "onnx/config.json": b"{}", "tf_model.h5": b"1" * 2000,
        "openvino/openvino_model.bin": b"2" * 2000, "colbert_linear.pt": b"3" * 2000, "training_args.bin": b"4",
        "checkpoint-10/model.safetensors": b"5" * 2000, "checkpoint-10/config.json": b"{}", "modeling_own.py": b"6",
    }  # fmt: skip
    bins, both, routed = (
        pickle_only(splade(tmp_path / "bin")), splade(tmp_path / "both"), router(tmp_path / "routed"),
    )  # fmt: skip
    cache = tmp_path / "hub"
    with serving() as server:
        server.repositories = {
            "a/bin": {"1" * 40: {**content(bins), **clutter}},
            "a/both": {"2" * 40: {**content(both), **clutter, "pytorch_model.bin": b"7" * 2000}},
            "a/routed": {"3" * 40: {**content(routed), **clutter}},
            "a/gated": {"4" * 40: content(both)},
        }
        server.gated.add("a/gated")
        *found, gated, missing = find_on_hub(server, cache, "a/bin", "a/both", "a/routed", "a/gated", "a/nothing")
        url = server.url
    unread = ("idf.json", "query_token_weights.txt")
    for folder, original in zip(found, (bins, both, routed), strict=True):
        assert content(Path(folder)) == content(original, without=unread)
    assert re.search(r"gated: accept its terms at https://huggingface\.co/a/gated, log in with: hf auth login", gated)
    assert re.search(r"https://huggingface\.co/a/nothing does not exist or is private", missing)
    server.url = url  # nobody listens there any more
    served, unreachable = find_on_hub(server, cache, "a/bin", "a/new")
    assert served == found[0]
    assert re.search(r"a/new .*cannot be downloaded.* Check the connection", unreachable)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    for name, original in (("a/bin", bins), ("a/routed", routed)):
        assert_same(load_encoder(name), original)


def test_a_model_of_which_the_cache_has_the_configuration_only_is_fetched_with_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "hub" / "models--some--model"
    model = splade(tmp_path / "model")
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for name in ("config.json", "modules.json"):
        shutil.copy(model / name, snapshot)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(DataError, match=r"some/model: .*holds no weights.*one of the hub comes with --download"):
        load_encoder("some/model")
