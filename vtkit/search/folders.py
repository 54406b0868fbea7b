"""Vectors and indexes in folders of their own, outside of any run: encode once, index with any engine, search."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp

from vtkit.data.document_files import DOCUMENTS, write_documents
from vtkit.data.retrieval import Document
from vtkit.data.shards import Part
from vtkit.data.text import digest
from vtkit.encoder.documents import Dimensions, Removed, indexed_rows, row_blocks
from vtkit.search.analysers import analyser
from vtkit.search.bm25 import Bm25, TermDimensions
from vtkit.search.drift import beginnings, said_of_unread
from vtkit.search.engine import POSTINGS, build_index
from vtkit.search.fields import write_fields
from vtkit.search.index_info import REBUILD
from vtkit.search.lexical import LexicalPart
from vtkit.search.passages import PASSAGES, Passages, row_contents
from vtkit.search.segments import (
    GENERATIONS,
    HELD,
    SEGMENTS,
    TERM_COUNTS,
    Manifest,
    Segment,
    keep_held,
    living_counts,
    living_passages,
    living_vectors,
    write_living_documents,
)
from vtkit.search.stored_vectors import VECTORS
from vtkit.settings.index import IndexSection, PassagesSection
from vtkit.system import console
from vtkit.system.checksums import files_of, verify, write_record
from vtkit.system.errors import CollapseError, DataError
from vtkit.system.outputs import flush, new_folder, publish
from vtkit.system.results import Result
from vtkit.system.runtime import Precision
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.tokenizer_file import tokenizer_digest

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

    from vtkit.search.sharded_encoding import EncodeTexts

ENCODING = "encoding.json"

UNREAD = 0.01  # share of letters from which it is said that a vocabulary lacks them


@dataclass(frozen=True)
class Encoding(Result):
    """The vectors in a folder, and how they were made."""

    model: str | None  # folder (absolute) or hub id of the encoder; None: the run's whose stage encoded
    tokenizer: str  # vtkit.vocabulary.tokenizer_file.tokenizer_digest of the tokenizer that names their dimensions
    side: str
    max_length: int
    precision: Precision
    texts: int  # or passages of them
    dimensions: int
    of: Dimensions  # the encoder's
    postings: int  # weights above zero in all texts together
    postings_removed: float = 0.0  # share of the weights that pruning removed
    mass_removed: float = 0.0  # their share of the sum of all weights
    top_dimensions: int | None = None  # as `[index]` has it
    mass: float = 1.0  # share of the sum of a document's weights that is kept
    run: dict[str, Any] = field(default_factory=dict)  # settings of `[index]` of the run that the model comes from ...
    language: str | None = None  # ... and its language


def encode_folder(
    work: EncodeTexts,
    model: str,
    documents: Sequence[Document],
    out: Path,
    shards: Path,
    *,
    passages: PassagesSection | None = None,
    part: Part | None = None,
    **made_by: Any,
) -> Encoding:
    """Fill the folder ``out`` with the vectors of ``documents``, or of their ``passages``, encoded by the model called
    ``model``; with ``part``, as in :func:`~vtkit.search.sharded_encoding.encode_to_disk`. For ``made_by``, see
    :func:`write_encoding`."""
    from vtkit.encoder.sides import tokenizer_of
    from vtkit.search.sharded_encoding import encode_to_disk

    vocabulary, some = Vocabulary(tokenizer_of(work.encoder, work.side)), beginnings(row_contents(documents, None))
    lost = [letter for text in some for letter in vocabulary.unread(text)]
    if lost and len(lost) >= UNREAD * (letters := sum(map(str.isalnum, "".join(some)))):
        console.warn(said_of_unread(model, lost, letters, f"{len(some):,} texts"))
    model = str(Path(model).absolute()) if os.path.isdir(model) else model
    cut = Passages.of(documents, passages)
    texts = row_contents(documents, cut)
    if empty := sum(not text.strip() for text in texts):
        console.warn(f"{empty:,} of {len(texts):,} texts are empty, and a query may still find them. Leave them out.")
    made_from = {"model": digest(model) if os.path.isdir(model) else model}
    done, removed = encode_to_disk(work, texts, out / VECTORS, shards, made_from=made_from, part=part)
    own, count = part is not None and part.number is not None, sum(shard.items for shard in done)
    if not removed.left and (count or not own):
        raise CollapseError(
            f"{model} gives no token of the {count:,} texts any weight: every vector is empty, so no search "
            "could find anything. Its training collapsed, or its head belongs to another model. Name another encoder."
        )
    return write_encoding(None if own else out, work, removed, documents, cut, texts=count, model=model, **made_by)


def write_encoding(
    out: Path | None,
    work: EncodeTexts,
    removed: Removed,
    documents: Sequence[Document],
    passages: Passages | None,
    **made_by: Any,
) -> Encoding:
    """The record of vectors, which is written into their folder ``out``, if there is one, with their documents and
    passages.

    Args:
        removed: what pruning removed.
        made_by: the number of texts, model, run and language of an :class:`Encoding`.
    """
    from vtkit.encoder.asymmetric import dimension_names, output_tokenizer

    encoder = work.encoder
    encoding = Encoding(
        tokenizer=tokenizer_digest(output_tokenizer(encoder)),
        dimensions=len(dimension_names(encoder)),
        of=Dimensions.of(encoder),
        postings=removed.left,
        postings_removed=removed.share_of_weights,
        mass_removed=removed.share_of_mass,
        **work.settings,
        **made_by,
    )
    if out is not None:
        write_documents(documents, out / DOCUMENTS)
        if passages is not None:
            passages.save(out)
        write_record(out / ENCODING, encoding.to_json(), files_of(out))
    return encoding


def read_encoding(vectors: Path) -> Encoding:
    """How vectors in a folder, whose files are as they were written, were made."""
    if not (vectors / ENCODING).exists():
        raise DataError(f"{vectors} was not made by vtkit encode: it has no {ENCODING}.")
    encoding = Encoding.from_file(vectors / ENCODING, "Make it again with vtkit encode.")
    verify(vectors / ENCODING)
    return encoding


Fusion = tuple[Bm25, float, tuple[float, float]]
"""BM25 over the documents of an index, or their passages; the weight of the encoder beside it; and the deviations of
the scores of both."""

ChosenFusion = Fusion | Callable[[sp.csr_matrix, Passages | None], Fusion]
"""A fusion, or the choice of one for the vectors of documents, or of their passages, as they are indexed."""


def index_folder(
    vectors: Path,
    out: Path,
    index: IndexSection,
    encoder: SparseEncoder,
    documents: Sequence[Document],
    fusion: ChosenFusion | None = None,
) -> Manifest:
    """Fill the folder ``out`` with an index of a folder of vectors and their ``documents``, for the engine of
    ``index``, to which documents can be added (:mod:`vtkit.search.changes`); with BM25's terms, if there is a
    ``fusion``."""
    encoding = read_encoding(vectors)
    if encoding.side != "document":
        raise DataError(f"{vectors} holds the vectors of queries. Only documents can be indexed: encode documents.")
    passages = Passages.load(vectors, encoding.texts)
    segment = out / SEGMENTS / "1"
    segment.mkdir(parents=True)
    for name in (VECTORS, DOCUMENTS, PASSAGES):
        if (vectors / name).exists():
            publish(vectors / name, segment / name)
    keep_held(segment, encoder, row_contents(documents, passages), index)
    settings = index.model_dump(mode="json", exclude_unset=True) | {"document_length": encoding.max_length}
    if not index.changes_tokens and encoding.top_dimensions is not None:
        settings.setdefault("top_dimensions", encoding.top_dimensions)  # else they are chosen again after that
    manifest = Manifest(
        model=encoding.model,
        settings=settings,
        engine=index.engine,
        tokenizer=encoding.tokenizer,
        vocabulary=encoding.dimensions,
        segments=(Segment("1", len(documents)),),
        documents=len(documents),
    )
    manifest = write_index(out, manifest, index, encoding.of, lambda: encoder, fusion)
    write_record(segment / ENCODING, encoding.to_json(), files_of(segment))
    return manifest


def write_index(
    home: Path,
    manifest: Manifest,
    index: IndexSection,
    dimensions: Dimensions,
    encoder: Callable[[], SparseEncoder],
    fusion: ChosenFusion | None = None,
) -> Manifest:
    """Derive the generation of ``manifest``, all that a search of the index in ``home`` reads, from its living
    documents, and let the index be that from one moment to the next; the manifest that is written.

    Args:
        index: settings that say how documents are indexed.
        dimensions, encoder: as in :func:`~vtkit.encoder.documents.indexed_rows`.
        fusion: of a new index that is to have BM25's terms. Later they keep its weight.
    """
    first = home / SEGMENTS / manifest.segments[0].name
    vectors, tokens = (partial(living_vectors, home, manifest, name) for name in (VECTORS, HELD))
    passages = living_passages(home, manifest)
    with new_folder(home / GENERATIONS / str(manifest.generation)) as work:
        held = tokens if (first / HELD).is_dir() else None
        rows = indexed_rows(dimensions, encoder, vectors, index, work, held)
        if fusion is not None:
            matrix = sp.vstack(list(rows()), format="csr")
            rows = partial(row_blocks, matrix)
            bm25, weight, deviations = fusion(matrix, passages) if callable(fusion) else fusion
            assert bm25.counted is not None
            bm25.counted.save(first / TERM_COUNTS)
            lexical = LexicalPart.weighted(bm25, matrix, weight, deviations).record
            manifest = replace(manifest, lexical=lexical)
        blocks = rows()
        if manifest.lexical is not None:
            counts = living_counts(home, manifest)
            terms = TermDimensions.of(analyser(manifest.lexical.language, manifest.lexical.analysis), counts.terms)
            part = LexicalPart(replace(manifest.lexical, terms=len(terms)), terms, manifest.vocabulary)
            blocks = part.join_documents(blocks, counts.impacts(terms.analyser.b))
            manifest = replace(manifest, lexical=part.save(work))
        made = build_index(index, blocks, work / POSTINGS, passages)
        write_living_documents(home, manifest, work / DOCUMENTS)
        manifest = replace(manifest, postings=len(made.postings.lists.entries), fields=write_fields(work))
    manifest.save(home)
    return manifest


def copy_index(home: Path, manifest: Manifest, out: Path) -> Manifest:
    """Fill the folder ``out`` with a copy of the index in ``home``, with hard links if possible, and of the model's
    folder that ``manifest`` names: an index of its own, to which documents can be added."""
    for name in (SEGMENTS, GENERATIONS):
        publish(home / name, out / name)
    if os.path.isdir(str(manifest.model)):
        publish(Path(str(manifest.model)), out / "model")
        manifest = replace(manifest, model="model")
    flush(path for part in (SEGMENTS, GENERATIONS, "model") for path in (out / part, *(out / part).rglob("*")))
    manifest.save(out)
    return manifest


def candidates_of(home: Path, manifest: Manifest) -> int | None:
    """Weights of a document that were kept when the documents of an index were encoded; None: all."""
    return Encoding.from_file(home / SEGMENTS / manifest.segments[0].name / ENCODING, REBUILD).top_dimensions
