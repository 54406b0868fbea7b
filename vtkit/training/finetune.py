"""Fine-tuning: contrastive training of the sparse vectors on judged pairs."""

from __future__ import annotations

from pathlib import Path

from sentence_transformers import SparseEncoder

from vtkit.data.retrieval import RetrievalSet
from vtkit.recipe.sections import FinetuneSection
from vtkit.training.gates import CollapseGate, LossGate
from vtkit.training.losses import info_nce
from vtkit.training.objective import Objective, Term
from vtkit.training.pairs import training_batches
from vtkit.training.regularizers import flops_terms
from vtkit.training.sparse_trainer import Schedule, train_vectors


def finetune(
    encoder: SparseEncoder,
    data: RetrievalSet,
    section: FinetuneSection,
    language: str,
    seed: int,
    folder: Path,
) -> dict[str, list[float]]:
    """Train ``encoder`` in place on ``data``'s judged pairs.

    Args:
        encoder: changed in place.
        data: queries with their relevant documents (judgements above 0).
        section: settings.
        language: for BM25, where hard negatives are asked for.
        seed: of the order, the hard negatives and the dropout.
        folder: where checkpoints are kept and looked for.

    Returns:
        The curves: ``steps``, ``loss``, ``contrastive``, ``query_flops``, ``document_flops`` (the penalties as added),
        ``query_dimensions``, ``document_dimensions`` (mean active dimensions).

    Raises:
        DataError: too few pairs for one batch, or too few whose documents are not relevant to each other's queries.
        CollapseError: a collapse gate stopped the run.
    """
    batches = training_batches(data, section, language, seed)
    steps = len(batches)
    rows = [example for batch in batches for example in batch]
    columns = {
        "query": [data.queries[row.query].text for row in rows],
        "document": [data.documents[row.positive].contents for row in rows],
    }
    for number in range(section.hard_negatives):
        columns[f"negative_{number + 1}"] = [data.documents[row.negatives[number]].contents for row in rows]

    ramp_steps = max(1, round(section.ramp * steps))
    return train_vectors(
        encoder,
        columns,
        {column: section.query_length if column == "query" else section.document_length for column in columns},
        lambda step: Objective(
            encoder,
            objective_terms(section, ramp_steps),
            step=step,
            gate=CollapseGate(encoder[0].auto_model.config.vocab_size, ramp_ends=ramp_steps),
            explosion=LossGate("fine-tuning", "Lower finetune.learning_rate or finetune.scale."),
        ),
        Schedule(
            steps,
            section.batch_size,
            section.learning_rate,
            section.warmup,
            "linear",
            section.weight_decay,
            section.checkpoint_every,
            seed,
        ),
        folder,
        "fine-tuning",
    )


def objective_terms(section: FinetuneSection, ramp_steps: int) -> tuple[Term, ...]:
    """InfoNCE plus the FLOPS penalties of :func:`vtkit.training.regularizers.flops_terms`.

    Args:
        section: settings.
        ramp_steps: step at which the penalties have their full strength.
    """
    return (
        Term("contrastive", lambda batch: info_nce(batch.queries, batch.documents, section.scale)),
        *flops_terms(section.query_flops, section.document_flops, ramp_steps),
    )
