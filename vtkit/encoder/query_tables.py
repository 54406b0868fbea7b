"""Static query tables: a weight for each token, so that a query is encoded without a model (inference-free retrieval),
as the library's own ``SparseStaticEmbedding`` behind its router."""

import copy
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from vtkit.encoder.asymmetric import (
    WholeEncoder,
    output_tokenizer,
    own_output,
    query_side,
    settings_of,
    width_of,
    with_sides,
)
from vtkit.encoder.documents import document_frequencies, idf_weights
from vtkit.encoder.families import as_array
from vtkit.encoder.folding import folded_dimensions
from vtkit.encoder.kinds import can_weigh
from vtkit.settings.calibrate import StaticQueryEncoder
from vtkit.system.errors import DataError


def query_encoder_of(encoder: SparseEncoder) -> str | None:
    """The query encoder of ``encoder`` in words; None if the document encoder serves both."""
    side = query_side(encoder)
    if side is None:
        return None
    if isinstance(side[0], Transformer):
        return "an encoder of their own"
    weights = as_array(side[0].weight)
    same = np.isin(weights, (0.0, 1.0)).all()
    return "a static table in which every token weighs 1" if same else "a static table, a weight for each token"


def binary_weights(encoder: SparseEncoder) -> NDArray[np.float32]:
    """1 for every token, (vocabulary,): a query is the set of its distinct tokens, as of SPLADE-doc (Formal et al.
    2021, arXiv:2109.10086)."""
    return can_weigh(encoder).astype(np.float32)


def idf_query_weights(encoder: SparseEncoder, documents: Iterable[str]) -> NDArray[np.float32]:
    """ln(1 + (N − N_t + ½) / (N_t + ½)) for every token t, of N ``documents`` of which N_t hold it, (vocabulary,).

    Geng et al. (2024, arXiv:2411.04403), whose N_t are those of MS MARCO. Where vectors are folded, all case variants
    have the weight of the one dimension that they become.
    """
    folded_to = folded_dimensions(encoder)
    held, documents_read = document_frequencies(output_tokenizer(encoder), documents, width_of(encoder), folded_to)
    if not documents_read:
        raise DataError("There are no documents to count the document frequencies of the query table in.")
    weights = idf_weights(held, documents_read, "geng")
    return np.where(can_weigh(encoder), weights if folded_to is None else weights[folded_to], 0).astype(np.float32)


def with_static_queries(encoder: SparseEncoder, kind: StaticQueryEncoder, documents: Iterable[str]) -> WholeEncoder:
    """``encoder`` with its queries encoded by :func:`binary_weights`, or by :func:`idf_query_weights` of ``documents``;
    its modules are shared. DataError: ``idf`` of no documents; token ids with gaps."""
    weights = binary_weights(encoder) if kind == "binary" else idf_query_weights(encoder, documents)
    return with_query_table(encoder, weights, frozen=True)


def with_query_table(encoder: SparseEncoder, weights: NDArray[np.float32], *, frozen: bool) -> WholeEncoder:
    """``encoder`` with its queries encoded by a table of ``weights``, (vocabulary,); its modules are shared, and its
    prompt for queries is empty. A ``frozen`` table stays as it is when the library trains the encoder further."""
    settings = settings_of(encoder)
    settings["prompts"] = {**settings["prompts"], "query": ""}
    table = SparseStaticEmbedding(
        filled_up(output_tokenizer(encoder), width_of(encoder)), torch.from_numpy(weights), frozen=frozen
    )
    queries = SparseEncoder(modules=[table], device=encoder.device, **settings)
    return with_sides(encoder, encoder, queries, own_output(encoder), **settings)


def filled_up(tokenizer: PreTrainedTokenizerFast, size: int) -> PreTrainedTokenizerFast:
    """A copy of ``tokenizer`` with fillers up to ``size`` tokens: the library loads a query table of the tokenizer's
    size only, and a model may have more rows."""
    filled, taken = copy.deepcopy(tokenizer), tokenizer.get_vocab()
    names = [f"[unused{row}]" for row in range(len(taken), size)]
    while not taken.keys().isdisjoint(names):
        names = [f"[unused0{name.removeprefix('[unused')}" for name in names]
    filled.add_tokens([AddedToken(name, normalized=False) for name in names])
    ids = sorted(filled.get_vocab().values())
    if ids != list(range(size)):
        raise DataError(
            f"the tokenizer has {len(taken)} tokens with the numbers {min(taken.values())} to {max(taken.values())}, "
            "and a query table of sentence-transformers needs numbers without gaps. Let the document encoder encode "
            "queries (remove query_encoder), or move the encoder to a vocabulary without gaps ([transfer])."
        )
    return filled
