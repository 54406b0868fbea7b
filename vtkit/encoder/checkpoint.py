"""Sparse encoders on disk: loading a source, making a new one, saving what plain sentence-transformers loads."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from sentence_transformers import SparseEncoder
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from vtkit.data.hub import downloads_allowed
from vtkit.encoder.families import mlm_head
from vtkit.errors import DataError
from vtkit.recipe.sections import Scratch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ARCHITECTURES = {"bert": "bert", "distilbert": "distilbert", "roberta": "roberta", "modernbert": "modernbert"}

UNLOADABLE = (OSError, ValueError, KeyError, RuntimeError, SafetensorError)
"""What the libraries raise over folders that hold no model or a damaged one."""


def fastest_device() -> str:
    """Where encoding runs: the GPU where torch has one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_encoder(name: str, device: str = "cpu") -> SparseEncoder:
    """A sparse encoder from a hub id or a folder, in float32, ready to encode.

    A SparseEncoder folder keeps its pooling and activation; a bare masked language model gets max pooling
    with log(1 + ReLU).

    Raises:
        DataError: nothing is there, the model has no masked-language-model head, or it has modules that
            vtkit does not move (a router, a static query table).
    """
    with _quiet():
        if _has_modules(name):
            try:
                encoder = SparseEncoder(
                    name,
                    device=device,
                    local_files_only=not downloads_allowed(),
                    model_kwargs={"dtype": torch.float32},
                )
            except UNLOADABLE as error:
                raise DataError(f"{name} cannot be loaded as a sparse encoder: {_first_line(error)}") from error
            kinds = [type(module).__name__ for module in encoder]
            if len(kinds) != 2 or not isinstance(encoder[1], SpladePooling):
                raise DataError(
                    f"{name} is made of {', '.join(kinds)}; vtkit moves encoders made of a Transformer with a "
                    "masked-language-model head and a SpladePooling. Name such an encoder."
                )
            _refuse_missing_head(name)
        else:
            _refuse_missing_head(name)
            transformer = Transformer(
                name,
                transformer_task="fill-mask",
                model_kwargs={"dtype": torch.float32, "local_files_only": not downloads_allowed()},
                processor_kwargs={"local_files_only": not downloads_allowed()},
                config_kwargs={"local_files_only": not downloads_allowed()},
            )
            encoder = SparseEncoder(modules=[transformer, SpladePooling("max")], device=device)
    mlm_head(encoder[0].auto_model)
    # The library takes all position embeddings for positions; RoBERTa's kin leave the first few unused.
    longest = max_input_length(encoder[0].auto_model, encoder.tokenizer)
    encoder.max_seq_length = min(encoder.max_seq_length or longest, longest)
    return encoder.eval()


def assemble(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    pooling: str = "max",
    activation: str = "relu",
    device: str = "cpu",
) -> SparseEncoder:
    """Write ``model`` and ``tokenizer`` as a SparseEncoder folder and load it back.

    Going through the folder is the point: what is used afterwards is what plain sentence-transformers reads.
    """
    backbone = folder / "backbone"
    with _quiet():
        model.save_pretrained(backbone)
        tokenizer.save_pretrained(str(backbone))
        transformer = Transformer(
            str(backbone), transformer_task="fill-mask", model_kwargs={"dtype": torch.float32, "local_files_only": True}
        )
        encoder = SparseEncoder(
            modules=[transformer, SpladePooling(pooling, activation, model.config.vocab_size)], device=device
        )
    transformer.max_seq_length = max_input_length(model, tokenizer)
    return encoder.eval()


