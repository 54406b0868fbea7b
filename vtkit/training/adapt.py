"""Adaptation of the sparse vectors without judgements: spans of documents, parallel text, a teacher's scores. Each
objective has texts and a term of its own, and one step takes a batch of each."""

from collections.abc import Sequence
from functools import cache, partial
from itertools import cycle

import numpy as np
import torch
from sentence_transformers import SparseEncoder
from torch import Tensor

from vtkit.data.synthetic_queries import QUERY_WORDS, SHORTEST_TEXT, crop_pair, opening_pair, units
from vtkit.encoder.asymmetric import own_output
from vtkit.encoder.families import learns_only
from vtkit.search.bm25 import Bm25
from vtkit.settings.adapt import AdaptSection
from vtkit.settings.finetune import BM25, LOSSES, SIDES
from vtkit.system import distributed
from vtkit.system.errors import DataError
from vtkit.training.gates import Gate
from vtkit.training.losses import symmetric_divergence
from vtkit.training.negatives import RANKINGS_FOLDER, Ranked, merged, system_rankings
from vtkit.training.objective import Batch, Objective, Term, loss_term, penalty_term
from vtkit.training.query_generator import QueryGenerator
from vtkit.training.regularizers import quadratic_ramp
from vtkit.training.resuming import TrainingRun, trainer_settings
from vtkit.training.sparse_trainer import train_vectors
from vtkit.training.target import ActiveTarget
from vtkit.training.teachers import (
    Asked,
    Bm25Teacher,
    CrossEncoderTeacher,
    KeptScores,
    SparseTeacher,
    Teacher,
    single_or_ensemble,
)

QUERY_LENGTH = 64  # tokens a query is cut at
RAMP = 0.33  # share of the steps over which the penalties rise quadratically
ALIGN_TEMPERATURE = 4.0  # divides the scores of sentences inside the softmax of their distributions

SQUARED = 0.01
"""Weight of the mean squared difference of sentences' scores beside the divergence of their distributions."""

CONTRASTIVE = 0.5  # weight of InfoNCE with the query's own document beside the divergence from a teacher's distribution
DEPTH = 50  # the candidate beside a query's own document is sampled from so many of each ranking


Alignment = tuple[SparseEncoder, Sequence[tuple[str, str]]]
"""The encoder whose scores ``align`` learns, which is not changed, and source and target side of sentence pairs."""


def adapt_vectors(
    encoder: SparseEncoder,
    texts: Sequence[str],
    section: AdaptSection,
    run: TrainingRun,
    *,
    alignment: Alignment | None = None,
    teachers: Sequence[Teacher] = (),
    generator: QueryGenerator | None = None,
) -> dict[str, list[float]]:
    """Train ``encoder`` in place by the objectives that ``section`` names, not ``auto``; all texts are chosen before.

    Args:
        alignment: for ``align``, and only for it.
        teachers: for ``distill``, beside BM25, which teaches unless one of them is a cross-encoder.
        generator: for ``distill`` whose queries are written by a model.

    Returns:
        The curves: ``steps``, ``loss``, each term as added, and mean active dimensions.
    """
    objectives = section.objectives
    pools: list[Sequence[object]] = [alignment[1]] if alignment is not None else []
    if "crop" in objectives or "distill" in objectives:
        texts = usable_texts(texts)
        pools.append(texts)
    size = min(section.batch_size, *map(len, pools)) if pools else section.batch_size
    columns, terms = dict[str, list[str]](), list[Term]()
    if alignment is not None:  # sentences are the first column
        columns, terms = _align(alignment, section, size, run)
    if "crop" in objectives:
        order = batches_of(len(texts), section.steps, size, run.seed).reshape(-1)
        spans = [crop_pair(texts[text], np.random.default_rng([run.seed, 4, row])) for row, text in enumerate(order)]
        columns |= {"query": [query for query, _ in spans], "document": [document for _, document in spans]}
        terms.append(loss_term("infonce"))
    if "distill" in objectives:
        candidates, losses = _distill(texts, section, size, run, teachers, generator)
        columns, terms = columns | candidates, terms + losses

    model = encoder[0].auto_model
    learns_only(model, section.train or "all", own_output(encoder) is not None)
    steps, length = section.steps, section.max_length
    ramp_steps = round(RAMP * steps)
    ramp, sides = quadratic_ramp(section.flops, ramp_steps), SIDES if "query" in columns else SIDES[1:]
    for side in sides:
        aim = getattr(section.target_active, side, None)
        weight = ramp if aim is None else ActiveTarget(side, aim, ramp_steps, steps)
        terms.append(penalty_term(side, "flops", encoder, weight))
    curves = train_vectors(
        encoder,
        columns,
        (min(QUERY_LENGTH, length), length),
        lambda step: Objective(
            encoder,
            terms,
            step=step,
            gate=Gate(
                "adaptation",
                vocabulary=model.config.vocab_size,
                ramp_ends=ramp_steps,
                ramp="steps",
                penalty=dict.fromkeys(SIDES, ("flops",)),
            ),
            sentences="sentence" in columns,
        ),
        trainer_settings(model, run, section, steps, "cosine"),
        run,
        "adapting",
    )
    model.requires_grad_(True)
    return curves


