"""Parallel text: sentences or dictionary entries in two languages, one pair per line, separated by a tab; whether its
lines are translations of each other, and the languages of its columns."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import regex
from numpy.typing import NDArray

from vtkit.data.problems import Problems
from vtkit.data.text import read_lines
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
                problems.add(path, f"line {number} {_complaint(columns)}")
                any_bad = True
            elif not any_bad:
                any_pair = True
                yield columns[0], columns[1]
    problems.stop_if_any(_WANTED if any_bad else "")
    if not any_pair:
        raise DataError(f"{path}: holds no pairs. {_WANTED}")


_WANTED = "Parallel text has two columns per line, separated by a tab: source and target language. Remove others."


def _complaint(columns: list[str]) -> str:
    if len(columns) == 1:
        return "has only one column"
    if len(columns) > 2:
        return f"has {len(columns)} columns"
    return f"has an empty {'first' if not columns[0] else 'second'} column"


MOST_PAIRS = 2000  # pairs that are tested, spread evenly over the file

FEWEST_SENTENCES = 200
"""With fewer pairs of sentences there is no verdict: at this number, chance alone changes the share by .04."""

SHORTEST = 3  # units (see _units) that both texts of a pair need to count as sentences
LONGEST = 64  # units of a text that are used

UNRELATED = 0.58
"""If at most this share of pairs recognise their partner, they are not translations of each other. In 27 files of eight
languages, whole and in samples of 300: .46 to .54 if shuffled, .74 to .99 if correct."""

DOUBTFUL = 0.78
"""Below this share of :data:`ENOUGH` sentences, many pairs are wrong: .64 to .73 if half are shuffled, .87 to .99 if
correct."""

ENOUGH = 500

ITERATIONS = 5  # of expectation maximisation
PARTS = 4  # sections of the file that are also tested alone: a line missing on one side misaligns all that follow

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_WORD = regex.compile(rf"(?V1)[{_UNSPACED}\p{{M}}ー]+|[[\p{{L}}\p{{M}}\p{{N}}]--[{_UNSPACED}]]+")
_RUN = regex.compile(rf"[{_UNSPACED}]")
_HANGUL = regex.compile(r"\p{Hangul}")


@dataclass(frozen=True)
class Alignment:
    """How well the pairs of a file match."""

    share: float
    """Of the held-out sentence pairs, those whose source predicts its own target better than another source of similar
    length does. 1/2 by chance."""

    sentences: int
    parts: tuple[float, ...]  # the same for each quarter of the file, in its order

    @property
    def unrelated(self) -> bool:
        """Whether the pairs are no better than chance."""
        return self.share <= UNRELATED

    @property
    def doubtful(self) -> bool:
        """Whether many of the pairs are wrong."""
        return self.sentences >= ENOUGH and min(self.share, *self.parts) < DOUBTFUL


def spread_over(pairs: Iterable[tuple[str, str]], most: int = MOST_PAIRS) -> list[tuple[str, str]]:
    """Pairs at even distances, between half of ``most`` and ``most``; all if there are fewer."""
    kept: list[tuple[str, str]] = []
    step = 1
    for number, pair in enumerate(pairs):
        if number % step:
            continue
        if len(kept) == most:
            kept, step = kept[::2], 2 * step
            if number % step:
                continue
        kept.append(pair)
    return kept


def alignment_of(pairs: Sequence[tuple[str, str]]) -> Alignment | None:
    """Whether translation probabilities of IBM model 1 (Brown et al. 1993), learned from half of the sentences, find
    the right partners in the other half; None for fewer than :data:`FEWEST_SENTENCES` sentences.

    For units s of a source and t of a target, ``p(t | S) = Σ_s p(t|s) / (|S| + 1)`` with the empty word in S, smoothed
    by a tenth of the share of t. A pair is won if the mean of log p over its target is greater with its own source than
    with the next longer source. Both halves are learned from and tested in turn.
    """
    sources, targets = (_as_ids([pair[side] for pair in pairs]) for side in (0, 1))
    usable = [i for i in range(len(pairs)) if min(len(sources[i]), len(targets[i])) >= SHORTEST]
    if len(usable) < FEWEST_SENTENCES:
        return None
    order = np.random.default_rng(0).permutation(np.array(usable))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    won = np.full(len(pairs), np.nan)
    for learned, tested in (halves, halves[::-1]):
        model = _Translations([sources[i] for i in learned], [targets[i] for i in learned])
        tested = np.array(sorted(tested.tolist(), key=lambda i: len(sources[i])))
        by_own = model.scores([sources[i] for i in tested], [targets[i] for i in tested])
        by_other = model.scores([sources[i] for i in np.roll(tested, -1)], [targets[i] for i in tested])
        won[tested] = np.where(np.isclose(by_own, by_other), 0.5, by_own > by_other)
    judged = won[np.array(usable)]
    parts = tuple(float(part.mean()) for part in np.array_split(judged, PARTS))
    return Alignment(float(judged.mean()), len(usable), parts)


class _Translations:
    """p(target unit | source unit), learned by expectation maximisation from a uniform start."""

    def __init__(self, sources: list[list[int]], targets: list[list[int]]) -> None:
        self.targets = 1 + max(max(target) for target in targets)
        source, target, place = self._crossed(sources, targets)
        self.keys, pairs = np.unique(source * self.targets + target, return_inverse=True)
        rows = self.keys // self.targets
        self.probabilities = np.ones(len(self.keys))
        for _ in range(ITERATIONS):
            weights = self.probabilities[pairs]
            weights /= np.bincount(place, weights)[place]
            counts = np.bincount(pairs, weights)
            self.probabilities = counts / np.bincount(rows, counts)[rows]
        seen = np.bincount(np.concatenate([np.array(units) for units in targets]), minlength=self.targets) + 0.5
        self.frequency: NDArray[np.float64] = seen / seen.sum()

    def scores(self, sources: list[list[int]], targets: list[list[int]]) -> NDArray[np.float64]:
        """Mean of log p over the known units of each target; 0 if none is known."""
        targets = [[unit for unit in target if unit < self.targets] for target in targets]
        source, target, place = self._crossed(sources, targets)
        keys = source * self.targets + target
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        values = np.where(self.keys[places] == keys, self.probabilities[places], 0.0)
        lengths = np.array([len(units) for units in targets])
        reached = np.bincount(place, values) / np.bincount(place)
        flat = np.concatenate([np.array(units, dtype=np.int64) for units in targets])
        logs = np.log(0.9 * reached + 0.1 * self.frequency[flat])
        owner = np.repeat(np.arange(len(targets)), lengths)
        return np.asarray(np.bincount(owner, logs, len(targets)) / np.maximum(lengths, 1), dtype=np.float64)

    @staticmethod
    def _crossed(
        sources: list[list[int]], targets: list[list[int]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Each unit of a target with each unit of its source and the empty word 0: source, target, and the number of
        the unit among all targets."""
        left, right, places, place = [], [], [], 0
        for source, target in zip(sources, targets, strict=True):
            words = np.array([0, *(unit + 1 for unit in source)], dtype=np.int64)
            left.append(np.tile(words, len(target)))
            right.append(np.repeat(np.array(target, dtype=np.int64), len(words)))
            places.append(np.repeat(np.arange(place, place + len(target)), len(words)))
            place += len(target)
        return np.concatenate(left), np.concatenate(right), np.concatenate(places)


