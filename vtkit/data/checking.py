"""Problems of the user's files, found by reading them before anything is computed.

The stages use the same readers, so these are exactly the problems that would stop a stage. Each is raised as a
DataError; doubts, likely problems that stop nothing, are yielded.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice

from vtkit.data.collections import load_retrieval
from vtkit.data.document_files import read_corpus
from vtkit.data.overlap import own_documents_doubt
from vtkit.data.parallel import alignment_of, languages_of, read_pairs
from vtkit.data.rankings import read_rankings, with_scores
from vtkit.data.vectors import read_vectors
from vtkit.system.errors import DataError

ROWS_OF_A_DATASET = 1000  # rows of a dataset (`datasets:...`) that are read: it may come over the network
PAIRS_READ = 4000  # pairs of parallel text whose languages are detected
BLOCKS_OF_VECTORS = 5  # blocks of a file of word vectors, some thousand words each, that are read


def check_collection(name: str, split: str, own_documents: str = "") -> Iterator[str]:
    """Read a collection with the judgements ``split``; yields a doubt if queries are documents of the same id, which
    the setting ``own_documents`` leaves out."""
    data = load_retrieval(name, split)
    if own_documents and (doubt := own_documents_doubt(data, own_documents)):
        yield doubt


def check_corpus(spec: str) -> None:
    """Read a whole corpus; of a dataset, the first :data:`ROWS_OF_A_DATASET` rows."""
    deque(islice(read_corpus(spec), ROWS_OF_A_DATASET if spec.startswith("datasets:") else None), maxlen=0)


def check_pairs(path: str, language: str | None) -> Iterator[str]:
    """Read a file of parallel text, and refuse columns that do not match. Yields a doubt about its languages, if the
    target ``language`` is known, and about pairs that may be no translations."""
    alignment, doubtful = alignment_of(read_pairs(path)), ""
    if alignment is not None:
        if shifted := [place for place, lines in enumerate(alignment.shifts) if lines]:
            shift, quarter = alignment.shifts[shifted[0]], ("", "first", "second", "third", "last")[shifted[0]]
            where = f", from about its {quarter} quarter on" if quarter else ""
            lines, down = f"{abs(shift)} line{'s' * (abs(shift) > 1)}", "down" if shift > 0 else "up"
            raise DataError(
                f"{path}: its second column is shifted{where}: the texts {lines} further {down} fit the first better "
                "by their lengths than those of the same line. A line is missing on one side: align the file again."
            )
        measured = (
            f"the lengths of both texts of its {alignment.pairs:,} pairs correlate by {alignment.correlation:.2f} (0 "
            "by chance, .25 or more in dictionaries, .75 in sentences)."
        )
        if alignment.unrelated:
            raise DataError(
                f"{path}: its columns are not translations of each other: {measured} One column was probably sorted or "
                "shuffled: align the file again."
            )
        doubtful = measured if alignment.doubtful else ""
    first, second = languages_of(list(islice(read_pairs(path), PAIRS_READ)))
    if first is not None and first == second:
        yield (
            f"{path}: both columns are in the same language ({first}). A bridge between languages needs the source "
            "language in the first column and the target language in the second."
        )
    elif language is not None and language == first and second is not None:
        yield (
            f"{path}: its columns are swapped: the first is in the target language, {first}, the second in {second}. "
            "They are read in reverse order if the vocabularies agree; put the source language first."
        )
    if doubtful:
        yield f"{path}: many pairs may not be translations of each other: {doubtful}"


def check_rankings(path: str, collection: str, split: str, *, scores: bool = False) -> None:
    """Read a file of rankings, or of scores, of documents of ``collection``."""
    try:
        data = load_retrieval(collection, split)
    except DataError:  # which is a problem of the collection itself
        return
    if scores:
        with_scores(data, [path])
    else:
        read_rankings(path, data)


def check_vectors(path: str) -> None:
    """Read the beginning of a file of word vectors."""
    deque(islice(read_vectors(path), BLOCKS_OF_VECTORS), maxlen=0)