Part = tuple[dict[str, list[str]], list[Term]]
"""Columns of an objective, steps times batch size texts each, and its terms."""


def _align(alignment: Alignment, section: AdaptSection, size: int, run: TrainingRun) -> Part:
    source, pairs = alignment
    batches = batches_of(len(pairs), section.steps, size, run.seed)
    read = [[pairs[pair][0] for pair in batch] for batch in batches]
    steps = [Asked(sources, sources, list(batch), 1) for sources, batch in zip(read, batches.tolist(), strict=True)]
    scores = KeptScores(SparseTeacher(source, section.max_length), steps, run.folder)

    def taught(batch: Batch) -> Tensor:
        return scores[batch.step].to(batch.sentence_scores.device)

    terms = [
        Term("alignment", lambda seen: symmetric_divergence(seen.sentence_scores, taught(seen), ALIGN_TEMPERATURE)),
        Term("score_difference", lambda seen: (seen.sentence_scores - taught(seen)).square().mean(), lambda _: SQUARED),
    ]
    return {"sentence": [pairs[pair][1] for pair in batches.reshape(-1)]}, terms


def _distill(
    texts: Sequence[str],
    section: AdaptSection,
    size: int,
    run: TrainingRun,
    teachers: Sequence[Teacher],
    generator: QueryGenerator | None,
) -> Part:
    settings, seed = section.distill, run.seed
    batches = batches_of(len(texts), section.steps, size, seed)
    rows = batches.reshape(-1).tolist()
    documents = list(texts)
    match settings.queries:
        case "crops":
            draws = (np.random.default_rng([seed, 4, row]) for row in range(len(rows)))
            queries = [crop_pair(texts[n], draw)[0] for n, draw in zip(rows, draws, strict=True)]
        case "openings":
            openings = [opening_pair(text, QUERY_WORDS) for text in texts]
            queries, documents = [openings[number][0] for number in rows], [rest for _, rest in openings]
        case _:
            assert generator is not None
            queries = _generated(generator, texts, rows, run)
    pairwise = any(isinstance(teacher, CrossEncoderTeacher) for teacher in teachers)
    loss = settings.loss or ("margin_mse" if pairwise else "listwise")
    in_deviations = LOSSES[loss].learns == "all"
    if pairwise and (in_deviations or len(teachers) > 1):
        what = "The mean of several teachers" if len(teachers) > 1 else f'distill.loss = "{loss}"'
        remedy = "Name one teacher" if len(teachers) > 1 else 'Set distill.loss to "margin_mse"'
        raise DataError(
            f"{what} compares scores in standard deviations, and a cross-encoder scores only the 2 candidates "
            f"of each query: of two scores, only their order is left. {remedy}."
        )

    bm25 = cache(partial(Bm25.build, documents, run.language))
    ranked = Ranked(queries, documents, (QUERY_LENGTH, section.max_length), DEPTH)
    mining, systems = "adapt.distill.mining", (BM25, *settings.mining)
    rankings = system_rankings(systems, ranked, bm25, run.folder / RANKINGS_FOLDER, mining)
    candidates = np.stack([rows, _sampled(rankings, rows, len(texts), seed)], axis=1)
    own, others = ([documents[number] for number in column] for column in candidates.T.tolist())
    steps = []
    for start in range(0, len(queries), size):
        batch = slice(start, start + size)
        steps.append(Asked(queries[batch], own[batch] + others[batch], candidates[batch].T.reshape(-1).tolist(), 2))
    teacher = single_or_ensemble([*teachers, *([] if pairwise else [Bm25Teacher(bm25)])])
    scores = KeptScores(teacher, steps, run.folder)
    scores.check(None if in_deviations else teacher.scale)
    terms = [loss_term(loss, taught=scores)]
    if in_deviations:
        terms.append(loss_term("infonce", CONTRASTIVE, repeated=lambda step: _repeated(steps[step])))
    return {"query": queries, "document": own, "negative_1": others}, terms