def _as_ids(texts: Sequence[str]) -> list[list[int]]:
    vocabulary: dict[str, int] = {}
    return [[vocabulary.setdefault(unit, len(vocabulary)) for unit in _units(text)] for text in texts]


def _units(text: str) -> list[str]:
    """The distinct beginnings of words, which inflection rarely changes: four letters, two syllables of Hangul; pairs
    of characters in scripts without spaces."""
    units: dict[str, None] = {}
    for word in _WORD.findall(text.casefold()):
        if _RUN.match(word):
            units.update(dict.fromkeys(word[i : i + 2] for i in range(max(len(word) - 1, 1))))
        else:
            units[word[: 2 if _HANGUL.match(word) else 4]] = None
    return list(units)[:LONGEST]


SAMPLE = 300  # characters of a sample: lingua needs about a hundred to be sure of a language

SAMPLES = 20
AGREED = 0.8  # share of a column's samples that must be in its language


def language_of(texts: Sequence[str]) -> str | None:
    """ISO 639-1 code of the language of a collection's first texts; None if lingua is not sure."""
    return languages_of([(text, "") for text in texts[:4000]])[0]


def languages_of(pairs: Sequence[tuple[str, str]]) -> tuple[str | None, str | None]:
    """ISO 639-1 codes of the languages of both columns; None if lingua is not sure."""
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()

    def language(side: int) -> str | None:
        samples, opened = [], ""
        for pair in pairs[:: max(len(pairs) // 400, 1)]:
            opened = f"{opened} {pair[side]}"
            if len(opened) >= SAMPLE:
                samples.append(opened[: 2 * SAMPLE])
                opened = ""
            if len(samples) == SAMPLES:
                break
        counts = Counter(detector.detect_language_of(sample) for sample in samples or [opened])
        best, count = counts.most_common(1)[0]
        sure = best is not None and len(samples) > 2 and count >= AGREED * len(samples)
        return best.iso_code_639_1.name.lower() if sure and best is not None else None

    return language(0), language(1)
