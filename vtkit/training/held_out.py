"""How well masked tokens of texts that a training does not see are predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vtkit.data.sequences import Ragged
from vtkit.encoder.families import mlm_head
from vtkit.encoder.kernels.sparse_head import without_decoder
from vtkit.encoder.masked import masked_dimensions
from vtkit.evaluation.measures.masked_predictions import GroupedPredictions, grouped_predictions
from vtkit.training.masking import IGNORED, MaskedBatches

if TYPE_CHECKING:
    from transformers import PreTrainedModel

POSITIONS_AT_ONCE = 256  # masked positions whose logits are held at a time


@torch.no_grad()
def held_out_predictions(
    model: PreTrainedModel, batches: MaskedBatches, sizes: Ragged, new: NDArray[np.bool_], prior: Tensor | None = None
) -> GroupedPredictions | None:
    """Accuracy and bits per byte of the masked tokens of ``batches``; None where nothing in them is masked.

    Args:
        model: a masked language model; in evaluation mode afterwards.
        batches: masked by a seed of their own, so that two calls ask for the same tokens.
        sizes: bytes of text of each token of each text.
        new: which tokens have a row that is not the source's, (vocabulary,).
        prior: added to the logits inside the softmax, as in training, (vocabulary,).
    """
    model.eval()
    decoder, masked = mlm_head(model).decoder, masked_dimensions(model)
    device = decoder.weight.device
    bias = decoder.bias if prior is None else decoder.bias + prior.to(device)
    bias = bias.masked_fill(masked, -torch.inf)
    log_probabilities, right, bytes_of, labels_of = [], [], [], []
    for number in range(len(batches)):
        batch = batches[number]
        predicted = batch["labels"] != IGNORED
        with without_decoder(decoder):
            hidden = model(
                input_ids=batch["input_ids"].to(device), attention_mask=batch["attention_mask"].to(device)
            ).logits[predicted.to(device)]
        labels = batch["labels"][predicted]
        bytes_of.append(batches.padded(number, sizes, 0)[0][predicted])
        labels_of.append(labels)
        for start in range(0, len(labels), POSITIONS_AT_ONCE):
            asked = slice(start, start + POSITIONS_AT_ONCE)
            wanted = labels[asked].to(device)
            logits = nn.functional.linear(hidden[asked].float(), decoder.weight, bias)
            log_probabilities.append(-nn.functional.cross_entropy(logits, wanted, reduction="none").double().cpu())
            right.append((logits.argmax(dim=1) == wanted).cpu())
    if not right:
        return None
    return grouped_predictions(
        torch.cat(log_probabilities).numpy(),
        torch.cat(right).numpy(),
        torch.cat(bytes_of).numpy(),
        new[torch.cat(labels_of).numpy()],
    )
