"""Fine-tuning: training of the sparse vectors on judged pairs, towards the judgements or towards a teacher's scores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from torch import Tensor

from vtkit.data.rankings import Ranking, read_rankings
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.sequences import Lazy
from vtkit.encoder.asymmetric import query_table
from vtkit.search.bm25 import Bm25
from vtkit.settings.finetune import BM25, SIDES, FinetuneSection
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.training.averaging import Curves, averaged, parameters_of
from vtkit.training.gates import Gate
from vtkit.training.negatives import (
    RANKINGS_FOLDER,
    Ranked,
    model_ranking,
    negative_pools,
    system_rankings,
    without_false_negatives,
)
from vtkit.training.objective import Objective, Term, loss_term, penalty_term
from vtkit.training.pairs import Judged, Pools, judged_pairs, relevant_to_others, training_batches
from vtkit.training.query_table import QueryTable
from vtkit.training.regularizers import quadratic_ramp
from vtkit.training.resuming import TrainingRun, trainer_settings
from vtkit.training.sparse_trainer import train_vectors
from vtkit.training.target import ActiveTarget
from vtkit.training.teachers import Asked, Bm25Teacher, GivenScores, KeptScores, Teacher, single_or_ensemble
from vtkit.training.weights import set_weights


def finetune(
    encoder: SparseEncoder,
    data: RetrievalSet,
    section: FinetuneSection,
    run: TrainingRun,
    *,
    teachers: Sequence[Teacher] = (),
    read: Sequence[str] | None = None,
    removed: Callable[[int], object] = lambda count: None,
) -> Curves:
    """Train ``encoder`` in place on ``data``'s judged pairs; of several trainings (``section.trainings``) it gets the
    mean of the weights (:mod:`vtkit.training.averaging`). Of several rounds (``section.mining.rounds``) each starts
    from the same weights, and learns from hard negatives of the encoder of the round before, too.

    Args:
        encoder: as :func:`vtkit.training.query_table.with_query_encoder` gives it.
        data: queries with their relevant documents (judgements above 0).
        teachers: for the losses that learn from some, beside or without BM25 (``section.teachers``).
        read: what the encoder alone reads of each document, where that is not its text (expanded documents).
        removed: gets the number of mined documents that margins removed, of each query that mines.

    Returns:
        The curves: ``steps``, ``loss``, each loss and penalty as added,
        ``query_dimensions``, ``document_dimensions`` (mean active dimensions), and under ``target_active`` the λ
        found.

    Raises:
        DataError: too few pairs for one batch, or useless scores of a teacher.
        CollapseError: a collapse gate stopped the run.
    """
    contents, queries = data.contents, [query.text for query in data.queries]
    judged, given = judged_pairs(data), section.taught and bool(data.scores)
    lengths = section.query_length, section.document_length
    bm25 = cache(partial(Bm25.build, contents, run.language, folder=run.folder / "bm25"))
    clear = partial(without_false_negatives, judged.relevant, section.mining)
    of_last_round: list[Ranking] = []  # what the encoder of the round before ranks

    def rankings(depth: int) -> Sequence[Ranking]:
        ranked, kept = Ranked(queries, contents, lengths, depth, clear), run.folder / RANKINGS_FOLDER
        mined = system_rankings(section.mining.rankings, ranked, bm25, kept, "finetune.mining", encoder, read)
        of_files = (ranking for file in section.mining.files for ranking in read_rankings(file, data))
        return [*mined, *of_files, *of_last_round]

    pools = partial(negative_pools, data, judged, section, rankings, scored_only=given, removed=removed)
    asked: list[Teacher] = [*([GivenScores(data)] if given else []), *teachers] if section.taught else []
    if section.taught and (BM25 in section.teachers or not asked):
        asked.append(Bm25Teacher(bm25))
    unvalidated, read = replace(run, validation=None), read or contents
    training = _Training(encoder, data, section, judged, pools(), asked, read, unvalidated)
    parameters = parameters_of(encoder)
    start = {name: value.detach().clone() for name, value in parameters.items()} if section.mining.rounds > 1 else {}
    depth = section.mining.depth + int(judged.relevant.lengths.max(initial=0))
    ranked = Ranked(queries, read, lengths, depth, clear)
    for number in range(1, section.mining.rounds):
        console.say(f"  round {number} of {section.mining.rounds}")
        place = run.folder / f"round-{number}"
        averaged(encoder, [run.seed], training, place)
        of_last_round[:] = [model_ranking(encoder, ranked, place / "found.npy")]
        set_weights(parameters, start)
        training = replace(training, mined=pools())
    training = replace(training, run=run)
    if section.trainings == 1:
        return training(run.seed, run.folder)
    return averaged(encoder, range(run.seed, run.seed + section.trainings), training, run.folder, run.validation)


@dataclass(frozen=True)
class _Training:
    """A training of an encoder, in place, but for its seed and the folder of its checkpoints."""

    encoder: SparseEncoder
    data: RetrievalSet
    section: FinetuneSection
    judged: Judged
    mined: Pools  # for each query the documents that hard negatives are sampled from
    teachers: Sequence[Teacher]
    texts: Sequence[str]  # what the encoder reads of each document
    run: TrainingRun

    def __call__(self, seed: int, folder: Path) -> Curves:
        """Train, and return the curves."""
        encoder, section, data = self.encoder, self.section, self.data
        run = replace(self.run, seed=seed, folder=folder)
        batches = training_batches(self.judged, section, seed, self.mined)
        taught = self._taught(batches, folder) if section.taught else None
        steps, size = len(batches), section.batch_size

        def column(place: int, text: Callable[[int], str]) -> Sequence[str]:
            return Lazy(steps * size, lambda row: text(int(batches[row // size][row % size, place])))

        columns = {"query": column(0, lambda query: data.queries[query].text)}
        for place, name in enumerate(["document", *(f"negative_{n + 1}" for n in range(section.hard_negatives))], 1):
            columns[name] = column(place, self.texts.__getitem__)
        looked_up, learned = query_table(encoder), section.query_encoder == "learned"
        aimed = {side: section.target(side) is not None for side in SIDES}  # training chooses the first penalty's λ
        strengths = {side: "lambda" if len(section.penalties(side)) > aimed[side] else "penalty" for side in SIDES}
        gate = Gate(
            "fine-tuning",
            ("learning_rate", *(("infonce_scale",) if "judgements" in section.learns else ())),
            vocabulary=encoder[0].auto_model.config.vocab_size,
            ramp_ends=round(section.ramp * steps) if any(section.penalties(side) for side in SIDES) else 0,
            penalty={side: (f"{side}_{strengths[side]}",) for side in SIDES},
        )
        return train_vectors(
            encoder,
            columns,
            (section.query_length, section.document_length),
            lambda step: Objective(
                encoder,
                objective_terms(section, steps, encoder, taught, partial(relevant_to_others, self.judged, batches)),
                step=step,
                gate=gate,
                table=None if looked_up is None else QueryTable(looked_up, encoder, trained=learned),
                texts_at_once=section.texts_at_once,
            ),
            trainer_settings(encoder[0].auto_model, run, section, steps, "linear"),
            run,
            "fine-tuning",
        )

    def _taught(self, batches: Sequence[NDArray[np.int32]], folder: Path) -> KeptScores:
        """The teachers' scores of each step's queries and documents."""
        section, data, contents = self.section, self.data, self.data.contents

        def asked(step: int) -> Asked:
            rows = batches[step]
            numbers: list[int] = rows[:, 1:].T.reshape(-1).tolist()
            of: list[int] = rows[:, 0].tolist()
            queries, documents = [data.queries[row].text for row in of], [contents[number] for number in numbers]
            return Asked(queries, documents, numbers, rows.shape[1] - 1, of)

        own = "all" not in section.learns
        scores = KeptScores(single_or_ensemble(self.teachers), Lazy(len(batches), asked), folder, own=own)
        if scores.compares_nothing:
            raise DataError(
                "The teachers score only one document of each query, which teaches nothing: cross-encoders and score "
                "files score only a query's own documents. Set hard_negatives to 1 or more."
            )
        if not own:
            scores.check()
        if "own" in section.learns:
            scores.check(section.teacher_scale or scores.scale, "teacher_scale")
        return scores


def objective_terms(
    section: FinetuneSection,
    steps: int,
    encoder: SparseEncoder,
    taught: KeptScores | None = None,
    relevant: Callable[[int], Tensor] | None = None,
) -> list[Term]:
    """The losses and the penalties that the settings name, of a run of ``steps``, of which ramps are a share. The
    documents that are ``relevant`` at a step to another query than their own are no negatives."""
    term = partial(
        loss_term, scale=section.infonce_scale, repeated=relevant, taught=taught, teacher_scale=section.teacher_scale
    )
    terms = [term(name, weight) for name, weight in section.losses.items()]
    ramp_steps = round(section.ramp * steps)
    # A table of queries that is not trained is not changed by penalties.
    fixed_queries = query_table(encoder) is not None and section.query_encoder != "learned"
    for side in ("document",) if fixed_queries else SIDES:
        for place, (name, strength) in enumerate(section.penalties(side).items()):
            ramp, target = quadratic_ramp(strength, ramp_steps), section.target(side)
            weight = ramp if place or target is None else ActiveTarget(side, target, ramp_steps, steps)
            terms.append(penalty_term(side, name, encoder, weight, section.flops_definition))
    return terms
