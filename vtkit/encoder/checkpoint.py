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
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding, SpladePooling
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from vtkit.data.hub import downloads_allowed
from vtkit.encoder.families import position_offset, with_plain_head
from vtkit.errors import DataError
from vtkit.recipe.sections import Scratch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ARCHITECTURES = {"bert": "bert", "distilbert": "distilbert", "roberta": "roberta", "modernbert": "modernbert"}

OUTPUT_TOKENIZER = "output_tokenizer"
"""Folder, beside a model's own files, of the tokenizer that names its output dimensions (head-only transfer)."""

UNLOADABLE = (OSError, ValueError, KeyError, RuntimeError, SafetensorError)
"""What the libraries raise over folders that hold no model or a damaged one."""


def fastest_device() -> str:
    """Where encoding runs: the GPU where torch has one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


class WholeEncoder(SparseEncoder):  # type: ignore[misc]
    """An encoder with a query side or an output vocabulary of its own; as a sequence it is its document side.

    What vtkit trains, calibrates and indexes is a Transformer and a SpladePooling. An asymmetric encoder keeps its
    other half here while that is done, and :func:`save_encoder` writes both as the library's router.
    """

    output_tokenizer: PreTrainedTokenizerBase | None = None
    """Names of the output dimensions, where they are not those of the input tokens (head-only transfer)."""

    query_route_by_default: bool = False
    """Whether texts of neither side are taken for queries."""

    _query_side: tuple[SparseEncoder, ...] = ()  # in a tuple, since a module would become part of the sequence

    @property
    def query_side(self) -> SparseEncoder | None:
        """What encodes queries: a Transformer and a SpladePooling, or a static table; None where documents' does."""
        return self._query_side[0] if self._query_side else None

    def keep_query_side(self, encoder: SparseEncoder, *, by_default: bool = False) -> None:
        """Let ``encoder`` encode queries and, ``by_default``, texts of neither side. (A property cannot be set to a
        module without becoming part of the sequence.)"""
        self._query_side, self.query_route_by_default = (encoder,), by_default


def load_encoder(name: str, device: str = "cpu") -> SparseEncoder:
    """A sparse encoder from a hub id or a folder, in float32, ready to encode.

    A SparseEncoder folder keeps its pooling, activation and settings; a bare masked language model gets max pooling
    with log(1 + ReLU). A router with one way for queries and one for documents becomes a :class:`WholeEncoder`.

    Raises:
        DataError: nothing is there, the model has no masked-language-model head, or it has modules that vtkit does
            not move.
    """
    with _quiet():
        if not _has_modules(name):
            encoder = SparseEncoder(modules=[_transformer(name), SpladePooling("max")], device=device)
        else:
            folders = _transformer_folders(name)
            for folder in folders:
                _trained_model(name, folder)
            try:
                encoder = SparseEncoder(
                    name,
                    device=device,
                    local_files_only=not downloads_allowed(),
                    model_kwargs={"dtype": torch.float32},
                )
            except UNLOADABLE as error:
                raise DataError(f"{name} cannot be loaded as a sparse encoder: {_first_line(error)}") from error
            encoder = _sides(name, encoder)
    for side in (encoder, encoder.query_side if isinstance(encoder, WholeEncoder) else None):
        if side is not None and isinstance(side[0], Transformer):
            side[0].model = with_plain_head(side[0].model)
            # The library takes all position embeddings for positions; RoBERTa's kin leave the first few unused.
            longest = max_input_length(side[0].model, side.tokenizer)
            side.max_seq_length = min(side.max_seq_length or longest, longest)
    return encoder.eval()


def assemble(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    pooling: str = "max",
    activation: str = "relu",
    device: str = "cpu",
    like: SparseEncoder | None = None,
) -> SparseEncoder:
    """Write ``model`` and ``tokenizer`` as a SparseEncoder folder and load it back.

    Going through the folder is the point: what is used afterwards is what plain sentence-transformers reads.

    Args:
        like: an encoder whose pooling, activation, prompts, similarity and limits the new one takes over.
    """
    backbone = folder / "backbone"
    if like is not None:
        pooling, activation = like[1].pooling_strategy, like[1].activation_function
    with _quiet():
        model.save_pretrained(backbone)
        tokenizer.save_pretrained(str(backbone))
        transformer = Transformer(
            str(backbone), transformer_task="fill-mask", model_kwargs={"dtype": torch.float32, "local_files_only": True}
        )
        modules = [transformer, SpladePooling(pooling, activation, model.config.vocab_size)]
        encoder = SparseEncoder(modules=modules, device=device, **({} if like is None else settings_of(like)))
    transformer.max_seq_length = max_input_length(model, tokenizer)
    if like is not None and like.max_seq_length:
        transformer.max_seq_length = min(transformer.max_seq_length, like.max_seq_length)
    return encoder.eval()


