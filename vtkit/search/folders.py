"""Vectors and indexes in folders of their own, outside of any run: encode once, index with any engine, search."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import scipy.sparse as sp
from pydantic import ValidationError

from vtkit.data.document_files import DOCUMENTS, read_document_file, write_documents
from vtkit.data.retrieval import Document
from vtkit.data.shards import Part
from vtkit.data.text import digest
from vtkit.encoder.documents import Blocks, Dimensions, indexed_rows
from vtkit.encoder.model_folder import loaded_files
from vtkit.search.drift import beginnings, said_of_unread
from vtkit.search.engine import POSTINGS, Index, build_index
from vtkit.search.fields import write_fields
from vtkit.search.index_info import RECORD, IndexRecord
from vtkit.search.passages import Passages, row_contents
from vtkit.search.segments import (
    GENERATIONS,
    HELD,
    SEGMENTS,
    TERM_COUNTS,
    Segment,
    State,
    keep_held,
    keep_vectors,
    living_passages,
    living_vectors,
    write_living_documents,
)
from vtkit.search.stored_vectors import VECTORS, read_vectors
from vtkit.settings.index import IndexSection, PassagesSection
from vtkit.system import console
from vtkit.system.checksums import files_of, verify, write_record
from vtkit.system.errors import CollapseError, DataError, VtkitError
from vtkit.system.outputs import publish
from vtkit.system.results import Result
from vtkit.system.runtime import Precision
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.tokenizer_file import tokenizer_digest

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

    from vtkit.encoder.sides import Side
    from vtkit.search.lexical import LexicalPart

ENCODING, SEARCH = "encoding.json", "search.json"

UNREAD = 0.01  # share of letters from which it is said that a vocabulary lacks them

R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Encoding(Result):
    """The vectors in a folder, and how they were made."""

    model: str  # folder (absolute) or hub id of the encoder
    tokenizer: str  # vtkit.vocabulary.tokenizer_file.tokenizer_digest of the tokenizer that names their dimensions
    side: str
    max_length: int
    precision: Precision
    texts: int  # or passages of them
    dimensions: int
    postings: int  # weights above zero in all texts together
    postings_removed: float = 0.0  # share of the weights that pruning removed
    mass_removed: float = 0.0  # their share of the sum of all weights
    top_dimensions: int | None = None  # as `[index]` has it
    mass: float = 1.0  # share of the sum of a document's weights that is kept
    run: dict[str, Any] = field(default_factory=dict)  # settings of `[index]` of the run that the model comes from ...
    language: str | None = None  # ... and its language
    of: Dimensions | None = None  # the encoder's; None in a folder that an older version made


@dataclass(frozen=True)
class IndexFolder(Result):
    """An index in a folder, and how to search it."""

    model: str
    documents: int
    postings: int
    engine: str
    settings: dict[str, Any]  # settings of `[index]`: its engine, and how queries are encoded


def encode_folder(
    encoder: SparseEncoder,
    model: str,
    documents: Sequence[Document],
    out: Path,
    shards: Path,
    *,
    side: Side = "document",
    max_length: int,
    top_dimensions: int | None = None,
    mass: float = 1.0,
    precision: Precision = "float32",
    passages: PassagesSection | None = None,
    part: Part | None = None,
    join: int | None = None,
    run: Mapping[str, Any] | None = None,
    language: str | None = None,
) -> Encoding:
    """Fill the folder ``out`` with the vectors of ``documents``, or of their ``passages``, encoded by the model called
    ``model``; with ``part``, only encode its shards, which stay in ``shards`` until all are there. ``run`` and
    ``language`` are kept."""
    from vtkit.encoder.asymmetric import dimension_names, output_tokenizer
    from vtkit.encoder.sides import tokenizer_of
    from vtkit.search.sharded_encoding import EncodeTexts, encode_to_disk

    vocabulary, some = Vocabulary(tokenizer_of(encoder, side)), beginnings(row_contents(documents, None))
    lost = [letter for text in some for letter in vocabulary.unread(text)]
    if lost and len(lost) >= UNREAD * (letters := sum(map(str.isalnum, "".join(some)))):
        console.warn(said_of_unread(model, lost, letters, f"{len(some):,} texts"))
    model = str(Path(model).absolute()) if os.path.isdir(model) else model
    cut = Passages.of(documents, passages)
    texts = row_contents(documents, cut)
    if empty := sum(not text.strip() for text in texts):
        console.warn(f"{empty:,} of {len(texts):,} texts are empty, and a query may still find them. Leave them out.")
    work = EncodeTexts(encoder, side, max_length, top_dimensions, mass, precision)
    made_from = {"model": digest(model) if os.path.isdir(model) else model}
    encoded = encode_to_disk(
        work, texts, out / VECTORS, shards, made_from=made_from, total=len(texts), part=part, join=join
    )
    if not encoded.postings and (part is None or encoded.texts):
        raise CollapseError(
            f"{model} gives no token of the {encoded.texts:,} texts any weight: every vector is empty, so no search "
            "could find anything. Its training collapsed, or its head belongs to another model. Name another encoder."
        )
    removed, width = encoded.removed, len(dimension_names(encoder))
    encoding = Encoding(
        model, tokenizer_digest(output_tokenizer(encoder)), side, max_length, precision, encoded.texts, width,
        encoded.postings, removed.share_of_weights, removed.share_of_mass, top_dimensions, mass, dict(run or {}),
        language, Dimensions.of(encoder),
    )  # fmt: skip
    if part is None:
        write_documents(documents, out / DOCUMENTS)
        if cut is not None:
            cut.save(out)
        write_record(out / ENCODING, encoding.to_json(), files_of(out))
    return encoding


Beside = Callable[
    ["SparseEncoder", "sp.csr_matrix", Sequence[Document], Passages | None, Path],
    tuple[Iterator["sp.csr_matrix"], "LexicalPart"],
]
"""Puts BM25's terms behind the vectors of documents, or of their passages, and keeps their counts in a folder."""


