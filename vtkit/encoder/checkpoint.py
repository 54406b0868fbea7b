"""Sparse encoders on disk: loading a source, making a new one, saving what plain sentence-transformers loads."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import sentence_transformers
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding, SpladePooling
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from vtkit.data.hub import read_json
from vtkit.encoder.asymmetric import both_sides, own_output, query_side, query_table, settings_of
from vtkit.encoder.dense import refuse_other_kinds
from vtkit.encoder.families import (
    FAMILIES,
    as_array,
    max_input_length,
    not_finite,
    settle_head,
    settle_input,
    with_plain_head,
)
from vtkit.encoder.kinds import as_autoencoder, as_unicoil
from vtkit.encoder.layout import rearrange
from vtkit.encoder.model_folder import (
    OUTPUT_TOKENIZER,
    OWN_MODULES,
    SAFELY,
    SAFELY_WEIGHTS,
    SPARSE_LINEAR,
    UNTRAINED_HEAD,
    check_file,
    first_of,
    library_errors,
    load_complete,
    model_folder,
    module_types,
    refuse_lacking,
    transformer_folder,
    transformer_folders,
)
from vtkit.encoder.new_head import WithNewHead
from vtkit.encoder.token_units import IN_LIBRARY, LIBRARY_NAMES, has_token_units
from vtkit.encoder.unicoil import TokenTransformer, UnicoilPooling, is_unicoil
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.runtime import quiet_libraries, release_memory
from vtkit.vocabulary.existing import prepare_tokenizer
from vtkit.vocabulary.saved import save_tokenizer

Layout = Literal["head", "autoencoder"]
"""Modules of a saved encoder of latent units: a masked-language-model head, which every sentence-transformers since 5.1
reads, or an autoencoder."""


def load_encoder(name: str, device: str = "cpu", label: str = "source model") -> SparseEncoder:
    """A sparse encoder from a folder (a relative one too) or a hub id, in float32, ready to encode.

    A SparseEncoder folder keeps its pooling, activation and settings; a bare masked language model gets max pooling
    with log(1 + ReLU). Of BGE-M3 it is the sparse part, whose weights are uniCOIL's: w_j = max_{i: t_i = j}
    ReLU(v · h_i + c), 0 for special tokens, with v and c from ``sparse_linear.pt``. A router with one way for queries
    and one for documents has two sides (:func:`vtkit.encoder.asymmetric.with_sides`).

    Args:
        label: what the model is for, as messages begin, with its name behind.

    Raises:
        DataError: nothing is there, it is damaged or would run code, the model has no masked-language-model head, or it
            has modules that vtkit does not move.
    """
    folder, called = model_folder(name, label), f"{label} {name}"
    with quiet_libraries():
        if (folder / SPARSE_LINEAR).is_file():
            encoder = as_unicoil(load_with_new_head(name)).to(device)
            setattr(encoder[0].auto_model.config, UNTRAINED_HEAD, True)
            with library_errors(f"{called}: {SPARSE_LINEAR} does not belong to its transformer"):
                encoder[1].linear.load_state_dict(check_file(folder / SPARSE_LINEAR, called))
        elif not _has_modules(folder):
            inside = transformer_folder(folder, called)
            model = _trained_model(called, inside)
            with library_errors(f"{called} cannot be loaded with its tokenizer"):
                transformer = _module(inside, device_map="meta")
            transformer.model = model.eval()
            encoder = SparseEncoder(modules=[transformer, SpladePooling("max")], device=device)
        else:
            kinds = {kind.rpartition(".")[2] for kind in module_types(folder, called)}
            if "SparseAutoEncoder" in kinds:
                raise DataError(
                    f"{called} is a CSR encoder: its autoencoder reads one vector for a text, and its dimensions are "
                    "no words and have no names. Name the embedder that it was made from, and learn units of its "
                    "tokens with [source.units]."
                )
            units = not kinds.isdisjoint({"SparseAutoEncoderTokenEncoder", "Dense"})
            for module in transformer_folders(folder, called):  # checked without reading the weights
                if units:
                    body, missing = load_complete(AutoModel, module, called, unused="pooler", device_map="meta")
                    refuse_lacking(called, body, missing)
                else:
                    _trained_model(called, module, device_map="meta")
            with library_errors(f"{name} cannot be loaded as a sparse encoder"):
                # the library imports no classes but its own unless the model's code may run; these are given to it
                encoder = SparseEncoder._load_with_module_classes(
                    str(folder),
                    dict(zip(OWN_MODULES, (TokenTransformer, UnicoilPooling), strict=True))
                    | ({} if IN_LIBRARY else LIBRARY_NAMES),
                    device=device,
                    **SAFELY,
                    model_kwargs={"dtype": torch.float32, "weights_only": True},
                )
            encoder = both_sides(name, folder, encoder)
    if encoder.similarity_fn_name not in ("dot", "cosine"):
        raise DataError(
            f"{called} ranks by {encoder.similarity_fn_name} distance, which no inverted index can. If it was trained "
            'by dot products, write "similarity_fn_name": "dot" into its config_sentence_transformers.json.'
        )
    for side in [side for side in (encoder, query_side(encoder)) if side is not None]:
        _refuse_not_finite(called, side)
        if isinstance(side[0], Transformer):
            if not has_token_units(side):
                side[0].model = with_plain_head(side[0].model)
            settle_input(side[0])
            _prepare_tokenizer(name, side.tokenizer, len(side[0].model.get_input_embeddings().weight))
    return encoder.eval()


def load_with_new_head(name: str, layers: int | None = None) -> SparseEncoder:
    """The transformer of a dense embedder, a multi-vector encoder or any plain encoder, with a masked-language-model
    head of its family that is still to be fitted (:mod:`vtkit.encoder.fitted_head`), the decoder tied to the input
    embeddings; of an architecture without such a head, decoders among them, with one of BERT's form
    (:mod:`vtkit.encoder.new_head`).

    Args:
        layers: read the states of this layer, 1 for the first; those above it are left out. The last by default.
    """
    label = f"source model {name}"
    folder = model_folder(name)
    refuse_other_kinds(name, folder, "source.model", multi_vector=True)
    folder = transformer_folder(folder, label)
    config = AutoConfig.from_pretrained(str(folder), **SAFELY)
    if layers is not None and layers > config.num_hidden_layers:
        raise DataError(f"{label} has {config.num_hidden_layers} layers: layers = {layers} is too many")
    settings: dict[str, Any] = {} if layers is None else {"num_hidden_layers": layers}
    with quiet_libraries():
        kind = class_of(folder)
        model, missing = load_complete(kind, folder, label, dtype=torch.float32, tie_word_embeddings=True, **settings)
        tokenizer = _transformer_tokenizer(name, folder)
        body = f"{model.base_model_prefix}." if kind is AutoModelForMaskedLM else ""
        refuse_lacking(label, model, [key for key in missing if key.startswith(body)])
        model = with_plain_head(model.eval()) if kind is AutoModelForMaskedLM else model.eval()
        _refuse_not_finite(label, model)
        if kind is AutoModel:
            transformer = _module(folder, device_map="meta")
            transformer.model, transformer.processor = WithNewHead(model), tokenizer
            encoder = SparseEncoder(modules=[transformer, SpladePooling("max")], device="cpu").eval()
        else:
            with TemporaryDirectory() as work:
                encoder = as_sparse_encoder(model, tokenizer, Path(work))
    _prepare_tokenizer(name, encoder.tokenizer, len(encoder[0].model.get_input_embeddings().weight))
    return encoder


def load_source_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of :func:`load_encoder`'s encoder, without the weights; those of a router are loaded anyway."""
    folder = model_folder(name)
    if _has_modules(folder) and transformer_folders(folder, name) != [folder]:
        return load_encoder(name).tokenizer
    inside = transformer_folder(folder, f"source model {name}")
    with quiet_libraries():
        # names files that do not fit each other
        load_complete(class_of(inside), inside, f"source model {name}", device_map="meta")
        return _transformer_tokenizer(name, inside)


