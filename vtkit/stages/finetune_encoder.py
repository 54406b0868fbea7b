"""Stage ``finetune``: training of the sparse vectors on judged queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit import console
from vtkit.artifacts import CHECKPOINTS
from vtkit.measures.validation import Validated
from vtkit.results import Result
from vtkit.stages.stage import Stage, View
from vtkit.stages.texts import draw

if TYPE_CHECKING:
    from vtkit.data.retrieval import RetrievalSet
    from vtkit.recipe.finetune import FinetuneSection
    from vtkit.training.validation import Validation


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

    validated: Validated | None = None
    """Where [finetune.validation] asks for it."""


def finetune_encoder(recipe: View, inputs: Mapping[str, Path], out: Path) -> FinetuneResult:
    """Fill ``out/model`` with the encoder of ``inputs["model"]`` trained on ``finetune.data``.

    The language is read where BM25 finds hard negatives or teaches.
    """
    from vtkit.data.collections import load_retrieval
    from vtkit.encoder.checkpoint import load_encoder, save_encoder
    from vtkit.encoder.query_tables import query_encoder_of
    from vtkit.training import reporting
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
    data, validation = _validation(section, data, recipe.recipe.seed)
    curve = finetune(
        encoder,
        data,
        section,
        language,
        recipe.recipe.seed,
        out / CHECKPOINTS,
        teachers=[load_teacher(name, length, "finetune.teachers") for name in names],
        validation=validation,
    )
    save_encoder(encoder, out / "model")
    reporting.keep(out / CHECKPOINTS, out)
    validated = None if validation is None else validation.validated
    return FinetuneResult(
        len(data.queries), len(data.documents), curve, section.query_encoder, section.activation, validated
    )


def _validation(section: FinetuneSection, data: RetrievalSet, seed: int) -> tuple[RetrievalSet, Validation | None]:
    """What is left to train on, and what the encoder is judged on meanwhile."""
    from vtkit.checks.probe import probe_validation_set
    from vtkit.data.collections import load_retrieval
    from vtkit.training.validation import Validation, held_out_queries, validation_set

    settings = section.validation
    if settings is None:
        return data, None
    if settings.split is not None:
        judged_on, judging = f"queries of split {settings.split}", load_retrieval(section.data, settings.split)
    elif settings.share is not None:
        data, judging = held_out_queries(data, settings.share, seed)
        judged_on = "training queries held out"
    else:
        texts = draw((document.contents for document in data.documents), 2 * settings.max_queries, seed)
        return data, Validation(probe_validation_set(texts, settings.max_queries, seed, "finetune"), settings)
    limits = settings.max_queries, settings.max_documents
    return data, Validation(validation_set(judging, settings.metric, judged_on, *limits, seed), settings)


FINETUNE = Stage("finetune", version=5, reads=("finetune",), function=finetune_encoder, label="after fine-tuning")
