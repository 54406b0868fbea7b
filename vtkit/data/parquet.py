"""Rows of parquet files, as objects with the names of the columns."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from vtkit.errors import DataError

ROWS_AT_ONCE = 1000
"""Rows that are Python objects at the same time."""


def read_parquet(path: Path, among: Container[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number (from 1) and values by column of each row; only of columns whose names are ``among`` these, if any.

    Raises:
        DataError: the file cannot be read to its end.
    """
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            columns = None if among is None else [name for name in file.schema_arrow.names if name in among]
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{path}: cannot be read as parquet past row {number} ({first_line}). The file is damaged or was not "
            "copied to its end; fetch it again."
        ) from error
