"""[source] of a recipe: the encoder to start from, and what is fitted to it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from vtkit.settings.types import (
    CorpusName,
    ModelName,
    PositiveFloat,
    PositiveInt,
    RecipeName,
    Section,
    Steps,
)

STATES_LENGTH = 64
"""Tokens that the texts whose states are read are cut at: many short texts say more than few long ones."""


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

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> Scratch:
        if self.hidden % self.heads:
            raise ValueError(f"heads must divide hidden, but {self.hidden} is not a multiple of {self.heads}")
        return self


class Head(Section):
    """[source.head]: ``source.model`` is a dense embedder or another encoder without a trained masked-language-model
    head, and this head is fitted: it reads each token's own name back from the state that the encoder has of it
    (docs/language.md#from-a-dense-embedder). No judgement, no translation and no training of the transformer."""

    corpus: tuple[CorpusName, ...] = ()
    """Texts whose states it is fitted on, as many different ones of the language as there are. Default: what a
    trimmed vocabulary is counted on, else ``adapt.corpus``, the fine-tuning or the evaluation documents."""

    texts: Annotated[int, Field(ge=20, le=100_000_000)] = 6000
    """Texts drawn from the corpus. Their states are kept on disk while the head is fitted: about 50 kB a text."""

    layers: PositiveInt | None = None
    """Read the states of this layer; those above it leave the model. Default: the last."""

    steps: Steps = 400
    """Steps after the start in closed form (ridge regression)."""

    activation: Annotated[float, Field(gt=0, lt=1)] = 0.0015
    """Share of the weights of a token that are positive in the end, over the vocabulary."""


class Units(Section):
    """[source.units]: ``source.model`` is a dense embedder, and its new dimensions are no words but latent units: a
    sparse autoencoder learns to rebuild the states of tokens from few of so many (docs/language.md). What is read
    is the embedder's own vocabulary, whole or trimmed. With [source.head] too, tokens are dimensions beside units."""

    corpus: tuple[CorpusName, ...] = ()
    """Texts whose states they are learned from; as of [source.head]."""

    size: Annotated[int, Field(ge=16, le=1_000_000)] = 4096
    """Units."""

    active: Annotated[int, Field(ge=1, le=1000)] = 16
    """Units that rebuild a token's state."""

    texts: Annotated[int, Field(ge=20, le=100_000_000)] = 6000
    """Texts drawn from the corpus. Their states are kept on disk meanwhile: about 50 kB a text."""

    layers: PositiveInt | None = None
    """Read the states of this layer; those above it leave the model. Default: the last."""

    steps: PositiveInt = 700
    """Optimiser steps."""

    words: PositiveFloat = 1.0
    """With [source.head] too: what the logits of tokens are multiplied by, beside those of units."""

    @model_validator(mode="after")
    def _few_are_active(self) -> Units:
        if self.active >= self.size:
            raise ValueError(f"active must be less than size: {self.active} of {self.size} units would all be active")
        return self


class SourceSection(Section):
    """[source]: the encoder to start from. Give exactly one of model, recipe and scratch."""

    model: ModelName | None = None
    """Hub id or folder of a SparseEncoder or of any masked-language model; with ``head``, of a dense embedder."""

    recipe: RecipeName | None = None
    """Another recipe, whose final model is the source; it is run first if it is not done yet."""

    scratch: Scratch | None = None
    """Architecture of a new, untrained encoder."""

    head: Head | None = None
    """Fit a head to ``model``, a dense embedder."""

    units: Units | None = None
    """Learn latent units from the states of ``model``, a dense embedder."""

    kind: Literal["splade", "unicoil"] | None = None
    """What the encoder becomes. ``splade``: a text's weights are the largest logits of its tokens, for all tokens of
    the vocabulary. ``unicoil``: each token of a text has one weight, in its own dimension, and the head's logits have
    none (docs/training.md). Default: as ``model`` or ``recipe`` has it, and ``splade`` for a masked-language model."""

    @property
    def fitted(self) -> Head | Units | None:
        """What is fitted to a dense ``model``; of both the units, whose texts and layer the head takes."""
        return self.units or self.head

    @model_validator(mode="after")
    def _exactly_one(self) -> SourceSection:
        given = [name for name in ("model", "recipe", "scratch") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of model, recipe and scratch, not {' and '.join(given) or 'none'}")
        if self.fitted is not None and self.model is None:
            raise ValueError("[source.head] and [source.units] are fitted to a model: name it with source.model")
        if self.head is not None and self.units is not None:
            twice = self.head.model_fields_set & {"corpus", "texts", "layers"}
            if twice:
                raise ValueError(
                    f"[source.head] reads the states of [source.units] beside it: set {', '.join(sorted(twice))} there"
                )
        return self
