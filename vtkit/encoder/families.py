"""Where an architecture keeps its embeddings, its masked-language-model head and the head's bias, and what else depends
on the vocabulary."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vtkit.system.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from vtkit.vocabulary.tokenizer_file import TokenizerFile

FIXED_PADDING = {"mpnet": 1}
"""Model types that count positions from a padding id written in their code, whatever their configuration says."""

NO_AUTOCAST = {"deberta", "xmod"}
"""Model types whose code in transformers 5 fails under autocast: it mixes what is cast with what is not."""

UNLIMITED = 512  # tokens that are read by a model without a table of positions, if no file has a limit

FAMILIES = "BERT, DistilBERT, RoBERTa, XLM-R, ModernBERT, ELECTRA's generator, DeBERTa, MPNet"


@dataclass(frozen=True)
class MlmHead:
    """The parts of a masked language model that carry its vocabulary."""

    embeddings: nn.Embedding  # input embeddings, weight (vocabulary, width)
    decoder: nn.Linear  # output projection, weight (vocabulary, width) and bias (vocabulary,)
    tied: bool  # whether both share one weight


def mlm_head(model: Any) -> MlmHead:
    """The vocabulary-bearing parts of ``model`` (a transformers masked language model)."""
    embeddings = model.get_input_embeddings()
    decoder = model.get_output_embeddings()
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        raise DataError(f"{name} is an encoder with a decoder. Name a plain encoder, such as {FAMILIES}.")
    if not isinstance(decoder, nn.Linear) or not isinstance(embeddings, nn.Embedding):
        raise DataError(
            f"{name} has no masked-language-model head that vtkit can move: looked for an Embedding that reads tokens "
            f"(get_input_embeddings) and found {type(embeddings).__name__}, and for a Linear that writes them "
            f"(get_output_embeddings) and found {type(decoder).__name__}. Name an encoder with both, one that "
            f"AutoModelForMaskedLM loads: {FAMILIES}."
        )
    if decoder.weight.shape[0] != embeddings.weight.shape[0]:
        raise DataError(
            f"{name} reads {embeddings.weight.shape[0]} tokens and writes {decoder.weight.shape[0]}: "
            "vtkit moves encoders that read and write one vocabulary."
        )
    return MlmHead(embeddings, decoder, decoder.weight is embeddings.weight)


def learns_only(model: PreTrainedModel, part: Literal["embeddings", "head", "all"], reads_others: bool) -> None:
    """Let only a part of ``model`` have gradients: ``embeddings`` (embeddings, decoder and its bias, but embeddings not
    where it ``reads_others`` than it writes), ``head`` (what the transformer has no share in, so of a tied decoder only
    the bias), or all."""
    head, body = mlm_head(model), {id(weight) for weight in model.base_model.parameters()}
    named = {id(head.decoder.weight), id(head.decoder.bias)} | (set() if reads_others else {id(head.embeddings.weight)})
    for weight in model.parameters():
        inside = id(weight) in named if part == "embeddings" else part == "all" or id(weight) not in body
        weight.requires_grad_(inside)


def not_finite(model: nn.Module) -> list[str]:
    """Names of the weights that hold NaN or an infinite number. A sum shows either, and makes no copy."""
    return [name for name, weight in model.named_parameters() if not bool(weight.sum().isfinite())]


def with_plain_head(model: PreTrainedModel) -> PreTrainedModel:
    """``model`` with a decoder that is one linear map with a bias; the same logits. A missing bias (ModernBERT's
    ``decoder_bias``) becomes one of zeros, in place; DeBERTa's newer head is rebuilt in the older layout."""
    if model.config.model_type in ("deberta", "deberta-v2") and not model.config.legacy:
        model = _with_older_deberta_head(model)
    decoder = mlm_head(model).decoder
    if decoder.bias is None:
        if not hasattr(model.config, "decoder_bias"):
            raise DataError(
                f"{type(model).__name__} has a head without bias and no setting that gives it one. The bias carries "
                f"the token priors and the calibration: name an encoder that has one, such as {FAMILIES}."
            )
        model.config.decoder_bias = True
        decoder.bias = nn.Parameter(decoder.weight.new_zeros(decoder.out_features))
    return model


