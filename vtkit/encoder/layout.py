"""The files of a saved encoder as every sentence-transformers since 5.1 reads them, by the names and settings that it
had before 5.4, and with the document transformer at the folder's root, where whatever reads a Hugging Face folder
looks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

OLDER_NAMES = {
    "sentence_transformers.base.modules.router.Router": "sentence_transformers.models.Router",
    "sentence_transformers.base.modules.transformer.Transformer": (
        "sentence_transformers.sparse_encoder.models.MLMTransformer"
    ),
    "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling": (
        "sentence_transformers.sparse_encoder.models.SpladePooling"
    ),
    "sentence_transformers.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding": (
        "sentence_transformers.sparse_encoder.models.SparseStaticEmbedding"
    ),
}
"""Classes by the names that the library had for them before 5.4, and still takes."""


def rearrange(folder: Path) -> None:
    """Bring the folder that ``SparseEncoder.save`` of the installed version wrote into the form said above, but for
    uniCOIL's modules."""
    parts: dict[str, str] = {}

    def router(content: dict[str, Any]) -> None:
        _move_to_root(content, folder)
        content["types"] = {path: OLDER_NAMES.get(kind, kind) for path, kind in content["types"].items()}
        if not content["parameters"]["route_mappings"]:
            del content["parameters"]["route_mappings"]
        parts.update(content["types"])

    def modules(content: list[dict[str, Any]]) -> None:
        for module in content:
            module["type"] = parts[module["path"]] = OLDER_NAMES.get(module["type"], module["type"])

    _change(folder / "modules.json", modules)
    if (folder / "router_config.json").is_file():
        _change(folder / "router_config.json", router)
    for path, kind in parts.items():
        match kind.rpartition(".")[2]:
            case "MLMTransformer":
                _change(folder / path / "sentence_bert_config.json", _transformer_settings(folder / path))
                _change(folder / path / "config.json", _name_as_before)
            case "SpladePooling":
                _change(folder / path / "config.json", _pooling_settings)


def _move_to_root(router: dict[str, Any], folder: Path) -> None:
    """Move the document transformer of ``router`` from its folder to the root, where its path is the empty one."""
    path = router["structure"]["document"][0]
    for file in (folder / path).iterdir():
        file.rename(folder / file.name)
    (folder / path).rmdir()
    router["types"] = {"" if part == path else part: kind for part, kind in router["types"].items()}
    router["structure"] = {
        side: ["" if part == path else part for part in way] for side, way in router["structure"].items()
    }


def _transformer_settings(folder: Path) -> Callable[[dict[str, Any]], None]:
    longest = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))["model_max_length"]

    def change(content: dict[str, Any]) -> None:
        content.clear()
        content.update(max_seq_length=longest if longest < 10**6 else None, do_lower_case=False)

    return change


def _pooling_settings(content: dict[str, Any]) -> None:
    content["word_embedding_dimension"] = content.pop("embedding_dimension")


def _name_as_before(config: dict[str, Any]) -> None:
    """Say ModernBERT's rotations and attention in the words of transformers 4 too, which has other defaults."""
    if config["model_type"] != "modernbert":
        return
    ropes, layers = config["rope_parameters"], config["layer_types"]
    config["global_rope_theta"] = ropes["full_attention"]["rope_theta"]
    config["local_rope_theta"] = ropes["sliding_attention"]["rope_theta"]
    config["global_attn_every_n_layers"] = ([*layers, "full_attention"]).index("full_attention", 1)


def _change(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text("utf-8"))
    change(content)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
