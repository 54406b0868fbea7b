"""Sequences for millions of items without a Python object per item: rows of one array, items made on access, texts in a
file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

_COUNTED_AT_ONCE = 2**22

IN_MEMORY = 2**28  # bytes of text that are held in memory; more text goes to a file


def listed(row: Sequence[int] | npt.NDArray[Any]) -> Sequence[int]:
    """A row of whole numbers as Python integers."""
    return row.tolist() if isinstance(row, np.ndarray) else row


class ByNumber(Sequence[T], ABC):
    """A sequence whose items are made on access, by :meth:`item`; a slice is a list."""

    @abstractmethod
    def item(self, number: int) -> T:
        """The item with this number, 0 or more."""

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> list[T]: ...

    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self.item(number) for number in range(*place.indices(len(self)))]
        return self.item(range(len(self))[place])


@dataclass(frozen=True, eq=False)
class Ragged(ByNumber[npt.NDArray[Any]]):
    """Rows of whole numbers, one behind the other in one array, which may be mapped from a file."""

    values: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]  # the beginning of each row, and the end of the last, (rows + 1,)

    @classmethod
    def of(cls, rows: Iterable[Any]) -> Ragged:
        """``rows`` as int32."""
        gathered = RaggedRows()
        for row in rows:
            gathered.append(row)
        return gathered.whole()

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Lengths of the rows, (rows,)."""
        return np.diff(self.starts)

    def counts(self, size: int) -> npt.NDArray[np.int64]:
        """Occurrences of each number below ``size``, (size,); negative numbers are ignored."""
        counts = np.zeros(size, dtype=np.int64)
        for start in range(0, len(self.values), _COUNTED_AT_ONCE):
            part = self.values[start : start + _COUNTED_AT_ONCE]
            counts += np.bincount(part[part >= 0], minlength=size)
        return counts

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: values that are mapped from a file are passed by its name."""
        if isinstance(self.values, np.memmap):
            return _mapped, (self.values.filename, self.starts)
        return Ragged, (self.values, self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def item(self, number: int) -> npt.NDArray[Any]:
        """A row."""
        return self.values[self.starts[number] : self.starts[number + 1]]


class RaggedRows:
    """Collects rows for a :class:`Ragged`, in memory or in ``file``, from which they are mapped."""

    def __init__(self, file: Path | None = None) -> None:
        self._file, self._starts = file, array("q", [0])
        self._out = BytesIO() if file is None else file.open("wb")

    def append(self, row: Any) -> None:
        """Add a row of whole numbers."""
        values = np.asarray(row, dtype=np.int32)
        self._out.write(values.tobytes())
        self._starts.append(self._starts[-1] + len(values))

    def whole(self) -> Ragged:
        """All rows; nothing can be added afterwards."""
        values = np.frombuffer(self._out.getvalue() if isinstance(self._out, BytesIO) else b"", np.int32)
        self._out.close()
        if self._file is not None and self._starts[-1]:
            return _mapped(self._file, np.frombuffer(self._starts, np.int64))
        return Ragged(values, np.frombuffer(self._starts, np.int64))


def _mapped(file: Path | str, starts: npt.NDArray[np.int64]) -> Ragged:
    return Ragged(np.memmap(file, np.int32, "r"), starts)


class Lazy(ByNumber[T]):
    """``size`` items; the n-th is ``item(n)``, computed on access."""

    def __init__(self, size: int, item: Callable[[int], T]) -> None:
        self._size, self._item = size, item

    def __len__(self) -> int:
        return self._size

    def item(self, number: int) -> T:
        """The n-th."""
        return self._item(number)

    def __iter__(self) -> Iterator[T]:
        return map(self._item, range(self._size))


class SpooledTexts:
    """Texts that are appended and read by number: in memory, beyond :data:`IN_MEMORY` bytes in a temporary file in
    ``folder`` (None: the system's)."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = SpooledTemporaryFile(IN_MEMORY, dir=None if folder is None else str(folder))  # noqa: SIM115 (open as long as the texts are read)
        self._starts = array("q", [0])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def append(self, text: str) -> None:
        """Add a text at the end."""
        raw = text.encode("utf-8", "surrogatepass")
        self._file.seek(self._starts[-1])
        self._file.write(raw)
        self._starts.append(self._starts[-1] + len(raw))

    def __getitem__(self, number: int) -> str:
        start, stop = self._starts[number], self._starts[number + 1]
        self._file.seek(start)
        return self._file.read(stop - start).decode("utf-8", "surrogatepass")
