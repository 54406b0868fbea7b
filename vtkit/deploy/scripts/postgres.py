"""The documents in a table of the database DATABASE_URL, which has pgvector.

pip install "psycopg[binary]" onnxruntime tokenizers numpy

python index.py load, python index.py search "a query", python index.py replay
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from typing import Any

import psycopg
from encode import HERE, Results, Vector, index_main, opened

TABLE = (HERE / "schema.sql").read_text("utf-8").partition("CREATE TABLE ")[2].split()[0]


@cache
def connected() -> psycopg.Connection[Any]:
    """The database."""
    return psycopg.connect(os.environ.get("DATABASE_URL", ""), autocommit=True)


def load() -> None:
    """Create the table and copy documents/ into it."""
    with connected().cursor() as cursor, connected().transaction():
        cursor.execute("SELECT to_regclass(%s)", (TABLE,))
        if cursor.fetchone() != (None,):
            sys.exit(f"there is a table {TABLE} already: drop it first")
        cursor.execute((HERE / "schema.sql").read_bytes())
        for line in (HERE / "load.sql").read_text("utf-8").splitlines():
            match = re.fullmatch(r"\\copy (\w+) (\([^)]*\)) FROM '([^']+)'", line)
            assert match is not None
            with cursor.copy(f"COPY {match[1]} {match[2]} FROM STDIN".encode()) as copy:
                copy.write((HERE / match[3]).read_bytes())
    with connected().cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {TABLE}".encode())
        print(f"{(cursor.fetchone() or [0])[0]:,} documents")


def search(vector: Vector, top: int) -> Results:
    """The first documents of a query."""
    width = opened(HERE / "settings.json")["dimensions"]
    query = "{" + ",".join(f"{number + 1}:{weight:.9g}" for number, weight in sorted(vector.items())) + f"}}/{width}"
    condition = os.environ.get("FILTER", "true").replace("%", "%%")
    distance = "weights <#> %(query)s::sparsevec"
    statement = (
        f"SELECT id, -({distance}) FROM {TABLE} WHERE {condition} ORDER BY {distance}, number LIMIT %(top)s"
        if not opened(HERE / "settings.json")["passages"]
        else f"SELECT id, score FROM (SELECT DISTINCT ON (document_number) id, document_number, -({distance}) AS score "
        f"FROM {TABLE} WHERE {condition} ORDER BY document_number, {distance}, number) AS best "
        "ORDER BY score DESC, document_number LIMIT %(top)s"
    )
    with connected().cursor() as cursor:
        cursor.execute("SET TIME ZONE 'UTC'")  # of times without a zone in the condition
        cursor.execute(statement.encode(), {"query": query, "top": top})
        return [(str(identity), float(score)) for identity, score in cursor.fetchall() if score > 0]


if __name__ == "__main__":
    index_main(load, search)
