"""Head-only transfer (ESPLADE): the source keeps its tokenizer and input embeddings, and writes another vocabulary. The
model is untied and has as many rows as the larger vocabulary: rows behind the input vocabulary are never read, those
behind the output vocabulary never active. Plain sentence-transformers gives the same vectors; the output dimensions'
names are in the folder ``output_tokenizer``."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from vtkit.encoder.asymmetric import WholeEncoder, query_side, refuse_output_vocabulary, with_sides
from vtkit.encoder.checkpoint import as_sparse_encoder
from vtkit.encoder.families import as_array, mlm_head, with_plain_head
from vtkit.system.errors import DataError
from vtkit.transfer.mixture import Mixture
from vtkit.transfer.surgery.graft import check_unchanged, rebuilt


def graft_head(
    source: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, output_rows: Tensor, bias: Tensor
) -> PreTrainedModel:
    """A copy of ``source`` that reads what it read, by the same embeddings, and writes another vocabulary, its decoder
    untied, in evaluation mode.

    Args:
        source: a masked language model with a discoverable head; its numbers are not changed.
        tokenizer: the source's own.
        output_rows, bias: of the output vocabulary's decoder, (output vocabulary, decoder's width) and (output
            vocabulary,).
    """
    source = with_plain_head(source)
    rows = mlm_head(source).embeddings.weight.detach()
    target = rebuilt(source, rows, bias, output_rows)
    check_unchanged(source, target, tokenizer)
    return target


def graft_encoder_head(
    source: SparseEncoder,
    output_tokenizer: PreTrainedTokenizerFast,
    mixture: Mixture,
    bias: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    folder: Path,
    *,
    seed: int = 0,
) -> WholeEncoder:
    """A sparse encoder with the output vocabulary of ``output_tokenizer`` and all else as in ``source``, whose decoder
    rows ``mixture`` mixes; ``bias`` gives the decoder bias for that of the source."""
    refuse_output_vocabulary(source)
    if query_side(source) is not None:
        raise DataError(
            'With scope "head-only", the encoder must encode queries and documents alike, and the source encodes '
            'queries separately. Set scope to "full".'
        )
    model = with_plain_head(source[0].auto_model)
    decoder = mlm_head(model).decoder
    rows = mixture.rows(as_array(decoder.weight), seed=seed)
    biases = bias(as_array(decoder.bias))
    grafted = partial(graft_head, model, source.tokenizer, torch.from_numpy(rows), torch.from_numpy(biases))
    plain = as_sparse_encoder(grafted(), source.tokenizer, folder, like=source)  # which alone holds the model
    return with_sides(plain, plain, output=output_tokenizer)
