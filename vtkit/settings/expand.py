"""[expand] of a recipe: documents are extended by tokens that their queries are likely to have (TILDE)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from vtkit.settings.finetune import RankingSystems
from vtkit.settings.types import PositiveInt, Section, Steps

CHECKPOINT_EVERY = 200
"""Steps between checkpoints; a killed run continues from the last."""


class ExpandRankings(RankingSystems):
    """[expand.rankings]: what ranks the documents for the training queries; ``tilde-aug`` learns from the documents
    that all of these rankings together put first (Borda count)."""


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

    steps: Steps | None = None
    """Optimiser steps. Default: five passes over the pairs."""

    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 32
    """Pairs a step."""

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
        return {f"expand.{name}" for name in names}

    @model_validator(mode="after")
    def _rankings_are_there(self) -> ExpandSection:
        if self.method == "tilde-aug" and not self.rankings.any:
            raise ValueError(
                'method "tilde-aug" learns from rankings: set rankings.bm25 or rankings.encoder, or name '
                "rankings.models or rankings.files"
            )
        return self