def index_folder(vectors: Path, out: Path, index: IndexSection, beside: Beside) -> IndexFolder:
    """Fill the folder ``out`` with an index of a folder of vectors, for the engine of ``index``, to which documents can
    be added (:mod:`vtkit.search.changes`); ``beside`` makes the lexical part, if ``index`` has one."""
    from vtkit.encoder.checkpoint import load_encoder

    encoding = read_encoding(vectors)
    if encoding.side != "document":
        raise DataError(f"{vectors} holds the vectors of queries. Only documents can be indexed: encode documents.")
    rows = read_vectors(vectors / VECTORS).shape[0]
    try:
        with (vectors / DOCUMENTS).open("rb") as file:
            lines = sum(1 for _ in file)
    except FileNotFoundError as error:
        raise DataError(f"{vectors / DOCUMENTS} is missing. Encode again.") from error
    passages = Passages.load(vectors, rows)
    vectors_of = rows if passages is None else passages.document_count
    if vectors_of != lines or rows != encoding.texts:
        raise DataError(f"{vectors}: vectors of {vectors_of:,} documents, but {lines:,} documents. Encode again.")
    segment, generation = out / SEGMENTS / "1", out / GENERATIONS / "1"
    generation.mkdir(parents=True)
    keep_vectors(segment, vectors)
    encoder, documents = load_encoder(encoding.model), read_document_file(str(vectors / DOCUMENTS))
    keep_held(segment, encoder, row_contents(documents, passages), index)

    def lexical(rows: Blocks) -> tuple[Iterator[sp.csr_matrix], LexicalPart]:
        matrix = sp.vstack(list(rows()), format="csr")
        return beside(encoder, matrix, documents, passages, segment / TERM_COUNTS)

    state, add_terms = State(1, (Segment("1", lines),)), None if index.lexical == "none" else lexical
    made = derive(out, state, generation, index, Dimensions.of(encoder), lambda: encoder, encoding.tokenizer, add_terms)
    settings = index.model_dump(mode="json", exclude_unset=True) | {"document_length": encoding.max_length}
    if not index.changes_tokens and encoding.top_dimensions is not None:
        settings.setdefault("top_dimensions", encoding.top_dimensions)  # else they are chosen again after that
    write_record(segment / ENCODING, encoding.to_json(), files_of(segment))
    folder = IndexFolder(encoding.model, lines, len(made.postings.lists.entries), index.engine, settings)
    model = loaded_files(Path(encoding.model)) if os.path.isdir(encoding.model) else ()
    write_record(out / SEARCH, folder.to_json(), model)
    state.save(out)
    return folder


