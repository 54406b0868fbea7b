"""[casing] of a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from vtkit.settings.types import Section


class CasingSection(Section):
    """[casing]: what happens to upper case, in texts and in vectors (docs/casing.md)."""

    input: Literal["keep", "lowercase"] = "keep"
    """``lowercase`` folds the input to lower case, accents untouched; ``keep`` leaves the tokenizer as it is. Written
    into the saved tokenizer, so it holds wherever it is loaded."""

    output: Literal["all", "mask", "map", "fold"] = "all"
    """``all``: cased tokens are dimensions like others. ``mask``: they are never active. ``map``: those without a
    lower-case token beside them take its name, the others are masked. ``fold``: tokens equal up to case and word-start
    mark share one dimension, in vectors made with vtkit."""

    fold: Literal["max", "sum"] = "max"
    """How ``fold`` combines the weights of tokens that share a dimension."""

    @property
    def settings_read(self) -> set[str]:
        """Dotted paths of the settings that have an effect."""
        return {"casing.input", "casing.output"} | ({"casing.fold"} if self.output == "fold" else set())

    @model_validator(mode="after")
    def _mapped_tokens_can_be_reached(self) -> CasingSection:
        if self.output == "map" and self.input != "lowercase":
            raise ValueError('output = "map" gives tokens lower-case names, and needs input = "lowercase"')
        return self
