"""What a search finds and why, as values: the searcher makes them, commands and the Python API hand them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Weighted = tuple[tuple[str, float], ...]
"""Tokens and their weights, the largest first."""


class SharedToken(NamedTuple):
    """A token that query and document share."""

    token: str
    query_weight: float
    document_weight: float
    product: float


@dataclass(frozen=True)
class SearchResult:
    """A document that was found, and why."""

    rank: int
    id: str
    title: str
    text: str
    score: float

    tokens: Weighted
    """Tokens and what they add to the score, without special tokens."""

    special_tokens: Weighted
    """The same of special tokens, which stand for no word but count in the score."""


@dataclass(frozen=True)
class Found:
    """What is found for one query."""

    query: str

    tokens: Weighted
    """The query's vector, without special tokens."""

    special_tokens: Weighted
    results: tuple[SearchResult, ...]
    """The best first; none for a query that shares no term with any document."""

    warnings: tuple[str, ...] = ()
    """What of the query does not count: what is cut off, or what the vocabulary lacks."""


@dataclass(frozen=True)
class Explanation:
    """Why one document scores what it does for a query."""

    query: str
    id: str
    title: str
    text: str
    score: float

    rank: int | None
    """Among all documents; None where no term is shared."""

    tokens: tuple[SharedToken, ...]
    """The largest product first, without special tokens."""

    special_tokens: tuple[SharedToken, ...]

    query_tokens: Weighted
    """The query's vector, without special tokens."""
