"""Grafting: an encoder with the embedding rows, decoder bias and special ids of a new vocabulary. It is built from the
source's configuration and state rather than resized in place (docs/transfer.md), compared with the source on a few
texts, and refused if it computes anything else. Nothing here knows architectures by name."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import init_empty_weights
from numpy.typing import NDArray
from scipy.sparse import identity
from sentence_transformers import SparseEncoder
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerFast

from vtkit.encoder.asymmetric import query_side, refuse_output_vocabulary, settings_of, with_sides
from vtkit.encoder.checkpoint import as_sparse_encoder
from vtkit.encoder.families import FIXED_PADDING, as_array, mlm_head, position_offset, with_plain_head
from vtkit.encoder.kernels.sparse_head import decoder_input, without_decoder
from vtkit.encoder.masked import MASKED_BIAS
from vtkit.encoder.new_head import WithNewHead
from vtkit.system.errors import DataError
from vtkit.transfer.mixture import Mixture, all_made_by
from vtkit.vocabulary.trimmed import kept_ids

TOLERANCE = 1e-3
"""Hidden states of the grafted model may differ from the source's by this much of the largest, for rounding."""


def graft(
    source: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    rows: Tensor,
    bias: Tensor,
    output_rows: Tensor | None = None,
) -> PreTrainedModel:
    """A copy of ``source`` that reads and writes ``tokenizer``'s vocabulary, in evaluation mode; its logits survive
    saving and loading. Position embeddings that count from the padding id (RoBERTa) move with it, and a head without
    bias gets one where its configuration can say so (ModernBERT).

    Args:
        source: a masked language model with a discoverable head; its numbers are not changed.
        tokenizer: its special ids go into the configuration.
        rows, bias: input embeddings, (target, width), and decoder bias, (target,).
        output_rows: decoder rows where the source's are not tied to its embeddings, (target, decoder's width).

    Raises:
        DataError: a value is not finite, or the source cannot be rebuilt to compute what it does.
    """
    source = with_plain_head(source)
    target = rebuilt(source, rows, bias, output_rows, tokenizer)
    check_unchanged(source, target, tokenizer)
    return target


def graft_encoder(
    source: SparseEncoder,
    tokenizer: PreTrainedTokenizerFast,
    mixture: Mixture,
    bias: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    folder: Path,
    *,
    seed: int = 0,
) -> SparseEncoder:
    """A whole sparse encoder on a new vocabulary: pooling, activation, prompts, limits, and both sides of an asymmetric
    one.

    Args:
        mixture: every target token in terms of the source tokens, by which a static query table is mixed too.
        bias: gives the decoder bias of the target vocabulary for that of the source.
    """
    refuse_output_vocabulary(source)
    sides = [(source, folder / "document")]
    queries = query_side(source)
    if queries is not None and isinstance(queries[0], Transformer):
        sides.append((queries, folder / "query"))
    moved = []
    for side, path in sides:
        model = with_plain_head(side[0].auto_model)
        head = mlm_head(model)
        rows = torch.from_numpy(mixture.rows(as_array(head.embeddings.weight), seed=seed))
        output = None if head.tied else torch.from_numpy(mixture.rows(as_array(head.decoder.weight), seed=seed))
        new_bias = torch.from_numpy(bias(as_array(head.decoder.bias)))
        moved.append(as_sparse_encoder(graft(model, tokenizer, rows, new_bias, output), tokenizer, path, like=side))
    if queries is None:
        return moved[0]
    if isinstance(queries[0], SparseStaticEmbedding):
        mixed = mixture.bias(as_array(queries[0].weight))
        mixed[mixture.methods == "masked"] = 0.0
        table = SparseStaticEmbedding(tokenizer, torch.from_numpy(mixed), frozen=queries[0].frozen)
        moved.append(SparseEncoder(modules=[table], device="cpu", **settings_of(queries)))
    return with_sides(moved[0], moved[0], moved[1], by_default=source.query_route_by_default)


