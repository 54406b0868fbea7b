"""Text columns of a dataset, streamed row by row through the ``datasets`` library: from the Hugging Face hub, or from a
folder of parquet, json, csv, text or arrow files."""

from collections.abc import Iterable, Iterator, Sequence
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
    are left out."""
    _, name, _, _, column, *_ = [*spec.split(":"), "", "", "", ""]
    if not name or spec.count(":") > 4:
        raise DataError(f"{spec}: write a dataset as {FORM}.")
    column = column or "text"
    yield from filter(None, (row[column] for _, row in read_dataset(spec, FORM, [column])))


def read_column_pairs(spec: str) -> Iterator[dict[str, Any]]:
    """Queries and their documents, two columns of a dataset (``datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT``), as rows
    with ``query`` and ``positive``, and with its columns of labels or scores."""
    _, name, _, _, *columns = [*spec.split(":"), "", "", "", ""]
    if spec.count(":") != 5 or not (name and all(columns[:2])):
        raise DataError(f"{spec}: write pairs of a dataset as {PAIRS_FORM}.")
    for _, row in read_dataset(spec, PAIRS_FORM, columns[:2]):
        labels: dict[str, Any] = {label: row[label] for label in ("labels", "label", "scores", "score") if label in row}
        yield {"query": row[columns[0]], "positive": row[columns[1]], **labels}


def read_dataset(
    spec: str, form: str = DOCUMENTS_FORM, columns: Sequence[str] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number (from 1) and values by column of each row of ``datasets:NAME:CONFIG:SPLIT``.

    ``NAME`` is a folder (made by ``save_to_disk``, or with files for ``load_dataset``) or a hub id, which is read from
    the cache or, if downloads are allowed, from the hub. The ``columns`` must be texts, "" if they are missing;
    messages end with the ``form`` of the name.
    """
    _, name, config, split, *_ = [*spec.split(":"), "", ""]
    try:
        for number, row in enumerate(_dataset_rows(name, config or None, split or "train"), 1):
            for column in columns:
                if column not in row:
                    raise DataError(f"there is no column {column!r}. There are {', '.join(row)}.")
                if not isinstance(row[column], str | None):
                    kind = type(row[column]).__name__
                    raise DataError(f"row {number} has {kind} instead of text in the column {column!r}.")
            yield number, row | {column: row[column] or "" for column in columns}
    except DataError as error:
        raise DataError(f"{spec}: {error} A dataset is {form}.") from error
    except Exception as error:  # the readers of all formats have their own errors
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{spec}: cannot be read with the datasets library: {first_line} A dataset is {form}."
        ) from error


def _dataset_rows(name: str, config: str | None, split: str) -> Iterable[dict[str, Any]]:
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
