"""Models for ML Commons of OpenSearch, which encode text in the cluster: zips of a tokenizer with a table or a network.

ML Commons decodes the tokens of a query one by one; the decoded token is the name of the feature and the key of its
weight. The tokenizer written here has no decoder, so that names are as distinct as the tokens.
"""

import hashlib
import json
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from vtkit.search.opensearch import LARGEST_WEIGHT, LEAST_WEIGHT
from vtkit.system.errors import DataError

MOST_TOKENS = 512  # tokens of a query that ML Commons reads, whatever limit its tokenizer has

_CHUNK_BYTES = 10_000_000  # the largest that ML Commons accepts


def query_model(tokenizer: PreTrainedTokenizerFast, weights: NDArray[np.float32], length: int) -> bytes:
    """The zip of a ``SPARSE_TOKENIZE`` model that looks up the ``weights``, (vocabulary,), of the tokens of a query.

    Equal tables give equal bytes. Queries are cut at ``length`` tokens. DataError: the table has weights that Lucene
    does not accept.
    """
    if not ((weights >= 0) & (weights <= LARGEST_WEIGHT)).all():
        raise DataError(
            f"The query table has weights from {weights.min():.4g} to {weights.max():.4g}, but OpenSearch accepts only "
            f"0 to {LARGEST_WEIGHT:g}. Train the table again."
        )
    names = [tokenizer.backend_tokenizer.id_to_token(number) for number in range(len(weights))]
    # zero is refused; the features of such tokens are in no document
    idf = {name: max(float(weight), LEAST_WEIGHT) for name, weight in zip(names, weights, strict=True) if name}
    # in ASCII: ML Commons reads idf.json in its machine's default encoding
    contents = {"tokenizer.json": tokenizer_parts(tokenizer, weights, length), "idf.json": idf}
    model = BytesIO()
    write_zip(model, {name: json.dumps(value).encode("ascii") for name, value in contents.items()})
    return model.getvalue()


def tokenizer_parts(tokenizer: PreTrainedTokenizerFast, weights: NDArray[np.float32], length: int) -> dict[str, Any]:
    """``tokenizer.json`` for ML Commons, without decoder and post-processor. Added tokens without a weight become
    special tokens, which ML Commons drops and which does not change how text is cut."""
    parts: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    parts |= {
        "decoder": None,
        "post_processor": None,
        "padding": None,
        "truncation": {"direction": "Right", "max_length": length, "strategy": "LongestFirst", "stride": 0},
    }
    for token in parts["added_tokens"]:
        token["special"] = not weights[token["id"]]
    merges = parts["model"].get("merges")
    if merges and not any(" " in part for pair in merges for part in pair):
        parts["model"]["merges"] = [" ".join(pair) for pair in merges]  # as the tokenizers of OpenSearch 2 write them
    return parts


def register(path: Path, name: str, function: str) -> None:
    """Write ``NAME.json`` beside a model's zip: the request body that registers it, of the kind ``function``
    (``SPARSE_TOKENIZE``, ``SPARSE_ENCODING``)."""
    model = path.read_bytes()
    body = {
        "name": name,
        "version": "1",
        "description": "exported by vtkit",
        "function_name": function,
        "model_format": "TORCH_SCRIPT",
        "model_content_size_in_bytes": len(model),
        "model_content_hash_value": hashlib.sha256(model).hexdigest(),
        "total_chunks": -(-len(model) // _CHUNK_BYTES),
    }
    path.with_suffix(".json").write_text(json.dumps(body, indent=1), encoding="utf-8")


def write_zip(file: Path | BytesIO, files: dict[str, bytes]) -> None:
    """A zip without dates: equal contents give equal bytes."""
    with ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(ZipInfo(name), content, compress_type=ZIP_DEFLATED)