def settings_of(encoder: SparseEncoder) -> dict[str, Any]:
    """What an encoder says beside its modules, as arguments of a new one."""
    return {
        "prompts": dict(encoder.prompts),
        "default_prompt_name": encoder.default_prompt_name,
        "similarity_fn_name": encoder.similarity_fn_name,
        "max_active_dims": encoder.max_active_dims,
    }


def output_tokenizer(encoder: SparseEncoder) -> PreTrainedTokenizerFast:
    """The tokenizer that names the output dimensions of ``encoder``."""
    own = encoder.output_tokenizer if isinstance(encoder, WholeEncoder) else None
    return own or encoder.tokenizer


def dimension_names(encoder: SparseEncoder) -> list[str]:
    """The token that each output dimension stands for; empty for rows that are never active, (vocabulary,)."""
    names = [""] * int(encoder[0].auto_model.config.vocab_size)
    for token, number in output_tokenizer(encoder).get_vocab().items():
        names[number] = token
    return names


def refuse_query_side(encoder: SparseEncoder, stage: str, *, static_too: bool = True) -> None:
    """Stages that change both sides by changing one cannot take an asymmetric encoder.

    Args:
        static_too: whether a static query table is in the way too.

    Raises:
        DataError: the encoder's queries take a way of their own.
    """
    side = encoder.query_side if isinstance(encoder, WholeEncoder) else None
    if side is not None and (static_too or isinstance(side[0], Transformer)):
        raise DataError(
            f"[{stage}] changes encoders that encode queries and documents alike, and this one has a query side of its "
            f"own, which would stay behind. Remove [{stage}], or start from a symmetric encoder."
        )


def refuse_output_vocabulary(encoder: SparseEncoder) -> None:
    """A transfer mixes a source's decoder rows by the tokens that it reads, so it must write the same.

    Raises:
        DataError: the encoder has an output vocabulary of its own.
    """
    if isinstance(encoder, WholeEncoder) and encoder.output_tokenizer is not None:
        raise DataError(
            "the source reads one vocabulary and writes another (it was made by a head-only transfer), and a transfer "
            "starts from one vocabulary. Name the encoder that it was made from."
        )


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
    """Write ``encoder`` where plain ``SparseEncoder(folder)`` loads it: safetensors only, tied weights once.

    A query side goes into the library's router; an output vocabulary into the folder ``output_tokenizer``.
    """
    whole = encoder if isinstance(encoder, WholeEncoder) else None
    query_side = whole.query_side if whole is not None else None
    for side in (encoder, query_side):
        if side is None or len(side) == 1:
            continue
        transformer, pooling = side[0], side[1]
        if type(pooling) is not SpladePooling:
            raise TypeError("save the encoder after the streaming block: its pooling must be the library's own")
        pooling.embedding_dimension = transformer.auto_model.config.vocab_size
    modules = [encoder[0], encoder[1]]
    with _quiet():
        if whole is not None and query_side is not None:
            default = "query" if whole.query_route_by_default else "document"
            modules = [Router.for_query_document(list(query_side), modules, default_route=default)]
        plain = (
            encoder if whole is None else SparseEncoder(modules=modules, device=encoder.device, **settings_of(encoder))
        )
        plain.save(str(folder), create_model_card=False)
        if whole is not None and whole.output_tokenizer is not None:
            whole.output_tokenizer.save_pretrained(str(folder / OUTPUT_TOKENIZER))


