"""Texts to sparse vectors: batches of similar length under a token budget, the streaming head, a scipy matrix out."""

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from scipy import sparse
from sentence_transformers import SparseEncoder

from vtkit.encoder.asymmetric import sums_units, width_of
from vtkit.encoder.folding import fold_weights, folded_dimensions
from vtkit.encoder.kernels.half_precision import half_precision
from vtkit.encoder.kernels.sparse_head import streaming
from vtkit.encoder.token_units import has_token_units
from vtkit.encoder.truncation import alike_batches, first_tokens, padded
from vtkit.system import console
from vtkit.system.runtime import Precision, bf16_is_fast


def encode(
    encoder: SparseEncoder,
    texts: Sequence[str],
    max_length: int,
    *,
    top_dimensions: int | None = None,
    precision: Precision = "float32",
    description: str | console.Bar = "encoding",
) -> sparse.csr_matrix:
    """Term weights of ``texts``, as ``encoder.encode`` gives them, folded where the model says so; of summed units the
    square roots (:func:`vtkit.encoder.asymmetric.sums_units`).

    Args:
        encoder: a SparseEncoder of a Transformer and a pooling.
        max_length: tokens a text is cut at, special tokens included.
        top_dimensions: keep only so many of the largest weights of each text, and no more than ``max_active_dims``.
        precision: of the matrix products; bf16 is several times faster where the processor has it, and moves weights
            by about one part in a hundred.

    Returns:
        (n, vocabulary) float32, rows in the order of ``texts``, indices sorted.
    """
    tokenizer, model = encoder.tokenizer, encoder[0].auto_model
    device, width, logits = model.device, width_of(encoder), not has_token_units(encoder)
    if not texts:  # the tokenizer cannot take an empty list
        return sparse.csr_matrix((0, width), dtype=np.float32)
    limit = min(max_length, encoder.max_seq_length or max_length)
    kept = min(top_dimensions or width, encoder.max_active_dims or width)
    token_ids = first_tokens(tokenizer, texts, limit)["input_ids"]
    dimensions = folded_dimensions(encoder)
    folded_to = None if dimensions is None else torch.tensor(dimensions, device=device)
    root = sums_units(encoder)
    rows: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    values: list[np.ndarray] = []
    encoder.eval()
    half = precision == "bf16" and logits
    if half and not bf16_is_fast():
        console.once(console.warn, 'this machine emulates bf16, which takes several times longer than "float32"')
    products = half_precision(model) if half else nullcontext()
    head = streaming(encoder, half=half) if logits else nullcontext()
    with head, torch.inference_mode(), products:
        for batch in console.tracked(alike_batches(token_ids), description, len(texts), len):
            ids, mask = padded([token_ids[i] for i in batch], tokenizer.pad_token_id, device)
            weights = encoder({"input_ids": ids, "attention_mask": mask})["sentence_embedding"].float()
            if root:
                weights = weights.sqrt()
            if folded_to is not None:
                weights = fold_weights(weights, folded_to)
            if kept < weights.shape[1]:
                largest, kept_at = weights.topk(kept, dim=1)
                weights = torch.zeros_like(weights).scatter_(1, kept_at, largest)
            active = weights.nonzero()
            rows.append(np.asarray(batch, dtype=np.int64)[active[:, 0].cpu().numpy()])
            columns.append(active[:, 1].to(torch.int32).cpu().numpy())
            values.append(weights[active[:, 0], active[:, 1]].cpu().numpy())
    matrix = sparse.csr_matrix(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), (len(texts), width), np.float32
    )
    matrix.sort_indices()
    return matrix
