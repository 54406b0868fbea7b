"""Queries made of documents, for which nobody has to judge: random snippets, crops (two random spans of one text;
Contriever, Izacard et al. 2022, arXiv:2112.09118), and openings. Lengths are in words; where a script writes no spaces,
in pairs of characters."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from vtkit.data.documents import Document, Query
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.trec import Run

SHORTEST_TEXT = 4  # texts of fewer words leave nothing to make a query of
LONGEST_WORD = 15  # mean characters a word above which a text is taken for one without spaces between words

SNIPPET_WORDS = (4, 12)  # fewest and most words of a snippet of a whole text

QUERY_WORDS = 16  # words of the longest query that is cut out of its text, or paired with a span of it
SHORTEST_QUERY = 5  # words of the shortest query of a crop, if the text has twice as many
DOCUMENT_WORDS = 80  # words of the longest document of a crop

FEWEST_PAIRS = 20  # snippet pairs, below which nothing is concluded: a difference could not be told from chance

_SENTENCE_END = re.compile(r"[.!?。！？؟।]['\"”’»」』)]*\s+|[。！？।]|\n+")


def units(text: str) -> list[str]:
    """The words of ``text``; pairs of its characters where its script writes no spaces."""
    words = text.split()
    if _spaced(words):
        return words
    line = " ".join(words)
    return [line[start : start + 2] for start in range(0, len(line), 2)]


def joined(part: Sequence[str], text: str) -> str:
    """Some of the units of ``text`` as text again."""
    return (" " if _spaced(text.split()) else "").join(part)


def _spaced(words: Sequence[str]) -> bool:
    return sum(map(len, words)) <= LONGEST_WORD * len(words)


def random_slice(words: Sequence[str], shortest: int, longest: int, draw: np.random.Generator) -> slice:
    """The slice of a random snippet of ``shortest`` to ``longest`` of a text's units, at most half of them."""
    longest = max(1, min(longest, len(words) // 2))
    length = int(draw.integers(min(shortest, longest), longest, endpoint=True))
    start = int(draw.integers(len(words) - length, endpoint=True))
    return slice(start, start + length)


def random_snippets(texts: Sequence[str], most: int, seed: int) -> list[str]:
    """Up to ``most`` snippets of :data:`SNIPPET_WORDS` words, each of another random text."""
    draw = np.random.default_rng(seed)
    shuffled = (texts[number] for number in draw.permutation(len(texts)).tolist())
    snippets = (
        joined(words[random_slice(words, *SNIPPET_WORDS, draw)], text)
        for text in shuffled
        if len(words := units(text)) >= SHORTEST_TEXT
    )
    return list(islice(snippets, most))


@dataclass(frozen=True)
class SnippetPairs:
    """Snippets and the texts that they were cut out of: the i-th query is missing in the i-th document, so that finding
    one by the other takes more than repeating its words."""

    queries: list[str]
    documents: list[str]

    def __len__(self) -> int:
        return len(self.queries)

    def as_collection(self, name: str) -> RetrievalSet:
        """The pairs as a collection without judgements; a query and its document have the same number as id."""
        documents = [Document(str(number), "", text) for number, text in enumerate(self.documents)]
        return RetrievalSet(name, documents, [Query(str(number), text) for number, text in enumerate(self.queries)], {})

    def reciprocal_ranks(self, run: Run) -> np.ndarray:
        """Reciprocal rank of each query's own document, (pairs,): the mean over the ranks that it could have among
        documents of its score, so that ties broken by chance gain nothing; 0 if it is not found.

        Args:
            run: queries and documents are called by their numbers, as in :meth:`as_collection`.
        """
        ranks = np.zeros(len(self))
        for number in range(len(self)):
            scores = dict(run.get(str(number), ()))
            if (own := scores.get(str(number))) is not None:
                values = np.fromiter(scores.values(), float)
                above, tied = int((values > own).sum()), int((values == own).sum())
                ranks[number] = (1 / np.arange(above + 1, above + tied + 1)).mean()
        return ranks


def snippet_pairs(texts: Sequence[str], most: int, seed: int) -> SnippetPairs:
    """Up to ``most`` pairs, each of another text of at least twice :data:`SHORTEST_TEXT` words; snippets have up to
    :data:`QUERY_WORDS`."""
    queries, documents = [], []
    for number, text in enumerate(dict.fromkeys(texts)):
        words = units(text)
        if len(words) < 2 * SHORTEST_TEXT:
            continue
        snippet = random_slice(words, SHORTEST_TEXT, QUERY_WORDS, np.random.default_rng([seed, 6, number]))
        queries.append(joined(words[snippet], text))
        documents.append(joined([*words[: snippet.start], *words[snippet.stop :]], text))
        if len(queries) == most:
            break
    return SnippetPairs(queries, documents)


def crop_pair(text: str, draw: np.random.Generator) -> tuple[str, str]:
    """A query of :data:`SHORTEST_QUERY` to :data:`QUERY_WORDS` words (at most half of the text), and a span of up to
    :data:`DOCUMENT_WORDS`."""
    words = units(text)
    query = random_slice(words, SHORTEST_QUERY, QUERY_WORDS, draw)
    document = min(DOCUMENT_WORDS, len(words))
    start = int(draw.integers(len(words) - document, endpoint=True))
    return joined(words[query], text), joined(words[start : start + document], text)


def opening_pair(text: str, most: int) -> tuple[str, str]:
    """The first sentence (a title is one too) of at most ``most`` words, and the rest; a half, if there is one sentence
    only."""
    end = _SENTENCE_END.search(text)
    first, rest = (text[: end.end()], text[end.end() :]) if end is not None else ("", "")
    if not first.strip() or not rest.strip():
        words = units(text)
        first, rest = (joined(half, text) for half in (words[: len(words) // 2], words[len(words) // 2 :]))
    return joined(units(first)[:most], first), rest.strip()
