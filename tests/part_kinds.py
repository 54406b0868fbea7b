"""Work that is cut into parts, as commands and stages do it: a folder with ``model``, ``texts`` and ``encoded`` in it
gets the folder ``out``. Called again, it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from part_work import Marking

import vtkit


def encode(folder: Path) -> None:
    if not (folder / "out").exists():
        vtkit.encode_texts((folder / "model").resolve(), folder / "texts", folder / "out")


def mine(folder: Path) -> None:
    """Mine hard negatives by a model that reads all documents."""
    from vtkit.data.collections import load_retrieval
    from vtkit.settings.finetune import FinetuneSection
    from vtkit.training.negatives import Ranked, negative_pools, system_rankings
    from vtkit.training.pairs import judged_pairs

    data = load_retrieval(folder / "texts", "test")
    queries, names = [query.text for query in data.queries], [str((folder / "model").resolve())]
    section = FinetuneSection(data=str(folder / "texts"), hard_negatives=4, mining={"depth": 5})

    def rankings(depth: int) -> list[Any]:
        ranked = Ranked(queries, data.contents, (16, 24), depth)
        return system_rankings(names, ranked, no_bm25, folder / "out", "mining")

    pools = negative_pools(data, judged_pairs(data), section, rankings)
    np.savez(folder / "out" / "pools.npz", values=pools.values, starts=pools.starts)


def no_bm25() -> Any:
    raise AssertionError("not asked for")


def index(folder: Path) -> None:
    """Index vectors beside BM25, whose words are counted in parts."""
    if not (folder / "out").exists():
        vtkit.index_vectors(folder / "encoded", folder / "out", lexical="bm25", language="en")


@contextmanager
def small_parts(marks: Path, victim: str = "", driver: int = 0) -> Iterator[None]:
    """Cut into seven parts; each leaves a mark in ``marks``, and a sixth one kills a ``victim``, once."""
    from vtkit.data import executors, shards
    from vtkit.search import bm25

    jobs = count()

    def in_order(job: Any, tasks: Iterable[Any], bar: Any, few: int) -> Iterator[Any]:
        marking = Marking(job, next(jobs), marks, victim, driver)
        return executors.in_order(marking, enumerate(tasks), bar, few)

    with (
        patch.object(shards, "ITEMS_A_SHARD", 6),
        patch.object(bm25, "TEXTS_A_BLOCK", 6),
        patch.object(shards, "in_order", in_order),
        patch.object(bm25, "in_order", in_order),
    ):
        yield


KINDS: dict[str, Callable[[Path], None]] = {"encode": encode, "mine": mine, "index": index}