def _generated(generator: QueryGenerator, texts: Sequence[str], rows: Sequence[int], run: TrainingRun) -> list[str]:
    """A query of the text of each row, another one each time that it comes; its opening, where it has none."""
    used = list(dict.fromkeys(rows))
    written = distributed.by_main(lambda: generator.queries([texts[number] for number in used], run.seed, run.folder))
    turns = {
        number: cycle(queries or [opening_pair(texts[number], QUERY_WORDS)[0]])
        for number, queries in zip(used, written, strict=True)
    }
    return [next(turns[number]) for number in rows]


def _repeated(step: Asked) -> Tensor:
    """Mask of the candidates that repeat a query's own document, as the documents of other queries."""
    numbers = torch.tensor(step.numbers)
    return (numbers[: len(step.queries), None] == numbers).fill_diagonal_(False)


def _sampled(rankings: Sequence[np.ndarray], own: Sequence[int], documents: int, seed: int) -> np.ndarray:
    """For each query another document than its ``own``, (queries,): of what the ``rankings``, (queries, depth) each,
    found; of all ``documents`` where they found no other."""
    sampled = np.array(own, dtype=np.int64)
    for row, number in enumerate(own):
        draw = np.random.default_rng([seed, 5, row])
        ranked = merged([[int(i) for i in ranking[row] if i >= 0] for ranking in rankings])
        near = draw.permutation([other for other in ranked if other != number])
        while sampled[row] == number:
            sampled[row] = near[0] if len(near) else draw.integers(documents)
    return sampled


def usable_texts(texts: Sequence[str]) -> list[str]:
    """The ``texts`` that a query can be made from."""
    usable = list(dict.fromkeys(text for text in texts if len(units(text)) >= SHORTEST_TEXT))
    if len(usable) < 2:
        raise DataError(
            f"corpus: {len(usable)} of its {len(texts)} texts are different and have {SHORTEST_TEXT} words or "
            "more. Training compares each text with others. Name a larger corpus."
        )
    return usable


def batches_of(items: int, steps: int, batch_size: int, seed: int) -> np.ndarray:
    """The items of each step, (steps, batch): shuffled passes, none twice in a batch; what is left of a pass waits for
    none. The batch is smaller where there are fewer items."""
    size = min(batch_size, items)
    whole = items // size  # batches of a pass
    orders = (np.random.default_rng([seed, epoch]).permutation(items) for epoch in range(-(-steps // whole)))
    return np.concatenate([order[: whole * size].reshape(whole, size) for order in orders])[:steps]
