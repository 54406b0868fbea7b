"""[source] of a recipe: the encoder to start from, and the head or units fitted to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from vtkit.settings.types import (
    CorpusName,
    ModelName,
    PositiveInt,
    RecipeName,
    Section,
    Steps,
)

STATES_LENGTH = 64
"""Tokens that the texts whose states are read are cut at: many short texts say more than few long ones."""


HEAD_STEPS, UNIT_STEPS = 400, 700  # of the optimiser, where the recipe gives none


class Scratch(Section):
    """[source.scratch]: a new encoder, trained from nothing (the corpus-specific vocabularies paper)."""

    architecture: Literal["bert", "distilbert", "roberta", "modernbert"] = "bert"
    """Family of the encoder."""

    layers: PositiveInt = 6
    """Transformer layers."""

    hidden: PositiveInt = 384
    """Width of the hidden states and of the embeddings."""

    heads: PositiveInt = 6
    """Attention heads; must divide ``hidden``."""

    feed_forward: PositiveInt = 1536
    """Width of the feed-forward layers."""

    max_length: PositiveInt = 512
    """Longest input, in tokens."""

    def _faults(self) -> Iterator[str]:
        if self.hidden % self.heads:
            yield f"heads must divide hidden, but {self.hidden} is not a multiple of {self.heads}"


class Head(Section):
    """[source.head]: ``source.model`` is a dense embedder or another encoder without a trained masked-language-model
    head. A head is fitted that reads each token back from the encoder's hidden state of it
    (docs/language.md#from-a-dense-embedder). This needs no judgements, no translations, and no training of the
    transformer."""

    activation: Annotated[float, Field(gt=0, lt=1)] = 0.0015
    """Share of a token's weights, over the vocabulary, that are positive in the end."""


class Units(Section):
    """[source.units]: ``source.model`` is a dense embedder, and the new dimensions are latent units instead of words: a
    sparse autoencoder learns to rebuild the hidden state of each token from a few of many units (docs/language.md). The
    input vocabulary is the embedder's own, whole or trimmed. With [source.head] too, there are dimensions for tokens
    beside the units."""

    dictionary: ModelName | None = None
    """Hub id or folder of an encoder whose units were learned from the same ``source.model``, possibly on other texts:
    they are taken over, and the texts only name them (docs/language.md#ready-dictionaries). Default: units are
    learned."""

    size: Annotated[int, Field(ge=16, le=1_000_000)] = 8192
    """Number of units."""

    active: Annotated[int, Field(ge=1, le=1000)] = 16
    """Units that rebuild a token's state."""

    pooling: Literal["max", "sum"] = "sum"
    """How the weight of a unit in a text follows from its weights for the tokens. ``sum``: it is the square root of the
    sum, and the fourth root in indexed documents, so that how often a unit fires counts, and less the oftener it does
    (docs/language.md)."""

    def _faults(self) -> Iterator[str]:
        if self.active >= self.size:
            yield f"active must be less than size, but {self.active} of {self.size} units would be active"
        if self.dictionary is not None and (given := {"size", "active"} & self.model_fields_set):
            yield f"the dictionary has its units: remove {' and '.join(sorted(given))}"


class SourceSection(Section):
    """[source]: the encoder to start from. Give exactly one of model, recipe and scratch."""

    model: ModelName | None = None
    """Hub id or folder of a SparseEncoder, BGE-M3 or any masked-language model; with ``head`` or ``units``, of a dense
    embedder or a multi-vector encoder (ColBERT), with ``units`` of a decoder too (Qwen3-Embedding). An adapter (LoRA)
    is merged into the model that it changes (``pip install "vtkit[peft]"``)."""

    recipe: RecipeName | None = None
    """Another recipe, whose final model is the source; it is run first if necessary."""

    scratch: Scratch | None = None
    """Architecture of a new, untrained encoder."""

    head: Head | None = None
    """Fit a head to ``model``, a dense embedder."""

    units: Units | None = None
    """Learn latent units from the states of ``model``, a dense embedder."""

    corpus: tuple[CorpusName, ...] = ()
    """``head``, ``units``: texts to learn from, as many different ones of the language as possible. Default: the corpus
    of a trimmed vocabulary, else ``adapt.corpus``, the fine-tuning or the evaluation documents."""

    texts: Annotated[int, Field(ge=20, le=100_000_000)] = 6000
    """``head``, ``units``: texts to sample from ``corpus``. Their hidden states are kept on disk meanwhile: about 50 kB
    a text."""

    layers: PositiveInt | None = None
    """``head``, ``units``: read the states of this layer, and remove the layers above it. Default: the last."""

    steps: Steps | None = None
    """``head``, ``units``: optimiser steps. Default: 700 for units; 400 for a head, after ridge regression in closed
    form."""

    kind: Literal["splade", "unicoil"] | None = None
    """Kind of the encoder. ``splade``: the weights of a text are the largest logits of its tokens, for all tokens of
    the vocabulary. ``unicoil``: each token of a text has one weight, in its own dimension, and the head is not used
    (docs/training.md). Default: as in ``model`` or ``recipe``; ``splade`` for a masked-language model."""

    @property
    def fitted(self) -> bool:
        """Whether something is fitted to a dense ``model``."""
        return self.units is not None or self.head is not None

    def _faults(self) -> Iterator[str]:
        named = [name for name in ("model", "recipe", "scratch") if getattr(self, name) is not None]
        if len(named) != 1:
            yield f"give exactly one of model, recipe and scratch, not {' and '.join(named) or 'none'}"
        if self.fitted and self.model is None:
            yield "[source.head] and [source.units] are fitted to a model: name it with source.model"