def scratch_model(section: Scratch, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """A masked language model of ``section``'s architecture with random weights over ``tokenizer``'s vocabulary.

    The linear map inside its head starts as the identity instead of noise: with tied embeddings each token's own
    logit is then the largest from the first step, so that a new sparse encoder begins as a lexical matcher. The other
    weights come from torch's global generator: seed it before.
    """
    roles = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "cls_token_id": tokenizer.cls_token_id,
        "sep_token_id": tokenizer.sep_token_id,
    }
    positions = section.max_length + (tokenizer.pad_token_id + 1 if section.architecture == "roberta" else 0)
    common: dict[str, Any] = {"vocab_size": len(tokenizer), "max_position_embeddings": positions, **roles}
    match section.architecture:
        case "distilbert":
            shape = {
                "dim": section.hidden,
                "n_layers": section.layers,
                "n_heads": section.heads,
                "hidden_dim": section.feed_forward,
                "dropout": section.dropout,
                "attention_dropout": section.dropout,
            }
        case "modernbert":
            shape = {
                "hidden_size": section.hidden,
                "num_hidden_layers": section.layers,
                "num_attention_heads": section.heads,
                "intermediate_size": section.feed_forward,
                "embedding_dropout": section.dropout,
                "mlp_dropout": section.dropout,
                "attention_dropout": section.dropout,
            }
        case "bert" | "roberta":
            shape = {
                "hidden_size": section.hidden,
                "num_hidden_layers": section.layers,
                "num_attention_heads": section.heads,
                "intermediate_size": section.feed_forward,
                "hidden_dropout_prob": section.dropout,
                "attention_probs_dropout_prob": section.dropout,
            }
            if section.architecture == "roberta":
                shape["type_vocab_size"] = 1
    config = AutoConfig.for_model(ARCHITECTURES[section.architecture], **common, **shape)
    model = AutoModelForMaskedLM.from_config(config)
    heads = ("cls.predictions.transform.dense", "lm_head.dense", "vocab_transform", "head.dense")
    for name, module in model.named_modules():
        if name in heads:
            torch.nn.init.eye_(module.weight)
    return model


def save_encoder(encoder: SparseEncoder, folder: Path) -> None:
    """Write ``encoder`` where plain ``SparseEncoder(folder)`` loads it: safetensors only, tied weights once."""
    transformer, pooling = encoder[0], encoder[1]
    if type(pooling) is not SpladePooling:
        raise TypeError("save the encoder after the streaming block: its pooling must be the library's own")
    pooling.embedding_dimension = transformer.auto_model.config.vocab_size
    with _quiet():
        encoder.save(str(folder), create_model_card=False)


def max_input_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Longest input in tokens that the model has positions for (and the tokenizer admits)."""
    positions = getattr(model.config, "max_position_embeddings", 512)
    if position_offset(model):
        positions -= position_offset(model)
    stated = tokenizer.model_max_length
    return int(min(positions, stated)) if stated and stated < 10**6 else int(positions)


def position_offset(model: PreTrainedModel) -> int:
    """How many position ids come before the first token's: ``pad_token_id + 1`` for RoBERTa's kin, else 0."""
    from vtkit.encoder.families import POSITIONS_COUNT_FROM_PADDING

    return model.config.pad_token_id + 1 if model.config.model_type in POSITIONS_COUNT_FROM_PADDING else 0


def _has_modules(name: str) -> bool:
    """Whether ``name`` is a sentence-transformers model rather than a bare transformers one."""
    if Path(name).is_absolute():
        folder = Path(name)
        if not folder.is_dir():
            raise DataError(f"source model {name}: there is no such folder. Give a hub id or a model's folder.")
        if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
            raise DataError(f"source model {name}: the folder holds neither config.json nor modules.json.")
        modules = folder / "modules.json"
    else:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

        try:
            modules = Path(hf_hub_download(name, "modules.json", local_files_only=not downloads_allowed()))
        except LocalEntryNotFoundError:
            return False
        except EntryNotFoundError:
            return False
        except (HfHubHTTPError, OSError) as error:
            raise DataError(f"source model {name} cannot be had from the hub: {_first_line(error)}") from error
    if not modules.is_file():
        return False
    try:
        return any("sparse_encoder" in module["type"] for module in json.loads(modules.read_text("utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"source model {name}: its modules.json is damaged ({error!r}). Fetch the model again."
        ) from error


def _refuse_missing_head(name: str) -> None:
    """A checkpoint without a masked-language-model head would load with a random one; say so instead."""
    try:
        model, info = AutoModelForMaskedLM.from_pretrained(
            name, output_loading_info=True, local_files_only=not downloads_allowed(), dtype=torch.float32
        )
    except UNLOADABLE as error:
        raise DataError(
            f"source model {name} cannot be loaded as a masked language model: {_first_line(error)}"
        ) from error
    mlm_head(model)
    missing = sorted(key for key in info["missing_keys"] if "position_ids" not in key)
    if missing:
        shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        raise DataError(
            f"source model {name} has no trained masked-language-model head: its weights lack {shown}. "
            "A dense embedder has none; name a sparse encoder or a masked language model."
        )


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Loading and saving without the libraries' own bars and notices: vtkit has one console."""
    level = transformers_logging.get_verbosity()
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(level)
        if shown:
            transformers_logging.enable_progress_bar()
