"""Text columns of a dataset, streamed row by row through the ``datasets`` library: from the Hugging Face hub, or from a
folder of parquet, json, csv, text or arrow files."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vtkit.data import hub
from vtkit.system.errors import DataError

PREFIX = "datasets:"
FORM = "datasets:NAME:CONFIG:SPLIT:COLUMN (the last three are optional; defaults: the only one, train, text)"
DOCUMENTS_FORM = "datasets:NAME:CONFIG:SPLIT (the last two are optional; defaults: the only one, train)"
PAIRS_FORM = "datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT, two columns at its end (CONFIG and SPLIT may be empty)"


def read_column(spec: str) -> Iterator[str]:
    """The texts of one column (``datasets:NAME:CONFIG:SPLIT:COLUMN``), in the order of the dataset; rows without text
    are left out. ``NAME`` is a folder (made by ``save_to_disk``, or with files for ``load_dataset``) or a hub id, which
    is read from the cache or, if downloads are allowed, from the hub."""
    name, config, split, column, *_ = [*spec.removeprefix(PREFIX).split(":"), "", "", ""]
    if not spec.startswith(PREFIX) or not name or spec.count(":") > 4:
        raise DataError(f"{spec}: write a dataset as {FORM}.")
    column = column or "text"
    yield from (row[column] for row in _texts(spec, FORM, name, config, split, [column]) if row[column])


def read_column_pairs(spec: str) -> Iterator[dict[str, Any]]:
    """Queries and their documents, two columns of a dataset (``datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT``, as in
    :func:`read_column`), as rows with ``query`` and ``positive``, and with its columns of labels or scores."""
    name, config, split, *columns = [*spec.removeprefix(PREFIX).split(":"), "", "", ""]
    if not spec.startswith(PREFIX) or spec.count(":") != 5 or not (name and columns[0] and columns[1]):
        raise DataError(f"{spec}: write pairs of a dataset as {PAIRS_FORM}.")
    for row in _texts(spec, PAIRS_FORM, name, config, split, columns[:2]):
        labels: dict[str, Any] = {label: row[label] for label in ("labels", "label", "scores", "score") if label in row}
        yield {"query": row[columns[0]], "positive": row[columns[1]], **labels}


def read_dataset(spec: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number (from 1) and values by column of each row of ``datasets:NAME:CONFIG:SPLIT``."""
    name, config, split, *_ = [*spec.removeprefix(PREFIX).split(":"), "", ""]
    yield from enumerate(_named_rows(spec, DOCUMENTS_FORM, name, config, split), 1)


def _texts(spec: str, form: str, name: str, config: str, split: str, columns: list[str]) -> Iterator[dict[str, Any]]:
    """The rows, whose ``columns`` are texts; "" for missing ones."""
    for number, row in enumerate(_named_rows(spec, form, name, config, split), 1):
        for column in columns:
            if column not in row:
                raise DataError(
                    f"{spec}: there is no column {column!r}. There are {', '.join(row)}. A dataset is {form}."
                )
            if not isinstance(row[column], str | None):
                kind = type(row[column]).__name__
                raise DataError(
                    f"{spec}: row {number} has {kind} instead of text in the column {column!r}. A dataset is {form}."
                )
        yield row | {column: row[column] or "" for column in columns}


def _named_rows(spec: str, form: str, name: str, config: str, split: str) -> Iterator[dict[str, Any]]:
    """The rows of a dataset; errors name it as ``spec``."""
    try:
        yield from _rows(name, config or None, split or "train")
    except DataError as error:
        raise DataError(f"{spec}: {error} A dataset is {form}.") from error
    except Exception as error:  # the readers of all formats have their own errors
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{spec}: cannot be read with the datasets library: {first_line} A dataset is {form}."
        ) from error


def _rows(name: str, config: str | None, split: str) -> Iterable[dict[str, Any]]:
    import datasets

    if Path(name).is_absolute() and not Path(name).is_dir():
        raise DataError(f"there is no folder {name}.")
    local = Path(name) if Path(name).is_dir() else None
    if local is None and not hub.downloads_allowed():
        local = hub.fetch(name, ["*"], "dataset")
    datasets.disable_progress_bars()
    if local is not None and any((local / file).is_file() for file in ("state.json", "dataset_dict.json")):
        saved = datasets.load_from_disk(str(local))
        if isinstance(saved, datasets.DatasetDict):
            if split not in saved:
                raise ValueError(f"There is no split {split}. There are {', '.join(saved)}.")
            saved = saved[split]
        return saved.to_iterable_dataset()  # type: ignore[no-any-return]
    return datasets.load_dataset(str(local or name), config, split=split, streaming=True)  # type: ignore[no-any-return]
