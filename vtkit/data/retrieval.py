"""A judged collection: documents, queries and relevance judgements."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vtkit.data.documents import Document as Document
from vtkit.data.documents import Query as Query
from vtkit.data.documents import StoredDocuments
from vtkit.data.judgements import ByQuery, only
from vtkit.data.sequences import Lazy

V = TypeVar("V", int, float)


@dataclass(frozen=True)
class RetrievalSet:
    """A collection with one split of its judgements; ``queries`` are exactly the judged ones."""

    name: str
    documents: Sequence[Document]  # a list, or mapped from files if there are many (vtkit.data.documents)
    queries: list[Query]
    qrels: Mapping[str, Mapping[str, int]]  # query id -> document id -> grade; grades of 0 and below mean not relevant
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Query id -> document id -> a teacher's score, if the training data have scores."""

    not_comparable: tuple[str, ...] = ()
    """Why figures of this collection cannot be compared with published ones: missing documents, queries or judgements,
    such as "sampled: 1,000 of 2,831 queries"."""

    own_documents: bool = False
    """Whether a document with a query's id is the query itself (ArguAna, Quora). It is neither a result nor a negative
    of the query. In other collections ids of both meet by chance."""

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {document.id: number for number, document in enumerate(self.documents)}

    def numbers_of(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
        """The position in :attr:`documents` of each document id, -1 if there is none."""
        if isinstance(self.documents, StoredDocuments):
            return self.documents.numbers_of(names)
        return np.array([self._numbers.get(name, -1) for name in names], dtype=np.int32)

    @cached_property
    def contents(self) -> Sequence[str]:
        """The text of each document, built on access."""
        return Lazy(len(self.documents), lambda number: self.documents[number].contents)

    def by_number(self, values: Mapping[str, Mapping[str, V]], query: str) -> dict[int, V]:
        """Document number -> value of a query in ``values``, :attr:`qrels` or :attr:`scores`; -1 for documents that are
        not in the collection."""
        if not isinstance(values, ByQuery) or query not in values:
            by_name = values.get(query, {})
            return dict(zip(self.numbers_of(list(by_name)).tolist(), by_name.values(), strict=True))
        if values.places.get("documents") is not self.documents:
            values.places.update(documents=self.documents, numbers=self.numbers_of(values.ids.to_pylist()))
        columns, entries = values.row(query)
        return dict(zip(values.places["numbers"][columns].tolist(), entries.tolist(), strict=True))

    @cached_property
    def own_numbers(self) -> npt.NDArray[np.int32]:
        """The number of each query's own document, -1 if it has none, (queries,)."""
        if not self.own_documents:
            return np.full(len(self.queries), -1, dtype=np.int32)
        return self.numbers_of([query.id for query in self.queries])

    def under(self, queries: Sequence[Query]) -> RetrievalSet:
        """The same documents with some of the queries."""
        ids = {query.id for query in queries}
        return replace(self, queries=list(queries), qrels=only(self.qrels, ids), scores=only(self.scores, ids))

    def sample(self, max_queries: int | None, seed: int) -> RetrievalSet:
        """The same documents with ``max_queries`` of the queries, sampled without replacement, in their order."""
        if max_queries is None or max_queries >= len(self.queries):
            return self
        drawn = sorted(random.Random(seed).sample(range(len(self.queries)), max_queries))
        chosen = self.under([self.queries[number] for number in drawn])
        sampled = f"sampled: {max_queries:,} of {len(self.queries):,} queries"
        return replace(chosen, not_comparable=(*self.not_comparable, sampled))