def max_input_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Longest input in tokens that the model has positions for (and the tokenizer admits)."""
    positions = getattr(model.config, "max_position_embeddings", 512) - position_offset(model)
    stated = tokenizer.model_max_length
    return int(min(positions, stated)) if stated and stated < 10**6 else int(positions)


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
        kinds = [module["type"] for module in json.loads(modules.read_text("utf-8"))]
        return any("sparse_encoder" in kind or kind.endswith("Router") for kind in kinds)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"source model {name}: its modules.json is damaged ({error!r}). Fetch the model again."
        ) from error


def _trained_model(name: str, folder: str = "") -> PreTrainedModel:
    """The masked language model of ``name``. A checkpoint without a head would load with a random one: refused."""
    for settings in ({}, {"legacy": False}):
        try:
            model, info = AutoModelForMaskedLM.from_pretrained(
                name,
                subfolder=folder,
                output_loading_info=True,
                local_files_only=not downloads_allowed(),
                dtype=torch.float32,
                **settings,
            )
        except UNLOADABLE as error:
            raise DataError(
                f"source model {name} cannot be loaded as a masked language model: {_first_line(error)}"
            ) from error
        # DeBERTa's published checkpoints hold the newer head and say nothing about it in their configuration.
        if not any(key.startswith("lm_predictions.lm_head.") for key in info["unexpected_keys"]):
            break
    missing = sorted(key for key in info["missing_keys"] if "position_ids" not in key)
    if missing:
        shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        raise DataError(
            f"source model {name} has no trained masked-language-model head: its weights lack {shown}. "
            "A dense embedder has none; name a sparse encoder or a masked language model."
        )
    plain: PreTrainedModel = with_plain_head(model)
    return plain


def _transformer(name: str) -> Transformer:
    """The library's module around a bare masked language model."""
    model = _trained_model(name)
    transformer = Transformer(
        name,
        transformer_task="fill-mask",
        model_kwargs={"dtype": torch.float32, "local_files_only": not downloads_allowed()},
        processor_kwargs={"local_files_only": not downloads_allowed()},
        config_kwargs={"local_files_only": not downloads_allowed()},
    )
    transformer.model = model.eval()
    return transformer


def _transformer_folders(name: str) -> list[str]:
    """Where in a SparseEncoder folder its transformers are: one, or one for each side of a router."""
    try:
        first = json.loads(_file(name, "modules.json").read_text("utf-8"))[0]
        kinds = {first["path"]: first["type"]}
        if first["type"].endswith("Router"):
            path = f"{first['path']}/router_config.json".lstrip("/")
            parts = json.loads(_file(name, path).read_text("utf-8"))["types"]
            kinds = {f"{first['path']}/{folder}".lstrip("/"): kind for folder, kind in parts.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DataError(
            f"source model {name}: its modules.json or router_config.json is damaged ({error!r}). Fetch it again."
        ) from error
    return [folder for folder, kind in kinds.items() if kind.endswith("Transformer")]


def _file(name: str, path: str) -> Path:
    if Path(name).is_absolute():
        return Path(name) / path
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(name, path, local_files_only=not downloads_allowed()))


def _sides(name: str, encoder: SparseEncoder) -> SparseEncoder:
    """``encoder`` as a Transformer and a SpladePooling, with its query side and output vocabulary beside them."""
    modules = list(encoder)
    router = modules[0] if isinstance(modules[0], Router) else None
    query = document = modules
    if router is not None:
        query, document = ([*_route(router, side), *modules[1:]] for side in ("query", "document"))
    is_transformer = [type(module) for module in document] == [Transformer, SpladePooling]
    kinds = [type(module) for module in query]
    if not is_transformer or kinds not in ([Transformer, SpladePooling], [SparseStaticEmbedding]):
        raise DataError(
            f"{name} is made of {_made_of(query, document)}; vtkit moves encoders made of a Transformer with a "
            "masked-language-model head and a SpladePooling, and routers whose queries take such a way of their own or "
            "a static table. Name such an encoder."
        )
    output = Path(name) / OUTPUT_TOKENIZER
    if router is None and not output.is_dir():
        return encoder
    whole = WholeEncoder(modules=document, device=encoder.device, **settings_of(encoder))
    if router is not None and any(mine is not theirs for mine, theirs in zip(query, document, strict=False)):
        queries = SparseEncoder(modules=query, device=encoder.device, **settings_of(encoder)).eval()
        first = None if router.default_route is None else next(iter(router.sub_modules[router.default_route]))
        whole.keep_query_side(queries, by_default=first is query[0])
    if output.is_dir():
        whole.output_tokenizer = PreTrainedTokenizerFast.from_pretrained(str(output), local_files_only=True)
    return whole


def _route(router: Router, side: str) -> list[Any]:
    """The modules that ``side``'s texts go through."""
    ways = ((side, "text"), (side, None), (None, "text"), (None, None))
    name = next((router.route_mappings[way] for way in ways if way in router.route_mappings), side)
    return list(router.sub_modules[name]) if name in router.sub_modules else []


def _made_of(query: list[Any], document: list[Any]) -> str:
    parts = [", ".join(type(module).__name__ for module in side) or "nothing" for side in (document, query)]
    return parts[0] if query == document else f"{parts[0]} for documents and {parts[1]} for queries"


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Loading and saving without the libraries' bars, notices and warnings."""
    with without_notices(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def without_notices() -> Iterator[None]:
    """Without the bars and notices of transformers: vtkit has one console."""
    level = transformers_logging.get_verbosity()
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if shown:
            transformers_logging.enable_progress_bar()
