"""[expand_documents] of a recipe: documents are extended by tokens that their queries are likely to have (TILDE)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from vtkit.settings.types import ModelName, PositiveInt, Section, Steps


class ExpandDocumentsSection(Section):
    """[expand_documents]: before fine-tuning, a masked language model learns which tokens the queries of a document
    contain. Every document that fine-tuning and the index read is then extended by the likeliest tokens that it lacks
    (TILDE)."""

    method: Literal["none", "tilde", "tilde-aug"] = "tilde"
    """What the model learns from. ``tilde``: the relevant documents of the queries of ``finetune.data``. ``tilde-aug``:
    also the ten documents that several rankings together put first (Borda count; the corpus-specific vocabularies
    paper). ``none``: documents stay as they are."""

    keep: PositiveInt | None = None
    """Most tokens to add to a document, the likeliest. Default: all that remain of the 200 likeliest without stop
    words, pieces of words and tokens of the document. In languages without a list of stop words, tokens in more than a
    tenth of the documents count as such."""

    steps: Steps | None = None
    """Optimiser steps. Default: five passes over the pairs."""

    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 32
    """Pairs a step."""

    rankings: tuple[ModelName, ...] = ()
    """``tilde-aug``: dense or sparse sentence-transformers models, hub ids or folders, that rank the documents for the
    training queries beside BM25."""

    learning_rate: ClassVar[float] = 2e-5  # peak; it falls linearly to zero
    warmup: ClassVar[float] = 0.05  # share of the steps over which the learning rate rises
    checkpoint_every: ClassVar[int] = 200  # steps between checkpoints
