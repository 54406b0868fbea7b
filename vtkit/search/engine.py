"""Search engines: what an index over sparse vectors can do, whichever of them made it, and which one a recipe names.

Outside of this folder an index is nothing but an :class:`Index`: where an engine keeps its weights, and in what form,
only its own file knows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, assert_never

import scipy.sparse as sp

from vtkit.recipe.sections import Engine
from vtkit.search.index_info import Contributions, Ids, IndexInfo, Scores

POSTINGS = "postings"
"""Folder of the index, beside the documents."""


class Index(Protocol):
    """A collection's sparse vectors, ready to be searched. Documents are numbered as they were when it was built."""

    @property
    def info(self) -> IndexInfo:
        """What is in it."""
        ...

    def search(self, queries: sp.csr_matrix, depth: int) -> tuple[Ids, Scores]:
        """The ``depth`` documents that score best for each query, best first.

        Only documents that score above zero; of equal scores the lower document number comes first.

        Args:
            queries: (queries, vocabulary).
            depth: results a query.

        Returns:
            Document numbers and scores, both (queries, depth); -1 and 0 where fewer were found.

        Raises:
            CollapseError: a query weight is infinite or no number.
            ValueError: the queries are of another vocabulary, or ``depth`` is not positive.
        """
        ...

    def explain(self, query: sp.csr_matrix, document: int) -> Contributions:
        """What makes the score of one document.

        Args:
            query: (1, vocabulary).
            document: its number.

        Raises:
            ValueError: there is no such document, or the query is of another vocabulary or not one.
        """
        ...


def build_index(engine: Engine, documents: sp.csr_matrix, folder: Path) -> Index:
    """An index of ``documents``, (documents, vocabulary), made by ``engine`` and kept in ``folder``.

    Raises:
        CollapseError: a weight is infinite or no number.
    """
    match engine:
        case "exact":
            from vtkit.search.exact import ExactIndex

            index = ExactIndex.build(documents)
            index.save(folder)
            return index
        case _:
            assert_never(engine)


def open_index(engine: Engine, folder: Path) -> Index:
    """The index that :func:`build_index` left in ``folder``.

    Raises:
        DataError: files are missing or damaged.
    """
    match engine:
        case "exact":
            from vtkit.search.exact import ExactIndex

            return ExactIndex.load(folder)
        case _:
            assert_never(engine)


def search_exactly(documents: sp.csr_matrix, queries: sp.csr_matrix, depth: int) -> tuple[Ids, Scores]:
    """As :meth:`Index.search`, of documents that are searched once and in memory, so that no index is kept.

    Raises:
        CollapseError: a weight is infinite or no number.
    """
    from vtkit.search.exact import ExactIndex

    return ExactIndex.build(documents).search(queries, depth)
