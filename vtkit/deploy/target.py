"""The engines that a model can be exported for. Each has a file of its name in this folder with its :class:`Target`,
and its users' part in ``scripts/NAME.py`` and ``templates/NAME.md``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from vtkit.search.index_info import Kind

TargetName = Literal["onnx", "qdrant", "elasticsearch", "opensearch", "postgres", "lucene", "milvus", "vespa"]

NO_NAME = re.compile(r"^(?=\d)|\W", re.ASCII)  # what a name in a program cannot have, a digit in front included
LONGEST = 60  # bytes of a name
ORDERED: tuple[Kind, ...] = ("integer", "number", "date", "datetime")  # fields that can be compared with >=

Facts = dict[str, Any]  # what an engine's part of the README says of this export


@dataclass(frozen=True)
class Target:
    """An engine to export for: what it needs, what it refuses, and how its files are written."""

    name: TargetName
    write: Callable[..., Facts]
    """``write(source, collection, folder)`` fills the folder of an export that already has the model; ``collection``
    is None for a model alone."""

    condition: Callable[[str, Kind, Any], Any] | None = None
    """An example of a filter, a text or JSON, from a field's name, its type and a value; None: no filters."""

    needs_documents: bool = False
    registers_models: bool = False  # whether its index.py is of use without documents
    own_bm25: bool = False  # whether it can add its own BM25 to the scores of a purely learned index
    token_types: bool = False  # whether its network has an input for token types
    double_logarithm: bool = False  # whether it takes the logarithm of a document twice if queries have a table
    bits: int | None = None  # of a weight, if weights are whole numbers
    nine_bits: bool = False  # whether it cuts weights to 9 significant bits, like Lucene's features
    refused: re.Pattern[str] | None = None  # a character that texts cannot hold
    refused_in_names: re.Pattern[str] = NO_NAME  # a character that names of fields cannot hold
    own_names: tuple[str, ...] = ()  # fields that every document has


def engine_names(fields: Mapping[str, Kind], refused: re.Pattern[str], taken: set[str]) -> dict[str, str]:
    """An engine's name of each field: ``_`` for every ``refused`` character, and a number behind names that are
    ``taken``, whatever their case."""
    names: dict[str, str] = {}
    used = {name.lower() for name in taken}
    for field in fields:
        base = refused.sub("_", field).encode()[:LONGEST].decode(errors="ignore") or "_"
        numbered = (f"{base}_{number}" for number in count(2))
        names[field] = next(name for name in chain([base], numbered) if name.lower() not in used)
        used.add(names[field].lower())
    return names
