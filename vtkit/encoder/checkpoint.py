"""Sparse encoders on disk: loading a source, making a new one, saving what plain sentence-transformers loads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding, SpladePooling
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from vtkit.encoder.families import position_offset, with_plain_head
from vtkit.encoder.model_folder import SAFELY, SAFELY_WEIGHTS, library_errors, model_folder, read_json, tensor_shapes
from vtkit.errors import DataError
from vtkit.recipe.sections import Scratch
from vtkit.vocabulary.existing import check_readable

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ARCHITECTURES = {"bert": "bert", "distilbert": "distilbert", "roberta": "roberta", "modernbert": "modernbert"}

OUTPUT_TOKENIZER = "output_tokenizer"
"""Folder, beside a model's own files, of the tokenizer that names its output dimensions (head-only transfer)."""


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
    """A sparse encoder from a folder (a relative one too) or a hub id, in float32, ready to encode.

    A SparseEncoder folder keeps its pooling, activation and settings; a bare masked language model gets max pooling
    with log(1 + ReLU). A router with one way for queries and one for documents becomes a :class:`WholeEncoder`.

    Raises:
        DataError: nothing is there, it is damaged, would run code of its own or open a pickle, the model has no
            masked-language-model head, or it has modules that vtkit does not move.
    """
    folder = model_folder(name)
    with _quiet():
        if not _has_modules(folder):
            encoder = SparseEncoder(modules=[_transformer(name, folder), SpladePooling("max")], device=device)
        else:
            for place in _transformer_folders(folder):
                _trained_model(name, folder / place)
            with library_errors(f"{name} cannot be loaded as a sparse encoder"):
                encoder = SparseEncoder(
                    str(folder),
                    device=device,
                    **SAFELY,
                    model_kwargs={"dtype": torch.float32, "use_safetensors": True},
                )
            encoder = _sides(name, folder, encoder)
    for side in (encoder, encoder.query_side if isinstance(encoder, WholeEncoder) else None):
        if side is not None and isinstance(side[0], Transformer):
            side[0].model = with_plain_head(side[0].model)
            # The library takes all position embeddings for positions; RoBERTa's kin leave the first few unused.
            longest = max_input_length(side[0].model, side.tokenizer)
            side.max_seq_length = min(side.max_seq_length or longest, longest)
            _check_tokenizer(name, side)
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
        transformer = _module(backbone)
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
    model = AutoModelForMaskedLM.from_config(config, trust_remote_code=False)
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


def _has_modules(folder: Path) -> bool:
    """Whether a folder holds a sentence-transformers model rather than a bare transformers one."""
    path = folder / "modules.json"
    if not path.is_file():
        return False
    kinds = [module["type"] for module in read_json(path, str(folder))]  # their form was checked
    return any("sparse_encoder" in kind or kind.endswith("Router") for kind in kinds)


def _trained_model(name: str, folder: Path) -> PreTrainedModel:
    """The masked language model in ``folder``.

    Raises:
        DataError: weights are missing (a checkpoint without a head would load with a random one), of another shape
            than the configuration says, or no numbers.
    """
    _check_vocabulary_size(name, folder)
    for settings in ({}, {"legacy": False}):
        with library_errors(f"source model {name} cannot be loaded as a masked language model"):
            model, info = AutoModelForMaskedLM.from_pretrained(
                str(folder),
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, in words
                dtype=torch.float32,
                **SAFELY_WEIGHTS,
                **settings,
            )
        # DeBERTa's published checkpoints hold the newer head and say nothing about it in their configuration.
        if not any(key.startswith("lm_predictions.lm_head.") for key in info["unexpected_keys"]):
            break
    _check_weights(name, folder, model, info)
    plain: PreTrainedModel = with_plain_head(model)
    return plain


def _check_vocabulary_size(name: str, folder: Path) -> None:
    """Refuse a ``vocab_size`` that no weight has, before the library makes room for so many rows."""
    path = folder / "config.json"
    size = read_json(path, f"source model {name}").get("vocab_size") if path.is_file() else None
    if size is None:  # the library's default for the architecture, or a message of its own
        return
    shapes = tensor_shapes(folder)
    tables = {key: shape[0] for key, shape in shapes.items() if len(shape) == 2 and "embed" in key}
    if not tables or any(size in shape for shape in shapes.values()):
        return
    key = max(tables, key=lambda name: tables[name])
    raise DataError(
        f"source model {name}: its files do not belong together. {path} says vocab_size {size}, and its weights have "
        f"{tables[key]} rows ({key}). Fetch the model again, or put the configuration back that its weights were saved "
        "with."
    )


