"""[casing] of a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from vtkit.settings.types import Section


class CasingSection(Section):
    """[casing]: treatment of upper case, in texts and in vectors (docs/casing.md)."""

    input: Literal["keep", "lowercase"] = "keep"
    """``lowercase`` lower-cases the input and keeps accents; ``keep`` leaves the tokenizer as it is. Written into the
    saved tokenizer, so it applies wherever that is loaded."""

    output: Literal["all", "mask", "map", "fold"] = "all"
    """``all``: cased tokens are dimensions like others. ``mask``: they are never active. ``map``: a cased token without
    a lower-case counterpart takes its name, the others are masked. ``fold``: tokens that are equal up to case and
    word-start mark share one dimension, with the largest of their weights, in vectors made with vtkit."""

    def _faults(self) -> Iterator[str]:
        if self.output == "map" and self.input != "lowercase":
            yield 'output = "map" gives tokens lower-case names, and needs input = "lowercase"'
