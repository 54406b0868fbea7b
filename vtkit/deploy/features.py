"""What engines with JSON objects as vectors share: names of dimensions (``t`` and a number, or the token where the
engine itself encodes texts), bulk files, and the reasons why an engine cannot run the model."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import SparseEncoder

from vtkit.deploy.documents import Collection, Entry, json_line
from vtkit.deploy.portable import Source
from vtkit.deploy.target import ORDERED, Facts, Target
from vtkit.encoder.asymmetric import dimension_names, own_output
from vtkit.search.index_info import Kind
from vtkit.search.opensearch import LEAST_WEIGHT
from vtkit.settings.analysers import LUCENE

FIELD, CONTENTS = "weights", "contents"
NAMES = "dimensions.json"  # file of the dimensions' names
_LONGEST_ID = 512  # bytes
_KEYWORD = {"type": "keyword", "ignore_above": 8_191}  # characters that Lucene can index, whatever their bytes
TYPES = {"integer": "long", "number": "double", "datetime": "date"}
"""Both engines' names of types that are called otherwise, except keywords."""


def token_names(encoder: SparseEncoder, called: Callable[[str], str] = str) -> list[str] | None:
    """An engine's names of the tokens of ``encoder``; None if two would have the same name."""
    names = [called(token) if token else f"t{number}" for number, token in enumerate(dimension_names(encoder))]
    return names if len(set(names)) == len(names) else None


def model_stays_outside(source: Source, names: Sequence[str] | None, *further: tuple[bool, str]) -> str | None:
    """The first reason why an engine cannot encode texts with the model, ``further`` ones of this engine, each with
    whether it holds, among them; None if it can."""
    reasons = (
        (source.lexical, "the index has BM25's terms beside the encoder's"),
        (own_output(source.encoder) is not None, "its input and output vocabularies differ"),
        (source.prompts, "its texts need a prompt"),
        (source.encoder.similarity_fn_name == "cosine", "it ranks by the cosine, and the engine by dot products"),
        *further,
        (names is None, "two of its tokens would have the same name"),
    )
    return next((reason for holds, reason in reasons if holds), None)


def write_names(collection: Collection, folder: Path, names: Sequence[str] | None) -> Sequence[str]:
    """Write ``dimensions.json``: ``names``, or ``t0``, ``t1`` and so on; returns what it holds."""
    called = names or [f"t{number}" for number in range(collection.vectors.shape[1])]
    (folder / NAMES).write_text(json.dumps(called, ensure_ascii=False), encoding="utf-8")
    return called


def write_bulk(collection: Collection, folder: Path, names: Sequence[str] | None) -> None:
    """Write ``bulk/part-00000.ndjson`` and so on: an action and a document, alternately; and ``dimensions.json``."""
    called = write_names(collection, folder, names)
    collection.write(folder / "bulk", "part-{}.ndjson", lambda entry: _bulk(entry, called))


def write_mapping(
    path: Path,
    columns: Mapping[str, Kind],
    field: dict[str, Any],
    settings: dict[str, Any] | None = None,
    analyser: str | None = None,
) -> None:
    """Write the body that creates an index, with its ``settings`` and the ``field`` of the vectors. Ids, titles and
    texts are shown but not searched; with an ``analyser``, the field ``contents`` has title and text to search.
    ``columns``, the documents' fields, filter."""
    shown: dict[str, Any] = {"type": "text", "index": False}
    searched = {} if analyser is None else {CONTENTS: {"type": "text", "analyzer": analyser}}
    shown |= {"copy_to": CONTENTS} if searched else {}
    properties: dict[str, Any] = {
        "id": _KEYWORD,
        "title": shown,
        "text": shown,
        FIELD: field,
    } | searched
    if columns:
        fields = {
            name: _KEYWORD if kind in ("text", "words") else {"type": TYPES.get(kind, kind)}
            for name, kind in columns.items()
        }
        properties["fields"] = {"properties": fields}
    body = {} if settings is None else {"settings": {"index": settings}}
    body |= {"mappings": {"_source": {"excludes": [FIELD]}, "properties": properties}}
    path.write_text(json.dumps(body, indent=1), encoding="utf-8")


def write_hybrid(source: Source, folder: Path, form: Callable[[Mapping[str, float]], Any]) -> Facts:
    """Write ``hybrid.json``, the ``form`` in which the engine takes the weights of the encoder and of its own BM25. The
    facts are the encoder's weight, the language of the texts, and their analyser, in most cases Lucene's, called after
    the language; ``standard`` for several languages."""
    if source.beside_bm25 is None:
        return {}
    language, weight = source.beside_bm25
    lucene = "cjk.CJKAnalyzer" if language == "ja" else LUCENE.get(language or "", "standard.StandardAnalyzer")
    weights = {"encoder": round(weight, 4), "bm25": round(1 - weight, 4)}
    (folder / "hybrid.json").write_text(json.dumps(form(weights), indent=1), encoding="utf-8")
    analyser = lucene.partition(".")[2].removesuffix("Analyzer").lower()
    return {"analyser": analyser, "weight": weight, "language": language or ""}


def _bulk(entry: Entry, names: Sequence[str]) -> str:
    vector = {name: weight for name, weight in entry.vector(names).items() if weight >= LEAST_WEIGHT}
    return json_line({"index": {"_id": entry.name(_LONGEST_ID)}}) + json_line({**entry.document, FIELD: vector})


def _condition(name: str, kind: Kind, value: Any) -> dict[str, Any]:
    test, wanted = ("range", {"gte": value}) if kind in ORDERED else ("term", value)
    return {test: {f"fields.{name}": wanted}}


lucene_target = partial(
    Target, condition=_condition, own_bm25=True, nine_bits=True, refused_in_names=re.compile(r"[.\s*]")
)
"""An engine whose weights are Lucene's features, with 9 significant bits; a dot in a name would begin an object."""
