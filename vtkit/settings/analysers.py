"""BM25's analysers by name, and the packages that they need; ``vtkit/search/analysers.py`` has the analysers."""

from __future__ import annotations

from typing import Literal

from vtkit.settings import engines

Analysis = Literal["full", "words", "morphemes", "lucene"]
"""``full``: words, stems and pieces of words. ``words``: as Lucene without an analysis of words. ``morphemes``:
``full`` and the morphemes of Korean or Japanese words. ``lucene``: Lucene's own analyser of the language."""


EXTRAS: dict[Analysis, str] = {"morphemes": "morphology", "lucene": "lucene"}  # the extra of those that need one

MORPHOLOGY: dict[str, tuple[tuple[str, str], ...]] = {
    "ko": (("kiwipiepy", "kiwipiepy"),),
    "ja": (("sudachipy", "SudachiPy"), ("sudachidict_core", "SudachiDict-core")),
}
"""Two-letter code of each language with morphology -> the packages that know it, each by the name it is imported by and
the name it is installed by."""

LUCENE = {
    "ar": "ar.ArabicAnalyzer", "bg": "bg.BulgarianAnalyzer", "bn": "bn.BengaliAnalyzer", "ca": "ca.CatalanAnalyzer",
    "ckb": "ckb.SoraniAnalyzer", "cs": "cz.CzechAnalyzer", "da": "da.DanishAnalyzer", "de": "de.GermanAnalyzer",
    "el": "el.GreekAnalyzer", "en": "en.EnglishAnalyzer", "es": "es.SpanishAnalyzer", "et": "et.EstonianAnalyzer",
    "eu": "eu.BasqueAnalyzer", "fa": "fa.PersianAnalyzer", "fi": "fi.FinnishAnalyzer", "fr": "fr.FrenchAnalyzer",
    "ga": "ga.IrishAnalyzer", "gl": "gl.GalicianAnalyzer", "hi": "hi.HindiAnalyzer", "hu": "hu.HungarianAnalyzer",
    "hy": "hy.ArmenianAnalyzer", "id": "id.IndonesianAnalyzer", "it": "it.ItalianAnalyzer", "ja": "ja.JapaneseAnalyzer",
    "ko": "cjk.CJKAnalyzer", "lt": "lt.LithuanianAnalyzer", "lv": "lv.LatvianAnalyzer", "ne": "ne.NepaliAnalyzer",
    "nl": "nl.DutchAnalyzer", "no": "no.NorwegianAnalyzer", "pt": "pt.PortugueseAnalyzer", "ro": "ro.RomanianAnalyzer",
    "ru": "ru.RussianAnalyzer", "sr": "sr.SerbianAnalyzer", "sv": "sv.SwedishAnalyzer", "ta": "ta.TamilAnalyzer",
    "te": "te.TeluguAnalyzer", "tr": "tr.TurkishAnalyzer", "uk": "uk.UkrainianMorfologikAnalyzer",
    "zh": "cjk.CJKAnalyzer",
}  # fmt: skip
"""Code of each language -> its class below ``org.apache.lucene.analysis``, of those in the jar that pyserini ships. It
has none of Korean (Nori), so that this is cut as Chinese is; Thai's needs data that the Java from pip lacks."""

_SHORT = {
    "cze": "cs", "ger": "de", "gre": "el", "baq": "eu", "per": "fa", "fre": "fr", "arm": "hy", "dut": "nl", "nb": "no",
    "nob": "no", "rum": "ro", "chi": "zh",
}  # fmt: skip
"""Codes of ISO 639-2 that ICU does not shorten, and Norwegian Bokmål, which Lucene calls Norwegian."""


def known_as(analysis: Analysis, language: str) -> str | None:
    """The code by which ``analysis`` knows ``language``; None where it does not know it."""
    if analysis in ("full", "words"):
        return language
    from icu4py.locale import Locale

    short = _SHORT.get(language) or Locale(language).language
    return short if short in (MORPHOLOGY if analysis == "morphemes" else LUCENE) else None


def refused(analysis: Analysis, language: str) -> str | None:
    """Why there is no such analyser, None where there is. Of several languages (separated by commas) ``morphemes``
    needs to know only one, since the others have ``full``."""
    codes = language.split(",")
    unknown = [code for code in codes if known_as(analysis, code) is None]
    if not unknown or (analysis == "morphemes" and len(unknown) < len(codes)):
        return None
    known = MORPHOLOGY if analysis == "morphemes" else LUCENE
    return f'"{analysis}" knows {", ".join(sorted(known))}, not "{", ".join(unknown)}"'


def missing_packages(analysis: Analysis, language: str) -> tuple[str, ...]:
    """The packages that ``analysis`` of ``language``, or of several, needs and that are not installed."""
    match analysis:
        case "morphemes":
            known = (known_as(analysis, code) or "" for code in language.split(","))
            return engines.not_installed([package for code in known for package in MORPHOLOGY.get(code, ())])
        case "lucene":
            return engines.missing_packages("lucene")
        case _:
            return ()
