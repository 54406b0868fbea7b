"""Sparse vectors on disk: a collection is encoded once, and can be indexed in several ways."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from vtkit.system.errors import DataError, RecipeError

VECTORS = "vectors"  # folder of the vectors, beside the documents

_ARRAYS = {"indptr": "int64", "indices": "int32", "data": "float32"}
_WIDTH, _SUMS = "width.npy", "sums.npy"
_REBUILD = "Encode again: vtkit run RECIPE, which finds damaged files, or vtkit encode if they belong to no run."


@dataclass(frozen=True)
class Part:
    """Some of the shards of a collection."""

    number: int  # from 1
    of: int

    @staticmethod
    def parse(text: str) -> Part:
        """The part that ``3/16`` stands for."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise RecipeError(f"{text!r} is no part. Parts count from 1: 1/16, 2/16 and so on up to 16/16.")
        return Part(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def row_sums(vectors: sp.csr_matrix) -> npt.NDArray[np.float64]:
    """The sum of each row's weights, (texts,)."""
    return np.asarray(vectors.sum(axis=1, dtype=np.float64)).ravel()


def write_vectors(vectors: sp.csr_matrix, folder: Path, sums: npt.NDArray[np.float64] | None = None) -> None:
    """Write ``vectors``, (texts, width), into the new folder ``folder`` as plain arrays (no pickle), with the ``sums``
    that rows had before their smallest weights were cut."""
    folder.mkdir(parents=True)
    for name, kind in _ARRAYS.items():
        np.save(folder / f"{name}.npy", getattr(vectors, name).astype(kind, copy=False), allow_pickle=False)
    np.save(folder / _WIDTH, np.asarray(vectors.shape[1]), allow_pickle=False)
    np.save(folder / _SUMS, row_sums(vectors) if sums is None else sums, allow_pickle=False)


def read_sums(folder: Path) -> npt.NDArray[np.float64]:
    """The sums of all weights of each text, (texts,), as :func:`write_vectors` wrote them."""
    try:
        sums = np.load(folder / _SUMS, allow_pickle=False)
    except (FileNotFoundError, ValueError, EOFError, SyntaxError) as error:
        raise DataError(f"{folder / _SUMS} is missing or damaged ({type(error).__name__}). {_REBUILD}") from error
    return np.asarray(sums, dtype=np.float64)


def read_vectors(folder: Path) -> sp.csr_matrix:
    """The vectors that :func:`write_vectors` wrote; their arrays are mapped into memory, not read."""
    try:
        width = int(np.load(folder / _WIDTH, allow_pickle=False))
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in _ARRAYS}
    except (FileNotFoundError, ValueError, EOFError, SyntaxError, TypeError, OverflowError) as error:
        raise DataError(f"{folder}: the vectors are missing or damaged ({type(error).__name__}). {_REBUILD}") from error
    indptr, indices, data = arrays.values()
    sound = (
        {name: array.dtype.name for name, array in arrays.items()} == _ARRAYS
        and indptr.ndim == indices.ndim == data.ndim == 1
        and len(indptr) > 0
        and indptr[0] == 0
        and indptr[-1] == len(indices) == len(data)
        and bool((np.diff(indptr) >= 0).all())
        and (not len(indices) or (int(indices.min()) >= 0 and int(indices.max()) < width))
    )
    if not sound:
        raise DataError(f"{folder}: the vectors are damaged: their files do not match each other. {_REBUILD}")
    return sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, width), copy=False)


def join_vectors(parts: Sequence[Path], folder: Path) -> None:
    """Write the rows of all ``parts``, folders of vectors with the same width, into ``folder`` as
    :func:`write_vectors` does, with no more than one part in memory."""
    folder.mkdir(parents=True)
    ends = [read_vectors(part).indptr[1:] for part in parts]
    entries = np.cumsum([0, *(int(row_ends[-1]) if len(row_ends) else 0 for row_ends in ends)])
    starts = [row_ends.astype(np.int64) + entry for row_ends, entry in zip(ends, entries, strict=False)]
    np.save(folder / "indptr.npy", np.concatenate([np.zeros(1, np.int64), *starts]), allow_pickle=False)
    for name in ("indices", "data"):
        kind = np.dtype(_ARRAYS[name])
        with (folder / f"{name}.npy").open("wb") as file:
            form = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (int(entries[-1]),)}
            np.lib.format.write_array_header_1_0(file, form)
            for part in parts:
                file.write(np.load(part / f"{name}.npy", mmap_mode="r", allow_pickle=False).data)
    np.save(folder / _WIDTH, np.load(parts[0] / _WIDTH, allow_pickle=False), allow_pickle=False)
    np.save(folder / _SUMS, np.concatenate([read_sums(part) for part in parts]), allow_pickle=False)
