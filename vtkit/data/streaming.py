"""A column of text of a dataset, streamed through the ``datasets`` library: of the Hugging Face hub, or of a folder of
parquet, json, csv, text or arrow files. Row after row is read, never the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtkit.data import hub
from vtkit.errors import DataError

FORM = "datasets:NAME:CONFIG:SPLIT:COLUMN (the last three may be left out or empty: its only one, train, text)"


@dataclass(frozen=True)
class Column:
    """What ``datasets:NAME:CONFIG:SPLIT:COLUMN`` names."""

    name: str
    """Hub id or folder."""

    config: str | None
    split: str
    column: str


def parse_column(spec: str) -> Column:
    """The parts of ``spec``.

    Raises:
        DataError: it has no name, or more parts than there are.
    """
    parts = spec.removeprefix("datasets:").split(":")
    if not spec.startswith("datasets:") or not parts[0] or len(parts) > 4:
        raise DataError(f"{spec}: a dataset is named as {FORM}.")
    name, config, split, column = parts + [""] * (4 - len(parts))
    return Column(name, config or None, split or "train", column or "text")


def read_column(spec: str) -> Iterator[str]:
    """The texts of one column, in the order of the dataset; rows without one are left out.

    Args:
        spec: ``datasets:NAME:CONFIG:SPLIT:COLUMN``. ``NAME`` is a folder (one that ``save_to_disk`` made, or one of
            files that ``load_dataset`` reads) or a hub id, which is read from the cache, or from the hub where
            downloads are allowed.

    Raises:
        DataError: the dataset is not available or cannot be read, has no such configuration, split or column, or the
            column does not hold text.
    """
    wanted = parse_column(spec)
    rows = iter(_rows(wanted, spec))
    number = 0
    while True:
        try:
            row = next(rows, None)
        except Exception as error:  # the library passes on the errors of every format's reader
            raise _unreadable(spec, error) from error
        if row is None:
            return
        number += 1
        if wanted.column not in row:
            there = ", ".join(row)
            raise DataError(f"{spec}: there is no column {wanted.column!r}. There are {there}. A dataset is {FORM}.")
        text = row[wanted.column]
        if text is not None and not isinstance(text, str):
            raise DataError(
                f"{spec}: row {number} has no text in the column {wanted.column!r} but {type(text).__name__}."
            )
        if text:
            yield text


def _rows(wanted: Column, spec: str) -> Iterable[dict[str, Any]]:
    import datasets

    if Path(wanted.name).is_absolute() and not Path(wanted.name).is_dir():
        raise DataError(f"{spec}: there is no folder {wanted.name}.")
    local = Path(wanted.name) if Path(wanted.name).is_dir() else None
    if local is None and not hub.downloads_allowed():
        local = hub.fetch(wanted.name, ["*"], "dataset")
    datasets.disable_progress_bars()
    try:
        if local is not None and _was_saved(local):
            saved = datasets.load_from_disk(str(local))
            if not isinstance(saved, datasets.DatasetDict):
                return saved.to_iterable_dataset()  # type: ignore[no-any-return]
            if wanted.split not in saved:
                raise ValueError(f"There is no split {wanted.split}. There are {', '.join(saved)}.")
            return saved[wanted.split].to_iterable_dataset()  # type: ignore[no-any-return]
        source = str(local) if local is not None else wanted.name
        return datasets.load_dataset(source, wanted.config, split=wanted.split, streaming=True)  # type: ignore[no-any-return]
    except Exception as error:
        raise _unreadable(spec, error) from error


def _was_saved(folder: Path) -> bool:
    return (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()


def _unreadable(spec: str, error: Exception) -> DataError:
    first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return DataError(f"{spec}: cannot be read with the datasets library: {first_line} A dataset is {FORM}.")
