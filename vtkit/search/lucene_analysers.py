"""Lucene's analysers of languages, from pyserini's jar, as BM25's terms."""

from __future__ import annotations

from collections.abc import Callable

from vtkit.search.java import cast_to, java_class
from vtkit.settings.analysers import LUCENE


def lucene_analyser(language: str) -> tuple[Callable[[str], list[str]], str]:
    """A function that cuts a text as Lucene's analyser of ``language`` does, with its default stop words, and its name.

    Tokens at the same position, such as a compound and its parts, all count in the length of a document; Lucene counts
    the position once.

    Raises:
        MissingExtra: packages are not installed.
        MachineError: Java cannot be started.
    """
    string = java_class("java.lang.String")
    line_break = cast_to("java.lang.CharSequence", string("\n"))
    analyse = java_class("io.anserini.analysis.AnalyzerUtils").analyze
    analyser = java_class(f"org.apache.lucene.analysis.{LUCENE[language]}")()
    release = java_class("org.apache.lucene.util.Version").LATEST.toString()

    def cut(text: str) -> list[str]:
        whole = text.encode("utf-8", "replace").decode("utf-8")  # Java has no half surrogates
        joined: str = string.join(line_break, cast_to("java.lang.Iterable", analyse(analyser, whole)))
        return joined.split("\n") if joined else []

    return cut, f"tokens of Lucene {release}'s {LUCENE[language].rpartition('.')[2]}"
