"""The words of a query, and what each adds to a score: a dimension of the encoder belongs to the word whose token gives
it the largest weight, and the words that contain a term of BM25 share it by their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtkit.data.unspaced import cut_run
from vtkit.search.results import Weighted, WordShare

if TYPE_CHECKING:
    from scipy import sparse

    from vtkit.search.bm25 import TermDimensions
    from vtkit.search.index_info import Contributions

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
        is_word = any(character.isalnum() for character in part)
        pieces.append(Piece(start, start + len(part), part if is_word else ""))
        start += len(part)
    return pieces


def terms_of_pieces(analyser: Callable[[str], list[str]], text: str, pieces: Sequence[Piece]) -> list[Counter[str]]:
    """The terms that each piece adds to the text before it."""
    counted = []
    for number, (start, stop, _) in enumerate(pieces):
        first = pieces[max(0, number - _BEFORE)].start
        counted.append(Counter(analyser(text[first:stop])) - Counter(analyser(text[first:start])))
    return counted


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
        shares = {place: {0 if place in special else of_token[token]: 1.0} for place, token in _largest(alone)}
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
        by_encoder: list[list[tuple[str, float]]] = [[] for _ in self.words]
        terms: list[list[tuple[str, float]]] = [[] for _ in self.words]
        for dimension, product in zip(shared.dimensions.tolist(), shared.products.tolist(), strict=True):
            side, name = (by_encoder if dimension < self.width else terms), names[dimension].removeprefix("bm25:")
            for number, share in self.shares.get(dimension, {0: 1.0}).items():
                side[number].append((name, product * share))
        parts = []
        for word, encoder, bm25 in zip(self.words, by_encoder, terms, strict=True):
            if encoder or bm25:
                encoder_sum, bm25_sum = (round(sum(value for _, value in side), 4) for side in (encoder, bm25))
                parts.append(
                    WordShare(word, round(encoder_sum + bm25_sum, 4), encoder_sum, bm25_sum, _top(encoder), _top(bm25))
                )
        return tuple(sorted(parts, key=lambda part: -part.score))


def _largest(alone: sparse.csr_matrix) -> Iterator[tuple[int, int]]:
    """Each dimension, with the token that gives it the largest weight, (tokens, dimensions); the first of several."""
    entries = alone.tocoo()
    order = np.lexsort((entries.row, -entries.data, entries.col))
    dimensions, first = np.unique(entries.col[order], return_index=True)
    return zip(dimensions.tolist(), entries.row[order][first].tolist(), strict=True)


def _top(values: list[tuple[str, float]]) -> Weighted:
    largest = sorted((pair for pair in values if pair[0]), key=lambda pair: -pair[1])[:TOKENS_A_WORD]
    return tuple((name, round(value, 4)) for name, value in largest)