def rebuilt(
    source: PreTrainedModel,
    rows: Tensor,
    bias: Tensor,
    output_rows: Tensor | None,
    tokenizer: PreTrainedTokenizerFast | None = None,
) -> PreTrainedModel:
    """A model like ``source`` on another vocabulary, in float32 and evaluation mode. It holds ``rows`` and
    ``output_rows`` themselves and copies of everything else; the shorter of both vocabularies is filled up with rows
    that are never active.

    Args:
        rows, bias: input embeddings, (input vocabulary, width), and decoder bias, (output vocabulary,).
        output_rows: of the decoder, (output vocabulary, decoder's width); None ties it to the embeddings.
        tokenizer: whose special ids the configuration gets; None leaves them as they are.
    """
    for what, values in (("embedding rows", rows), ("biases", bias), ("decoder rows", output_rows)):
        if values is not None and not bool(values.sum().isfinite()):
            raise DataError(f"the new {what} are not finite (NaN or infinite): check the files that the method reads")
    config = copy.deepcopy(source.config)
    config.vocab_size = max(len(rows), len(bias))
    config.tie_word_embeddings = output_rows is None
    state = dict(source.state_dict())
    if tokenizer is not None:
        _set_roles(config, tokenizer)
        _move_positions(source, config, state)

    with init_empty_weights(include_buffers=False):  # every weight is assigned below
        target = AutoModelForMaskedLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    target.tie_weights()
    head = mlm_head(target)
    decoder_rows = rows if output_rows is None else output_rows
    new = {id(head.decoder.weight): decoder_rows, id(head.embeddings.weight): rows, id(head.decoder.bias): bias}
    parameters = dict(target.named_parameters(remove_duplicate=False))
    bearing = {name: new[id(parameter)] for name, parameter in parameters.items() if id(parameter) in new}
    bearing |= {name: bias.clone() for name in parameters if name == _other_bias(target)}
    state = {name: tensor.to(torch.float32, copy=True) for name, tensor in state.items() if name not in bearing}
    state |= {name: _filled(part, config.vocab_size) for name, part in bearing.items()}
    try:
        missing, unexpected = target.load_state_dict(state, strict=False, assign=True)
    except RuntimeError as error:
        raise DataError(
            f"{type(source).__name__} has weights beside its embeddings and decoder that depend on the vocabulary: "
            f"{str(error).strip().splitlines()[-1].strip()}"
        ) from error
    if lost := sorted({*missing, *unexpected}):
        raise DataError(f"{type(source).__name__} cannot be rebuilt from its configuration: {', '.join(lost[:5])}")
    target.tie_weights()
    return target.eval()


