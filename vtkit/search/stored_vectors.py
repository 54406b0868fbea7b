"""Sparse vectors on disk as plain arrays (no pickle): a collection is encoded once, and can be indexed in several
ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from vtkit.data.shards import write_arrays
from vtkit.system.errors import DataError

VECTORS = "vectors"  # folder of the vectors, beside the documents

Array = npt.NDArray[Any]

_ARRAYS = {"indptr": "int64", "indices": "int32", "data": "float32"}
_REBUILD = "Encode again: vtkit run RECIPE, which finds damaged files, or vtkit encode if they belong to no run."


def read_array(path: Path, kind: str, remedy: str, shape: tuple[int, ...] | None = None) -> Array:
    """An array of :func:`vtkit.data.shards.write_arrays`, mapped into memory, not read.

    Args:
        kind: name of its numbers' type.
        remedy: what to do about a file that cannot be used, for the message.
        shape: the shape it must have; None: a list of any length.
    """
    try:
        array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing. {remedy}") from error
    except (ValueError, EOFError, SyntaxError, TypeError, OverflowError) as error:
        # numpy's own message about a damaged file advises to open it as a pickle
        raise DataError(f"{path} is damaged or cut short: numpy cannot read it. {remedy}") from error
    if array.dtype.name != kind or (array.ndim != 1 if shape is None else array.shape != shape):
        raise DataError(f"{path} is damaged: it holds other numbers than it should. {remedy}")
    return array


def shortest(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The decimal numbers with the fewest digits that read back as the same float32. JSON would write a float32 that is
    only widened with 17 digits."""
    return weights.astype("S16").astype(np.float64)


def row_sums(vectors: sp.csr_matrix) -> npt.NDArray[np.float64]:
    """The sum of each row's weights, (texts,)."""
    return np.asarray(vectors.sum(axis=1, dtype=np.float64)).ravel()


class Growing:
    """An array that grows at its end: in memory, or in the file ``NAME.npy`` of a folder, which is mapped in the
    end."""

    def __init__(self, folder: Path | None, name: str, kind: str) -> None:
        self._kind, self.size, self._parts = np.dtype(kind), 0, list[Array]()
        self._path = None if folder is None else folder / f"{name}.npy"
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb")
            self._write_header()

    def _write_header(self) -> None:
        """Write what numpy reads first; it leaves room for the length of a longer array."""
        described = {"descr": self._kind.str, "fortran_order": False, "shape": (self.size,)}
        self._file.seek(0)
        np.lib.format.write_array_header_1_0(self._file, described)

    def append(self, array: Array) -> None:
        """Put ``array``, a list, behind the others."""
        self.size += len(array)
        if self._path is None:
            self._parts.append(array)
        else:
            array.tofile(self._file)

    def whole(self) -> Array:
        """All of it; nothing can be appended any more."""
        if self._path is None:
            return np.concatenate(self._parts) if len(self._parts) > 1 else self._parts[0]
        self._write_header()
        self._file.close()
        return np.asarray(np.load(self._path, mmap_mode="r"))


def write_vectors(vectors: sp.csr_matrix, folder: Path) -> None:
    """Write ``vectors``, (texts, width), into ``folder``."""
    arrays = {name: getattr(vectors, name).astype(kind, copy=False) for name, kind in _ARRAYS.items()}
    write_arrays(folder, arrays | {"width": np.asarray(vectors.shape[1])})


def read_vectors(folder: Path) -> sp.csr_matrix:
    """The vectors that :func:`write_vectors` wrote; their arrays are mapped into memory, not read. Numbers outside
    would make scipy read outside of its arrays, and are refused like weights that are not finite."""
    width = int(read_array(folder / "width.npy", "int64", _REBUILD, ()))
    indptr, indices, data = (read_array(folder / f"{name}.npy", kind, _REBUILD) for name, kind in _ARRAYS.items())
    sound = (
        len(indptr) > 0
        and indptr[0] == 0
        and indptr[-1] == len(indices) == len(data)
        and bool((np.diff(indptr) >= 0).all())
        and (not len(indices) or (int(indices.min()) >= 0 and int(indices.max()) < width))
        and (not len(data) or bool(np.isfinite([data.min(), data.max()]).all()))
    )
    if not sound:
        raise DataError(f"{folder} is damaged: its files do not match each other. {_REBUILD}")
    return sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, width), copy=False)
