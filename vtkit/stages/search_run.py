"""Searching a run: results, and the tokens that made each score."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sentence_transformers import SparseEncoder

from vtkit.artifacts import facts_of
from vtkit.encoder.checkpoint import fastest_device, load_encoder, output_tokenizer
from vtkit.encoder.sides import encode_side
from vtkit.errors import DataError, VtkitError
from vtkit.search.exact import ExactIndex
from vtkit.stages.run import open_run
from vtkit.vocabulary.alignment import legible

TOKENS_SHOWN = 12

REBUILD = "Run the recipe again: vtkit run RECIPE finds what is damaged by its checksum and makes it anew."


def explain_results(model: str, index: Path, query: str, *, depth: int, query_length: int) -> dict[str, Any]:
    """The best ``depth`` documents for ``query`` and, for each, the tokens whose products sum to its score.

    Args:
        model: SparseEncoder folder or hub id.
        index: one set's folder of an index output: ``postings/`` and ``documents.jsonl``.
        query: the query's text.
        depth: results.
        query_length: tokens the query is cut at.

    Returns:
        ``query``, ``tokens`` (token, weight) of the query's vector, and ``results``: rank, id, title, text,
        score, and tokens (token, contribution), largest first.
    """
    encoder = _encoder(model)
    postings = ExactIndex.load(index / "postings")
    vector = encode_side(encoder, [query], "query", query_length, description="encoding the query")
    _fits(postings, vector, index)
    ids, scores = postings.search(vector, depth)
    found = [int(i) for i in ids[0] if i >= 0]
    documents = _documents(index / "documents.jsonl", set(found))
    results = [
        {
            "rank": rank,
            "id": documents[number]["_id"],
            "title": documents[number].get("title", ""),
            "text": documents[number]["text"],
            "score": float(scores[0, rank - 1]),
            "tokens": _named(model, *_contributions(postings, vector, number)),
        }
        for rank, number in enumerate(found, start=1)
    ]
    return {"query": query, "tokens": _named(model, vector.indices, vector.data), "results": results}


def explain_document(model: str, index: Path, query: str, document_id: str, *, query_length: int) -> dict[str, Any]:
    """Why one document scores what it does for ``query``.

    Returns:
        ``query``, the document (``id``, ``title``, ``text``), ``score``, ``rank`` among all documents (None where
        no term is shared), and ``tokens``: (token, query weight, document weight, product), largest product first.

    Raises:
        VtkitError: the index has no such document.
    """
    number, document = _document_called(index / "documents.jsonl", document_id)
    encoder = _encoder(model)
    postings = ExactIndex.load(index / "postings")
    vector = encode_side(encoder, [query], "query", query_length, description="encoding the query")
    _fits(postings, vector, index)
    terms, products = _contributions(postings, vector, number)
    query_weights = dict(zip(vector.indices.tolist(), vector.data.tolist(), strict=True))
    names = _names(model)
    order = np.argsort(-products, kind="stable")
    ids, _ = postings.search(vector, max(postings.document_count, 1))
    ranks = np.flatnonzero(ids[0] == number)
    return {
        "query": query,
        "id": document["_id"],
        "title": document.get("title", ""),
        "text": document["text"],
        "score": float(products.sum()),
        "rank": int(ranks[0]) + 1 if len(ranks) else None,
        "tokens": [
            [
                names[int(terms[i])],
                query_weights[int(terms[i])],
                float(products[i]) / query_weights[int(terms[i])],
                float(products[i]),
            ]
            for i in order
        ],
        "query_tokens": _named(model, vector.indices, vector.data),
    }


def _contributions(postings: ExactIndex, query: sparse.csr_matrix, document: int) -> tuple[np.ndarray, np.ndarray]:
    """Terms that query and document share and the products of their weights."""
    terms, products = [], []
    for term, weight in zip(query.indices.tolist(), query.data.tolist(), strict=True):
        start, stop = int(postings.starts[term]), int(postings.starts[term + 1])
        at = start + int(np.searchsorted(postings.documents[start:stop], document))
        if at < stop and postings.documents[at] == document:
            terms.append(term)
            products.append(weight * float(postings.weights[at]))
    return np.asarray(terms, dtype=np.int64), np.asarray(products, dtype=np.float64)


def _named(model: str, terms: np.ndarray, values: np.ndarray) -> list[list[Any]]:
    order = np.argsort(-values, kind="stable")[:TOKENS_SHOWN]
    names = _names(model)
    return [[names[int(term)], round(float(value), 4)] for term, value in zip(terms[order], values[order], strict=True)]


def _read_documents(path: Path) -> Iterator[dict[str, str]]:
    """The documents of an index in their order.

    Raises:
        DataError: the file is missing or damaged.
    """
    read = 0
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                document = json.loads(line)
                if not all(isinstance(document[name], str) for name in ("_id", "text")):
                    raise TypeError("_id and text should be strings")
                yield document
                read += 1
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing. {REBUILD}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path} is damaged after {read:,} documents ({type(error).__name__}: {error}). {REBUILD}"
        ) from error


def _documents(path: Path, wanted: set[int]) -> dict[int, dict[str, str]]:
    found = {number: document for number, document in enumerate(_read_documents(path)) if number in wanted}
    if len(found) < len(wanted):
        raise DataError(f"{path} is cut short: the index beside it has more documents. {REBUILD}")
    return found


def _document_called(path: Path, name: str) -> tuple[int, dict[str, str]]:
    examples: list[str] = []
    for number, document in enumerate(_read_documents(path)):
        if document["_id"] == name:
            return number, document
        if len(examples) < 3:
            examples.append(document["_id"])
    raise VtkitError(f"the index has no document {name!r}. Its ids look like {', '.join(examples)}.")


def _fits(postings: ExactIndex, query: sparse.csr_matrix, index: Path) -> None:
    if query.shape[1] != postings.vocabulary:
        raise DataError(
            f"{index} is over {postings.vocabulary:,} dimensions, and the model gives {query.shape[1]:,}: they do not "
            f"belong together. {REBUILD}"
        )


@lru_cache(maxsize=2)
def _encoder(model: str) -> SparseEncoder:
    return load_encoder(model, fastest_device())


@lru_cache(maxsize=2)
def _names(model: str) -> list[str]:
    return legible(output_tokenizer(_encoder(model)))


def search_run(folder: Path, query: str, *, top: int, model: str | None, collection: str | None) -> dict[str, Any]:
    """:func:`explain_results` over a run on disk.

    Args:
        folder: the run's folder.
        query: the query's text.
        top: results.
        model: stage whose model and index to use; None for the final one.
        collection: evaluation set; None for the first.

    Raises:
        VtkitError: no such run, model or set.
    """
    encoder, index, query_length = _opened(folder, model, collection)
    return explain_results(encoder, index, query, depth=top, query_length=query_length)


def explain_run(
    folder: Path, query: str, document_id: str, *, model: str | None, collection: str | None
) -> dict[str, Any]:
    """:func:`explain_document` over a run on disk; arguments as in :func:`search_run`."""
    encoder, index, query_length = _opened(folder, model, collection)
    return explain_document(encoder, index, query, document_id, query_length=query_length)


def _opened(folder: Path, model: str | None, collection: str | None) -> tuple[str, Path, int]:
    """The encoder's name, one set's index folder and the query length of a run."""
    run = open_run(folder)
    name = model or run.final_model
    indexed = [step.removeprefix("index:") for step in run.steps if step.startswith("index:")]
    if name not in indexed:
        raise VtkitError(
            f"{folder} has no index of {name!r}. "
            + (f"There are {', '.join(indexed)}: choose with --model." if indexed else "Run its recipe to the end.")
        )
    index = run.steps[f"index:{name}"]
    if name not in run.models:
        raise DataError(f"{folder}: the model of {name!r} is missing from its stage output. {REBUILD}")
    sets = list(facts_of(index))
    chosen = collection or sets[0]
    if chosen not in sets:
        raise VtkitError(f"{folder} has no collection {chosen!r}. There are {', '.join(sets)}.")
    return run.models[name], index / chosen, run.query_length
