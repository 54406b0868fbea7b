"""[expand] of a recipe: documents are extended by tokens that their queries are likely to have (TILDE)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from vtkit.settings.finetune import RankingSystems
from vtkit.settings.types import PositiveInt, Section, Steps

CHECKPOINT_EVERY = 200  # steps between checkpoints; a killed run continues from the last


class ExpandRankings(RankingSystems):
    """[expand.rankings]: rankings of the documents for the training queries. ``tilde-aug`` learns from the ten
    documents that these rankings together put first (Borda count)."""


class ExpandSection(Section):
    """[expand]: before fine-tuning, a masked language model learns which tokens the queries of a document contain.
    Every document that fine-tuning and the index read is then extended by the likeliest tokens that it lacks
    (TILDE)."""

    method: Literal["none", "tilde", "tilde-aug"] = "tilde"
    """What the model learns from. ``tilde``: the relevant documents of the queries of ``finetune.data``. ``tilde-aug``:
    also the documents that several rankings together put first (the corpus-specific vocabularies paper). ``none``:
    documents stay as they are."""

    tokens: PositiveInt = 200
    """Likeliest tokens of a document to choose from. Stop words, pieces of words, tokens of the document and tokens in
    more than a tenth of the documents are then left out."""

    keep: PositiveInt | None = None
    """Most tokens to add to a document, the likeliest. Default: all that remain."""

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

    def _faults(self) -> Iterator[str]:
        if self.method == "tilde-aug" and not self.rankings.any:
            yield (
                'method "tilde-aug" learns from rankings: set rankings.bm25 or rankings.encoder, or name '
                "rankings.models or rankings.files"
            )
