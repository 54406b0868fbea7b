"""Parallel text as token ids, which tokens occur together in it, and mixtures of the strongest translations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from vtkit.data.parallel import read_pairs
from vtkit.data.sequences import Ragged, RaggedRows
from vtkit.data.text import batches
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.transfer.mixture import Mixture, Part, mixture_of_parts
from vtkit.vocabulary.forms import whole_encodings
from vtkit.vocabulary.pair import VocabularyPair

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

LONGEST_TEXT = 128  # tokens of one text that are read; beyond that everything co-occurs with everything

CHARACTERS_PER_TOKEN = 16
"""Texts are cut at so many characters for each token that will be read, before they are tokenized."""

LARGEST_TABLE = 120_000_000
"""Token pairs of the probability table (20 bytes each while learning); text beyond it is left out, with a warning."""

PAIRS_JUDGED = 500  # pairs at the beginning of a file that tell which column is in which language
UNKNOWN_COST = 4  # tokens that an unread character counts as: more than any tokenizer cuts one that it reads into

MOST_SOURCES = 20  # translations of one token that are kept

PAIRS_AT_ONCE = 4096
KEYS_AT_ONCE = 8_000_000


@dataclass(frozen=True)
class Bitext:
    """Parallel text as token ids, without special and unknown tokens."""

    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source)

    def turned(self) -> Bitext:
        """Source and target in each other's place."""
        return Bitext(source=self.target, target=self.source)


def pairs_in(
    files: Sequence[str | Path], source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast
) -> Iterator[tuple[str, str]]:
    """The pairs of several files, one after the other, source text first. A file in the other order is turned, with a
    warning: one that takes a tenth fewer tokens when each column is read by the other's tokenizer."""
    for file in files:
        columns = list(zip(*islice(read_pairs(file), PAIRS_JUDGED), strict=True))
        as_given, swapped = (sum(map(_effort, pair, columns)) for pair in ((source, target), (target, source)))
        turned = swapped < 0.9 * as_given
        if turned:
            console.warn(f"{file}: its columns are swapped, target language first. They are read the other way round.")
        yield from ((second, first) if turned else (first, second) for first, second in read_pairs(file))


def _effort(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> int:
    """Tokens of ``texts``; an unknown one counts as :data:`UNKNOWN_COST` for each of its characters."""
    effort = 0
    for encoding in whole_encodings(tokenizer, texts, offsets=True):
        for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            effort += UNKNOWN_COST * (end - start) if number == tokenizer.unk_token_id else 1
    return effort


def read_bitext(pair: VocabularyPair, pairs: Iterable[tuple[str, str]]) -> Bitext:
    """Tokenize both texts of each pair. Special and unknown tokens are left out (what is unknown has no meaning
    to translate), and then pairs of which one text is empty."""
    vocabularies = (pair.source, pair.target)
    usable = [np.array([form is not None for form in vocabulary.forms]) for vocabulary in vocabularies]
    texts = RaggedRows(), RaggedRows()
    for batch in batches(pairs, PAIRS_AT_ONCE):
        encoded = [
            whole_encodings(
                vocabulary.tokenizer, [both[language][: LONGEST_TEXT * CHARACTERS_PER_TOKEN] for both in batch]
            )
            for language, vocabulary in enumerate(vocabularies)
        ]
        for encodings in zip(*encoded, strict=True):
            ids = (np.array(encoding.ids[:LONGEST_TEXT], dtype=np.int32) for encoding in encodings)
            known = [own[is_known[own]] for own, is_known in zip(ids, usable, strict=True)]
            if all(map(len, known)):
                for rows, own in zip(texts, known, strict=True):
                    rows.append(own)
    bitext = Bitext(*(rows.whole() for rows in texts))
    if not len(bitext):
        raise DataError("The parallel text has no pair with a known token in both texts; are its columns in order?")
    return bitext


def co_occurrence_table(
    bitext: Bitext, source_size: int, target_size: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
    """The token pairs seen together as rows of sorted source ids: where the row of each target token begins, (target
    size + 1,), the source ids, and how many sentence pairs fit."""
    keys = np.empty(0, dtype=np.int64)
    sizes = np.cumsum(bitext.source.lengths.astype(np.int64) * bitext.target.lengths)
    begin = 0
    while begin < len(bitext):
        reached = sizes[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(sizes, reached + KEYS_AT_ONCE, side="right")))
        source = _occurrences(bitext.source, begin, end, source_size)
        together = (_occurrences(bitext.target, begin, end, target_size).T @ source).tocoo()
        merged = np.union1d(keys, together.row.astype(np.int64) * source_size + together.col)
        if len(merged) > LARGEST_TABLE and begin > 0:
            break
        keys, begin = merged, end
    if begin < len(bitext):
        console.warn(
            f"Only the first {begin} of {len(bitext)} parallel pairs are used: more do not fit into the table of "
            f"{LARGEST_TABLE} token pairs."
        )
    counts = np.bincount(keys // source_size, minlength=target_size)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return starts, (keys % source_size).astype(np.int32), begin


def _occurrences(texts: Ragged, begin: int, end: int, size: int) -> csr_matrix:
    """How often each token occurs in the texts from ``begin`` to ``end``, (texts, vocabulary)."""
    starts = texts.starts[begin : end + 1]
    ids = texts.values[starts[0] : starts[-1]]
    return csr_matrix((np.ones(len(ids)), ids, starts - starts[0]), shape=(end - begin, size))


def strongest(probabilities: csr_matrix, min_probability: float, most: int = MOST_SOURCES) -> csr_matrix:
    """The translations of at least ``min_probability``, or, where a token has none, those at least half as probable as
    its best one; at most ``most``, on ties the lower source ids; renormalised."""
    table = probabilities.tocsr()
    rows, columns, values = [], [], []
    for row in np.flatnonzero(np.diff(table.indptr)):
        span = slice(table.indptr[row], table.indptr[row + 1])
        ids, weights = table.indices[span], table.data[span]
        keep = weights >= (min_probability if weights.max() >= min_probability else weights.max() / 2)
        order = np.lexsort((ids[keep], -weights[keep]))[:most]
        chosen = weights[keep][order]
        rows.append(np.full(len(order), row))
        columns.append(ids[keep][order])
        values.append(chosen / chosen.sum())
    if not rows:
        return csr_matrix(table.shape, dtype=np.float64)
    where = (np.concatenate(rows), np.concatenate(columns))
    kept = csr_matrix((np.concatenate(values), where), shape=table.shape)
    kept.sort_indices()
    return kept


def of_translations(method: str, translations: csr_matrix, pair: VocabularyPair) -> Mixture:
    """The mixture of the new tokens that have weights among ``translations``, (target vocabulary, source rows)."""
    seen = np.diff(translations.indptr) > 0
    new = pair.overlap.new_ids
    translated = new[seen[new]]
    return mixture_of_parts(pair, [Part(method, translated, translations[translated])])
