"""Adding documents to an index, deleting them, and merging its segments (:mod:`vtkit.search.segments`).

Only new documents are encoded. Everything that a search reads is then derived from all living documents, with the
settings of the index and the weights of encoder and BM25 that it was made with; it equals an index built anew. A change
that is killed, or finds no room, leaves the index as it was.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from vtkit.data.document_files import DOCUMENTS
from vtkit.data.problems import Problems
from vtkit.data.retrieval import Document
from vtkit.data.rows import check_id
from vtkit.data.sequences import Lazy
from vtkit.search.analysers import analyser
from vtkit.search.bm25 import Counted
from vtkit.search.drift import UNTRIMMED, Drift
from vtkit.search.fields import ConditionError, Fields
from vtkit.search.folders import ENCODING, encode_folder, read_encoding, write_index
from vtkit.search.index_info import REBUILD, RECORD
from vtkit.search.passages import row_contents
from vtkit.search.searcher import Documents
from vtkit.search.segments import (
    GENERATIONS,
    HELD,
    SEGMENTS,
    TERM_COUNTS,
    Manifest,
    Segment,
    generation_of,
    is_index_folder,
    keep_held,
    living_counts,
    living_passages,
    living_vectors,
    open_manifest,
    passages_of,
    write_living_documents,
)
from vtkit.search.stored_vectors import VECTORS, write_vectors
from vtkit.system import console
from vtkit.system.checksums import files_of, verify, write_record
from vtkit.system.errors import DataError, RecipeError, machine_errors
from vtkit.system.outputs import held, new_folder
from vtkit.system.results import Result
from vtkit.system.runtime import fastest_device
from vtkit.vocabulary.tokenizer_file import tokenizer_digest

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

MOST_SEGMENTS = 10  # with more, all but the first are merged
MOST_DELETED = 1 / 3  # share of deleted documents in the segments; with more, all are merged

MOST_ADDED = 1 / 2
"""Share of the documents that may be added before it is advised to build the index again: units, vocabulary and the
weight of BM25 come from those it was made with."""

LOCK = ".lock"  # file that the process holds which changes an index
SHARDS = ".adding"  # folder of documents that are being encoded


@dataclass(frozen=True)
class Changed(Result):
    """Counts of a change, and of the index after it."""

    added: int  # documents with new ids
    replaced: int  # documents whose ids were there
    deleted: int
    documents: int
    segments: int
    drift: Drift | None = None  # of documents that were added
    reasons: tuple[str, ...] = ()  # to build the index again


def add_documents(home: Path, documents: Sequence[Document]) -> Changed:
    """Add ``documents`` to the index in ``home``; they take the places of those with their ids. If it was interrupted,
    the same call continues.

    Raises:
        DataError: there are no documents, an id occurs twice or is none, ``home`` has no index that can change, or its
            model has changed.
        MachineError: there is no room.
    """
    from vtkit.encoder.asymmetric import output_tokenizer
    from vtkit.encoder.sides import tokenizer_of
    from vtkit.search.sharded_encoding import EncodeTexts

    _check_documents(documents)
    with _changing(home) as change:
        encoder = change.encoder
        if tokenizer_digest(output_tokenizer(encoder)) != change.manifest.tokenizer:
            raise DataError(f"{home} was made with another vocabulary than the model {change.model} has. {REBUILD}")
        index, lexical = change.manifest.index, change.manifest.lexical
        first = read_encoding(change.segment(change.manifest.segments[0]))
        name = change.next_name(change.manifest)
        with new_folder(home / SEGMENTS / name) as work:
            encoding = EncodeTexts(
                encoder,
                side="document",
                max_length=first.max_length,
                top_dimensions=first.top_dimensions,
                mass=first.mass,
                precision=first.precision,
            )
            encode_folder(
                encoding, change.model, documents, work, home / SHARDS,
                passages=index.passages, run=first.run, language=first.language,
            )  # fmt: skip
            texts = row_contents(documents, passages_of(work))
            keep_held(work, encoder, texts, index)
            if lexical is not None:
                cut = analyser(lexical.language, lexical.analysis)
                Counted.in_texts(texts, cut).save(work / TERM_COUNTS)
            write_record(work / ENCODING, read_encoding(work).to_json(), files_of(work))
            there = Documents.open(generation_of(home) / DOCUMENTS)
            old, tokenizer = Lazy(len(there), lambda number: there[number].contents), tokenizer_of(encoder, "document")
            drift = Drift.between(old, row_contents(documents, None), tokenizer, home / UNTRIMMED)
        replaced = change.numbers_of({document.id for document in documents})
        left = change.manifest.without(np.array(sorted(replaced.values()), dtype=np.int64))
        manifest = replace(
            left,
            segments=(*left.segments, Segment(name, len(documents))),
            documents=left.documents + len(documents),
            added=left.added + len(documents),
        )
        manifest = change.switch(change.merged_where_needed(manifest))
        reasons = [*drift.reasons]
        if manifest.added > MOST_ADDED * manifest.documents:
            reasons.append(f"{manifest.added:,} documents are newer than the index, which has {manifest.documents:,}")
        counts = len(documents) - len(replaced), len(replaced), 0, manifest.documents, len(manifest.segments)
        return Changed(*counts, drift, tuple(reasons))


def _check_documents(documents: Sequence[Document]) -> None:
    """Refuse documents that no file could hold, with all that is wrong."""
    problems, place, first = Problems(), Path("documents"), dict[str, int]()
    for number, document in enumerate(documents, 1):
        parts = (document.id, document.title, document.text) if isinstance(document, Document) else (None,)
        if not all(isinstance(part, str) for part in parts):
            problems.add(place, f"number {number} is no vtkit.Document whose id, title and text are strings")
        elif complaint := check_id(document.id):
            problems.add(place, f"number {number}: {complaint}")
        elif (before := first.setdefault(document.id, number)) != number:
            problems.add(place, f"number {number}: id {document.id!r} occurs twice (first as number {before})")
    problems.stop_if_any()
    if not documents:
        raise DataError("There are no documents to add: give at least one.")


def delete(home: Path, ids: Collection[str] = (), where: str | None = None) -> Changed:
    """Delete the documents with these ``ids`` from the index in ``home``, and those that meet the condition ``where``
    on their fields (:mod:`vtkit.search.fields`).

    Raises:
        DataError: there is no such document, no other document would be left, or ``home`` has no index that can change.
        ConditionError: the condition cannot be used.
    """
    with _changing(home) as change:
        known = change.numbers_of(set(ids))
        numbers = set(known.values())
        if where is not None:
            if (kinds := change.manifest.fields) is None:
                raise ConditionError("the documents of this index have no fields, so there is nothing to choose by")
            fields = Fields.open(generation_of(home), kinds, change.manifest.documents)
            numbers |= set(np.flatnonzero(fields.passing(where)[: change.manifest.documents]).tolist())
        unknown = [name for name in dict.fromkeys(ids) if name not in known]
        if not numbers:
            raise DataError(f"{home} has no such document, so nothing was deleted.")
        if unknown:
            shown = ", ".join(console.one_line(name, 40) for name in unknown[:5])
            console.warn(f"{len(unknown):,} of {len(set(ids)):,} ids are not in {home}: {shown}")
        manifest = change.manifest.without(np.array(sorted(numbers), dtype=np.int64))
        if not manifest.segments:
            raise DataError(f"{home}: these are all documents, and an index needs one. Remove the folder instead.")
        manifest = change.switch(change.merged_where_needed(manifest))
        return Changed(0, 0, len(numbers), manifest.documents, len(manifest.segments))


def merge(home: Path) -> Changed:
    """Merge the segments of the index in ``home`` into one without deleted documents, and derive what a search reads
    anew, whether it is damaged or not."""
    with _changing(home, mends=True) as change:
        manifest = change.switch(change.merged(change.manifest, 0))
        return Changed(0, 0, 0, manifest.documents, len(manifest.segments))


@contextmanager
def _changing(home: Path, *, mends: bool = False) -> Iterator[_Change]:
    """Hold the index in ``home``, and remove what changes that were killed have left."""
    if not is_index_folder(home):
        raise RecipeError(
            f"{home} is no folder that vtkit index or vtkit build made. The index of a run does not change. Copy it, "
            f"which takes no time and no space, and change the copy: vtkit index {home} --out FOLDER."
        )
    with machine_errors(home.absolute()), held(home / LOCK, f"a change of {home}"):
        manifest, model = Manifest.load(home), str(open_manifest(home).model)
        _remove_others(home / SEGMENTS, {segment.name for segment in manifest.segments})
        _remove_others(home / GENERATIONS, {str(manifest.generation)})
        for segment in manifest.segments:
            read_encoding(home / SEGMENTS / segment.name)  # its files are whole
        if not mends:  # files of the generation may be damaged: none is read
            verify(home / RECORD)
        yield _Change(home, manifest, model)


def _remove_others(folder: Path, names: Collection[str]) -> None:
    for path in folder.iterdir():
        if path.name not in names:
            shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class _Change:
    """An index that this process alone changes."""

    home: Path
    manifest: Manifest  # before the change
    model: str  # its folder or hub id, from here

    @cached_property
    def encoder(self) -> SparseEncoder:
        """Its model, which takes seconds to load."""
        from vtkit.encoder.checkpoint import load_encoder

        return load_encoder(self.model, fastest_device())

    def segment(self, segment: Segment) -> Path:
        """The folder of a segment."""
        return self.home / SEGMENTS / segment.name

    def next_name(self, manifest: Manifest) -> str:
        """The name of a new segment."""
        return str(1 + max(int(segment.name) for segment in (*self.manifest.segments, *manifest.segments)))

    def numbers_of(self, ids: Collection[str]) -> dict[str, int]:
        """The number of each living document with one of these ``ids``."""
        path = generation_of(self.home) / DOCUMENTS
        try:
            with path.open("rb") as file:
                heads = (line.partition(b', "title": ')[0] + b"}" for line in file)  # all but the text
                names = ((json.loads(head.decode())["_id"], number) for number, head in enumerate(heads))
                return {name: number for name, number in names if name in ids}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{path} is missing or damaged. Derive it anew with vtkit merge {self.home}.") from error

    def merged_where_needed(self, manifest: Manifest) -> Manifest:
        """``manifest`` within the bounds on segments and on deleted documents."""
        deleted = sum(len(segment.deleted) for segment in manifest.segments)
        if deleted > MOST_DELETED * (deleted + manifest.documents):
            return self.merged(manifest, 0)
        return self.merged(manifest, 1) if len(manifest.segments) > MOST_SEGMENTS else manifest

    def merged(self, manifest: Manifest, kept: int) -> Manifest:
        """``manifest`` with the segments behind the first ``kept`` merged into one, without deleted documents."""
        parts = replace(manifest, segments=manifest.segments[kept:])
        whole = Segment(self.next_name(manifest), sum(int(each.living.sum()) for each in parts.segments))
        first = self.segment(parts.segments[0])
        with new_folder(self.segment(whole)) as work:
            for name in [name for name in (HELD, VECTORS) if (first / name).is_dir()]:
                vectors = sp.vstack(list(living_vectors(self.home, parts, name)), format="csr")
                write_vectors(vectors, work / name)
            if (first / TERM_COUNTS).is_dir():
                living_counts(self.home, parts).save(work / TERM_COUNTS)
            write_living_documents(self.home, parts, work / DOCUMENTS)
            if (passages := living_passages(self.home, parts)) is not None:
                passages.save(work)
            encoding = replace(read_encoding(first), texts=vectors.shape[0], postings=vectors.nnz)
            write_record(work / ENCODING, encoding.to_json(), files_of(work))
        return replace(manifest, segments=(*manifest.segments[:kept], whole))

    def switch(self, manifest: Manifest) -> Manifest:
        """Let the index be ``manifest``, with a generation of its own, from one moment to the next; the manifest that
        is written. The model is loaded only if its tokens are asked for."""
        manifest, before = replace(manifest, generation=self.manifest.generation + 1), self.manifest.fields
        dimensions = read_encoding(self.segment(manifest.segments[0])).of
        manifest = write_index(self.home, manifest, manifest.index, dimensions, lambda: self.encoder)
        _remove_others(self.home / SEGMENTS, {segment.name for segment in manifest.segments})
        if before is not None and manifest.fields is not None:
            for name, kind in before.items():
                if (now := manifest.fields.get(name, kind)) != kind:
                    console.warn(f"the field {console.one_line(name, 40)} was {kind} and is {now} now, for conditions")
        return manifest
