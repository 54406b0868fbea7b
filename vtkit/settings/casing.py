"""[casing] of a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from vtkit.settings.types import Section


class CasingSection(Section):
    """[casing]: treatment of upper case, in texts and in vectors (docs/casing.md)."""

    input: Literal["keep", "lowercase"] = "keep"
    """``lowercase`` lower-cases the input and keeps accents; ``keep`` leaves the tokenizer as it is. Written into the
    saved tokenizer, so it applies wherever that is loaded."""

    language: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")] | None = None
    """ISO 639 code of the language whose lower case ``input`` writes: in Turkish and Azerbaijani (``tr``, ``az``), I
    becomes ı and İ becomes i. Default: the recipe's."""

    output: Literal["all", "mask", "map", "fold"] = "all"
    """``all``: cased tokens are dimensions like others. ``mask``: they are never active. ``map``: a cased token without
    a lower-case counterpart takes its name, the others are masked. ``fold``: tokens that are equal up to case and
    word-start mark share one dimension, with the largest of their weights, in vectors made with vtkit."""

    def _faults(self) -> Iterator[str]:
        if self.output == "map" and self.input != "lowercase":
            yield 'output = "map" gives tokens lower-case names, and needs input = "lowercase"'
