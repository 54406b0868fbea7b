"""Stage ``finetune``: contrastive training of the sparse vectors on judged queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtkit.artifacts import CHECKPOINTS
from vtkit.results import Result
from vtkit.stages.stage import Stage, View


@dataclass(frozen=True)
class FinetuneResult(Result):
    """What fine-tuning was trained on, and how it went."""

    queries: int
    documents: int
    curve: Mapping[str, Sequence[float]]
    """``steps``, and the values of each curve at these."""


def finetune_encoder(recipe: View, inputs: Mapping[str, Path], out: Path) -> FinetuneResult:
    """Fill ``out/model`` with the encoder of ``inputs["model"]`` trained on ``finetune.data``.

    The language is read where hard negatives come from BM25.
    """
    from vtkit.data.collections import load_retrieval
    from vtkit.encoder.asymmetric import refuse_query_side
    from vtkit.encoder.checkpoint import load_encoder, save_encoder
    from vtkit.training.finetune import finetune

    section = recipe.finetune
    assert section is not None
    data = load_retrieval(section.data, section.split)
    encoder = load_encoder(str(inputs["model"] / "model"))
    refuse_query_side(encoder, "finetune")
    language = recipe.recipe.language if section.hard_negatives else ""
    curve = finetune(encoder, data, section, language, recipe.recipe.seed, out / CHECKPOINTS)
    save_encoder(encoder, out / "model")
    return FinetuneResult(len(data.queries), len(data.documents), curve)


FINETUNE = Stage("finetune", version=2, reads=("finetune",), function=finetune_encoder, label="after fine-tuning")
