"""The words of a query, and what each adds to a score: a dimension of the encoder belongs to the word whose token gives
it the largest weight, and the words that contain a term of BM25 share it by their counts. And the words of a document
that hold what it shares with the query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtkit.data.unspaced import cut_run
from vtkit.search.analysers import MARK
from vtkit.search.results import Places, Weighted, WordShare

if TYPE_CHECKING:
    from scipy import sparse

    from vtkit.search.bm25 import TermDimensions
    from vtkit.search.index_info import Contributions

PREFIX = "bm25:"  # in front of the names of the dimensions of BM25's terms

READ = 100_000  # characters of a document that are searched for words
MARKED = 0.1  # part of the largest share that a word of a document needs to be marked
TOKENS_A_WORD = 3  # tokens of the encoder, and terms of BM25, that are listed for a word
_BEFORE = 3  # pieces of the text into which the terms of the next piece may reach back: pairs and threes of characters


class Piece(NamedTuple):
    """A word of a text, or what stands between two words."""

    start: int
    stop: int
    word: str  # empty between words


def cut_words(text: str) -> list[Piece]:
    """``text`` cut by ICU: at spaces and punctuation, and by dictionary in scripts without spaces."""
    pieces, start = [], 0
    for part in cut_run(text):
        pieces.append(Piece(start, start + len(part), part if any(map(str.isalnum, part)) else ""))
        start += len(part)
    return pieces


def forms(name: str) -> list[str]:
    """The forms that a word of a text has if it holds the dimension called ``name``: the token in small letters, the
    term of BM25 in any language, or ``:`` and the word, for each word that names a latent term."""
    kind, _, rest = name.partition(":")
    if f"{kind}:" == PREFIX:
        return [PREFIX + rest.rpartition(MARK)[2]]
    return [f":{word.casefold()}" for word in rest.split()] if kind.isdecimal() else [name.casefold()]


def words_found(text: str, parts: Mapping[str, float], forms_of: Callable[[str], list[set[str]]]) -> Places:
    """The words of a document's ``text`` that found it, with their parts of the score. A word counts if at least half
    of it does, by the letters of its tokens or of its terms of BM25, or if it names a latent term: a piece that other
    words have too is not enough. Words with less than :data:`MARKED` of the largest part are left out.

    Args:
        parts: of the score, by the :func:`forms` of the dimensions that query and document share.
        forms_of: gives the forms of a word on each side of the index.
    """
    pieces = [piece for piece in cut_words(text) if piece.word]
    part_of = dict.fromkeys((piece.word for piece in pieces), 0.0)
    for word in part_of:
        for own in forms_of(word):
            if shared := sorted(own & parts.keys()):
                held, whole = (sum(map(str.isalnum, "".join(some))) for some in (shared, own))
                part_of[word] += sum(parts[form] for form in shared) if 2 * held >= whole else 0.0
    least = MARKED * max(part_of.values(), default=0.0)
    return tuple((*piece[:2], part_of[piece.word]) for piece in pieces if part_of[piece.word] > least)


def terms_of_pieces(analyser: Callable[[str], list[str]], text: str, pieces: Sequence[Piece]) -> Iterator[Counter[str]]:
    """The terms that each piece adds to the text before it."""
    for number, (start, stop, _) in enumerate(pieces):
        first = pieces[max(0, number - _BEFORE)].start
        yield Counter(analyser(text[first:stop])) - Counter(analyser(text[first:start]))


@dataclass(frozen=True)
class QueryWords:
    """The words of a query, and their shares in each dimension of its vector."""

    words: list[str]
    """Upper and lower case together. The first, empty, stands for what belongs to no word: punctuation and special
    tokens."""

    shares: dict[int, dict[int, float]]
    """Dimension -> number of a word -> its share. The shares of a dimension sum to 1."""

    width: int  # dimensions of the encoder; BM25's terms come after them

    @classmethod
    def of(
        cls,
        query: str,
        alone: sparse.csr_matrix,
        ends: Sequence[int],
        special: Container[int],
        terms: TermDimensions | None,
    ) -> QueryWords:
        """The words of ``query``.

        Args:
            alone: the encoder's weights of each of its tokens, before pooling, (tokens, dimensions).
            ends: the character of ``query`` behind each token; 0 or less for special tokens and a prompt.
            special: dimensions of special tokens.
            terms: BM25's, if the index has them.
        """
        pieces, width = cut_words(query), alone.shape[1]
        words = {"": ""} | {piece.word.casefold(): piece.word for piece in pieces}
        numbers = {word: number for number, word in enumerate(words)}
        owners = [numbers[piece.word.casefold()] for piece in pieces]
        of_character = [owner for piece, owner in zip(pieces, owners, strict=True) for _ in range(*piece[:2])]
        of_token = [of_character[end - 1] if end > 0 else 0 for end in ends]
        entries = alone.tocoo()
        order = np.argsort(-entries.data, kind="stable")[::-1]  # the token of the largest weight comes last, and counts
        largest = dict(zip(entries.col[order].tolist(), entries.row[order].tolist(), strict=True))
        shares = {place: {0 if place in special else of_token[token]: 1.0} for place, token in largest.items()}
        held: dict[int, Counter[int]] = {}
        if terms is not None:
            for owner, counts in zip(owners, terms_of_pieces(terms.analyser.of_query, query, pieces), strict=True):
                for term, count in counts.items():
                    if (number := terms.numbers.get(term)) is not None:
                        held.setdefault(width + number, Counter())[owner] += count
        shares |= {term: {word: n / counts.total() for word, n in counts.items()} for term, counts in held.items()}
        return cls(list(words.values()), shares, width)

    def parts(self, shared: Contributions, names: Sequence[str]) -> tuple[WordShare, ...]:
        """The share of each word in a score, the largest first, without those that add nothing. ``shared`` are the
        dimensions in common with a document, called ``names``; those without a name count, and are not listed."""
        sides: list[tuple[list[tuple[str, float]], ...]] = [([], []) for _ in self.words]  # of encoder and BM25
        for dimension, product in zip(shared.dimensions.tolist(), shared.products.tolist(), strict=True):
            name = names[dimension].removeprefix(PREFIX)
            for number, share in self.shares.get(dimension, {0: 1.0}).items():
                sides[number][dimension >= self.width].append((name, product * share))
        parts = []
        for word, listed in zip(self.words, sides, strict=True):
            if any(listed):
                encoder, bm25 = (round(sum(value for _, value in side), 4) for side in listed)
                parts.append(WordShare(word, round(encoder + bm25, 4), encoder, bm25, *map(_top, listed)))
        return tuple(sorted(parts, key=lambda part: -part.score))


def _top(values: list[tuple[str, float]]) -> Weighted:
    largest = sorted((pair for pair in values if pair[0]), key=lambda pair: -pair[1])[:TOKENS_A_WORD]
    return tuple((name, round(value, 4)) for name, value in largest)
