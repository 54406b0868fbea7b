"""Kinds of encoders: SPLADE, whose weights are a masked language model's logits, uniCOIL, and autoencoders of latent
units; one made of the other."""

import copy
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules.module import Module
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import nn

from vtkit.encoder.asymmetric import WholeEncoder, output_tokenizer, query_side, settings_of, with_sides, writes_units
from vtkit.encoder.families import as_array, mlm_head
from vtkit.encoder.fitted_head import Head
from vtkit.encoder.masked import is_masked
from vtkit.encoder.model_folder import SAFELY_WEIGHTS, UNTRAINED_HEAD, WEIGHTS
from vtkit.encoder.new_head import layers
from vtkit.encoder.token_units import ENCODER, POOLING, has_token_units
from vtkit.encoder.unicoil import TokenTransformer, UnicoilPooling, is_unicoil
from vtkit.system.errors import DataError
from vtkit.system.runtime import quiet_libraries
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.saved import save_tokenizer

Kind = Literal["splade", "unicoil"]


def of_kind(encoder: SparseEncoder, kind: Kind | None) -> SparseEncoder:
    """``encoder`` as one of ``kind``, sharing its transformer; None: as it is."""
    if kind is None:
        return encoder
    return as_unicoil(encoder) if kind == "unicoil" else as_splade(encoder)


def kind_of(encoder: SparseEncoder) -> Kind:
    """The way in which the terms of documents are weighted."""
    return "unicoil" if is_unicoil(encoder) else "splade"


def as_unicoil(encoder: SparseEncoder) -> SparseEncoder:
    """``encoder`` with uniCOIL's weights, still to be trained, in place of SPLADE's; its modules are shared. Itself
    where it is one already; a DataError where queries take a way of their own, or the output vocabulary is not the
    input's."""
    if is_unicoil(encoder):
        return encoder
    if isinstance(encoder, WholeEncoder):
        raise DataError(
            "A uniCOIL encoder encodes queries and documents alike, and reads the vocabulary that it writes. This "
            "encoder does not. Name the encoder that it was made from."
        )
    config = encoder[0].auto_model.config
    unicoil = with_pooling(encoder, UnicoilPooling(config.hidden_size, config.vocab_size))
    set_counted(unicoil)
    return unicoil


def as_splade(encoder: SparseEncoder) -> SparseEncoder:
    """``encoder`` with SPLADE's weights in place of uniCOIL's: the maxima of its masked language model's logits."""
    if not is_unicoil(encoder):
        return encoder
    if getattr(encoder[0].auto_model.config, UNTRAINED_HEAD, False):
        raise DataError(
            "BGE-M3 has no masked-language-model head, from whose logits SPLADE's weights come. Leave source.kind out, "
            "or fit a head to it with [source.head]."
        )
    return with_pooling(encoder, SpladePooling("max", "relu", encoder[0].auto_model.config.vocab_size))


def as_autoencoder(encoder: SparseEncoder) -> SparseEncoder:
    """``encoder``, which writes latent units, in the modules of :mod:`vtkit.encoder.token_units`, with equal vectors;
    itself where it is one already.

    Its head becomes dense layers (:func:`vtkit.encoder.new_head.layers`), of which the last is the autoencoder's. All
    units are among the k, since their thresholds decide. Sums are those of logarithms, which ``SpladePooling`` adds up.

    Raises:
        DataError: dimensions are tokens, queries take a way of their own, or the head has another activation than GELU.
    """
    if has_token_units(encoder):
        return encoder
    if not writes_units(encoder) or query_side(encoder) is not None:
        raise DataError(
            "Only latent units of one encoder for queries and documents can be saved as an autoencoder. Save this "
            "encoder with its head."
        )
    model, units, sums = encoder[0].auto_model, len(output_tokenizer(encoder)), encoder[1].pooling_strategy == "sum"
    head, decoder, inputs = Head(model), mlm_head(model).decoder, torch.linspace(-3, 3, 7)
    if not torch.allclose(head.activation(inputs), nn.functional.gelu(inputs), atol=1e-2):
        raise DataError(f"{type(model).__name__} has a head with another activation than GELU: save it with its head.")
    *before, _, last = layers(head, decoder.weight[:units].detach(), decoder.bias[:units].detach())
    width, rows = last.in_features, last.linear.weight.T.detach().contiguous()
    weights = {"W_enc": rows / width**0.5, "b_enc": last.linear.bias.detach(), "b_pre": torch.zeros(width)}
    with TemporaryDirectory() as folder, quiet_libraries():
        model.base_model.save_pretrained(folder)
        save_tokenizer(encoder.tokenizer, Path(folder))
        transformer = Transformer(folder, model_kwargs={"dtype": torch.float32, **SAFELY_WEIGHTS})
        transformer.max_seq_length = encoder.max_seq_length
        save_file(weights, Path(folder, WEIGHTS))
        sizes = {"input_dim": width, "hidden_dim": units, "k": units}
        settings = sizes | {"has_decoder": False, "frozen": True, "replace_token_embeddings": sums}
        Path(folder, "config.json").write_text(json.dumps(settings), encoding="utf-8")
        autoencoder = ENCODER.load(folder)
    modules = [
        transformer,
        *before,
        autoencoder,
        SpladePooling("sum", "relu", units) if sums else POOLING(units, "max_log1p"),
    ]
    return with_sides(modules, encoder, output=output_tokenizer(encoder))


def with_pooling(encoder: SparseEncoder, pooling: Module) -> SparseEncoder:
    """A symmetric encoder over the transformer of ``encoder``, which is shared, with another pooling."""
    transformer = copy.copy(encoder[0])  # the same weights, tokenizer and limits; only what comes out of it differs
    transformer.__class__ = TokenTransformer if isinstance(pooling, UnicoilPooling) else Transformer
    pooled = SparseEncoder(modules=[transformer, pooling], device=encoder.device, **settings_of(encoder))
    return pooled.train(encoder.training)


def set_counted(encoder: SparseEncoder) -> None:
    """Note in a uniCOIL encoder which tokens may weigh something: all but special tokens, fillers, rows without a token
    and masked dimensions (:mod:`vtkit.encoder.masked`)."""
    if is_unicoil(encoder):
        encoder[1].counted.copy_(torch.from_numpy(can_weigh(encoder)))


def can_weigh(encoder: SparseEncoder) -> NDArray[np.bool_]:
    """The dimensions that may have a weight: no special tokens, fillers or masked ones, (vocabulary,); of units behind
    a dense layer all but masked ones."""
    if has_token_units(encoder):
        return ~is_masked(as_array(encoder[-2].linear.bias))
    tokenizer, bias = output_tokenizer(encoder), mlm_head(encoder[0].auto_model).decoder.bias
    allowed = np.zeros(int(encoder[0].auto_model.config.vocab_size), dtype=np.bool_)
    allowed[list(tokenizer.get_vocab().values())] = True
    allowed[list(Vocabulary(tokenizer).special)] = False
    return allowed if bias is None else allowed & ~is_masked(as_array(bias))


def refuse_unicoil(encoder: SparseEncoder, what: str) -> None:
    """Refuse what works on logits of the whole vocabulary."""
    if is_unicoil(encoder):
        raise DataError(
            f"{what} works on the logits of a masked-language-model head, and a uniCOIL encoder's weights do not come "
            "from logits. Leave it out, or make the encoder a SPLADE encoder again (source.kind)."
        )
