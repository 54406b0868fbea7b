"""Search results and their explanations, as values that commands and the Python API pass on."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

Weighted = tuple[tuple[str, float], ...]  # tokens and their weights, the largest first
Places = tuple[tuple[int, int, float], ...]  # words of a text, from here to there, and their parts of a score


class SharedToken(NamedTuple):
    """A token that a query and a document share."""

    token: str
    query_weight: float
    document_weight: float
    product: float


NO_WORD = "meaning, no single word"
"""Shown for what a score owes to no word of the query: special tokens, punctuation, and themes of the whole query."""


readable = partial(re.compile(r"(?s)^(\d+):((\()?[^\s()]+).*?(?(3)(\)))$").sub, r"theme \2\4 (\1)")
"""A dimension's name as a person reads it: of the latent term ``271:instagram facebook``, ``theme instagram (271)``; a
token stays. A name in parentheses, of words that many terms share, keeps both."""


class WordShare(NamedTuple):
    """The share of a query's word in a document's score."""

    word: str  # as the query has it; empty for punctuation and special tokens
    score: float  # the sum of the next two
    encoder: float
    bm25: float
    tokens: Weighted  # the encoder's dimensions that add most, and their parts of the score
    terms: Weighted  # the same of BM25


@dataclass(frozen=True)
class SearchResult:
    """A document that was found, and the tokens that found it."""

    rank: int
    id: str
    title: str
    text: str
    score: float
    tokens: Weighted  # tokens and their parts of the score, without special tokens
    special_tokens: Weighted  # the same for special tokens, which stand for no word but count in the score
    words: tuple[WordShare, ...] = ()  # the score by the words of the query, if that was asked for
    fields: Mapping[str, Any] = field(default_factory=dict)  # the document's further values, typed (docs/data.md)
    passage: str | None = None  # the passage of `text` that found it; None: documents are not cut into passages
    places: Places = ()  # the words of `shown` that found it, if the searcher marks them

    @property
    def shown(self) -> str:
        """The text to show of it: its passage, else the whole text."""
        return self.text if self.passage is None else self.passage


@dataclass(frozen=True)
class Found:
    """The results of one query."""

    query: str
    tokens: Weighted  # the encoder's part of the query's vector, without special tokens
    special_tokens: Weighted
    results: tuple[SearchResult, ...]  # best first; empty if the query shares no term with any document
    warnings: tuple[str, ...] = ()  # parts of the query that are ignored: cut off, or not in the vocabulary


@dataclass(frozen=True)
class Explanation:
    """The parts of one document's score for a query."""

    query: str
    id: str
    title: str
    text: str
    score: float
    rank: int | None  # among all documents; None if no term is shared
    tokens: tuple[SharedToken, ...]  # largest product first, without special tokens
    special_tokens: tuple[SharedToken, ...]
    words: tuple[WordShare, ...]  # the score by the words of the query
    query_tokens: Weighted  # the encoder's part of the query's vector, without special tokens
    passage: str | None = None  # the passage of `text` that the score is of; None: documents are not cut into passages
