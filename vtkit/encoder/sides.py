"""Encoding queries and documents, which may differ: each side has its prompt, and queries may have their own way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerFast

from vtkit.encoder.asymmetric import output_tokenizer, query_side, query_table
from vtkit.encoder.documents import pruned
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import as_array
from vtkit.encoder.folding import folded
from vtkit.encoder.static_queries import looked_up, looked_up_by_token
from vtkit.encoder.truncation import first_encoding
from vtkit.system import console
from vtkit.system.runtime import Precision

Side = Literal["query", "document"]

_PROMPTS: dict[Side, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}


def encode_side(
    encoder: SparseEncoder,
    texts: Sequence[str],
    side: Side,
    max_length: int,
    *,
    top_dimensions: int | None = None,
    precision: Precision = "float32",
    description: str | console.Bar = "encoding",
) -> sparse.csr_matrix:
    """Term weights of ``texts``, as the library's ``encode_query`` or ``encode_document`` gives them: with the
    encoder's prompt for that side or, where queries have a static table, the table's weights of each distinct token;
    folded where the model says so. Vectors of an encoder that ranks by the cosine have the length 1 before they are
    pruned, so that dot products are its similarity. Arguments and result are those of
    :func:`vtkit.encoder.encoding.encode`."""
    cosine = encoder.similarity_fn_name == "cosine"
    kept = None if cosine else top_dimensions
    prompted = [prompt_of(encoder, side) + text for text in texts]
    queries = query_side(encoder) if side == "query" else None
    table = query_table(encoder) if side == "query" else None
    if queries is not None and table is not None:
        vectors = folded(encoder, looked_up(table.tokenizer, as_array(table.weight), prompted, max_length))
        width = vectors.shape[1]
        vectors, _ = pruned(vectors, min(kept or width, queries.max_active_dims or width))
    else:
        vectors = encode(
            queries or encoder, prompted, max_length, top_dimensions=kept, precision=precision, description=description
        )
    if cosine:
        lengths = np.sqrt(np.asarray(vectors.multiply(vectors).sum(axis=1))).ravel()
        vectors.data /= np.repeat(lengths, np.diff(vectors.indptr))
        vectors, _ = pruned(vectors, top_dimensions)
    return vectors


@dataclass(frozen=True)
class EncoderQueries:
    """The query side of a whole encoder; :class:`vtkit.encoder.static_queries.StaticQueries` needs none."""

    encoder: SparseEncoder

    @property
    def output_tokenizer(self) -> PreTrainedTokenizerFast:
        """Names the dimensions."""
        return output_tokenizer(self.encoder)

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Cuts queries into tokens."""
        return tokenizer_of(self.encoder, "query")

    @property
    def prompt(self) -> str:
        """Stands before each query."""
        return prompt_of(self.encoder, "query")

    @property
    def parameters(self) -> int:
        """The number of the model's parameters."""
        return sum(weight.numel() for weight in (query_side(self.encoder) or self.encoder).parameters())

    def encode(self, queries: Sequence[str], max_length: int) -> sparse.csr_matrix:
        """As :func:`encode_side`."""
        described = "encoding the query" if len(queries) == 1 else "queries"
        return encode_side(self.encoder, queries, "query", max_length, description=described)

    def by_token(self, query: str, max_length: int) -> tuple[sparse.csr_matrix, list[int]]:
        """The weights that each token of a query has alone, before they are pooled, (tokens, dimensions), and the
        character of prompt and query behind each token; 0 for special tokens."""
        encoder, text = self.encoder, self.prompt + query
        table = query_table(encoder)
        if table is not None:
            alone, ends = looked_up_by_token(table.tokenizer, as_array(table.weight), text, max_length)
            return folded(encoder, alone), ends
        side = query_side(encoder) or encoder
        ids, ends = first_encoding(side.tokenizer, text, min(max_length, side.max_seq_length or max_length))
        listed = torch.tensor([ids], device=side[0].auto_model.device)
        side.eval()
        with torch.inference_mode():
            first, *pooling = side
            features = first({"input_ids": listed, "attention_mask": torch.ones_like(listed)})
            features = {  # each token becomes a text of its own
                name: value.transpose(0, 1)
                for name, value in features.items()
                if isinstance(value, torch.Tensor) and value.shape[:2] == listed.shape
            }
            for module in pooling:
                features = module(features)
        alone = sparse.csr_matrix(features["sentence_embedding"].float().cpu().numpy())
        return folded(encoder, alone), ends


def rank_by_dot_products(encoder: SparseEncoder) -> None:
    """Let an encoder whose training scores dot products rank by them, whatever its source ranked by."""
    if encoder.similarity_fn_name != "dot":
        said = "  this training scores dot products: the encoder ranks by dot from now on, by"
        console.say(f"{said} {encoder.similarity_fn_name} before")
        encoder.similarity_fn_name = "dot"


def prompt_of(encoder: SparseEncoder, side: Side) -> str:
    """The prompt before each text of ``side``, as the library's ``encode_query`` and ``encode_document`` choose it: the
    default one only if none has the side's name, and an encoder read from a folder always has one, if empty."""
    named = [name for name in _PROMPTS[side] if name in encoder.prompts]
    return encoder.prompts.get((*named, encoder.default_prompt_name)[0]) or ""


def tokenizer_of(encoder: SparseEncoder, side: Side) -> PreTrainedTokenizerFast:
    """The tokenizer for texts of ``side``."""
    table = query_table(encoder) if side == "query" else None
    return encoder.tokenizer if table is None else table.tokenizer
