"""A collection that systems are evaluated on: its documents are read once, and BM25 over them is built once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from vtkit.data.collections import load_retrieval
from vtkit.data.document_files import read_document_file
from vtkit.data.retrieval import RetrievalSet
from vtkit.settings.analysers import Analysis

if TYPE_CHECKING:
    from vtkit.evaluation.systems import Bm25System


class Collection:
    """A collection under one split of its judgements, or documents without any, called ``folder`` in results."""

    def __init__(self, name: str, split: str | None, folder: str) -> None:
        self.name, self.split, self.folder = name, split, folder
        if split is None:
            self.whole = RetrievalSet(folder, read_document_file(name), [], {})
        else:
            self.whole = load_retrieval(name, split)
        self.judged = self.whole  # with the queries that are evaluated
        self._bm25: dict[tuple[str, Analysis], Bm25System] = {}

    @cached_property
    def language(self) -> str | None:
        """ISO 639-1 code of the language of its texts; None if they do not show it."""
        from vtkit.data.parallel import language_of

        return language_of(self.whole.contents[:4000])

    def bm25(self, language: str, analysis: Analysis) -> Bm25System:
        """BM25 over its documents. BM25 over plain words serves a single row and is not kept."""
        from vtkit.evaluation.systems import Bm25System

        if analysis == "words":
            return Bm25System.over(self.whole, language, analysis)
        if (language, analysis) not in self._bm25:
            self._bm25[language, analysis] = Bm25System.over(self.whole, language, analysis)
        return self._bm25[language, analysis]
