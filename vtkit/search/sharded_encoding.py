"""Encoding to disk, one shard of texts after the other: memory does not grow with the collection, a killed run
continues with the shard that it was at, and several processes can each encode a part of the shards."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scipy.sparse as sp
from sentence_transformers import SparseEncoder

from vtkit.data.text import batches
from vtkit.encoder.documents import Removed, pruned
from vtkit.encoder.sides import Side, encode_side
from vtkit.search.stored_vectors import Part, join_vectors, read_vectors, write_vectors
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.results import Result
from vtkit.system.runtime import Precision

TEXTS_A_SHARD = 2048  # a minute or two of work on two cores

RECORD = "shard.json"


@dataclass(frozen=True)
class Encoded:
    """Counts of an encoding."""

    texts: int
    postings: int  # weights above zero in all texts together
    removed: Removed  # by `top_dimensions`
    taken_over: int  # shards that were left by an earlier run


@dataclass(frozen=True)
class _Shard(Result):
    """The record of a shard."""

    made_from: str  # digest of its texts and of everything that their vectors depend on
    removed: Removed


def encode_to_disk(
    encoder: SparseEncoder,
    texts: Iterable[str],
    side: Side,
    max_length: int,
    folder: Path,
    shards: Path,
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
        shards: folder of the shards until all are there. Shards of an earlier run are used if they fit.
        made_from: everything else that the vectors depend on (plain JSON): shards made from something else do not fit.
        part: encode its shards only, which stay in ``shards``; the counts are of these.
        join: encode nothing, and join what other calls encoded in so many parts.
    """
    settings = {
        **made_from, "side": side, "max_length": max_length, "top_dimensions": top_dimensions,
        "precision": precision, "similarity": encoder.similarity_fn_name,
    }  # fmt: skip
    done: list[Path] = []
    missing: set[int] = set()
    count = taken_over = 0
    removed = Removed()
    total = total if total is None or part is None else -(-total // part.of)
    with console.progress(description, total) as bar:
        for number, batch in enumerate(batches(texts, TEXTS_A_SHARD)):
            if part is not None and number % part.of != part.number - 1:
                continue
            shard = shards / f"{number:06d}"
            digest = hashlib.sha256(json.dumps([settings, batch], sort_keys=True).encode()).hexdigest()
            record = _read(shard, digest)
            if record is None and join is not None:
                missing.add(number % join + 1)
                continue
            if record is None:
                vectors = encode_side(encoder, batch, side, max_length, description=bar, precision=precision)
                record = _write(vectors, top_dimensions, shard, digest)
            else:
                taken_over += 1
                bar.skip(len(batch))
            removed += record.removed
            count += len(batch)
            done.append(shard)
    encoded = Encoded(count, removed.weights - removed.weights_removed, removed, taken_over)
    if part is not None:
        return encoded
    if missing:
        raise DataError(
            f"{shards}: of {join} parts, these are missing, damaged, or made from other texts or settings: "
            f"{', '.join(map(str, sorted(missing)))}. Encode each of them (part {min(missing)}/{join}), then join "
            "again."
        )
    if not done:
        write_vectors(encode_side(encoder, [], side, max_length), folder)
    else:
        join_vectors(done, folder)
    shutil.rmtree(shards, ignore_errors=True)
    return encoded


def _write(vectors: sp.csr_matrix, top_dimensions: int | None, shard: Path, digest: str) -> _Shard:
    """Write the ``top_dimensions`` largest weights of each text, whole or not at all; returns the record."""
    aside = shard.with_name(f".{shard.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    kept, removed = pruned(vectors, top_dimensions)
    write_vectors(kept, aside)
    record = _Shard(digest, removed)
    record.to_file(aside / RECORD)
    shutil.rmtree(shard, ignore_errors=True)
    aside.replace(shard)
    return record


def _read(shard: Path, digest: str) -> _Shard | None:
    """The record of a shard; None if it cannot be used."""
    try:
        record = _Shard.from_file(shard / RECORD, "")
        read_vectors(shard)
    except DataError:
        return None
    return record if record.made_from == digest else None
