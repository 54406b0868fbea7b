"""Target ``postgres``: a table with a column of pgvector's type ``sparsevec``, filled by COPY; its dimensions count
from 1. Without an HNSW index, search reads all rows and is exact."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vtkit.deploy.documents import Collection, Entry
from vtkit.deploy.portable import Source
from vtkit.deploy.target import ORDERED, Facts, Target
from vtkit.search.index_info import Kind
from vtkit.system.errors import DataError

MOST_INDEXED, MOST_STORED = 1_000, 16_000  # weights of a vector that an HNSW index, and a column, can hold

OWN_NAMES = ("number", "id", "title", "text", "weights")  # columns that every table has

NUL = re.compile("\0")  # no text can hold it
QUOTES = re.compile(r'[\0"(),\\]')  # they would end a name

# a timestamp ignores the zone in a condition
TYPES = {"integer": "bigint", "number": "double precision", "datetime": "timestamptz", "words": "text[]"}
"""PostgreSQL's names of types that are called otherwise."""

_RANKED = """SELECT id, -(weights <#> :'query'::sparsevec) AS score
FROM {table} ORDER BY weights <#> :'query'::sparsevec, number LIMIT 10;
"""
_GROUPED = """SELECT id, score FROM (
  SELECT DISTINCT ON (document_number) id, document_number, -(weights <#> :'query'::sparsevec) AS score
  FROM {table} ORDER BY document_number, weights <#> :'query'::sparsevec, number
) AS best ORDER BY score DESC, document_number LIMIT 10;
"""
"""The first documents of a query, also those of passages."""

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def write(source: Source, collection: Collection | None, folder: Path) -> Facts:
    """Write ``schema.sql``, ``load.sql``, ``search.sql``, ``documents/part-00000.tsv`` and so on, and ``hnsw.sql``
    if the vectors are short enough."""
    if collection is None:
        return {}
    longest = int(collection.vectors.getnnz(axis=1).max(initial=0))
    if longest > MOST_STORED:
        raise DataError(
            f"A document has {longest:,} weights, but pgvector's sparsevec holds at most {MOST_STORED:,}. "
            f"Set top_dimensions to {MOST_STORED} to keep the largest."
        )
    table, width = source.identifier, collection.vectors.shape[1]
    columns = collection.columns
    files = collection.write(folder / "documents", "part-{}.tsv", lambda entry: _row(entry, width, list(columns)))
    fields = "".join(f',\n  "{name}" {TYPES.get(kind, kind)}' for name, kind in columns.items())
    copied = ", ".join([*OWN_NAMES, *(f'"{name}"' for name in columns)])
    statements = {
        "schema.sql": f"CREATE EXTENSION IF NOT EXISTS vector;\nCREATE TABLE {table} (\n  number bigint PRIMARY KEY,\n"
        "  id text NOT NULL,\n  title text NOT NULL,\n  text text NOT NULL,\n"
        f"  weights sparsevec({width}) NOT NULL{fields}\n);\n",
        "load.sql": "".join(f"\\copy {table} ({copied}) FROM 'documents/{name}'\n" for name in files),
        "search.sql": f'-- psql -v query="{{1:0.5}}/{width}" -f search.sql\n'
        + (_RANKED if collection.passages is None else _GROUPED).format(table=table),
    }
    if longest <= MOST_INDEXED:
        statements["hnsw.sql"] = f"CREATE INDEX ON {table} USING hnsw (weights sparsevec_ip_ops);\n"
    for name, text in statements.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {"longest": longest, "most_indexed": MOST_INDEXED}


def sparsevec(entry: Entry, dimensions: int) -> str:
    """A vector as PostgreSQL reads it: ``{1:0.5,7:2}/9``."""
    pairs = zip(entry.dimensions.tolist(), entry.weights.tolist(), strict=True)
    return "{" + ",".join(f"{number + 1}:{weight:.9g}" for number, weight in pairs) + f"}}/{dimensions}"


def _row(entry: Entry, dimensions: int, columns: Sequence[str]) -> str:
    texts = (entry.document[name].translate(_ESCAPES) for name in ("id", "title", "text"))
    fields = (_cell(entry.document["fields"].get(name)) for name in columns)
    return "\t".join([str(entry.number), *texts, sparsevec(entry, dimensions), *fields]) + "\n"


def _cell(value: Any) -> str:
    """A field as COPY reads it."""
    if value is None:
        return "\\N"
    if isinstance(value, list):
        words = (word.replace("\\", "\\\\").replace('"', '\\"') for word in value)
        value = "{" + ",".join(f'"{word}"' for word in words) + "}"
    return str(value).translate(_ESCAPES)


def _sql_condition(name: str, kind: Kind, value: Any) -> str:
    quoted = "'" + str(value).replace("'", "''") + "'"
    if kind == "words":
        return f'{quoted} = ANY("{name}")'
    return f'"{name}" {">=" if kind in ORDERED else "="} {quoted}'


TARGET = Target(
    name="postgres", write=write, condition=_sql_condition, refused=NUL, refused_in_names=QUOTES, own_names=OWN_NAMES
)
