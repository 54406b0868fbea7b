"""The analysers that BM25 can cut text with, by name, and what they need beside vtkit; the work is done in
``vtkit/search/analysers.py`` and beside it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

Analysis = Literal["full", "words", "morphemes"]
"""``full``: words, stems and pieces of words. ``words``: as Lucene without an analysis of words. ``morphemes``:
``full`` and the morphemes of Korean or Japanese words."""

EXTRAS: dict[Analysis, str] = {"morphemes": "morphology"}
"""The extra of the one that needs one."""

MORPHOLOGY: dict[str, tuple[tuple[str, str], ...]] = {
    "ko": (("kiwipiepy", "kiwipiepy"),),
    "ja": (("sudachipy", "SudachiPy"), ("sudachidict_core", "SudachiDict-core")),
}
"""Two-letter code of each language with morphology -> the packages that know it, each by the name it is imported by and
the name it is installed by."""

_SHORT = {"jpn": "ja", "kor": "ko"}


def known_as(analysis: Analysis, language: str) -> str | None:
    """The code by which ``analysis`` knows ``language``; None where it does not know it."""
    if analysis in ("full", "words"):
        return language
    short = _SHORT.get(language, language)
    return short if short in MORPHOLOGY else None


def refused(analysis: Analysis, language: str) -> str | None:
    """Why there is no such analyser, None where there is."""
    if known_as(analysis, language) is not None:
        return None
    return f'"{analysis}" knows {", ".join(sorted(MORPHOLOGY))}, not "{language}"'


def missing_packages(analysis: Analysis, language: str) -> tuple[str, ...]:
    """The packages that ``analysis`` of ``language`` needs and that are not installed."""
    packages = MORPHOLOGY.get(known_as(analysis, language) or "", ()) if analysis == "morphemes" else ()
    return tuple(package for module, package in packages if find_spec(module) is None)
