"""Collections of the package ir_datasets, by id: written once as files into vtkit's cache, and read from there."""

import json
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vtkit.data import hub
from vtkit.data.public import OWN_DOCUMENTS, PublicCollection
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.outputs import new_folder
from vtkit.system.runtime import user_cache

PREFIX = "ir_datasets:"

_SPLITS = ("train", "dev", "validation", "test")


def collection_called(name: str) -> PublicCollection | None:
    """The record of ``ir_datasets:ID``, which has one split; None for other names."""
    if not name.startswith(PREFIX):
        return None
    identity = name.removeprefix(PREFIX)
    own_documents = not OWN_DOCUMENTS.isdisjoint(identity.split("/"))
    return PublicCollection(name, "ir_datasets", [split_of(identity)], [], own_documents=own_documents)


def split_of(identity: str) -> str:
    """The name that vtkit gives an id's judgements: the last of train, dev, validation and test in it, else test."""
    return next((part for part in reversed(identity.split("/")) if part in _SPLITS), "test")


def fault(name: str) -> str | None:
    """The reason why ``ir_datasets:ID`` cannot be read, without loading it; None if there is none, or for other
    names."""
    if not name.startswith(PREFIX) or _kept_in(name.removeprefix(PREFIX)).is_dir():
        return None
    if not hub.downloads_allowed():
        return f"{name} is not in vtkit's cache. Run again with --download, which lets ir_datasets download it."
    if find_spec("ir_datasets") is None:
        return f"{name} needs ir_datasets, which is not installed: pip install 'vtkit[ir-datasets]'"
    return None


def folder_of(identity: str) -> Path:
    """The folder with the documents, the queries and the judgements of an id; it may lack some of them."""
    if why := fault(PREFIX + identity):
        raise DataError(why)
    kept = _kept_in(identity)
    if not kept.is_dir():
        with new_folder(kept) as written:
            _write(identity, written)
    return kept


def _kept_in(identity: str) -> Path:
    return user_cache("ir_datasets") / identity.replace("/", "--")


def _write(identity: str, folder: Path) -> None:
    import ir_datasets

    try:
        dataset = ir_datasets.load(identity)
    except KeyError as error:
        raise DataError(
            f"{PREFIX}{identity}: ir_datasets has no such id. https://ir-datasets.com lists all ids."
        ) from error
    try:
        if dataset.has_docs():
            _write_rows(folder / "corpus.jsonl", map(_document, dataset.docs_iter()), "documents")
        if dataset.has_queries():
            rows = ({"_id": query.query_id, "text": _text(query)} for query in dataset.queries_iter())
            _write_rows(folder / "queries.jsonl", rows, "queries")
        if dataset.has_qrels():
            rows = (
                {"query-id": judged.query_id, "corpus-id": judged.doc_id, "score": max(judged.relevance, -1)}
                for judged in dataset.qrels_iter()
            )
            (folder / "qrels").mkdir()
            _write_rows(folder / "qrels" / f"{split_of(identity)}.jsonl", rows, "judgements")
    except Exception as error:  # ir_datasets and its libraries have no common base of errors
        raise DataError(f"{PREFIX}{identity} cannot be downloaded ({type(error).__name__}: {error}).") from error


def _document(document: Any) -> Mapping[str, str]:
    if hasattr(document, "title") and hasattr(document, "text"):
        return {"_id": document.doc_id, "title": document.title or "", "text": document.text or ""}
    return {"_id": document.doc_id, "text": _text(document)}


def _text(thing: Any) -> str:
    """The default text of a document or a query, else all its fields except the id."""
    if hasattr(thing, "default_text"):
        return str(thing.default_text())
    return " ".join(value for value in thing[1:] if isinstance(value, str))


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]], what: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in console.tracked(rows, f"{what} of ir_datasets"):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
