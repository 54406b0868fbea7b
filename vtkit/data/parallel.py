"""Parallel text: sentences or dictionary entries in two languages, one pair per line, separated by a tab; whether its
lines are translations of each other, and the languages of its columns."""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vtkit.data.problems import Problems
from vtkit.data.text import batches, read_lines
from vtkit.system.errors import DataError


def read_pairs(path: str | Path) -> Iterator[tuple[str, str]]:
    """Source and target text of each line, without surrounding white space; blank lines are skipped. DataError: lines
    do not have exactly two columns, or an empty one (the first few are named), or the file has no pairs."""
    path = Path(path)
    problems = Problems()
    any_pair = any_bad = False
    with problems.reading(path):
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                continue
            columns = [column.strip() for column in line.split("\t")]
            if len(columns) != 2 or not all(columns):
                has = "an empty column" if len(columns) == 2 else f"{len(columns)} columns, not 2"
                problems.add(path, f"line {number} has {has}")
                any_bad = True
            elif not any_bad:
                any_pair = True
                yield columns[0], columns[1]
    problems.stop_if_any(_WANTED if any_bad else "")
    if not any_pair:
        raise DataError(f"{path}: holds no pairs. {_WANTED}")


_WANTED = "Parallel text has two columns per line, separated by a tab: source and target language. Remove others."


FEWEST = 200  # pairs below which there is no verdict
SENTENCES = 20  # median length, in characters, of the longer column of sentences; entries of dictionaries have 7 to 10
ENOUGH_ENTRIES = 10_000  # fewer entries are doubted, not refused: some thousand of one length correlate by chance only
CHANCE, UNRELATED = 3.0, 0.05  # a correlation below so many of its standard errors, or below this one, is no evidence

DOUBTFUL = 0.6
"""Below this correlation many of the sentences are wrong: .38 to .47 if half are shuffled, .75 to .95 if correct."""

PARTS = 4  # sections of the file that are also tested alone: a line missing on one side shifts all that follow
OFFSETS = (-1, 1, -2, 2, -3, 3)  # lines by which the targets may have been shifted
SHIFTED = 4.5  # standard errors by which a shifted column must correlate better, and ...
MARGIN = 0.02  # ... its least difference


@dataclass(frozen=True)
class Alignment:
    """How well the pairs of a file match, by the lengths of their texts."""

    correlation: float  # Spearman's, of the lengths of both texts of a pair; 0 by chance
    pairs: int
    unrelated: bool  # whether the pairs are no better than chance
    doubtful: bool  # whether many of the pairs may be wrong
    shifts: tuple[int, ...]
    """Lines by which the partners of the whole file, and of each quarter, stand further down; 0 if they do not."""


def alignment_of(pairs: Iterable[tuple[str, str]]) -> Alignment | None:
    """Whether long texts have long translations (Gale and Church 1993), and whether those of other lines fit better;
    None for fewer than :data:`FEWEST` pairs.

    Spearman's correlation of the lengths in characters. In 27 files of eight languages: sentences .75 to .95,
    dictionaries .25 to .51, shuffled at most .06. Neighbouring lines are often of similar length, so the correlation of
    a shifted file is not 0; it is compared with that of the same file shifted back. In a file that is sorted by length
    the two are equal, and a shift is not found.
    """
    from scipy.stats import rankdata

    lengths = np.array([(len(source), len(target)) for source, target in pairs], dtype=np.int64).reshape(-1, 2)
    if len(lengths) < FEWEST:
        return None
    parts = [part for part in np.array_split(lengths, PARTS) if len(part) >= FEWEST // 2]
    counted = [rankdata(part, axis=0) for part in (lengths, *parts)]
    ranks = [(each - each.mean(axis=0)) / np.maximum(each.std(axis=0), 1e-12) for each in counted]
    correlation = float(ranks[0].prod(axis=1).mean())
    by_chance = correlation < max(UNRELATED, CHANCE / math.sqrt(len(lengths)))
    sentences = bool(np.median(lengths, axis=0).max() >= SENTENCES)  # or entries of a dictionary
    return Alignment(
        correlation,
        len(lengths),
        unrelated=by_chance and (sentences or len(lengths) >= ENOUGH_ENTRIES),
        doubtful=by_chance or (sentences and correlation < DOUBTFUL),
        shifts=tuple(map(_shift, ranks)),
    )


def _shift(ranks: NDArray[np.float64]) -> int:
    """The offset at which targets correlate better with the sources than on their own lines, beyond chance; ``ranks``
    of the lengths, with mean 0 and deviation 1 on each side, (pairs, 2)."""
    for offset in OFFSETS:
        sources, own = (ranks[max(-offset, 0) : len(ranks) - max(offset, 0), side] for side in (0, 1))
        gains = sources * (np.roll(ranks[:, 1], -offset)[max(-offset, 0) : len(ranks) - max(offset, 0)] - own)
        gain = float(gains.mean())
        if gain > MARGIN and gain > SHIFTED * float(gains.std()) / math.sqrt(len(gains)):
            return offset
    return 0


SAMPLE = 300  # characters of a sample: lingua needs about a hundred to be sure of a language

FEWEST_SAMPLES, SAMPLES = 3, 20  # of a column; with fewer, its language stays unknown
AGREED = 0.8  # share of a column's samples that must be in its language


def languages_of(pairs: Sequence[tuple[str, str]]) -> tuple[str | None, str | None]:
    """ISO 639-1 codes of the languages of both columns; None if lingua is not sure."""
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()

    def language(side: int) -> str | None:
        texts = (pair[side] for pair in pairs[:: max(len(pairs) // 400, 1)])
        joined = (" ".join(batch)[: 2 * SAMPLE] for batch in batches(texts, sys.maxsize, SAMPLE))
        samples = list(islice((text for text in joined if len(text) >= SAMPLE), SAMPLES))
        if len(samples) < FEWEST_SAMPLES:
            return None
        best, count = Counter(map(detector.detect_language_of, samples)).most_common(1)[0]
        return best.iso_code_639_1.name.lower() if best is not None and count >= AGREED * len(samples) else None

    return language(0), language(1)
