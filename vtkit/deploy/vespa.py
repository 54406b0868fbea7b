"""Target ``vespa``: an application package (schema, services, the network for ``splade-embedder``) and a feed. Vespa's
embedder pools logits, passes token types, and names a dimension after its decoded token: so the network has an input
for types, and ``tokenizer.json`` no decoder."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

from vtkit.deploy.documents import Collection, Entry, json_line
from vtkit.deploy.features import model_stays_outside, token_names, write_names
from vtkit.deploy.network import MODEL
from vtkit.deploy.portable import Source
from vtkit.deploy.target import ORDERED, Facts, Target
from vtkit.encoder.asymmetric import query_side
from vtkit.search.fields import moment
from vtkit.search.index_info import Kind
from vtkit.system.templates import templates_of
from vtkit.vocabulary.tokenizer_file import FILE

OWN_NAMES = ("id", "title", "text", "weights")  # fields that every document has

TYPES: dict[Kind, str] = {
    "text": "string",
    "integer": "long",
    "number": "double",
    "date": "long",  # seconds since 1970
    "datetime": "long",
    "boolean": "bool",
    "words": "array<string>",
}

REFUSED = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\ufdd0-\ufddf"
    + "".join(chr(plane << 16 | last) for plane in range(1, 17) for last in (0xFFFE, 0xFFFF))
    + "]"
)
"""Characters that Vespa's documents cannot hold: other control characters than tab and line ends, and noncharacters
(``isTextCharacter`` of its class ``com.yahoo.text.Text``), except U+FDE0 to U+FDEF, U+FFFE and U+FFFF."""


def write(source: Source, collection: Collection | None, folder: Path) -> Facts:
    """Write ``application/`` and ``feed/part-00000.jsonl`` and so on."""
    names = token_names(source.encoder)
    why = model_stays_outside(
        source, names,
        (query_side(source.encoder) is not None, "the network does not encode its queries"),
        (not source.pools_elsewhere, "Vespa pools the logits itself, which gives different weights here"),
    )  # fmt: skip
    application = folder / "application"
    (application / "schemas").mkdir(parents=True)
    columns = {} if collection is None else collection.columns
    templates = templates_of("vtkit.deploy")
    fields = {name: TYPES[kind] for name, kind in columns.items()}
    schema = templates.get_template("vespa_schema.sd").render(fields=fields)
    (application / "schemas" / "doc.sd").write_text(schema, encoding="utf-8")
    if why is None:
        models = application / "models"
        models.mkdir()
        shutil.copyfile(folder / MODEL, models / MODEL)
        parts = json.loads((folder / FILE).read_text("utf-8"))
        parts |= {"decoder": None, "added_tokens": [token | {"special": False} for token in parts["added_tokens"]]}
        (models / FILE).write_text(json.dumps(parts, ensure_ascii=False), encoding="utf-8")
    services = templates.get_template("vespa_services.xml").render(length=None if why else source.document_length)
    (application / "services.xml").write_text(services, encoding="utf-8")
    if collection is None:
        return {"why": why}
    called = write_names(collection, folder, None if why else names)
    collection.write(folder / "feed", "part-{}.jsonl", lambda entry: _line(entry, called, columns))
    return {"why": why}


def _line(entry: Entry, names: Sequence[str], columns: Mapping[str, Kind]) -> str:
    fields = {**entry.document, "weights": {"cells": entry.vector(names)}}
    for name, value in fields.pop("fields", {}).items():
        fields[name] = _number(columns[name], value)
    return json_line({"put": f"id:doc:doc::{entry.number}", "fields": fields})


def _number(kind: Kind, value: Any) -> Any:
    """A date as seconds since 1970, since Vespa has no type for dates; other values as they are."""
    return int(moment(value).replace(tzinfo=UTC).timestamp()) if kind in ("date", "datetime") else value


def _condition(name: str, kind: Kind, value: Any) -> str:
    operator = ">=" if kind in ORDERED else "=" if kind == "boolean" else "contains"
    return f"{name} {operator} {json.dumps(_number(kind, value), ensure_ascii=False)}"


TARGET = Target(name="vespa", write=write, condition=_condition, token_types=True, refused=REFUSED, own_names=OWN_NAMES)
