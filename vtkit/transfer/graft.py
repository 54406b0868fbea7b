"""Grafting: an encoder with the embedding rows, decoder bias and special ids of a new vocabulary.

The new model is built from the source's configuration with the new vocabulary size and filled from the source's state,
rather than resized in place: resizing leaves old biases at the row numbers where they stood, and with untied
weights writes checkpoints that do not load (docs/transfer.md).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM

from vtkit.encoder.families import POSITIONS_COUNT_FROM_PADDING, mlm_head
from vtkit.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


def graft(
    source: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    rows: Tensor,
    bias: Tensor,
    output_rows: Tensor | None = None,
) -> PreTrainedModel:
    """A copy of ``source`` that reads and writes ``tokenizer``'s vocabulary.

    Args:
        source: a masked language model with a discoverable head; not changed.
        tokenizer: the target tokenizer; its special ids go into the configuration.
        rows: input embeddings of the target vocabulary, (target, width).
        bias: decoder bias of the target vocabulary, (target,).
        output_rows: decoder rows where the source's are not tied to its embeddings, (target, width).

    Returns:
        A new model, in evaluation mode, whose logits survive saving and loading unchanged. Position
        embeddings that count from the padding id (RoBERTa) are moved when the padding id moves, so that
        every token keeps the position vector it had.

    Raises:
        DataError: rows, bias and tokenizer differ in size, a value is not finite, or the source cannot be rebuilt.
    """
    head = mlm_head(source)
    size = len(tokenizer)
    output_rows = rows if output_rows is None else output_rows
    wanted = (
        ("embedding rows", rows, (size, head.embeddings.weight.shape[1])),
        ("decoder rows", output_rows, (size, head.decoder.weight.shape[1])),
        ("biases", bias, (size,)),
    )
    for what, values, shape in wanted:
        if values.shape != shape:
            raise DataError(
                f"the new vocabulary of {size} tokens needs {what} of the shape {shape}, not {tuple(values.shape)}"
            )
        if not bool(torch.isfinite(values).all()):
            raise DataError(f"the new {what} are not finite (NaN or infinite): check the bridge")

    config = copy.deepcopy(source.config)
    old_padding = config.pad_token_id
    config.vocab_size = size
    config.pad_token_id = tokenizer.pad_token_id
    for name, value in (
        ("bos_token_id", tokenizer.cls_token_id),
        ("eos_token_id", tokenizer.sep_token_id),
        ("cls_token_id", tokenizer.cls_token_id),
        ("sep_token_id", tokenizer.sep_token_id),
    ):
        if getattr(config, name, None) is not None:
            setattr(config, name, value)
    state = {name: tensor.clone() for name, tensor in source.state_dict().items()}
    if config.model_type in POSITIONS_COUNT_FROM_PADDING:
        _move_positions(config, state, old_padding)

    target = AutoModelForMaskedLM.from_config(config, dtype=torch.float32)
    new_head = mlm_head(target)
    vocabulary_bearing = _names_of(target, new_head.embeddings.weight, new_head.decoder.weight, new_head.decoder.bias)
    kept = {name: tensor for name, tensor in state.items() if name not in vocabulary_bearing}
    missing, unexpected = target.load_state_dict(kept, strict=False)
    lost = sorted((set(missing) - vocabulary_bearing) | set(unexpected))
    if lost:
        raise DataError(f"{type(source).__name__} cannot be rebuilt from its configuration: {', '.join(lost[:5])}")
    if new_head.decoder.bias is None:
        raise DataError(
            f"{type(source).__name__} has a head without bias, and calibration lives in that bias. For ModernBERT, "
            "set decoder_bias to true in the source's config.json."
        )
    with torch.no_grad():
        new_head.embeddings.weight.copy_(rows)
        new_head.decoder.bias.copy_(bias)
        if not new_head.tied:
            new_head.decoder.weight.copy_(output_rows)
    return target.eval()


def _names_of(model: PreTrainedModel, *tensors: Tensor | None) -> set[str]:
    """Every name in the state dict under which one of ``tensors`` appears (tied weights have several)."""
    pointers = {tensor.data_ptr() for tensor in tensors if tensor is not None}
    return {name for name, tensor in model.state_dict().items() if tensor.data_ptr() in pointers}


def _move_positions(config: object, state: dict[str, Tensor], old_padding: int) -> None:
    """Position ids start at padding id + 1: move the table's rows by as much as the padding id moved."""
    moved = config.pad_token_id - old_padding  # type: ignore[attr-defined]
    if moved == 0:
        return
    name = next(name for name in state if name.endswith("position_embeddings.weight"))
    table = state[name]
    used = table[old_padding + 1 :]
    first = old_padding + 1 + moved
    new = table.new_zeros(first + len(used), table.shape[1])
    new[first:] = used
    state[name] = new
    config.max_position_embeddings = len(new)  # type: ignore[attr-defined]
    for buffer in [key for key in state if key.endswith(("position_ids", "embeddings.token_type_ids"))]:
        del state[buffer]
