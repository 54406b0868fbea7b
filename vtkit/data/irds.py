"""Collections of the package ir_datasets, by id: written once as files into vtkit's cache, and read from there."""

import json
from collections.abc import Mapping
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
    """The record of ``ir_datasets:ID``; None for other names. Its judgements are called by the last of train, dev,
    validation and test in the id, else test."""
    if not name.startswith(PREFIX):
        return None
    parts = name.removeprefix(PREFIX).split("/")
    split = next((part for part in reversed(parts) if part in _SPLITS), "test")
    return PublicCollection(name, "ir_datasets", [split], [], own_documents=not OWN_DOCUMENTS.isdisjoint(parts))


def fault(name: str) -> str | None:
    """The reason why ``ir_datasets:ID`` cannot be read, without loading it; None if there is none, or for other
    names."""
    if not name.startswith(PREFIX) or _kept_in(name).is_dir():
        return None
    if not hub.downloads_allowed():
        return f"{name} is not in vtkit's cache. Run again with --download, which lets ir_datasets download it."
    if find_spec("ir_datasets") is None:
        return f"{name} needs ir_datasets, which is not installed: pip install 'vtkit[ir-datasets]'"
    return None


def folder_of(public: PublicCollection) -> Path:
    """The folder with the documents, the queries and the judgements of an id; it may lack some of them."""
    if why := fault(public.name):
        raise DataError(why)
    kept = _kept_in(public.name)
    if not kept.is_dir():
        with new_folder(kept) as written:
            _write_collection(public, written)
    return kept


def _kept_in(name: str) -> Path:
    return user_cache("ir_datasets") / name.removeprefix(PREFIX).replace("/", "--")


def _write_collection(public: PublicCollection, folder: Path) -> None:
    import ir_datasets

    try:
        dataset = ir_datasets.load(public.name.removeprefix(PREFIX))
    except KeyError as error:
        raise DataError(f"{public.name}: ir_datasets has no such id. https://ir-datasets.com lists all ids.") from error
    (folder / "qrels").mkdir()
    try:
        for kind, what, place, row in (
            ("docs", "documents", "corpus", _document),
            ("queries", "queries", "queries", lambda query: {"_id": query.query_id, "text": _default_text(query)}),
            ("qrels", "judgements", f"qrels/{public.splits[0]}", _judgement),
        ):
            if getattr(dataset, f"has_{kind}")():
                with (folder / f"{place}.jsonl").open("w", encoding="utf-8") as file:
                    for each in console.tracked(getattr(dataset, f"{kind}_iter")(), f"{what} of ir_datasets"):
                        file.write(json.dumps(row(each), ensure_ascii=False) + "\n")
    except Exception as error:  # ir_datasets and its libraries have no common base of errors
        raise DataError(f"{public.name} cannot be downloaded ({type(error).__name__}: {error}).") from error


def _document(document: Any) -> Mapping[str, str]:
    if hasattr(document, "title") and hasattr(document, "text"):
        return {"_id": document.doc_id, "title": document.title or "", "text": document.text or ""}
    return {"_id": document.doc_id, "text": _default_text(document)}


def _judgement(judged: Any) -> Mapping[str, str | int]:
    return {"query-id": judged.query_id, "corpus-id": judged.doc_id, "score": max(judged.relevance, -1)}


def _default_text(thing: Any) -> str:
    """The default text of a document or a query, else all its fields except the id."""
    if hasattr(thing, "default_text"):
        return str(thing.default_text())
    return " ".join(value for value in thing[1:] if isinstance(value, str))
