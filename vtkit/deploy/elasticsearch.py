"""Target ``elasticsearch``: the vectors in a ``sparse_vector`` field without its default pruning and, if Elasticsearch
can tokenize like the model, the model itself, traced with its pooling: Elasticsearch reads one position only."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from vtkit.deploy.documents import Collection
from vtkit.deploy.features import (
    lucene_target,
    model_stays_outside,
    token_names,
    write_bulk,
    write_hybrid,
    write_mapping,
)
from vtkit.deploy.network import write_torchscript
from vtkit.deploy.portable import Source
from vtkit.deploy.target import Facts
from vtkit.vocabulary.notation import WORDPIECE

MODEL = "traced_pytorch_model.pt"
_SPECIAL = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}


def write(source: Source, collection: Collection | None, folder: Path) -> Facts:
    """Write ``mapping.json``, ``bulk/part-00000.ndjson`` and so on, and ``model/`` with what eland uploads."""
    tokenization = _tokenization(source.encoder.tokenizer, source.document_length)
    names = token_names(source.encoder, lambda token: token.replace(".", "__"))
    why = model_stays_outside(source, names, (isinstance(tokenization, str), str(tokenization)))
    facts: Facts = {"why": why, "model": MODEL}
    if collection is not None:
        facts |= write_hybrid(source, folder, dict)
        field = {"type": "sparse_vector", "index_options": {"prune": False}}
        write_mapping(folder / "mapping.json", collection.columns, field, analyser=facts.get("analyser"))
        write_bulk(collection, folder, None if why else names)
    if why is None:
        _write_model(source, folder / "model", tokenization)
    return facts


def _write_model(source: Source, folder: Path, tokenization: Any) -> None:
    folder.mkdir()
    encoder = source.encoder
    write_torchscript(encoder, folder / MODEL, four_inputs, source.texts(), source.document_length)
    tokens = sorted(encoder.tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    (folder / "vocabulary.json").write_text(json.dumps({"vocabulary": [token for token, _ in tokens]}), "utf-8")
    config = {
        "description": f"{source.name}, exported by vtkit: a sparse encoder with its pooling",
        "model_type": "pytorch",
        "input": {"field_names": ["text_field"]},
        "inference_config": {"text_expansion": {"tokenization": tokenization}},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def four_inputs(ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Elasticsearch's inputs of a model with BERT's tokenization: ids, mask, types and positions."""
    return ids, mask, torch.zeros_like(ids), torch.arange(ids.shape[1]).expand_as(ids)


def _tokenization(tokenizer: PreTrainedTokenizerFast, length: int) -> dict[str, Any] | str:
    """Elasticsearch's tokenization that equals ``tokenizer``, or the reason why there is none."""
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    normalizer, model = parts["normalizer"] or {}, parts["model"]
    lower = normalizer.get("lowercase")
    ids = sorted(tokenizer.get_vocab().values())
    kind = tuple(model.get(name) for name in ("type", "continuing_subword_prefix", "unk_token"))
    if kind != ("WordPiece", WORDPIECE.prefix, "[UNK]"):
        return "Elasticsearch supports BERT's tokenization only, and the vocabulary is of another kind"
    cleans = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}.items() <= normalizer.items()
    strips, cut = normalizer.get("strip_accents"), (parts["pre_tokenizer"] or {}).get("type")
    if not cleans or strips not in (None, lower) or cut != "BertPreTokenizer":
        return "Elasticsearch normalises text as BERT does, and the tokenizer does not"
    if ids != list(range(len(ids))) or {token["content"] for token in parts["added_tokens"]} - _SPECIAL:
        return "its vocabulary has added tokens or gaps, which Elasticsearch's tokenization does not support"
    bert = {"do_lower_case": bool(lower), "with_special_tokens": True, "max_sequence_length": min(length, 512)}
    return {"bert": bert}


TARGET = lucene_target(name="elasticsearch", write=write)
