"""The files of a saved encoder as every sentence-transformers since 5.1 reads them, by the names and settings that it
had before 5.4, and with the document transformer at the folder's root, where whatever reads a Hugging Face folder
looks."""

import json
from pathlib import Path
from typing import Any

from vtkit.data.hub import read_json
from vtkit.encoder.model_folder import OUTPUT_TOKENIZER
from vtkit.encoder.token_units import LIBRARY_NAMES

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
    modules = read_json(folder / "modules.json", "the saved encoder")
    own = {f"{each.__module__}.{each.__name__}": name for name, each in LIBRARY_NAMES.items()}
    units = any(module["type"].endswith((*own, *LIBRARY_NAMES, ".Dense")) for module in modules)
    for module in modules:
        module["type"] = (own if units else OLDER_NAMES).get(module["type"], module["type"])
    _write(folder / "modules.json", modules)
    parts = {} if units else {module["path"]: module["type"] for module in modules}
    if (folder / "router_config.json").is_file():
        router = read_json(folder / "router_config.json", "the saved encoder")
        moved = router["structure"]["document"][0]  # the document transformer, whose path is the empty one at the root
        for file in (folder / moved).iterdir():
            file.rename(folder / file.name)
        (folder / moved).rmdir()
        paths = {path: "" if path == moved else path for path in router["types"]}
        router["types"] = {paths[path]: OLDER_NAMES.get(kind, kind) for path, kind in router["types"].items()}
        router["structure"] = {side: [paths[path] for path in way] for side, way in router["structure"].items()}
        if not router["parameters"]["route_mappings"]:
            del router["parameters"]["route_mappings"]
        _write(folder / "router_config.json", router)
        parts |= router["types"]
    for path, kind in parts.items():
        match kind.rpartition(".")[2]:
            case "MLMTransformer":
                longest = read_json(folder / path / "tokenizer_config.json", "the saved encoder")["model_max_length"]
                settings = {"max_seq_length": longest if longest < 10**6 else None, "do_lower_case": False}
                _write(folder / path / "sentence_bert_config.json", settings)
                config = read_json(folder / path / "config.json", "the saved encoder")
                if config["model_type"] == "modernbert":
                    # rotations and attention in the words of transformers 4 too, which has other defaults
                    ropes, layers = config["rope_parameters"], config["layer_types"]
                    config["global_rope_theta"] = ropes["full_attention"]["rope_theta"]
                    config["local_rope_theta"] = ropes["sliding_attention"]["rope_theta"]
                    config["global_attn_every_n_layers"] = [*layers, "full_attention"].index("full_attention", 1)
                _write(folder / path / "config.json", config)
            case "SpladePooling":
                config = read_json(folder / path / "config.json", "the saved encoder")
                config["word_embedding_dimension"] = config.pop("embedding_dimension")
                _write(folder / path / "config.json", config)


def sums_units_in(folder: Path) -> bool:
    """Report whether the encoder saved in ``folder`` sums latent units over tokens, as
    :func:`vtkit.encoder.asymmetric.sums_units` does of a loaded one."""
    names, poolings = folder / OUTPUT_TOKENIZER / "tokenizer.json", list(folder.glob("*SpladePooling/config.json"))
    if not names.is_file() or read_json(names, "the saved encoder")["model"]["type"] != "WordLevel":
        return False
    return any(read_json(path, "the saved encoder")["pooling_strategy"] == "sum" for path in poolings)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