def settle_head(model: PreTrainedModel) -> None:
    """Let nothing but the decoder's own weights say what they are, in place, so that every version computes with them:
    some heads have a second bias, with which transformers 4 replaces the decoder's, and it ties weights by the
    configuration."""
    head = mlm_head(model)
    model.config.tie_word_embeddings = head.tied
    for module in model.modules():
        beside = module._parameters.get("bias")
        if beside is not None and any(part is head.decoder for part in module.children()):
            with torch.no_grad():
                beside.copy_(head.decoder.bias)


def max_input_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | TokenizerFile) -> int:
    """Longest input in tokens that the model has positions for (and the tokenizer admits)."""
    positions = getattr(model.config, "max_position_embeddings", None) or -1  # XLNet says -1 if there are none
    positions = positions - position_offset(model) if positions > 0 else UNLIMITED
    stated = tokenizer.model_max_length
    return int(min(positions, stated)) if stated and 1 <= stated < 10**6 else int(positions)


def settle_input(transformer: Any) -> None:
    """Let ``transformer``, a module of sentence-transformers, cut texts where its positions end, whatever limit its
    files state, and pad those of a batch: a tokenizer without a padding token takes the model's, or another special
    token. Padding is masked, so that it changes no vector."""
    model, tokenizer = transformer.auto_model, transformer.tokenizer
    for table in model.modules():
        if hasattr(table, "create_position_ids_from_input_ids") and table.padding_idx is None:
            raise DataError(
                f"{model.name_or_path}: a model of the type {model.config.model_type} counts positions from its "
                "padding id, and its config.json has none. Write the id of its padding token there as pad_token_id."
            )
    transformer.max_seq_length = max_input_length(model, tokenizer)
    if tokenizer.pad_token is None:
        special = (tokenizer.eos_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id, 0)
        known = (number for number in (model.config.pad_token_id, *special) if number is not None)
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(next(known))


def takes_autocast(model: Any) -> bool:
    """Report whether ``model`` (of transformers) can compute under autocast to bf16."""
    return model.config.model_type not in NO_AUTOCAST


def as_array(parameter: Tensor) -> NDArray[np.float32]:
    """The numbers of a parameter, in single precision."""
    return np.asarray(parameter.detach().float().cpu().numpy(), dtype=np.float32)


def position_offset(model: PreTrainedModel) -> int:
    """How many position ids come before the first token's: the padding id + 1 for RoBERTa's kin, whose position table
    leaves the padding id's row out, else 0."""
    tables = (module for name, module in model.named_modules() if name.endswith("position_embeddings"))
    table = next((module for module in tables if isinstance(module, nn.Embedding)), None)
    return 0 if table is None or table.padding_idx is None else int(table.padding_idx) + 1


def _with_older_deberta_head(model: PreTrainedModel) -> PreTrainedModel:
    from transformers import AutoModelForMaskedLM

    config = copy.deepcopy(model.config)
    config.legacy, config.tie_word_embeddings = True, True
    rebuilt = AutoModelForMaskedLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    renamed = {
        "lm_predictions.lm_head.dense.": "cls.predictions.transform.dense.",
        "lm_predictions.lm_head.LayerNorm.": "cls.predictions.transform.LayerNorm.",
        "lm_predictions.lm_head.bias": "cls.predictions.bias",
    }
    state = {}
    for name, tensor in model.state_dict().items():
        old = next((old for old in renamed if name.startswith(old)), "")
        state[renamed.get(old, "") + name.removeprefix(old)] = tensor
    missing, unexpected = rebuilt.load_state_dict(state, strict=False)
    lost = [name for name in missing if not name.startswith("cls.predictions.decoder.")] + unexpected
    if lost:
        raise DataError(f"{type(model).__name__} cannot be rebuilt from its configuration: {', '.join(lost[:5])}")
    moved: PreTrainedModel = rebuilt.to(model.device).train(model.training)
    return moved
