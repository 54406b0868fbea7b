"""The collection and settings of tests that fine-tune."""

from collections.abc import Iterable, Sequence
from typing import Any

from tiny import (
    collection,
    texts,
)

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.settings.finetune import FinetuneSection
from vtkit.training.validation import held_out_queries

DATA = collection(48, seed=4)


def section(**changes: Any) -> FinetuneSection:
    wanted = {"data": "unused", "steps": 23, "batch_size": 6, "learning_rate": 2e-3, "checkpoint_every": 10}
    return FinetuneSection(**{**wanted, **changes})


def judged(relevant: Sequence[Iterable[int]], documents: int) -> RetrievalSet:
    """A collection with these relevant documents, or grades of documents, for each query."""
    return RetrievalSet(
        "judged",
        [Document(f"d{n}", "", text) for n, text in enumerate(texts(documents, seed=8))],
        [Query(f"q{n}", text) for n, text in enumerate(texts(len(relevant), seed=9, words=(1, 4)))],
        {
            f"q{n}": {f"d{document}": wanted[document] if isinstance(wanted, dict) else 1 for document in wanted}
            for n, wanted in enumerate(relevant)
        },
    )


TRAINED_ON, HELD_OUT = held_out_queries(DATA, 0.3, 1)
