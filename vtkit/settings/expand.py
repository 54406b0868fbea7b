"""[expand] of a recipe: documents are extended by tokens that their queries are likely to have (TILDE)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vtkit.settings.finetune import RankingSystems
from vtkit.settings.types import LearningRate, PositiveFloat, PositiveInt, Section, Steps

CHECKPOINT_EVERY = 200
"""Steps between checkpoints; a killed run continues from the last."""


class ExpandRankings(RankingSystems):
    """[expand.rankings]: what ranks the documents for the training queries; ``tilde-aug`` learns from the documents
    that all of these rankings together put first (Borda count)."""

    depth: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Documents of each ranking that get points: the first as many points as this, the last one."""


class ExpandSection(Section):
    """[expand]: before fine-tuning, a masked language model learns which tokens the queries of a document have, and
    every document that fine-tuning and the index read is extended by the likeliest that it does not have (TILDE)."""

    method: Literal["none", "tilde", "tilde-aug"] = "tilde"
    """What is learned from. ``tilde``: the relevant documents of the queries of ``finetune.data``. ``tilde-aug``:
    these, and the documents that several rankings together put first (the corpus-specific vocabularies paper).
    ``none``: documents stay as they are."""

    tokens: PositiveInt = 200
    """So many of the likeliest tokens of a document are looked at; stop words, pieces of words and tokens that the
    document has are then left out."""

    keep: PositiveInt | None = None
    """Add no more than so many of what is left, the likeliest. Default: all."""

    common: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Tokens that more than this share of the documents have are not added: the stop words of languages that no list is
    there for."""

    positives: PositiveInt = 10
    """``tilde-aug``: documents of a query that its rankings together put first, and that it learns from too."""

    epochs: PositiveFloat = 5.0
    """Passes over the pairs; ``steps`` overrides it."""

    steps: Steps | None = None
    """Optimiser steps, instead of epochs."""

    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 32
    """Pairs a step."""

    document_length: PositiveInt = 128
    """Tokens of a document that are read, in training and to expand it."""

    learning_rate: LearningRate = 2e-5
    """Peak learning rate; it rises over a twentieth of the steps and falls linearly to zero."""

    rankings: ExpandRankings = ExpandRankings()

    @property
    def expands(self) -> bool:
        """Whether documents are expanded at all."""
        return self.method != "none"

    @property
    def settings_read(self) -> set[str]:
        """Dotted paths of the settings that its method reads; the others have no effect."""
        if not self.expands:
            return {"expand.method"}
        names = set(type(self).model_fields) - {"rankings"}
        if self.method == "tilde-aug":
            names |= {f"rankings.{name}" for name in ExpandRankings.model_fields}
        else:
            names -= {"positives"}
        return {f"expand.{name}" for name in names}

    @model_validator(mode="after")
    def _rankings_are_there(self) -> ExpandSection:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        if self.method == "tilde-aug":
            if not self.rankings.any:
                yield (
                    'method "tilde-aug" learns from rankings: set rankings.bm25 or rankings.encoder, or name '
                    "rankings.models or rankings.files"
                )
            if self.rankings.depth < self.positives:
                yield f"rankings.depth is {self.rankings.depth}, less than the {self.positives} positives taken from it"
