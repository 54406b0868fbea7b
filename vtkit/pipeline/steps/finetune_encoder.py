"""Stage ``finetune``: training of the sparse vectors on judged queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.sampling import draw
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.texts import EVALUATED, evaluated_in_training, unevaluated
from vtkit.pipeline.store import CHECKPOINTS
from vtkit.settings.finetune import BM25
from vtkit.system import console
from vtkit.system.results import Result
from vtkit.training.validated import Validated

if TYPE_CHECKING:
    from vtkit.data.retrieval import RetrievalSet
    from vtkit.training.validation import Validation

    Expand = Callable[[RetrievalSet], RetrievalSet]


@dataclass(frozen=True)
class FinetuneResult(Result):
    """Results of fine-tuning: its data, and how the training went."""

    queries: int
    documents: int
    curve: Mapping[str, Sequence[float]]  # `steps`, and the values of each curve at these
    query_encoder: str = "source"  # the query encoder by its name in the recipe
    activation: str = "source"  # the function from logits to weights by its name in the recipe
    validated: tuple[Validated, ...] = ()  # of each training, where [finetune.validation] asks for it
    mean_value: float | None = None  # validation value of the mean of several trainings' weights
    trainings: int = 1  # trainings whose weights the model has the mean of
    removed: int = 0  # mined documents that margins removed, as they may be relevant


def finetune_encoder(recipe: View, inputs: Mapping[str, Path], out: Path) -> FinetuneResult:
    """Fill ``out/model`` with the encoder of ``inputs["model"]`` trained on ``finetune.data``, whose documents it reads
    expanded where there is ``inputs["expansions"]``.

    The language is read where BM25 finds hard negatives or teaches.
    """
    from vtkit.data.rankings import with_scores
    from vtkit.encoder.checkpoint import load_encoder, save_encoder
    from vtkit.encoder.query_tables import query_encoder_of
    from vtkit.encoder.sides import prompt_of, rank_by_dot_products
    from vtkit.encoder.token_units import refuse_token_units
    from vtkit.system import distributed
    from vtkit.training import reporting
    from vtkit.training.document_expansion.expansions import expanded_set, load_expansions
    from vtkit.training.finetune import finetune
    from vtkit.training.query_table import with_query_encoder
    from vtkit.training.resuming import TrainingRun
    from vtkit.training.teachers import load_teacher

    section = recipe.finetune
    data = unevaluated(recipe, section.split, "train")
    if section.taught and section.scores:
        data = with_scores(data, section.scores)
    encoder = load_encoder(str(inputs["model"] / "model"))
    refuse_token_units(encoder, "finetune")
    rank_by_dot_products(encoder)
    encoder = with_query_encoder(encoder, section, data.contents)
    console.say(f"queries are encoded by {query_encoder_of(encoder) or 'the encoder of documents'}")
    language = recipe.recipe.language if section.asks_bm25 else ""
    length = section.document_length
    expand: Expand | None = None
    if "expansions" in inputs:
        expansions, prompt = load_expansions(inputs["expansions"]), prompt_of(encoder, "document")
        limit = min(length, encoder.max_seq_length or length)
        expand = partial(
            expanded_set, expansions=expansions, tokenizer=encoder.tokenizer, max_length=limit, prompt=prompt
        )
    data, validation = _validation(recipe, data, expand)
    lengths = section.query_length, length
    names = [name for name in section.teachers if name != BM25] if section.taught else []
    teachers = [load_teacher(name, lengths, "finetune.teachers") for name in names]
    read = None if expand is None else [document.contents for document in expand(data).documents]
    removed: list[int] = []
    run = TrainingRun(
        seed=recipe.recipe.seed,
        folder=out / CHECKPOINTS,
        language=language,
        report_to=recipe.report.training,
        validation=validation,
    )
    curve = finetune(encoder, data, section, run, teachers=teachers, read=read, removed=removed.append)
    if distributed.is_main():
        save_encoder(encoder, out / "model")
        reporting.keep(out / CHECKPOINTS, out)
    mean_value = None
    if validation is not None and section.trainings > 1:
        mean_value = distributed.by_main(partial(validation.value, encoder, *lengths))
        console.say(f"  the averaged weights reach {validation.metric} {mean_value:.4f} in validation")
    return FinetuneResult(
        len(data.queries), len(data.documents), curve, section.query_encoder, section.activation,
        () if validation is None else tuple(validation.validated), mean_value, section.trainings, sum(removed),
    )  # fmt: skip


def _validation(
    recipe: View, data: RetrievalSet, expand: Expand | None = None
) -> tuple[RetrievalSet, Validation | None]:
    """Split the data into the part that is trained on and the validation set. ``expand`` expands the documents of the
    validation set, except those of snippets."""
    from vtkit.training.validation import (
        MOST_QUERIES,
        held_out_queries,
        snippet_validation_set,
        validation_set,
    )

    settings, seed = recipe.finetune.validation, recipe.recipe.seed
    if settings is None:
        return data, None
    if settings.split is not None:
        judged_on, judging = f"queries of split {settings.split}", unevaluated(recipe, settings.split, "validate")
    elif settings.share is not None:
        data, judging = held_out_queries(data, settings.share, seed)
        judged_on = "training queries held out"
    else:
        texts = draw(data.contents, 2 * MOST_QUERIES, seed)
        return data, replace(snippet_validation_set(texts, MOST_QUERIES, seed), every=settings.every)
    read = judging if expand is None else expand(judging)
    return data, replace(validation_set(read, judged_on, seed), every=settings.every)


FINETUNE = Stage(
    "finetune",
    version=19,
    reads=("finetune", "report.training", "evaluate.ignore_identical_ids"),
    corpora={EVALUATED: evaluated_in_training},
    function=finetune_encoder,
    publishes={"curves": "curves/finetune"},
    trains=True,
    label="after fine-tuning",
    draws=True,
)
