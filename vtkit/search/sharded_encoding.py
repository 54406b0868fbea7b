"""Encoding to disk, one shard of texts after the other: memory does not grow with the collection, a killed run
continues with the shard that it was at, and several processes and machines share the shards."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
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
from vtkit.settings.encode import EncodeSettings
from vtkit.settings.index import IndexSection
from vtkit.system import console
from vtkit.system.outputs import aside
from vtkit.system.runtime import HoldsModels, Precision


@dataclass(frozen=True)
class EncodeTexts(HoldsModels):
    """The work on a shard of texts: an encoder, and how it encodes them."""

    encoder: SparseEncoder
    side: Side
    max_length: int
    top_dimensions: int | None = None
    mass: float = 1.0  # share of the sum of a document's weights to keep (``Dimensions.mass``)
    precision: Precision = "float32"

    @classmethod
    def of(cls, encoder: SparseEncoder, index: IndexSection, given: EncodeSettings | None = None) -> EncodeTexts:
        """Encoding as ``index`` needs it, but for the settings that are ``given``."""
        given, needed = given or EncodeSettings(), dict[str, Any]()
        if given.side == "query":
            needed["max_length"] = index.query_length
        else:
            mass = Dimensions.of(encoder).mass(index)
            needed = {"max_length": index.document_length, "top_dimensions": index.candidate_dimensions, "mass": mass}
        fields = ("side", "max_length", "top_dimensions", "mass", "precision")
        stated = given.model_dump(include=set(fields), exclude_none=True)
        return cls(encoder, **{"precision": index.precision, **needed, **stated})

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the encoder, by name."""
        return {name: value for name, value in vars(self).items() if name != "encoder"}

    def vectors(self, texts: Sequence[str], description: str | console.Bar) -> tuple[sp.csr_matrix, Removed]:
        """The vectors of ``texts``, (texts, width), and what pruning removed."""
        vectors = encode_side(
            self.encoder, texts, self.side, self.max_length, description=description, precision=self.precision
        )
        return pruned(vectors, self.top_dimensions, self.mass, Dimensions.of(self.encoder).power)

    def __call__(self, texts: Sequence[str], bar: console.Bar | None = None) -> Arrays:
        """The vectors of ``texts``, the number of weights of each, and what pruning removed, (1, 4)."""
        kept, removed = self.vectors(texts, bar or "encoding")
        return {
            "lengths": np.diff(kept.indptr).astype(np.int64),
            "indices": kept.indices.astype(np.int32, copy=False),
            "data": kept.data.astype(np.float32, copy=False),
            "removed": np.array([astuple(removed)], dtype=np.float64),
        }


def encode_to_disk(
    work: EncodeTexts,
    texts: Sequence[str],
    folder: Path,
    shards_folder: Path,
    *,
    made_from: Mapping[str, Any],
    description: str = "encoding",
    part: Part | None = None,
) -> tuple[list[Shard], Removed]:
    """Write the vectors of ``texts`` into the new folder ``folder``, as
    :func:`~vtkit.search.stored_vectors.write_vectors` does; their shards, which are removed once they are joined, and
    what pruning removed.

    Args:
        texts: read once, :data:`~vtkit.data.shards.ITEMS_A_SHARD` at a time.
        shards_folder: folder of the shards until all are there. Shards of an earlier run are used if they fit.
        made_from: everything else that the vectors depend on (plain JSON): shards made from something else do not fit.
        part: encode its shards only, which stay in ``shards_folder``. A part without a number is all shards, which
            other calls have encoded, and which are joined.
    """
    settings = {**made_from, **work.settings, "similarity": work.encoder.similarity_fn_name}
    own, total = part is not None and part.number is not None, len(texts)
    with console.progress(description, -(-total // part.of) if part is not None and own else total) as bar:
        done = shards(work, texts, shards_folder, settings, bar, part)
    removed = Removed()
    for shard in done:
        weights, weights_removed, mass, mass_removed = shard.array("removed")[0].tolist()
        removed += Removed(int(weights), int(weights_removed), mass, mass_removed)
    if not own:
        join_vectors(done, width_of(work.encoder), folder)
        shutil.rmtree(shards_folder, ignore_errors=True)
    return done, removed


def kept_vectors(
    work: EncodeTexts, texts: Sequence[str], description: str, folder: Path | None = None
) -> sp.csr_matrix:
    """The vectors of ``texts``, (texts, width); ``folder`` is that of :func:`vtkit.data.shards.arrays_of`."""
    if folder is None:
        return work.vectors(texts, description)[0]
    if not folder.is_dir():
        beside = folder.with_name(f"{folder.name}.parts")
        encode_to_disk(work, texts, folder, beside, made_from={}, description=description)
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
