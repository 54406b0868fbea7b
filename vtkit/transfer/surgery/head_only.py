"""Head-only transfer: the source keeps its tokenizer and its input embeddings, and writes another vocabulary.

ESPLADE's form of vocabulary transfer: what the encoder reads stays as it was trained, and only the decoder's rows and
biases become those of the output vocabulary. The two vocabularies differ in size, and a model's configuration has one
number for both. So the model is untied and has as many rows as the larger of the two: embedding rows behind the input
vocabulary are never read, decoder rows behind the output vocabulary are never active. Plain sentence-transformers
loads this like any other encoder and gives the same vectors; only the names of the output dimensions are not its
tokenizer's (folder ``output_tokenizer``).
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from vtkit.encoder.asymmetric import WholeEncoder, refuse_output_vocabulary, settings_of
from vtkit.encoder.checkpoint import as_sparse_encoder
from vtkit.encoder.families import as_array, mlm_head, with_plain_head
from vtkit.system.errors import DataError
from vtkit.transfer.mixture import Mixture
from vtkit.transfer.surgery.graft import check_unchanged, install, rebuilt


def graft_head(
    source: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, output_rows: Tensor, bias: Tensor
) -> PreTrainedModel:
    """A copy of ``source`` that reads what it read and writes another vocabulary.

    Args:
        source: a masked language model with a discoverable head; its numbers are not changed.
        tokenizer: the source's own tokenizer.
        output_rows: decoder rows of the output vocabulary, (output vocabulary, decoder's width).
        bias: decoder bias of the output vocabulary, (output vocabulary,).

    Returns:
        A new model in evaluation mode with an untied decoder.
    """
    source = with_plain_head(source)
    rows = mlm_head(source).embeddings.weight.detach()
    target = rebuilt(source, max(len(rows), len(bias)), untied=True)
    install(target, rows, bias, output_rows)
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
    """A sparse encoder with the output vocabulary of ``output_tokenizer`` and all else as in ``source``.

    Args:
        mixture: every output token in terms of the source tokens; it mixes the source's decoder rows.
        bias: gives the decoder bias of the output vocabulary for that of the source.
    """
    refuse_output_vocabulary(source)
    if isinstance(source, WholeEncoder) and source.query_side is not None:
        raise DataError(
            'With {scope} "head-only", the encoder must encode queries and documents alike, and the source encodes '
            'queries separately. Set {scope} to "full".',
            "scope",
        )
    model = with_plain_head(source[0].auto_model)
    decoder = mlm_head(model).decoder
    rows = mixture.rows(as_array(decoder.weight), seed=seed)
    biases = bias(as_array(decoder.bias))
    grafted = graft_head(model, source.tokenizer, torch.from_numpy(rows), torch.from_numpy(biases))
    made = as_sparse_encoder(grafted, source.tokenizer, folder, like=source)
    whole = WholeEncoder(modules=list(made), device="cpu", **settings_of(source))
    whole.output_tokenizer = output_tokenizer
    whole.eval()
    return whole
