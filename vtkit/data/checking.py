"""Problems of the user's files, found by reading them before anything is computed.

The stages use the same readers, so these are exactly the problems that would stop a stage.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from vtkit.data.collections import load_retrieval
from vtkit.data.corpora import read_corpus
from vtkit.data.overlap import own_documents_doubt
from vtkit.data.parallel import Alignment, alignment_of, languages_of, read_pairs
from vtkit.data.rankings import read_rankings, with_scores
from vtkit.data.vectors import read_vectors
from vtkit.system.errors import DataError

ROWS_OF_A_DATASET = 1000  # rows of a dataset (`datasets:...`) that are read: it may come over the network
PAIRS_READ = 4000  # pairs of parallel text whose languages are detected
BLOCKS_OF_VECTORS = 5  # blocks of a file of word vectors, some thousand words each, that are read


class Doubt(str):
    """A likely problem, which stops nothing."""


def collection_findings(name: str, split: str, own_documents: str = "") -> Iterator[str]:
    """The problems of a collection with the judgements ``split``, in one message; or else a :class:`Doubt` if queries
    are documents of the same id, which the setting ``own_documents`` leaves out."""
    try:
        data = load_retrieval(name, split)
    except DataError as error:
        yield str(error)
        return
    if own_documents and (doubt := own_documents_doubt(data, own_documents)):
        yield Doubt(doubt)


def corpus_problems(spec: str) -> Iterator[str]:
    """The problems of a corpus, in one message."""
    return _problems(lambda: _read(read_corpus(spec), ROWS_OF_A_DATASET if spec.startswith("datasets:") else None))


def pairs_findings(path: str, language: str | None) -> Iterator[str]:
    """The problems of a file of parallel text: one message about its lines, or one about columns that do not match. A
    file without problems may give a :class:`Doubt`: about its languages, if the target ``language`` is known, or about
    pairs that are no translations."""
    try:
        alignment = alignment_of(read_pairs(path))
    except DataError as error:
        yield str(error)
        return
    if alignment is not None and (shift := next(filter(None, alignment.shifts), 0)):
        where = "" if alignment.shifts[0] else f", from about its {_nth_quarter(alignment)} quarter on"
        lines, down = f"{abs(shift)} line{'s' * (abs(shift) > 1)}", "down" if shift > 0 else "up"
        yield (
            f"{path}: its second column is shifted{where}: the texts {lines} further {down} fit the first better "
            "by their lengths than those of the same line. A line is missing on one side: align the file again."
        )
        return
    if alignment is not None and alignment.unrelated:
        yield (
            f"{path}: its columns are not translations of each other: the lengths of both texts of its "
            f"{alignment.pairs:,} pairs {_correlation(alignment)}. One column was probably sorted or shuffled: align "
            "the file again."
        )
        return
    first, second = languages_of(list(islice(read_pairs(path), PAIRS_READ)))
    if first is not None and first == second:
        yield Doubt(
            f"{path}: both columns are in the same language ({first}). A bridge between languages needs the source "
            "language in the first column and the target language in the second."
        )
    elif language is not None and language == first and second is not None:
        yield Doubt(
            f"{path}: its columns are swapped: the first is in the target language, {first}, the second in {second}. "
            "They are read in reverse order if the vocabularies agree; put the source language first."
        )
    if alignment is not None and alignment.doubtful:
        yield Doubt(
            f"{path}: many pairs may not be translations of each other: the lengths of both texts of its "
            f"{alignment.pairs:,} pairs {_correlation(alignment)}."
        )


def _nth_quarter(alignment: Alignment) -> str:
    quarters = alignment.shifts[1:]
    return ("first", "second", "third", "last")[next(n for n, shift in enumerate(quarters) if shift)]


def _correlation(alignment: Alignment) -> str:
    return f"correlate by {alignment.correlation:.2f} (0 by chance, .25 or more in dictionaries, .75 in sentences)"


def rankings_problems(path: str, collection: str, split: str, *, scores: bool = False) -> Iterator[str]:
    """The problems of a file of rankings, or of scores, of documents of ``collection``, in one message."""
    try:
        data = load_retrieval(collection, split)
    except DataError:  # which is a problem of the collection itself
        return
    yield from _problems(lambda: with_scores(data, [path]) if scores else read_rankings(path, data))


def vectors_problems(path: str) -> Iterator[str]:
    """The problems at the beginning of a file of word vectors, in one message."""
    return _problems(lambda: _read(read_vectors(path), BLOCKS_OF_VECTORS))


def _problems(read: Callable[[], object]) -> Iterator[str]:
    try:
        read()
    except DataError as error:
        yield str(error)


def _read(items: Iterable[object], most: int | None) -> None:
    deque(islice(items, most), maxlen=0)
