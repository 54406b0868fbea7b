"""A collection that systems are evaluated on: its documents are read once, and BM25 over them is built once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from vtkit.data.collections import load_retrieval
from vtkit.data.document_files import read_document_file
from vtkit.data.retrieval import RetrievalSet
from vtkit.settings.analysers import Analysis
from vtkit.settings.index import IndexSection, PassagesSection

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
        self._bm25: dict[tuple[str, Analysis, PassagesSection | None], Bm25System] = {}

    @cached_property
    def language(self) -> str | None:
        """ISO 639-1 codes of the languages of its texts, separated by commas; None if they do not show them."""
        from vtkit.search.languages import languages_of

        return languages_of(self.whole.contents)

    def bm25(self, language: str, index: IndexSection, *, words: bool = False) -> Bm25System:
        """BM25 over its documents, or their passages, by the analyser of ``index``, or over plain ``words``, which
        serves a single row and is not kept."""
        from vtkit.evaluation.systems import Bm25System
        from vtkit.search.passages import Passages

        analysis: Analysis = "words" if words else index.bm25_analyser
        asked = language, analysis, index.passages
        if asked not in self._bm25:
            bm25 = Bm25System.over(self.whole, language, analysis, Passages.of(self.whole.documents, index.passages))
            if analysis == "words":
                return bm25
            self._bm25[asked] = bm25
        return self._bm25[asked]