def derive(
    home: Path,
    state: State,
    out: Path,
    index: IndexSection,
    dimensions: Dimensions,
    encoder: Callable[[], SparseEncoder],
    tokenizer: str,
    add_terms: Callable[[Blocks], tuple[Iterator[sp.csr_matrix], LexicalPart]] | None,
) -> Index:
    """Fill the folder ``out`` with what a search of the index in ``home`` reads, from the living documents of
    ``state``. ``add_terms`` puts BM25's terms behind their vectors, if the index has them; for ``dimensions`` and
    ``encoder``, see :func:`~vtkit.encoder.documents.indexed_rows`, for ``tokenizer``, :func:`write_index`."""
    held = (home / SEGMENTS / state.segments[0].name / HELD).is_dir()
    vectors, tokens = (partial(living_vectors, home, state, name) for name in (VECTORS, HELD))
    rows = indexed_rows(dimensions, encoder, vectors, index, out, tokens if held else None)
    blocks, part = (rows(), None) if add_terms is None else add_terms(rows)
    write_living_documents(home, state, out / DOCUMENTS)
    return write_index(out, index, blocks, out / DOCUMENTS, tokenizer, part, living_passages(home, state))


def read_encoding(vectors: Path) -> Encoding:
    """How :func:`encode_folder` made the vectors in a folder, whose files are as they were written."""
    encoding = _read(vectors / ENCODING, Encoding, "vtkit encode")
    verify(vectors / ENCODING)
    return encoding


def write_index(
    folder: Path,
    index: IndexSection,
    vectors: Iterable[sp.csr_matrix],
    documents: Path,
    tokenizer: str,
    lexical: LexicalPart | None = None,
    passages: Passages | None = None,
) -> Index:
    """Fill ``folder`` with an index of ``vectors``, (documents or their passages, dimensions) in blocks of rows, for
    the engine of ``index``, a copy of the file of their ``documents``, their fields, the terms of ``lexical`` and the
    record. ``tokenizer`` is the digest of the tokenizer that names the encoder's dimensions."""
    made = build_index(index, vectors, folder / POSTINGS, passages)
    publish(documents, folder / DOCUMENTS)
    fields = write_fields(folder)
    width, terms = (made.postings.vocabulary, None) if lexical is None else (lexical.vocabulary, lexical.save(folder))
    record = IndexRecord(index.engine, width, tokenizer, terms, fields)
    write_record(folder / RECORD, record.to_json(), files_of(folder))
    return made


def is_index_folder(folder: Path) -> bool:
    """Whether :func:`index_folder` filled ``folder``."""
    return (folder / SEARCH).is_file()


def searched_by(folder: Path) -> tuple[str, IndexSection]:
    """The model and the settings with which to search a folder that :func:`index_folder` filled."""
    searched = _read(folder / SEARCH, IndexFolder, "vtkit index")
    if os.path.isdir(folder / searched.model):  # its own, wherever the folder is moved
        searched = replace(searched, model=str(folder / searched.model))
    if os.path.isabs(searched.model) and not os.path.isdir(searched.model):
        raise VtkitError(f"{folder}: its documents were encoded with {searched.model}, which is gone.")
    verify(folder / SEARCH)
    try:
        return searched.model, IndexSection.model_validate(searched.settings)
    except ValidationError as error:
        raise DataError(f"{folder / SEARCH} is damaged: its settings. Make it again with vtkit index.") from error


def candidates_of(place: Path, index: IndexSection) -> int | None:
    """Weights of a document that are kept when it is encoded for ``place``: as the documents of an index folder were,
    whatever its settings say now; for a run, as its settings ``index`` say. None: all."""
    if not is_index_folder(place):
        return index.candidate_dimensions
    first = place / SEGMENTS / State.load(place).segments[0].name
    return _read(first / ENCODING, Encoding, "vtkit encode").top_dimensions


def _read(path: Path, kind: type[R], command: str) -> R:
    if not path.exists():
        raise DataError(f"{path.parent} was not made by {command}: it has no {path.name}.")
    return kind.from_file(path, f"Make it again with {command}.")
