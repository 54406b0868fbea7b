"""Encoding over several processes: each takes whole shards of the texts, and the first one gathers the vectors."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from typing import Any

import torch.distributed as dist
from scipy import sparse
from sentence_transformers import SparseEncoder

from vtkit.encoder.sides import Side, encode_side
from vtkit.launch import launched
from vtkit.processes import connected, from_first, job, received, send
from vtkit.runtime import Precision

ENCODE = "encode"
"""What the other processes know this job by."""

EncodeShards = Callable[[Sequence[Sequence[str]], str], list[sparse.csr_matrix]]
"""Texts of several shards, and words for the progress display -> the vectors of each."""


@contextmanager
def encoders(encoder: SparseEncoder, side: Side, max_length: int, precision: Precision) -> Iterator[EncodeShards]:
    """What encodes shards, at most as many at a time as this launch has processes, each in one of them.

    Args:
        encoder, side, max_length, precision: as of :func:`vtkit.encoder.sides.encode_side`, whose vectors they are.

    Raises:
        VtkitError: there are several processes and this machine has a GPU; later, another process has ended.
    """
    encode = partial(encode_side, encoder, side=side, max_length=max_length, precision=precision)
    size = launched().size
    if size == 1:
        yield lambda shards, description: [encode(shard, description=description) for shard in shards]
        return

    def shared(shards: Sequence[Sequence[str]], description: str) -> list[sparse.csr_matrix]:
        send(shards)
        own, found = encode(shards[0], description=description), [None] * size
        with connected():
            dist.gather_object(own, found, dst=0)
        return [vectors for vectors in found if vectors is not None]

    with job(ENCODE, encoder, {"side": side, "max_length": max_length, "precision": precision}):
        yield shared
        send(None)


def serve_encoding(encoder: SparseEncoder, settings: dict[str, Any]) -> None:
    """Encode the shards that the first process sends, as one of the others."""
    while (shards := received()) is not None:
        own = shards[launched().rank : launched().rank + 1]
        with redirect_stderr(io.StringIO()):  # the first process shows how far it is
            vectors = encode_side(encoder, own[0], **settings) if own else None
        with from_first():
            dist.gather_object(vectors, None, dst=0)
