"""Encoding to disk, one shard of texts after the other: memory does not grow with the collection, a killed run
continues with the shard that it was at, and several processes and machines share the shards."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sentence_transformers import SparseEncoder

from vtkit.data.shards import Arrays, Part, Shard, join_arrays, shards, write_arrays
from vtkit.encoder.asymmetric import width_of
from vtkit.encoder.documents import Dimensions, Removed, pruned
from vtkit.encoder.sides import Side, encode_side
from vtkit.search.stored_vectors import read_vectors, write_vectors
from vtkit.system import console
from vtkit.system.outputs import aside
from vtkit.system.runtime import HoldsModels, Precision


@dataclass(frozen=True)
class Encoded:
    """Counts of an encoding."""

    texts: int
    postings: int  # weights above zero in all texts together
    removed: Removed  # by `top_dimensions` and `mass`
    taken_over: int  # shards that were left by an earlier run


@dataclass(frozen=True)
class EncodeTexts(HoldsModels):
    """The work on a shard of texts."""

    encoder: SparseEncoder
    side: Side
    max_length: int
    top_dimensions: int | None = None
    mass: float = 1.0  # share of the sum of a document's weights to keep (``Dimensions.mass``)
    precision: Precision = "float32"

    def __call__(self, texts: Sequence[str], bar: console.Bar | None = None) -> Arrays:
        """The vectors of ``texts``, the number of weights of each, and what pruning removed, (1, 4)."""
        vectors = encode_side(
            self.encoder, texts, self.side, self.max_length, description=bar or "encoding", precision=self.precision
        )
        kept, removed = pruned(vectors, self.top_dimensions, self.mass, Dimensions.of(self.encoder).power)
        lengths, counts = np.diff(kept.indptr).astype(np.int64), np.array([astuple(removed)], dtype=np.float64)
        return {
            "lengths": lengths,
            "indices": kept.indices.astype(np.int32, copy=False),
            "data": kept.data.astype(np.float32, copy=False),
            "removed": counts,
        }


def encode_to_disk(
    work: EncodeTexts,
    texts: Iterable[str],
    folder: Path,
    shards_folder: Path,
    *,
    made_from: Mapping[str, Any],
    description: str = "encoding",
    total: int | None = None,
    part: Part | None = None,
    join: int | None = None,
) -> Encoded:
    """Write the vectors of ``texts`` into the new folder ``folder``, as
    :func:`~vtkit.search.stored_vectors.write_vectors` does; the counts.

    Args:
        texts: read once, :data:`~vtkit.data.shards.ITEMS_A_SHARD` at a time.
        shards_folder: folder of the shards until all are there. Shards of an earlier run are used if they fit.
        made_from: everything else that the vectors depend on (plain JSON): shards made from something else do not fit.
        part: encode its shards only, which stay in ``shards_folder``; the counts are of these.
        join: encode nothing, and join what other calls encoded in so many parts.
    """
    settings = {
        **made_from, "side": work.side, "max_length": work.max_length, "top_dimensions": work.top_dimensions,
        "mass": work.mass, "precision": work.precision, "similarity": work.encoder.similarity_fn_name,
    }  # fmt: skip
    total = total if total is None or part is None else -(-total // part.of)
    with console.progress(description, total) as bar:
        done = shards(work, texts, shards_folder, settings, bar, part=part, join=join)
    removed = Removed()
    for shard in done:
        weights, weights_removed, mass, mass_removed = shard.array("removed")[0].tolist()
        removed += Removed(int(weights), int(weights_removed), mass, mass_removed)
    counts = removed.weights - removed.weights_removed, removed, sum(shard.taken_over for shard in done)
    encoded = Encoded(sum(shard.items for shard in done), *counts)
    if part is None:
        join_vectors(done, width_of(work.encoder), folder)
        shutil.rmtree(shards_folder, ignore_errors=True)
    return encoded


def kept_vectors(
    encoder: SparseEncoder,
    texts: Sequence[str],
    max_length: int,
    folder: Path | None,
    precision: Precision,
    description: str,
    top_dimensions: int | None = None,
    mass: float = 1.0,
) -> sp.csr_matrix:
    """The vectors of documents, (texts, width); ``folder`` is that of :func:`vtkit.data.shards.arrays_of`."""
    if folder is None:
        vectors = encode_side(encoder, texts, "document", max_length, precision=precision, description=description)
        return pruned(vectors, top_dimensions, mass, Dimensions.of(encoder).power)[0]
    if not folder.is_dir():
        beside = folder.with_name(f"{folder.name}.parts")
        work = EncodeTexts(encoder, "document", max_length, top_dimensions, mass, precision)
        encode_to_disk(work, texts, folder, beside, made_from={}, description=description, total=len(texts))
    return read_vectors(folder)


def join_vectors(done: Sequence[Shard], width: int, folder: Path) -> None:
    """Write the vectors of shards into the new folder ``folder`` as :func:`~vtkit.search.stored_vectors.write_vectors`
    does, with no more than one shard in memory."""
    fresh = aside(folder)
    if done:
        lengths = np.concatenate([shard.array("lengths") for shard in done])
        write_arrays(fresh, {"indptr": np.concatenate([[0], np.cumsum(lengths)]), "width": np.asarray(width)})
        for name in ("indices", "data"):
            join_arrays(done, name, fresh / f"{name}.npy")
    else:
        write_vectors(sp.csr_matrix((0, width), dtype=np.float32), fresh)
    fresh.rename(folder)
