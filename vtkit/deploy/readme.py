"""The README of an export: the commands that lead to the first result, with a part of its own for each engine
(``templates/NAME.md``)."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

from vtkit.deploy.documents import PASSAGE_OF
from vtkit.deploy.network import QUANTISED, TOLERANCE
from vtkit.deploy.result import LEAST_COSINE
from vtkit.deploy.target import Facts, Target
from vtkit.encoder.asymmetric import query_table
from vtkit.encoder.query_tables import query_encoder_of
from vtkit.system.templates import templates_of
from vtkit.system.version import __version__

if TYPE_CHECKING:
    from vtkit.deploy.documents import Collection
    from vtkit.deploy.portable import Source
    from vtkit.deploy.result import Export
    from vtkit.search.index_info import Kind

_EXAMPLES: tuple[Kind, ...] = ("integer", "number", "text", "words", "boolean", "date", "datetime")
"""Types of fields, the best for an example of a filter first."""


def readme(
    source: Source, target: Target, texts: int, collection: Collection | None, exported: Export, facts: Facts
) -> str:
    """``README.md``; the network was compared with the encoder on so many ``texts``."""
    template = templates_of("vtkit.deploy").get_template("README.md")
    text = template.render(
        version=__version__,
        source=source,
        target=target,
        texts=texts,
        exported=exported,
        indexed=collection is not None,
        left_out=0 if collection is None else len(collection) - exported.documents,
        query_encoder=query_encoder_of(source.encoder),
        table=query_table(source.encoder) is not None,
        quantised=QUANTISED,
        tolerance=TOLERANCE,
        least_cosine=LEAST_COSINE,
        number="{:,}".format,
        columns={} if collection is None else collection.columns,
        passages=collection is not None and collection.passages is not None,
        example=None if collection is None else _example(target, collection),
        **facts,
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def _example(target: Target, collection: Collection) -> str | None:
    """The environment variable FILTER of ``index.py``, as a shell reads it, with a condition that the first document
    with fields meets; None without fields or filters."""
    columns = {name: kind for name, kind in collection.columns.items() if name != PASSAGE_OF}
    documents = (collection.document(number)["fields"] for number in range(len(collection) if columns else 0))
    own = ({name: value for name, value in fields.items() if name in columns} for fields in documents)
    if target.condition is None or not (fields := next(filter(None, own), {})):
        return None
    name = min(fields, key=lambda name: _EXAMPLES.index(columns[name]))
    value = fields[name][0] if columns[name] == "words" and fields[name] else fields[name]
    condition = target.condition(name, columns[name], value)
    written = condition if isinstance(condition, str) else json.dumps(condition, ensure_ascii=False)
    return f"FILTER={shlex.quote(written)}"
