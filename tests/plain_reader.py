"""Saved models read where vtkit is not installed; :mod:`test_elsewhere` runs this file with other Pythons.

Reads ``FOLDER/models/NAME``, ``FOLDER/tokenizers/NAME`` and ``FOLDER/texts.json``; writes ``OUT``, JSON with the
versions, and for each folder what was read in it or why it could not be.
"""

import json
import sys
from pathlib import Path
from typing import Any

import sentence_transformers
import torch
import transformers
from sentence_transformers import SparseEncoder
from transformers import AutoModelForMaskedLM, AutoTokenizer

sys.modules["vtkit"] = None  # type: ignore[assignment]  # every import of it fails
torch.set_num_threads(1)


def read_tokenizer(folder: Path, texts: list[str]) -> dict[str, Any]:
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    named = {
        role: str(token)
        for role, token in tokenizer.special_tokens_map.items()
        if not isinstance(token, list)  # of transformers 4 alone
    }
    padded = tokenizer(texts, padding=True, truncation=True, max_length=20)
    return {
        "class": type(tokenizer).__name__,
        "ids": tokenizer(texts)["input_ids"],
        "words": tokenizer(texts, add_special_tokens=False)["input_ids"],
        "padded": {name: padded[name] for name in sorted(padded)},
        "decoded": tokenizer.batch_decode(tokenizer(texts)["input_ids"], skip_special_tokens=True),
        "vocabulary": tokenizer.get_vocab(),
        "special tokens": named,
        "all special ids": sorted(set(tokenizer.all_special_ids)),
        "longest": tokenizer.model_max_length,
        "sides": [tokenizer.padding_side, tokenizer.truncation_side],
    }


def read_model(folder: Path, texts: list[str]) -> dict[str, Any]:
    encoder = SparseEncoder(str(folder), device="cpu")
    settings = json.loads((folder / "config_sentence_transformers.json").read_text("utf-8"))
    how: dict[str, Any] = {"convert_to_sparse_tensor": False}
    how["max_active_dims"] = settings.get("max_active_dims")  # sentence-transformers 5 does not read it
    found = {
        "query": encoder.encode_query(texts, **how).tolist(),
        "document": encoder.encode_document(texts, **how).tolist(),
        "longest": encoder.max_seq_length,
    }
    model = AutoModelForMaskedLM.from_pretrained(str(folder))
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        logits = model.eval()(**inputs).logits * inputs["attention_mask"][:, :, None]
    # what a reader who knows no sentence-transformers computes
    found["splade"] = torch.log1p(torch.relu(logits)).amax(dim=1).tolist()
    return found


def main(folder: Path, out: Path) -> None:
    texts = json.loads((folder / "texts.json").read_text("utf-8"))
    found: dict[str, Any] = {"versions": [transformers.__version__, sentence_transformers.__version__]}
    for kind, read in (("models", read_model), ("tokenizers", read_tokenizer)):
        found[kind] = {}
        for each in sorted((folder / kind).iterdir()):
            try:
                found[kind][each.name] = read(each, texts)
            except Exception as error:
                found[kind][each.name] = f"{type(error).__name__}: {error}"
    out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
