"""Every training loop on tiny models without dropout, in float32, in one process or in several, of which the main one
keeps the weights and curves."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SparseEncoder
from tiny import collection, encoder, interrupted_at, texts
from torch import Tensor

from vtkit.encoder.asymmetric import query_table
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.kinds import as_unicoil
from vtkit.settings.adapt import AdaptSection
from vtkit.settings.expand_documents import ExpandDocumentsSection
from vtkit.settings.finetune import FinetuneSection
from vtkit.system import distributed
from vtkit.training import resuming, sparse_trainer
from vtkit.training.adapt import adapt_vectors
from vtkit.training.document_expansion.tilde import counted_tokens, train_tilde
from vtkit.training.finetune import finetune
from vtkit.training.mlm import adapt
from vtkit.training.query_table import with_query_encoder
from vtkit.training.resuming import TrainingRun
from vtkit.training.validation import validation_set

DATA = collection(48, seed=4)
TEXTS = texts(80, seed=11, words=(6, 30))
Curves = dict[str, list[float]]


def fine_tuning(**settings: Any) -> FinetuneSection:
    wanted = {"data": "unused", "steps": 6, "batch_size": 8, "learning_rate": 1e-3, "checkpoint_every": 4}
    return FinetuneSection(**{**wanted, **settings})


def adaptation(objective: Any, **settings: Any) -> AdaptSection:
    wanted = {"steps": 6, "batch_size": 8, "max_length": 24, "learning_rate": 1e-3, "checkpoint_every": 4}
    return AdaptSection(objective=objective, **{**wanted, **settings})


def of_every_loss(ours: SparseEncoder, folder: Path) -> Curves:
    """All losses and most penalties, mined negatives, an aim, gradient caching, validation, two trainings."""
    section = fine_tuning(
        loss=["infonce", "margin_mse", "kl", "listwise"], hard_negatives=1, texts_at_once=2, trainings=2,
        query_penalty=["flops", "l1"], document_penalty="df_flops", target_active={"query": 20, "document": 40},
        validation={"every": 3},
    )  # fmt: skip
    judged = validation_set(DATA, "the training queries", 0)
    return finetune(
        ours,
        DATA,
        section,
        TrainingRun(seed=5, folder=folder, language="en", validation=replace(judged, every=3)),
    )


def of_a_query_table(ours: SparseEncoder, folder: Path) -> Curves:
    section = fine_tuning(query_encoder="learned")
    whole = with_query_encoder(ours, section, DATA.contents)
    curves = finetune(whole, DATA, section, TrainingRun(seed=5, folder=folder, language="en"))
    table = query_table(whole)
    assert table is not None
    ours.register_parameter("table", table.weight)
    return curves


def of_unicoil(ours: SparseEncoder, folder: Path) -> Curves:
    return finetune(ours, DATA, fine_tuning(), TrainingRun(seed=5, folder=folder, language="en"))


def of_spans_and_pairs(ours: SparseEncoder, folder: Path) -> Curves:
    pairs = TEACHERS[0], [(text, f"{text} oak") for text in TEXTS]
    return adapt_vectors(
        ours, TEXTS, adaptation(("align", "crop")), TrainingRun(seed=5, folder=folder, language="en"), alignment=pairs
    )


def of_bm25(ours: SparseEncoder, folder: Path) -> Curves:
    section = adaptation("distill")
    return adapt_vectors(ours, TEXTS, section, TrainingRun(seed=5, folder=folder, language="en"))


def of_masked_tokens(ours: SparseEncoder, folder: Path) -> Curves:
    """A tenth is masked, so that a share may have nothing to predict, and it goes through the encoder in parts."""
    section = adaptation("mlm", train="all", mask_rate=0.1)
    curve, held_out = adapt(
        ours,
        TEXTS,
        np.arange(60, 90),
        section,
        TrainingRun(seed=5, folder=folder),
        held_out=texts(10, seed=12),
        frequencies=True,
    )
    assert held_out is not None
    return {**curve, "bits": [float(held_out.after["all"].bits_per_byte)]}


def towards_vectors(ours: SparseEncoder, folder: Path) -> Curves:
    teacher = str(folder.with_name("teacher"))
    if distributed.is_main():
        save_encoder(TEACHERS[0], Path(teacher))
    distributed.wait()
    section = adaptation("sap", train="all", teachers=[teacher])
    return adapt(ours, TEXTS, np.arange(60, 90), section, TrainingRun(seed=5, folder=folder))[0]


def of_likely_tokens(ours: SparseEncoder, folder: Path) -> Curves:
    section = ExpandDocumentsSection(steps=6, batch_size=8)
    pairs = [(query.text, document.contents) for query, document in zip(DATA.queries, DATA.documents, strict=True)]
    counted = counted_tokens(ours, np.zeros(len(ours.tokenizer), dtype=bool))
    return train_tilde(ours, pairs, section, counted, TrainingRun(seed=3, folder=folder))


TRAININGS: dict[str, Callable[[SparseEncoder, Path], Curves]] = {
    "every loss": of_every_loss,
    "query table": of_a_query_table,
    "uniCOIL": of_unicoil,
    "spans and pairs": of_spans_and_pairs,
    "BM25": of_bm25,
    "masked tokens": of_masked_tokens,
    "vectors": towards_vectors,
    "TILDE": of_likely_tokens,
}


TEACHERS: list[SparseEncoder] = []
"""Made with the encoders: libraries write files in the main process only once several are connected."""


def start(name: str, folder: Path, dropout: float = 0.0) -> SparseEncoder:
    """The encoder that one of the :data:`TRAININGS` begins with, and the teacher."""
    TEACHERS[:] = [encoder(folder / "teacher", seed=3)]
    ours = encoder(folder / name, dropout=dropout)
    return as_unicoil(ours) if name == "uniCOIL" else ours


def trained(name: str, ours: SparseEncoder, folder: Path) -> tuple[dict[str, Tensor], Curves]:
    """Weights and curves after one of the :data:`TRAININGS`."""
    resuming.bf16_is_fast = lambda: False  # type: ignore[assignment]
    curves = TRAININGS[name](ours, folder / name)
    return {key: value.detach().clone() for key, value in ours.named_parameters()}, curves


def keep(folder: str) -> None:
    """Every training, in each of the processes that were started together."""
    torch.set_num_threads(1)
    begun = {name: start(name, Path(folder) / str(os.getpid())) for name in TRAININGS}
    for name, ours in begun.items():
        if name == "spans and pairs":  # begun before, and gone on with from its checkpoint
            sparse_trainer.Progress = interrupted_at(5)  # type: ignore[misc]
            with suppress(KeyboardInterrupt):
                trained(name, deepcopy(ours), Path(folder))
            sparse_trainer.Progress = resuming.Progress  # type: ignore[misc]
            assert resuming.last_complete_checkpoint(Path(folder) / name)
        parameters, curves = trained(name, ours, Path(folder))
        if distributed.is_main():
            save_file(parameters, Path(folder) / f"{name}.safetensors", {"curves": json.dumps(curves)})
    distributed.leave()