def _check_weights(name: str, folder: Path, model: PreTrainedModel, info: dict[str, Any]) -> None:
    """Refuse weights that do not fit ``folder``'s configuration, or that are no numbers."""
    other = sorted(info["mismatched_keys"], key=lambda entry: str(entry[0]))
    if other:
        key, found, wanted = other[0]
        more = f" ({len(other) - 1} more tensors differ)" if len(other) > 1 else ""
        vocabulary = int(model.config.vocab_size)
        by_vocabulary = vocabulary in tuple(wanted) and vocabulary not in tuple(found)
        said = f"vocab_size {vocabulary}" if by_vocabulary else f"the shape {tuple(wanted)}"
        raise DataError(
            f"source model {name}: its files do not belong together. {folder / 'config.json'} says {said}, and its "
            f"weights hold {key} of the shape {tuple(found)}{more}. Fetch the model again, or put the configuration "
            "back that its weights were saved with."
        )
    missing = sorted(key for key in info["missing_keys"] if "position_ids" not in key)
    body = [key for key in missing if key.startswith(f"{model.base_model_prefix}.")]
    shown = _listed(body or missing)
    if body:
        raise DataError(
            f"source model {name}: the weights in {folder} lack {len(body)} of the tensors of a "
            f"{type(model).__name__} with this config.json: {shown}. They are incomplete, or another model's. Fetch "
            "the model again."
        )
    if missing:
        raise DataError(
            f"source model {name} has no trained masked-language-model head: its weights lack {shown}. "
            "A dense embedder has none; name a sparse encoder or a masked language model."
        )
    bad = [key for key, parameter in model.named_parameters() if not bool(torch.isfinite(parameter).all())]
    if bad:
        raise DataError(
            f"source model {name}: weights in {folder} are not finite numbers (NaN or infinite): {_listed(bad)}. The "
            "file is damaged, or the model's training diverged. Fetch it again, or name another."
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _check_tokenizer(name: str, side: SparseEncoder) -> None:
    """Refuse a tokenizer that the model beside it has no rows for."""
    rows = len(side[0].auto_model.get_input_embeddings().weight)
    check_readable(side.tokenizer.backend_tokenizer, f"of {name}")
    token, largest = max(side.tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    if largest >= rows:
        raise DataError(
            f"{name}: its tokenizer and its weights do not belong together. The tokenizer numbers {token!r} "
            f"{largest}, and the weights have {rows} rows, 0 to {rows - 1}. Put the model's own tokenizer.json back."
        )


def _module(folder: Path) -> Transformer:
    """The library's module around the masked language model in ``folder``."""
    return Transformer(
        str(folder),
        transformer_task="fill-mask",
        model_kwargs={"dtype": torch.float32, **SAFELY_WEIGHTS},
        processor_kwargs=dict(SAFELY),
        config_kwargs=dict(SAFELY),
    )


def _transformer(name: str, folder: Path) -> Transformer:
    """The library's module around a bare masked language model."""
    model = _trained_model(name, folder)
    with library_errors(f"source model {name} cannot be loaded with its tokenizer"):
        transformer = _module(folder)
    transformer.model = model.eval()
    return transformer


def _transformer_folders(folder: Path) -> list[str]:
    """Where in a SparseEncoder folder its transformers are: one, or one for each side of a router."""
    first = read_json(folder / "modules.json", str(folder))[0]
    place = first.get("path", "")
    kinds = {place: first["type"]}
    if first["type"].endswith("Router"):
        path = folder / place / "router_config.json"
        if not path.is_file():
            raise DataError(f"source model {folder}: {path} is missing. Fetch or copy the model again.")
        types = read_json(path, str(folder))["types"]
        kinds = {f"{place}/{inner}".lstrip("/"): kind for inner, kind in types.items()}
    return [inner for inner, kind in kinds.items() if kind.endswith("Transformer")]


def _sides(name: str, folder: Path, encoder: SparseEncoder) -> SparseEncoder:
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
    output = folder / OUTPUT_TOKENIZER
    if router is None and not output.is_dir():
        return encoder
    whole = WholeEncoder(modules=document, device=encoder.device, **settings_of(encoder))
    if router is not None and any(mine is not theirs for mine, theirs in zip(query, document, strict=False)):
        queries = SparseEncoder(modules=query, device=encoder.device, **settings_of(encoder)).eval()
        first = None if router.default_route is None else next(iter(router.sub_modules[router.default_route]))
        whole.keep_query_side(queries, by_default=first is query[0])
    if output.is_dir():
        with library_errors(f"the tokenizer {output} cannot be loaded"):
            whole.output_tokenizer = PreTrainedTokenizerFast.from_pretrained(str(output), **SAFELY)
    return whole


def _route(router: Router, side: str) -> list[Any]:
    """The modules that ``side``'s texts go through."""
    ways = ((side, "text"), (side, None), (None, "text"), (None, None))
    name = next((router.route_mappings[way] for way in ways if way in router.route_mappings), side)
    return list(router.sub_modules[name]) if name in router.sub_modules else []


def _made_of(query: list[Any], document: list[Any]) -> str:
    parts = [", ".join(type(module).__name__ for module in side) or "nothing" for side in (document, query)]
    return parts[0] if query == document else f"{parts[0]} for documents and {parts[1]} for queries"


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