def check_unchanged(source: PreTrainedModel, target: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    """Compare the transformers of both models on the same vectors (the target's embedding rows in place of token ids),
    a text with padding behind it among them, and the head with its definition."""
    head = mlm_head(target)
    ordinary = [number for number in range(len(tokenizer)) if number not in set(tokenizer.all_special_ids)]
    drawn = torch.from_numpy(np.random.default_rng(0).choice(ordinary, 12))
    ids = torch.stack([drawn, torch.cat([drawn[:7].flip(0), torch.full((5,), tokenizer.pad_token_id)])])
    mask = (ids != tokenizer.pad_token_id).long()
    name, was_training = type(source).__name__, source.training
    source.eval()
    try:
        with torch.no_grad():
            logits = target(input_ids=ids, attention_mask=mask).logits
            ours, alone = decoder_input(target, ids, mask), decoder_input(target, ids[1:, :7], mask[1:, :7])
            vectors = nn.functional.embedding(ids, head.embeddings.weight).to(source.device, source.dtype)
            with without_decoder(mlm_head(source).decoder):
                original = source(inputs_embeds=vectors, attention_mask=mask.to(source.device)).logits.to(ours)
            projected = nn.functional.linear(ours, head.decoder.weight, head.decoder.bias)
    except (TypeError, ValueError, NotImplementedError, IndexError) as error:
        raise DataError(f"{name} takes other inputs than token ids and an attention mask ({error})") from error
    finally:
        source.train(was_training)
    real = mask.bool()
    if not _close(ours[real], original[real]):
        raise DataError(
            f"{name} does not compute under the new vocabulary what it computed under the old one: something in it "
            "besides embeddings, decoder and positions depends on token ids. vtkit cannot move it."
        )
    if not _close(alone[0], ours[1, :7]):
        raise DataError(
            f"{name} mixes padding into its vectors: the vector of a text would depend on the texts in its batch."
        )
    if not _close(logits[real], projected[real]):
        raise DataError(f"{name} changes its logits after the output projection, which vtkit's sparse head does not.")


def _close(computed: Tensor, wanted: Tensor) -> bool:
    scale = float(wanted.abs().clamp(max=-MASKED_BIAS / 2).max())
    return bool((computed - wanted).abs().max() <= TOLERANCE * max(scale, 1e-6))


def _filled(values: Tensor, size: int) -> Tensor:
    """``values`` with rows of zeros, or biases that are never active, up to ``size``."""
    values = values.detach().to("cpu", torch.float32)
    if behind := size - len(values):
        filler = MASKED_BIAS if values.ndim == 1 else 0.0
        values = nn.functional.pad(values, (0, 0) * (values.ndim - 1) + (0, behind), value=filler)
    return values


def _other_bias(model: PreTrainedModel) -> str:
    """The second name of the decoder's bias in BERT and its kin: the same parameter if weights are tied, else a second
    one that is saved and never read."""
    decoder = mlm_head(model).decoder
    place = next(name for name, module in model.named_modules() if module is decoder)
    return f"{place.rpartition('.')[0]}.bias"


def _set_roles(config: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    for name, value in (
        ("pad_token_id", tokenizer.pad_token_id),
        ("bos_token_id", tokenizer.cls_token_id),
        ("eos_token_id", tokenizer.sep_token_id),
        ("cls_token_id", tokenizer.cls_token_id),
        ("sep_token_id", tokenizer.sep_token_id),
        ("pad_index", tokenizer.pad_token_id),
    ):
        if name == "pad_token_id" or getattr(config, name, None) is not None:
            setattr(config, name, value)
    fixed = FIXED_PADDING.get(config.model_type)
    if fixed is not None and tokenizer.pad_token_id != fixed:
        raise DataError(
            f"an encoder of the type {config.model_type} counts positions from the padding id {fixed}, and the target "
            f"tokenizer's is {tokenizer.pad_token_id}. Give its {tokenizer.pad_token} token the id {fixed}, or start "
            "from another encoder."
        )


def _move_positions(source: PreTrainedModel, config: Any, state: dict[str, Tensor]) -> None:
    """Position ids that start at padding id + 1: move the table's rows by as much as the padding id moved."""
    first_used = position_offset(source)
    if first_used == 0 or config.pad_token_id == first_used - 1:
        return
    first = config.pad_token_id + 1
    for name in [name for name in state if name.endswith("position_embeddings.weight")]:
        used = state[name][first_used:]
        new = used.new_zeros(first + len(used), used.shape[1])
        new[first:] = used
        state[name] = new
        config.max_position_embeddings = len(new)
    for buffer in [key for key in state if key.endswith(("position_ids", "embeddings.token_type_ids"))]:
        del state[buffer]


def trim_encoder(source: SparseEncoder, trimmed: PreTrainedTokenizerFast, folder: Path) -> SparseEncoder:
    """``source`` with the rows and biases of the tokens of ``trimmed``, each of which it has; a static query table too.
    Hidden states of texts whose tokens are all kept stay to the bit."""
    kept = kept_ids(source.tokenizer, trimmed)
    if isinstance(source[0].model, WithNewHead):
        source[0].model.keep(source[0].model.get_input_embeddings().weight.detach()[kept], trimmed)
        source[0].processor = trimmed
        return source
    rows = mlm_head(source[0].auto_model).decoder.out_features
    copies = Mixture(identity(rows, np.float32, "csr")[kept], all_made_by("overlap", len(kept)))
    return graft_encoder(source, trimmed, copies, lambda bias: bias[kept], folder)
