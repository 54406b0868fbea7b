"""Stage ``finetune``: training of the sparse vectors on judged queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtkit import console
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

    query_encoder: str = "source"
    """What encodes queries, by its name in the recipe."""

    activation: str = "source"
    """What makes weights of logits, by its name in the recipe."""


def finetune_encoder(recipe: View, inputs: Mapping[str, Path], out: Path) -> FinetuneResult:
    """Fill ``out/model`` with the encoder of ``inputs["model"]`` trained on ``finetune.data``.

    The language is read where BM25 finds hard negatives or teaches.
    """
    from vtkit.data.collections import load_retrieval
    from vtkit.encoder.checkpoint import load_encoder, save_encoder
    from vtkit.encoder.query_tables import query_encoder_of
    from vtkit.training.finetune import finetune
    from vtkit.training.query_table import with_query_encoder
    from vtkit.training.teachers import load_teacher

    section = recipe.finetune
    assert section is not None
    data = load_retrieval(section.data, section.split)
    encoder = load_encoder(str(inputs["model"] / "model"))
    encoder = with_query_encoder(encoder, section, (document.contents for document in data.documents))
    console.say(f"queries are encoded by {query_encoder_of(encoder) or 'the encoder of documents'}")
    language = recipe.recipe.language if section.asks_bm25 else ""
    length, names = section.document_length, section.teachers if section.taught else ()
    curve = finetune(
        encoder,
        data,
        section,
        language,
        recipe.recipe.seed,
        out / CHECKPOINTS,
        teachers=[load_teacher(name, length, "finetune.teachers") for name in names],
    )
    save_encoder(encoder, out / "model")
    return FinetuneResult(len(data.queries), len(data.documents), curve, section.query_encoder, section.activation)


FINETUNE = Stage("finetune", version=5, reads=("finetune",), function=finetune_encoder, label="after fine-tuning")
