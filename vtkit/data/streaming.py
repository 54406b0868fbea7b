"""Text columns of a dataset, streamed row by row through the ``datasets`` library: from the Hugging Face hub, or from a
folder of parquet, json, csv, text or arrow files."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtkit.data import hub
from vtkit.system.errors import DataError

PREFIX = "datasets:"
FORM = "datasets:NAME:CONFIG:SPLIT:COLUMN (the last three are optional; defaults: the only one, train, text)"
PAIRS_FORM = "datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT, two columns at its end (CONFIG and SPLIT may be empty)"


@dataclass(frozen=True)
class _Columns:
    spec: str
    form: str
    name: str  # hub id or folder
    config: str | None
    split: str
    columns: tuple[str, ...]


def read_column(spec: str) -> Iterator[str]:
    """The texts of one column (``datasets:NAME:CONFIG:SPLIT:COLUMN``), in the order of the dataset; rows without text
    are left out. ``NAME`` is a folder (made by ``save_to_disk``, or with files for ``load_dataset``) or a hub id, which
    is read from the cache or, if downloads are allowed, from the hub."""
    name, config, split, column, *_ = [*spec.removeprefix(PREFIX).split(":"), "", "", ""]
    if not spec.startswith(PREFIX) or not name or spec.count(":") > 4:
        raise DataError(f"{spec}: write a dataset as {FORM}.")
    wanted = _Columns(spec, FORM, name, config or None, split or "train", (column or "text",))
    yield from (text for (text,) in _texts(wanted) if text)


def read_column_pairs(spec: str) -> Iterator[tuple[str, str]]:
    """Queries and their documents, two columns of a dataset (``datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT``, as in
    :func:`read_column`); "" for missing texts."""
    parts = spec.removeprefix(PREFIX).split(":")
    if not spec.startswith(PREFIX) or len(parts) != 5 or not (parts[0] and parts[3] and parts[4]):
        raise DataError(f"{spec}: write pairs of a dataset as {PAIRS_FORM}.")
    name, config, split, query, document = parts
    wanted = _Columns(spec, PAIRS_FORM, name, config or None, split or "train", (query, document))
    yield from ((texts[0], texts[1]) for texts in _texts(wanted))


def _texts(wanted: _Columns) -> Iterator[tuple[str, ...]]:
    rows = iter(_rows(wanted))
    number = 0
    while True:
        try:
            row = next(rows, None)
        except Exception as error:  # the readers of all formats have their own errors
            raise _unreadable(wanted, error) from error
        if row is None:
            return
        number += 1
        for column in wanted.columns:
            if column not in row:
                columns = ", ".join(row)
                raise DataError(
                    f"{wanted.spec}: there is no column {column!r}. There are {columns}. A dataset is {wanted.form}."
                )
            if not isinstance(row[column], str | None):
                kind = type(row[column]).__name__
                raise DataError(f"{wanted.spec}: row {number} has {kind} instead of text in the column {column!r}.")
        yield tuple(row[column] or "" for column in wanted.columns)


def _rows(wanted: _Columns) -> Iterable[dict[str, Any]]:
    import datasets

    if Path(wanted.name).is_absolute() and not Path(wanted.name).is_dir():
        raise DataError(f"{wanted.spec}: there is no folder {wanted.name}.")
    local = Path(wanted.name) if Path(wanted.name).is_dir() else None
    if local is None and not hub.downloads_allowed():
        local = hub.fetch(wanted.name, ["*"], "dataset")
    datasets.disable_progress_bars()
    try:
        if local is not None and any((local / name).is_file() for name in ("state.json", "dataset_dict.json")):
            saved = datasets.load_from_disk(str(local))
            if not isinstance(saved, datasets.DatasetDict):
                return saved.to_iterable_dataset()  # type: ignore[no-any-return]
            if wanted.split not in saved:
                raise ValueError(f"There is no split {wanted.split}. There are {', '.join(saved)}.")
            return saved[wanted.split].to_iterable_dataset()  # type: ignore[no-any-return]
        source = str(local) if local is not None else wanted.name
        return datasets.load_dataset(source, wanted.config, split=wanted.split, streaming=True)  # type: ignore[no-any-return]
    except Exception as error:
        raise _unreadable(wanted, error) from error


def _unreadable(wanted: _Columns, error: Exception) -> DataError:
    first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return DataError(
        f"{wanted.spec}: cannot be read with the datasets library: {first_line} A dataset is {wanted.form}."
    )
