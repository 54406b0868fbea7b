"""Encoding to disk, one shard of texts after the other: memory does not grow with the collection, a killed run
continues with the shard that it was at, and several processes and machines share the shards."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_transformers import SparseEncoder

from vtkit.data.text import batches
from vtkit.encoder.documents import Removed, pruned
from vtkit.encoder.sides import Side, encode_side
from vtkit.search.stored_vectors import join_vectors, write_vectors
from vtkit.system import console
from vtkit.system.parts import Part, shards
from vtkit.system.runtime import Precision, fastest_device

TEXTS_A_SHARD = 512
"""Texts of one shard: ten seconds or more of work for one core. Batches are made of the texts of a shard, so that
their padding, and with it every vector, does not depend on who encodes it."""


@dataclass(frozen=True)
class Encoded:
    """Counts of an encoding."""

    texts: int
    postings: int  # weights above zero in all texts together
    removed: Removed  # by `top_dimensions`
    taken_over: int  # shards that were left by an earlier run


@dataclass(frozen=True)
class EncodeTexts:
    """The work on a shard of texts. In another process its encoder is on the fastest device there."""

    encoder: SparseEncoder
    side: Side
    max_length: int
    top_dimensions: int | None
    precision: Precision

    def __call__(self, texts: Sequence[str], out: Path, bar: console.Bar | None) -> Removed:
        """Write the vectors of ``texts`` into ``out``; what pruning removed."""
        described = bar or "encoding"
        vectors = encode_side(
            self.encoder, texts, self.side, self.max_length, description=described, precision=self.precision
        )
        kept, removed = pruned(vectors, self.top_dimensions)
        write_vectors(kept, out)
        return removed

    def __getstate__(self) -> dict[str, Any]:
        on_cpu = self.encoder if self.encoder.device.type == "cpu" else deepcopy(self.encoder).cpu()
        return self.__dict__ | {"encoder": on_cpu}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.encoder.to(fastest_device())


def encode_to_disk(
    encoder: SparseEncoder,
    texts: Iterable[str],
    side: Side,
    max_length: int,
    folder: Path,
    shards_folder: Path,
    *,
    made_from: Mapping[str, Any],
    top_dimensions: int | None = None,
    precision: Precision = "float32",
    description: str = "encoding",
    total: int | None = None,
    part: Part | None = None,
    join: int | None = None,
) -> Encoded:
    """Write the vectors of ``texts`` into the new folder ``folder``, as
    :func:`~vtkit.search.stored_vectors.write_vectors` does; the counts.

    Args:
        texts: read once, :data:`TEXTS_A_SHARD` at a time.
        shards_folder: folder of the shards until all are there. Shards of an earlier run are used if they fit.
        made_from: everything else that the vectors depend on (plain JSON): shards made from something else do not fit.
        part: encode its shards only, which stay in ``shards_folder``; the counts are of these.
        join: encode nothing, and join what other calls encoded in so many parts.
    """
    work = EncodeTexts(encoder, side, max_length, top_dimensions, precision)
    settings = {
        **made_from, "side": side, "max_length": max_length, "top_dimensions": top_dimensions,
        "precision": precision, "similarity": encoder.similarity_fn_name,
    }  # fmt: skip
    total = total if total is None or part is None else -(-total // part.of)
    with console.progress(description, total) as bar:
        done = shards(work, Removed, batches(texts, TEXTS_A_SHARD), shards_folder, settings, bar, part=part, join=join)
    removed = sum((shard.result for shard in done), Removed())
    encoded = Encoded(
        sum(shard.items for shard in done),
        removed.weights - removed.weights_removed,
        removed,
        sum(shard.taken_over for shard in done),
    )
    if part is None:
        if done:
            join_vectors([shard.folder for shard in done], folder)
        else:
            write_vectors(encode_side(encoder, [], side, max_length), folder)
        shutil.rmtree(shards_folder, ignore_errors=True)
    return encoded
