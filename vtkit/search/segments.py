"""The state of a collection that changes. An index's folder has *segments*, which never change: the vectors of some
documents as they were encoded, and whatever else is dear to make. Deletions are marks. A search reads a *generation*,
which is derived from all living documents. One file, replaced by a rename, names the generation, its segments and their
marks: a reader has the old state or the new one."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from vtkit.data.document_files import DOCUMENTS
from vtkit.encoder.documents import ROWS_AT_ONCE, held_tokens, row_blocks
from vtkit.search.bm25 import Counted, TermCounts
from vtkit.search.passages import PASSAGES, Passages
from vtkit.search.stored_vectors import VECTORS, read_vectors, write_vectors
from vtkit.settings.index import IndexSection
from vtkit.system.checksums import write_record
from vtkit.system.errors import DataError
from vtkit.system.outputs import publish
from vtkit.system.results import Result

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

STATE, SEGMENTS, GENERATIONS = "collection.json", "segments", "generations"
TERM_COUNTS, HELD = "terms", "held"
"""In a segment, beside vectors and documents: the counts of BM25's terms, and the tokens that each text holds, if the
index weighs them."""


@dataclass(frozen=True)
class Segment(Result):
    """Documents that were indexed together, in the folder ``segments/NAME``."""

    name: str
    documents: int
    deleted: tuple[int, ...] = ()  # their numbers, ascending

    @property
    def living(self) -> NDArray[np.bool_]:
        """Report whether each document is not deleted, (documents,)."""
        living = np.ones(self.documents, dtype=np.bool_)
        living[list(self.deleted)] = False
        return living


@dataclass(frozen=True)
class State(Result):
    """The generation that a search reads, and the segments that it was derived from, in the order of its documents."""

    generation: int
    segments: tuple[Segment, ...]
    added: int = 0  # documents, since the index was made

    @classmethod
    def load(cls, home: Path) -> State:
        """The state of the index in ``home``.

        Raises:
            DataError: it cannot change, since it was made by an older version, or its file is damaged.
        """
        if not (home / STATE).is_file():
            raise DataError(
                f"{home} has no {STATE}: an older version of vtkit made it, and it cannot change. Make it again with "
                "vtkit index or vtkit build."
            )
        return cls.from_file(home / STATE, "Make the index again with vtkit index or vtkit build.")

    def save(self, home: Path) -> None:
        """Let the index in ``home`` be this, from one moment to the next."""
        write_record(home / STATE, self.to_json(), ())

    @property
    def documents(self) -> int:
        """Number of living documents."""
        return sum(segment.documents - len(segment.deleted) for segment in self.segments)

    def without(self, numbers: NDArray[np.int64]) -> State:
        """The state with marks on the documents that have these ``numbers`` in its generation, ascending; segments
        without a living document are left out."""
        kept, first = [], 0
        for segment in self.segments:
            living = np.flatnonzero(segment.living)
            own = numbers[(numbers >= first) & (numbers < first + len(living))] - first
            first += len(living)
            deleted = sorted((*segment.deleted, *living[own].tolist()))
            if len(deleted) < segment.documents:
                kept.append(replace(segment, deleted=tuple(deleted)))
        return replace(self, segments=tuple(kept))


def generation_of(home: Path) -> Path:
    """The folder that a search of the index in ``home`` reads; ``home`` itself if an older version made it."""
    return home / GENERATIONS / str(State.load(home).generation) if (home / STATE).exists() else home


def keep_vectors(segment: Path, vectors: Path) -> None:
    """Keep the vectors of a folder, their documents and passages in the folder ``segment``."""
    segment.mkdir(parents=True, exist_ok=True)
    for name in (VECTORS, DOCUMENTS, PASSAGES):
        if (vectors / name).exists():
            publish(vectors / name, segment / name)


def keep_held(segment: Path, encoder: SparseEncoder, texts: Iterable[str], index: IndexSection) -> None:
    """Keep the tokens that ``texts``, the rows of a segment, hold, if ``index`` counts them."""
    if (held := held_tokens(encoder, texts, index)) is not None:
        write_vectors(held, segment / HELD)


def living_vectors(home: Path, state: State, part: str = VECTORS) -> Iterator[sp.csr_matrix]:
    """The rows of all living documents in a ``part`` of the segments, vectors or :data:`HELD`, in blocks, (rows,
    dimensions)."""
    for segment in state.segments:
        yield from _living(home, segment, read_vectors(home / SEGMENTS / segment.name / part))


def living_counts(home: Path, state: State) -> Counted:
    """The counts of BM25's terms in the rows of all living documents, in blocks of the same rows as the vectors."""
    parts = [TermCounts.load(home / SEGMENTS / segment.name / TERM_COUNTS) for segment in state.segments]
    living = [partial(_living, home, segment, part.counts) for segment, part in zip(state.segments, parts, strict=True)]
    return Counted.of([part.terms for part in parts], living)


def living_passages(home: Path, state: State) -> Passages | None:
    """The passages of all living documents, if the rows are passages."""
    parts = []
    for segment in state.segments:
        passages, living = passages_of(home / SEGMENTS / segment.name), segment.living
        if passages is not None:
            rows = passages.rows[living[passages.documents]]
            passages = Passages(np.column_stack([(np.cumsum(living, dtype=np.int32) - 1)[rows[:, 0]], rows[:, 1:]]))
        parts.append((passages, int(living.sum())))
    return Passages.joined(parts)


def passages_of(segment: Path) -> Passages | None:
    """The passages whose vectors a segment holds; None if they are of documents."""
    return Passages.load(segment, read_vectors(segment / VECTORS).shape[0]) if (segment / PASSAGES).exists() else None


def _living(home: Path, segment: Segment, rows: sp.csr_matrix) -> Iterator[sp.csr_matrix]:
    passages = passages_of(home / SEGMENTS / segment.name) if segment.deleted else None
    living = segment.living if passages is None else segment.living[passages.documents]
    for number, block in enumerate(row_blocks(rows)):
        yield block[living[number * ROWS_AT_ONCE :][: block.shape[0]]] if segment.deleted else block


def write_living_documents(home: Path, state: State, path: Path) -> None:
    """Write the lines of all living documents to ``path``; a link if they are those of one segment."""
    if len(state.segments) == 1 and not state.segments[0].deleted:
        publish(home / SEGMENTS / state.segments[0].name / DOCUMENTS, path)
        return
    with path.open("wb") as out:
        for segment in state.segments:
            with (home / SEGMENTS / segment.name / DOCUMENTS).open("rb") as file:
                if segment.deleted:
                    out.writelines(compress(file, segment.living.tolist()))
                else:
                    shutil.copyfileobj(file, out, 2**20)
