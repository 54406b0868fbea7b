"""An index in a folder, which changes. Its *segments* never do: each has the vectors of some documents as they were
encoded, and whatever else is dear to make. Deletions are marks. A search reads a *generation*, which is derived from
all living documents. One file, the *manifest*, replaced by a rename, names the generation, its segments and their
marks: a reader has the old state or the new one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import ValidationError

from vtkit.data.document_files import DOCUMENTS
from vtkit.encoder.documents import ROWS_AT_ONCE, held_tokens, row_blocks
from vtkit.encoder.model_folder import loaded_files
from vtkit.search.bm25 import Counted, read_counts
from vtkit.search.index_info import REBUILD, RECORD, Kind, LexicalRecord
from vtkit.search.passages import PASSAGES, Passages
from vtkit.search.stored_vectors import VECTORS, read_vectors, write_vectors
from vtkit.settings.engines import Engine
from vtkit.settings.index import IndexSection
from vtkit.system.checksums import OUTPUTS, files_of, read_record, write_record
from vtkit.system.errors import DataError, RecipeError, VtkitError
from vtkit.system.outputs import publish
from vtkit.system.results import Result

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

SEGMENTS, GENERATIONS = "segments", "generations"
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
class Manifest(Result):
    """An index: how to search it, its segments in the order of their documents, and the generation derived from
    them."""

    model: str | None  # hub id, or folder from that of the index; None: its run says which
    settings: Mapping[str, Any]  # of `[index]`, for how queries are encoded and searched
    engine: Engine
    tokenizer: str  # vtkit.vocabulary.tokenizer_file.tokenizer_digest of the tokenizer that names the dimensions
    vocabulary: int  # dimensions of the encoder
    segments: tuple[Segment, ...]
    documents: int  # that are not deleted
    postings: int = 0
    generation: int = 1
    added: int = 0  # documents, since the index was made
    lexical: LexicalRecord | None = None
    fields: Mapping[str, Kind] | None = None  # types of the documents' fields by name; None if they have none

    @classmethod
    def load(cls, home: Path) -> Manifest:
        """The manifest of the index in ``home``; files of the index are not looked at.

        Raises:
            DataError: it is missing or damaged.
        """
        return cls.from_file(home / RECORD, REBUILD)

    def save(self, home: Path) -> None:
        """Let the index in ``home`` be this, from one moment to the next."""
        files, kept = [*files_of(home / GENERATIONS / str(self.generation))], {}
        if (home / RECORD).exists():
            known = read_record(home / RECORD).get(OUTPUTS, {}).items()
            kept = {name: stated for name, stated in known if not name.startswith(f"{GENERATIONS}/")}
        elif self.model is not None and (home / self.model).is_dir():
            files += loaded_files(home / self.model)
        write_record(home / RECORD, self.to_json(), files, kept)

    @property
    def index(self) -> IndexSection:
        """How queries are encoded and searched."""
        try:
            return IndexSection.model_validate({**self.settings, "engine": self.engine})
        except ValidationError as error:
            raise DataError(f"{RECORD} is damaged: its settings. {REBUILD}") from error

    def searched_by(self, model: str, index: IndexSection) -> Manifest:
        """This manifest of a run's index, with the model and the settings of the run."""
        settings = index.model_dump(mode="json", exclude_defaults=True, exclude={"documents", "engine"})
        return replace(self, model=model, settings=settings)

    def without(self, numbers: NDArray[np.int64]) -> Manifest:
        """The manifest with marks on the documents that have these ``numbers`` in its generation, ascending; segments
        without a living document are left out."""
        kept, first = [], 0
        for segment in self.segments:
            living = np.flatnonzero(segment.living)
            own = numbers[(numbers >= first) & (numbers < first + len(living))] - first
            first += len(living)
            deleted = sorted((*segment.deleted, *living[own].tolist()))
            if len(deleted) < segment.documents:
                kept.append(replace(segment, deleted=tuple(deleted)))
        return replace(self, segments=tuple(kept), documents=self.documents - len(numbers))


def is_index_folder(folder: Path) -> bool:
    """Whether ``folder`` has an index."""
    return (folder / SEGMENTS).is_dir()


def open_manifest(home: Path) -> Manifest:
    """The manifest of the index in ``home``, with its model as it is loaded from here, wherever the folder was moved.

    Raises:
        DataError: the manifest is missing or damaged.
        VtkitError: the model is gone, or only the index's run names it.
    """
    manifest = Manifest.load(home)
    if manifest.model is None:
        raise RecipeError(f"{home} belongs to a run. Name the run, or copy its index: vtkit index RUN --out FOLDER.")
    if (home / manifest.model).is_dir():
        return replace(manifest, model=str(home / manifest.model))
    if os.path.isabs(manifest.model):
        raise VtkitError(f"{home}: its documents were encoded with {manifest.model}, which is gone.")
    return manifest


def generation_of(home: Path) -> Path:
    """The folder that a search of the index in ``home`` reads."""
    return home / GENERATIONS / str(Manifest.load(home).generation)


def keep_held(segment: Path, encoder: SparseEncoder, texts: Iterable[str], index: IndexSection) -> None:
    """Keep the tokens that ``texts``, the rows of a segment, hold, if ``index`` counts them."""
    if (held := held_tokens(encoder, texts, index)) is not None:
        write_vectors(held, segment / HELD)


def living_vectors(home: Path, manifest: Manifest, part: str = VECTORS) -> Iterator[sp.csr_matrix]:
    """The rows of all living documents in a ``part`` of the segments, vectors or :data:`HELD`, in blocks, (rows,
    dimensions)."""
    for segment in manifest.segments:
        yield from _living(home, segment, read_vectors(home / SEGMENTS / segment.name / part))


def living_counts(home: Path, manifest: Manifest) -> Counted:
    """The counts of BM25's terms in the rows of all living documents, in blocks of the same rows as the vectors."""
    terms, living = [], []
    for segment in manifest.segments:
        of_segment, counts = read_counts(home / SEGMENTS / segment.name / TERM_COUNTS)
        terms.append(of_segment)
        living.append(partial(_living, home, segment, counts))
    return Counted.of(terms, living)


def living_passages(home: Path, manifest: Manifest) -> Passages | None:
    """The passages of all living documents, if the rows are passages."""
    parts = []
    for segment in manifest.segments:
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


def write_living_documents(home: Path, manifest: Manifest, path: Path) -> None:
    """Write the lines of all living documents to ``path``; a link if they are those of one segment."""
    if len(manifest.segments) == 1 and not manifest.segments[0].deleted:
        publish(home / SEGMENTS / manifest.segments[0].name / DOCUMENTS, path)
        return
    with path.open("wb") as out:
        for segment in manifest.segments:
            with (home / SEGMENTS / segment.name / DOCUMENTS).open("rb") as file:
                if segment.deleted:
                    out.writelines(compress(file, segment.living.tolist()))
                else:
                    shutil.copyfileobj(file, out, 2**20)
