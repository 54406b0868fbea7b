"""Reading through the user's files before anything is computed from them, to say what is wrong with them.

The readers are those of the stages, so that what is found here is what would stop a stage, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from vtkit.data.alignment import alignment_of, languages_of, spread_over
from vtkit.data.collections import load_retrieval
from vtkit.data.corpora import read_corpus
from vtkit.data.parallel import read_pairs
from vtkit.data.rankings import read_rankings, with_scores
from vtkit.data.vectors import read_vectors
from vtkit.system.errors import DataError

ROWS_OF_A_DATASET = 1000
"""A dataset (``datasets:...``) is read so far only: it may come over the network, row by row."""

BLOCKS_OF_VECTORS = 5
"""Blocks of some thousand words each that are read of a file of word vectors."""


def collection_problems(name: str, split: str) -> Iterator[str]:
    """What is wrong with a collection under the judgements ``split``; all of it in one message."""
    return _problems(lambda: load_retrieval(name, split))


def corpus_problems(spec: str) -> Iterator[str]:
    """What is wrong with a corpus; of its lines, in one message."""
    return _problems(lambda: _read(read_corpus(spec), ROWS_OF_A_DATASET if spec.startswith("datasets:") else None))


def pairs_problems(path: str) -> Iterator[str]:
    """What is wrong with a file of parallel text: of its lines, in one message, or that its columns do not belong
    together."""
    try:
        pairs = spread_over(read_pairs(path))
    except DataError as error:
        yield str(error)
        return
    alignment = alignment_of(pairs)
    if alignment is not None and alignment.unrelated:
        yield (
            f"{path}: its lines are no translations of each other: of {alignment.sentences} sentences only "
            f"{alignment.share:.0%} go better with their own translation than with another line's (50 % by chance, "
            "over 85 % in parallel text). One column was probably sorted or shuffled: align the file again."
        )


def pairs_doubts(path: str, language: str | None) -> Iterator[str]:
    """What looks wrong with a sound file of parallel text: its languages, or many pairs.

    Args:
        language: the target language, if it is known.
    """
    pairs = spread_over(read_pairs(path))
    first, second = languages_of(pairs)
    if first is not None and first == second:
        yield (
            f"{path}: both columns are in one language ({first}). A bridge between languages needs the source language "
            "in the first column and the target language in the second."
        )
    elif language is not None and language == first and second is not None:
        yield (
            f"{path}: its columns are swapped: the first is in {first}, the language searched in, and the second in "
            f"{second}. They are read the other way round where the vocabularies agree; better put the source first."
        )
    alignment = alignment_of(pairs)
    if alignment is not None and alignment.doubtful:
        worst = min(alignment.parts)
        shown = ", ".join(f"{part:.0%}" for part in alignment.parts)
        where = " A line may be missing on one side." if max(alignment.parts) - worst > 0.2 else ""
        yield (
            f"{path}: many pairs are no translations of each other: {alignment.share:.0%} of {alignment.sentences} "
            "sentences go better with their own translation than with another line's (50 % by chance, over 85 % in "
            f"parallel text), by quarters of the file {shown}.{where}"
        )


def rankings_problems(path: str, collection: str, split: str, *, scores: bool = False) -> Iterator[str]:
    """What is wrong with a file of rankings, or of scores, of documents of ``collection``, in one message."""
    try:
        data = load_retrieval(collection, split)
    except DataError:  # which is said of the collection itself
        return
    yield from _problems(lambda: with_scores(data, [path]) if scores else read_rankings(path, data))


def vectors_problems(path: str) -> Iterator[str]:
    """What is wrong with a file of word vectors, if something is in its beginning."""
    return _problems(lambda: _read(read_vectors(path), BLOCKS_OF_VECTORS))


def _problems(read: Callable[[], object]) -> Iterator[str]:
    try:
        read()
    except DataError as error:
        yield str(error)


def _read(items: Iterable[object], most: int | None) -> None:
    deque(islice(items, most), maxlen=0)
