"""Sparse vectors on disk as plain arrays (no pickle): a collection is encoded once, and can be indexed in several ways.
The posting lists of :mod:`vtkit.search.exact` are the same arrays of the transposed vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from vtkit.system.errors import DataError

VECTORS = "vectors"  # folder of the vectors, beside the documents

Array = npt.NDArray[Any]

_ARRAYS = {"indptr": "int64", "indices": "int32", "data": "float32"}
_REBUILD = "Encode again: vtkit run RECIPE, which finds damaged files, or vtkit encode if they belong to no run."


def write_arrays(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Write each array into ``folder`` as ``NAME.npy``; a missing folder is created."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def read_array(path: Path, kind: str, remedy: str, shape: tuple[int, ...] | None = None) -> Array:
    """An array of :func:`write_arrays`, mapped into memory, not read.

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


def read_lists(folder: Path, names: Iterable[str], width: int, remedy: str) -> tuple[Array, Array, Array]:
    """The arrays ``names`` of a compressed matrix: where each list begins and the last ends, its numbers, which are
    below ``width``, and their weights, which are finite. Numbers outside would make a search read outside of its
    arrays."""
    starts, numbers, weights = (
        read_array(folder / f"{name}.npy", kind, remedy) for name, kind in zip(names, _ARRAYS.values(), strict=True)
    )
    sound = (
        len(starts) > 0
        and starts[0] == 0
        and starts[-1] == len(numbers) == len(weights)
        and bool((np.diff(starts) >= 0).all())
        and (not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) < width))
        and (not len(weights) or bool(np.isfinite([weights.min(), weights.max()]).all()))
    )
    if not sound:
        raise DataError(f"{folder} is damaged: its files do not match each other. {remedy}")
    return starts, numbers, weights


def shortest(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The decimal numbers with the fewest digits that read back as the same float32. JSON would write a float32 that is
    only widened with 17 digits."""
    return weights.astype("S16").astype(np.float64)


def row_sums(vectors: sp.csr_matrix) -> npt.NDArray[np.float64]:
    """The sum of each row's weights, (texts,)."""
    return np.asarray(vectors.sum(axis=1, dtype=np.float64)).ravel()


def write_vectors(vectors: sp.csr_matrix, folder: Path) -> None:
    """Write ``vectors``, (texts, width), into ``folder``."""
    arrays = {name: getattr(vectors, name).astype(kind, copy=False) for name, kind in _ARRAYS.items()}
    write_arrays(folder, arrays | {"width": np.asarray(vectors.shape[1])})


def read_vectors(folder: Path) -> sp.csr_matrix:
    """The vectors that :func:`write_vectors` wrote; their arrays are mapped into memory, not read."""
    width = int(read_array(folder / "width.npy", "int64", _REBUILD, ()))
    indptr, indices, data = read_lists(folder, _ARRAYS, width, _REBUILD)
    return sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, width), copy=False)


def join_vectors(parts: Sequence[Path], folder: Path) -> None:
    """Write the rows of all ``parts``, folders of vectors with the same width, into ``folder`` as
    :func:`write_vectors` does, with no more than one part in memory."""
    ends = [read_vectors(part).indptr[1:] for part in parts]
    entries = np.cumsum([0, *(int(row_ends[-1]) if len(row_ends) else 0 for row_ends in ends)])
    starts = [row_ends.astype(np.int64) + entry for row_ends, entry in zip(ends, entries, strict=False)]
    indptr = np.concatenate([[0], *starts]).astype(np.int64)
    write_arrays(folder, {"indptr": indptr, "width": np.load(parts[0] / "width.npy")})
    for name in ("indices", "data"):
        form = {"descr": np.dtype(_ARRAYS[name]).str, "fortran_order": False, "shape": (int(entries[-1]),)}
        with (folder / f"{name}.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(file, form)
            for part in parts:
                file.write(np.load(part / f"{name}.npy", mmap_mode="r").data)
