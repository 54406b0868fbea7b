"""Vectors and indexes in folders of their own, outside of any run: encode once, index with whichever engine, search.

A folder of vectors has ``vectors/``, ``documents.jsonl`` and ``encoding.json`` (how they were made); a folder of an
index what the index of a run has (``postings/``, ``documents.jsonl``, ``index.json``), and ``search.json`` (with which
model and settings it is searched).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from vtkit.data.document_files import DOCUMENTS, write_documents
from vtkit.data.retrieval import Document
from vtkit.data.text import digest
from vtkit.search.engine import POSTINGS, Asking, build_index
from vtkit.search.index_record import IndexRecord
from vtkit.search.stored_vectors import VECTORS, Part, read_vectors
from vtkit.settings.index import IndexSection
from vtkit.system.errors import CollapseError, DataError, RecipeError, VtkitError
from vtkit.system.outputs import publish
from vtkit.system.results import Result
from vtkit.system.runtime import Precision
from vtkit.vocabulary.tokenizer_file import tokenizer_digest

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

    from vtkit.encoder.sides import Side

ENCODING, SEARCH = "encoding.json", "search.json"

QUERIES, QUERY_WORDS = 16, 8
"""Documents whose first words stand for queries, and how many words, where an engine is to encode queries."""

R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Encoding(Result):
    """How vectors were made, and what was made."""

    model: str
    """Folder (absolute) or hub id of the encoder."""

    tokenizer: str
    """:func:`vtkit.vocabulary.tokenizer_file.tokenizer_digest` of what names their dimensions."""

    side: str
    max_length: int
    precision: str
    texts: int
    dimensions: int
    postings: int
    """Weights above zero, of all texts together."""

    postings_removed: float = 0.0
    """Share of the weights that pruning took away."""

    mass_removed: float = 0.0
    """Share of the sum of all weights that went with them."""


@dataclass(frozen=True)
class IndexFolder(Result):
    """What searches an index."""

    model: str
    documents: int
    postings: int
    engine: str
    settings: dict[str, Any]
    """Of ``[index]``: its engine, and how queries are encoded."""


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
    keep: float | None = None,
    precision: Precision = "float32",
    part: Part | None = None,
    join: int | None = None,
) -> Encoding:
    """Fill the folder ``out`` with the vectors of ``documents``; with ``part``, only encode its shards.

    Args:
        encoder: loaded from ``model``.
        model: its name, which a search needs again.
        shards: where parts are kept until all are there; what an earlier try left in it is used.
        side, max_length, top_dimensions, keep, precision, part, join: as of
            :func:`vtkit.search.sharded_encoding.encode_to_disk`.
    """
    from vtkit.encoder.asymmetric import dimension_names, output_tokenizer
    from vtkit.search.sharded_encoding import encode_to_disk

    model = str(Path(model).absolute()) if os.path.isdir(model) else model
    encoded = encode_to_disk(
        encoder,
        (document.contents for document in documents),
        side,
        max_length,
        out / VECTORS,
        shards,
        made_from={"model": digest(model) if os.path.isdir(model) else model},
        top_dimensions=top_dimensions,
        keep=keep,
        precision=precision,
        total=len(documents),
        part=part,
        join=join,
    )
    if not encoded.postings and (part is None or encoded.texts):
        raise CollapseError(
            f"{model} gives no weight to any token of the {encoded.texts:,} texts: every vector is empty, and nothing "
            "could be found by them. It collapsed in training, or its head is another model's. Name another encoder."
        )
    removed, width = encoded.removed, len(dimension_names(encoder))
    encoding = Encoding(
        model, tokenizer_digest(output_tokenizer(encoder)), side, max_length, precision, encoded.texts, width,
        encoded.postings, removed.share_of_weights, removed.share_of_mass,
    )  # fmt: skip
    if part is None:
        write_documents(documents, out / DOCUMENTS)
        _write(out / ENCODING, encoding)
    return encoding


def index_folder(vectors: Path, out: Path, index: IndexSection) -> IndexFolder:
    """Fill the folder ``out`` with an index of a folder of vectors, for the engine of ``index``.

    Raises:
        DataError: it is none, or it is damaged, or its vectors are those of queries.
        MissingExtra: a package that the engine needs is not installed.
        RecipeError: ``index`` asks for what only a recipe can have.
    """
    if index.lexical != "none" or index.document_weighting != "none":
        raise RecipeError("A lexical part, and weighting of documents, are only for the indexes of recipes.")
    encoding = _read(vectors / ENCODING, Encoding, "vtkit encode")
    if encoding.side != "document":
        raise DataError(f"{vectors} holds queries. An index is made of documents: encode them without --queries.")
    matrix = read_vectors(vectors / VECTORS)
    try:
        with (vectors / DOCUMENTS).open("rb") as file:
            lines = sum(1 for _ in file)
    except FileNotFoundError as error:
        raise DataError(f"{vectors / DOCUMENTS} is missing. Encode again.") from error
    if not matrix.shape[0] == lines == encoding.texts:
        raise DataError(f"{vectors}: {matrix.shape[0]:,} vectors, but {lines:,} documents. Encode again.")
    asking = _asking(encoding, vectors / DOCUMENTS) if index.takes_text else None
    info = build_index(index, matrix, out / POSTINGS, asking).info
    publish(vectors / DOCUMENTS, out / DOCUMENTS)
    IndexRecord(index.engine, matrix.shape[1], encoding.tokenizer).save(out)
    found = IndexFolder(
        encoding.model, info.documents, info.postings, index.engine, index.model_dump(mode="json", exclude_unset=True)
    )
    _write(out / SEARCH, found)
    return found


def _asking(encoding: Encoding, documents: Path) -> Asking:
    """The encoder of ``encoding``, and beginnings of documents that stand for queries."""
    from vtkit.encoder.checkpoint import load_encoder

    try:
        with documents.open(encoding="utf-8") as file:
            entries = [json.loads(line) for line in islice(file, QUERIES)]
        texts = [" ".join(f"{entry.get('title', '')} {entry['text']}".split()[:QUERY_WORDS]) for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{documents} is damaged ({type(error).__name__}). Encode again.") from error
    return Asking(load_encoder(encoding.model, "cpu"), texts)


def is_index_folder(folder: Path) -> bool:
    """Whether :func:`index_folder` filled it."""
    return (folder / SEARCH).is_file()


def searched_by(folder: Path) -> tuple[str, IndexSection]:
    """The model, and the settings, that a folder is searched with that :func:`index_folder` filled.

    Raises:
        DataError: it is damaged.
        VtkitError: the model is not there.
    """
    found = _read(folder / SEARCH, IndexFolder, "vtkit index")
    if os.path.isabs(found.model) and not os.path.isdir(found.model):
        raise VtkitError(f"{folder}: the model it was encoded with is gone: {found.model}.")
    try:
        return found.model, IndexSection.model_validate(found.settings)
    except ValidationError as error:
        raise DataError(f"{folder / SEARCH} is damaged: its settings. Make it again with vtkit index.") from error


def _write(path: Path, found: Result) -> None:
    path.write_text(json.dumps(found.to_json(), indent=1, ensure_ascii=False), encoding="utf-8")


def _read(path: Path, kind: type[R], command: str) -> R:
    try:
        return kind.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise DataError(f"{path.parent} is no folder that {command} made: it has no {path.name}.") from error
    except (ValueError, TypeError, RecursionError, ValidationError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}). Make it again with {command}.") from error
