"""Kinds of encoders: SPLADE, whose weights are a masked language model's logits, and uniCOIL; one made of the other."""

import copy
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules.module import Module
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling

from vtkit.encoder.asymmetric import WholeEncoder, output_tokenizer, settings_of
from vtkit.encoder.families import as_array, mlm_head
from vtkit.encoder.masked import is_masked
from vtkit.encoder.unicoil import TokenTransformer, UnicoilPooling, is_unicoil
from vtkit.system.errors import DataError
from vtkit.vocabulary.forms import Vocabulary

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
    model = encoder[0].auto_model
    pooling = UnicoilPooling(model.config.hidden_size, model.config.vocab_size)
    unicoil = with_pooling(encoder, pooling)
    set_counted(unicoil)
    return unicoil


def as_splade(encoder: SparseEncoder) -> SparseEncoder:
    """``encoder`` with SPLADE's weights in place of uniCOIL's: the maxima of its masked language model's logits."""
    if not is_unicoil(encoder):
        return encoder
    return with_pooling(encoder, SpladePooling("max", "relu", encoder[0].auto_model.config.vocab_size))


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
    """The dimensions that may have a weight: no special tokens, fillers or masked ones, (vocabulary,)."""
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