def _transformer_tokenizer(name: str, folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of the transformer in ``folder`` as sentence-transformers reads it."""
    with library_errors(f"the tokenizer of the source model {name} cannot be loaded"):
        module = _module(folder, device_map="meta")
        settle_input(module)
    tokenizer: PreTrainedTokenizerFast = module.tokenizer
    _prepare_tokenizer(name, tokenizer)
    return tokenizer


def as_sparse_encoder(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    pooling: str = "max",
    activation: str = "relu",
    like: SparseEncoder | None = None,
) -> SparseEncoder:
    """Write ``model`` and ``tokenizer`` as a SparseEncoder folder and load it back: what is used afterwards is what
    plain sentence-transformers reads. ``model`` is let go before that is loaded: with a vocabulary of 250,000 tokens
    each copy has a gigabyte.

    Args:
        like: an encoder whose pooling, activation, prompts, similarity and limits the new one takes over; of a uniCOIL
            encoder the layer that weighs tokens too.
    """
    backbone = folder / "backbone"
    if like is not None and not is_unicoil(like):
        pooling, activation = like[1].pooling_strategy, like[1].activation_function
    with quiet_libraries():
        model.save_pretrained(backbone)
        save_tokenizer(tokenizer, backbone)
        width, longest = int(model.config.vocab_size), max_input_length(model, tokenizer)
        del model
        release_memory()
        transformer = _module(backbone)
        modules = [transformer, SpladePooling(pooling, activation, width)]
        encoder = SparseEncoder(modules=modules, device="cpu", **({} if like is None else settings_of(like)))
    transformer.max_seq_length = longest if like is None else min(longest, like.max_seq_length or longest)
    if like is not None and is_unicoil(like):
        encoder = as_unicoil(encoder)
        encoder[1].linear.load_state_dict(like[1].linear.state_dict())
    return encoder.eval()


def save_encoder(encoder: SparseEncoder, folder: Path, layout: Layout = "head") -> None:
    """Write ``encoder`` where plain ``SparseEncoder(folder)`` loads it: safetensors only, tied weights once, the
    document transformer at the folder's root (:mod:`vtkit.encoder.layout`).

    A query side goes into the library's router, and a static table into ``idf.json`` too; an output vocabulary goes
    into the folder ``output_tokenizer``. A uniCOIL encoder loads only where vtkit is installed, with
    ``trust_remote_code=True``.

    Args:
        layout: ``autoencoder`` writes latent units as the modules of :mod:`vtkit.encoder.token_units`.
    """
    if layout == "autoencoder":
        encoder = as_autoencoder(encoder)
        if not IN_LIBRARY:
            console.warn(
                f"sentence-transformers {sentence_transformers.__version__} has no SparseAutoEncoderTokenEncoder and "
                f"cannot load {folder}. vtkit can."
            )
    release_memory()  # of what the encoder was made from
    queries, output, table = query_side(encoder), own_output(encoder), query_table(encoder)
    for side in (encoder, queries):
        if side is None or len(side) == 1 or has_token_units(side):
            continue
        transformer, pooling = side[0], side[1]
        if type(pooling) not in (SpladePooling, UnicoilPooling):
            raise TypeError("save the encoder after the streaming block: its pooling must be the library's own")
        pooling.embedding_dimension = transformer.auto_model.config.vocab_size
        settle_head(transformer.auto_model)
    modules = list(encoder)
    with quiet_libraries():
        if queries is not None:
            default = "query" if encoder.query_route_by_default else "document"
            modules = [Router.for_query_document(list(queries), modules, default_route=default)]
        plain = SparseEncoder(modules=modules, device=encoder.device, **settings_of(encoder))
        plain.save(str(folder), create_model_card=False)
    rearrange(folder)
    for weights in folder.rglob("*.safetensors"):  # which the library lets nobody but the owner read
        weights.chmod((folder / "modules.json").stat().st_mode)
    save_tokenizer(encoder.tokenizer, folder)
    if queries is not None and queries[0] is not encoder[0]:
        save_tokenizer(queries.tokenizer, folder / f"query_0_{type(queries[0]).__name__}")
    if output is not None:
        save_tokenizer(output, folder / OUTPUT_TOKENIZER)
    if table is not None:
        learned, names = as_array(table.weight), table.tokenizer.get_vocab()
        # zeros included: OpenSearch takes a token without an entry for 1
        by_token = {token: float(learned[names[token]]) for token in sorted(names, key=names.__getitem__)}
        # in ASCII: not everything that reads this file says in which encoding
        (folder / "idf.json").write_text(json.dumps(by_token), encoding="ascii")


def class_of(folder: Path) -> Any:
    """The class by which transformers loads the model in ``folder``: as a masked language model where its architecture
    has one."""
    with library_errors(f"{folder} cannot be loaded"):
        config = AutoConfig.from_pretrained(str(folder), **SAFELY)
    return AutoModelForMaskedLM if type(config) in MODEL_FOR_MASKED_LM_MAPPING else AutoModel


def _has_modules(folder: Path) -> bool:
    """Report whether a folder holds a sentence-transformers model rather than a bare transformers one."""
    path = folder / "modules.json"
    # the form of modules.json was checked
    kinds = [module["type"] for module in read_json(path, str(folder))] if path.is_file() else []
    return any("sparse_encoder" in kind or kind.endswith("Router") or kind in OWN_MODULES for kind in kinds)


def _trained_model(name: str, folder: Path, **settings: Any) -> PreTrainedModel:
    """The masked language model in ``folder``, loaded with ``settings``."""
    trained: PreTrainedModel
    if class_of(folder) is AutoModel:
        raise DataError(
            f"{name} is a {read_json(folder / 'config.json', name)['model_type']} model, an architecture without a "
            "masked-language-model head, as decoders are. If it is an embedder, learn latent units from it with "
            f"[source.units]; otherwise name an encoder: {FAMILIES}."
        )
    trained, missing = load_complete(AutoModelForMaskedLM, folder, name, dtype=torch.float32, **settings)
    if missing and trained.config.model_type in ("deberta", "deberta-v2"):
        # DeBERTa's published checkpoints hold the newer head and say nothing about it in their configuration.
        settings["legacy"] = False
        trained, missing = load_complete(AutoModelForMaskedLM, folder, name, dtype=torch.float32, **settings)
    refuse_lacking(name, trained, [key for key in missing if key.startswith(f"{trained.base_model_prefix}.")])
    if missing:
        raise DataError(
            f"{name} has no trained masked-language-model head: its weights lack {first_of(missing)}. "
            "Dense embedders have none: fit one with [source.head], or name a sparse encoder or a masked language "
            "model."
        )
    return trained


def _refuse_not_finite(name: str, model: torch.nn.Module) -> None:
    if bad := not_finite(model):
        raise DataError(
            f"{name}: weights are not finite numbers (NaN or infinite): {first_of(bad)}. The file is damaged, or the "
            "model's training diverged. Fetch it again, or name another."
        )
    if any((each.weight < 0).any() for each in model.modules() if isinstance(each, SparseStaticEmbedding)):
        raise DataError(f"{name}: its query table has weights below zero. The file is damaged: fetch it again.")


def _prepare_tokenizer(name: str, tokenizer: PreTrainedTokenizerFast, rows: int | None = None) -> None:
    """Refuse a tokenizer that the model beside it has no rows for. Texts are padded on the right, whatever the files
    say: padding on the left moves the positions of shorter texts, and their weights depend on the texts beside them."""
    tokenizer.padding_side = "right"
    prepare_tokenizer(tokenizer, f"of {name}")
    token, largest = max(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    if rows is not None and largest >= rows:
        raise DataError(
            f"{name}: its tokenizer and its weights do not belong together. The token {token!r} has the id "
            f"{largest}, and the weights have rows 0 to {rows - 1}. Restore the model's own tokenizer.json."
        )
    release_memory()  # of the tokenizers that it was compared with


def _module(folder: Path, **settings: Any) -> Transformer:
    """The library's module around the model in ``folder``, loaded with ``settings``; texts are
    lower-cased where its files say so."""
    lowers = bool(Transformer.load_config(str(folder)).get("do_lower_case"))
    return Transformer(
        str(folder),
        do_lower_case=lowers,
        transformer_task="fill-mask" if class_of(folder) is AutoModelForMaskedLM else "feature-extraction",
        model_kwargs={"dtype": torch.float32, **SAFELY_WEIGHTS, **settings},
        processor_kwargs=dict(SAFELY),
        config_kwargs=dict(SAFELY),
    )
