"""Reading through the user's files before anything is computed from them, to say what is wrong with them.

The readers are those of the stages, so that what is found here is what would stop a stage, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from vtkit.data.collections import load_retrieval
from vtkit.data.corpora import read_corpus
from vtkit.data.parallel import read_pairs
from vtkit.data.rankings import read_rankings, with_scores
from vtkit.data.vectors import read_vectors
from vtkit.errors import DataError

ROWS_OF_A_DATASET = 1000
"""A dataset (``datasets:...``) is read so far only: it may come over the network, row by row."""

BLOCKS_OF_VECTORS = 5
"""Blocks of some thousand words each that are read of a file of word vectors."""


def collection_problems(name: str, split: str) -> Iterator[str]:
    """What is wrong with a collection under the judgements ``split``; all of it in one message."""
    try:
        load_retrieval(name, split)
    except DataError as error:
        yield str(error)


def corpus_problems(spec: str) -> Iterator[str]:
    """What is wrong with a corpus; of its lines, in one message."""
    try:
        for _ in islice(read_corpus(spec), ROWS_OF_A_DATASET if spec.startswith("datasets:") else None):
            pass
    except DataError as error:
        yield str(error)


def pairs_problems(path: str) -> Iterator[str]:
    """What is wrong with a file of parallel text; of its lines, in one message."""
    try:
        for _ in read_pairs(path):
            pass
    except DataError as error:
        yield str(error)


def rankings_problems(path: str, collection: str, split: str, *, scores: bool = False) -> Iterator[str]:
    """What is wrong with a file of rankings, or of scores, of documents of ``collection``, in one message."""
    try:
        data = load_retrieval(collection, split)
    except DataError:  # which is said of the collection itself
        return
    try:
        with_scores(data, [path]) if scores else read_rankings(path, data)
    except DataError as error:
        yield str(error)


def vectors_problems(path: str) -> Iterator[str]:
    """What is wrong with a file of word vectors, if something is in its beginning."""
    try:
        for _ in islice(read_vectors(path), BLOCKS_OF_VECTORS):
            pass
    except DataError as error:
        yield str(error)
