"""Early stopping: an encoder is judged while it is trained, its best weights are kept, and training that gets no better
is stopped. Validations before the end of the ramp do not count: denser vectors find more."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from sentence_transformers import SparseEncoder
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vtkit.data.retrieval import RetrievalSet
from vtkit.data.synthetic_queries import FEWEST_PAIRS, snippet_pairs
from vtkit.data.trec import to_run
from vtkit.encoder.sides import encode_side
from vtkit.search.engine import index_in_memory
from vtkit.search.measures.effectiveness import evaluate
from vtkit.system import console, distributed
from vtkit.system.errors import DataError
from vtkit.system.runtime import fastest_precision
from vtkit.training.objective import Objective
from vtkit.training.validated import Validated
from vtkit.training.weights import keep_weights, set_weights

PATIENCE = 5  # validations in a row without improvement after which training stops

BEST = "best.safetensors"  # the best weights so far, beside the checkpoints


METRIC = "nDCG@10"
"""By which judged queries tell how good the encoder is; snippets have one relevant document each, and RR."""

VALIDATION_DEPTH = 100  # results of each query that the metric is computed from
MOST_QUERIES = 500  # queries that an encoder is judged with, sampled with the seed


@dataclass(frozen=True)
class Validation:
    """Queries with judged documents, which a training is validated with, and afterwards its results."""

    queries: Sequence[str]
    documents: Sequence[str]
    grades: Sequence[dict[int, int]]  # of each query: number of a document -> grade
    metric: str
    judged_on: str  # what the queries are, in words
    own: Sequence[int] = ()  # number of each query's own document, which is no result; -1 for none
    every: int = 1  # steps between validations
    validated: list[Validated] = field(default_factory=list)  # of each training that has ended

    def value(self, encoder: SparseEncoder, query_length: int, document_length: int) -> float:
        """The mean of the metric over the queries, texts cut at these lengths."""
        precision = fastest_precision()
        documents = encode_side(encoder, self.documents, "document", document_length, precision=precision)
        queries = encode_side(encoder, self.queries, "query", query_length, precision=precision)
        ids, scores = index_in_memory(documents).search(queries, min(VALIDATION_DEPTH, len(self.documents)))
        if self.own:
            ids = np.where(ids == np.array(self.own)[:, None], -1, ids)
        names = [str(number) for number in range(max(len(self.queries), len(self.documents)))]
        grades = ({names[document]: grade for document, grade in of.items()} for of in self.grades)
        qrels = dict(zip(names, grades, strict=False))
        run = to_run(names[: len(self.queries)], names, ids, scores)
        return evaluate(run, qrels, [self.metric])[self.metric]


def validation_set(
    data: RetrievalSet, judged_on: str, seed: int, *, most_queries: int = MOST_QUERIES, most_documents: int = 10_000
) -> Validation:
    """Queries of ``data`` that have a relevant document, ``most_queries``, and what is searched: all documents judged
    for them, and others sampled up to ``most_documents``, in a random order, so that ties favour no document."""
    judged = ((query.id, data.by_number(data.qrels, query.id)) for query in data.queries)
    relevant = {query for query, grades in judged if any(grade > 0 for grade in grades.values())}
    if not relevant:
        raise DataError("None of the queries of validation has a relevant document.")
    data = data.under([query for query in data.queries if query.id in relevant]).sample(most_queries, seed)
    grades = [data.by_number(data.qrels, query.id) for query in data.queries]
    places = sorted(set().union(*grades))
    others = np.delete(np.arange(len(data.documents), dtype=np.int32), places)
    wanted = min(len(others), max(0, most_documents - len(places)))
    draw = np.random.default_rng([seed, 8])
    places = draw.permutation([*places, *draw.permutation(others)[:wanted].tolist()]).tolist()
    number = {place: row for row, place in enumerate(places)}
    texts = [query.text for query in data.queries], [data.contents[place] for place in places]
    renumbered = [{number[document]: grade for document, grade in judged.items()} for judged in grades]
    own = [number.get(own, -1) for own in data.own_numbers.tolist()]
    return Validation(*texts, grades=renumbered, metric=METRIC, judged_on=judged_on, own=own)


def snippet_validation_set(texts: Sequence[str], most: int, seed: int) -> Validation:
    """Up to ``most`` snippets of ``texts``, as judged queries to validate a training with."""
    pairs = snippet_pairs(texts, most, seed)
    if len(pairs) < FEWEST_PAIRS:
        raise DataError(
            f"validation: only {len(pairs)} texts of data are different and long enough to cut a snippet out of, and "
            f"{FEWEST_PAIRS} are needed. Give more text, or a share as validation.queries."
        )
    grades = [{number: 1} for number in range(len(pairs))]
    return Validation(pairs.queries, pairs.documents, grades=grades, metric="RR", judged_on="snippets")


def held_out_queries(data: RetrievalSet, share: float, seed: int) -> tuple[RetrievalSet, RetrievalSet]:
    """Split the queries into those that are trained on and a ``share`` for validation. Queries with the same text, and
    queries with a relevant document in common, go to the same side, because an encoder that has learned to find a
    document finds it for other queries too."""
    groups = _of_one_text_or_document(data)
    sizes = np.bincount(groups)
    drawn: set[int] = set()
    left = round(share * len(groups))
    for group in np.random.default_rng([seed, 7]).permutation(len(sizes)).tolist():
        if sizes[group] <= left:
            drawn.add(group)
            left -= sizes[group]
    if not 0 < len(drawn) < len(sizes):
        raise DataError(
            f"validation.queries = {share:g} of {len(groups)} queries leaves none to evaluate with or to train on. "
            f"Queries with the same text or a relevant document in common stay together ({len(sizes)} groups). Set "
            "another share, or remove it to validate on snippets."
        )

    def part(held_out: bool) -> RetrievalSet:
        return data.under([query for place, query in enumerate(data.queries) if (groups[place] in drawn) is held_out])

    return part(False), part(True)


def _of_one_text_or_document(data: RetrievalSet) -> NDArray[np.int64]:
    """The number of each query's group, (queries,): queries of one text or with a relevant document in common, directly
    or through others, are of one group."""
    number: dict[tuple[str, str], int] = {}
    queries, traits = [], []
    for place, query in enumerate(data.queries):
        documents = [("document", name) for name, grade in data.qrels[query.id].items() if grade > 0]
        for trait in (("text", query.text.strip()), *documents):
            queries.append(place)
            traits.append(number.setdefault(trait, len(number)))
    nodes = len(data.queries) + len(number)
    places = np.asarray(traits, dtype=np.int64) + len(data.queries)
    links = csr_matrix((np.ones(len(queries)), (queries, places)), shape=(nodes, nodes))
    _, components = connected_components(links, directed=False)
    return np.unique(components[: len(data.queries)], return_inverse=True)[1]


class EarlyStopping(TrainerCallback):  # type: ignore[misc]
    """Judges the encoder every few steps, keeps its best weights, and stops the trainer. All that it decides follows
    from the values measured, which are in each checkpoint (``state``).

    Args:
        objective: of the training; once its penalties are at full strength, validations count.
        lengths: tokens that queries and documents are cut at.
        folder: of the checkpoints.
    """

    def __init__(
        self,
        validation: Validation,
        objective: Objective,
        lengths: tuple[int, int],
        steps: int,
        folder: Path,
        bar: console.Bar,
    ) -> None:
        self.validation, self.encoder, self.lengths = validation, objective.model, lengths
        self.learned = {name: each for name, each in objective.named_parameters() if each.requires_grad}
        self.counted_from, self.folder, self.bar = objective.gate.ramp_ends, folder, bar
        every = validation.every
        self.at = [min(step, steps) for step in range(every, steps + every, every)]
        self.state: Any = nn.Module()  # the measured values; NaN where nothing has been measured yet
        self.state.register_buffer("values", torch.full((len(self.at),), torch.nan, dtype=torch.float64))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        # not again in a run that was killed after it had been stopped
        if state.global_step in self.at and self._stopped_at() is None:
            place = self.at.index(state.global_step)
            value = distributed.by_main(lambda: self.validation.value(self.encoder, *self.lengths))
            self.state.values[place] = value
            best = self._best()
            if best == place and distributed.is_main():
                keep_weights(self.learned, self.folder / BEST)
            so_far = "" if best is None else f" (best {float(self.state.values[best]):.4f} at step {self.at[best]})"
            self.bar.aside = f"{self.validation.metric} {value:.4f}{so_far}"
            console.note(f"validation after step {state.global_step}: {self.bar.aside}")
        if self._stopped_at() is not None:
            control.should_training_stop = True

    def finish(self) -> None:
        """Give the encoder its best weights, and say so."""
        best, measured = self._best(), self._measured()
        distributed.wait()
        if best is not None:
            set_weights(self.learned, load_file(self.folder / BEST))
        judged, best_step = self.validation, None if best is None else self.at[best]
        about = judged.metric, judged.judged_on, len(judged.queries), len(judged.documents)
        steps, values = (tuple(of[place] for place in measured) for of in (self.at, self.state.values.tolist()))
        validated = Validated(*about, steps, values, self.counted_from, best_step, self._stopped_at())
        self.validation.validated.append(validated)
        if best is None:
            console.warn(validated.words())
        else:
            console.say(f"  {validated.words()}")

    def _measured(self) -> list[int]:
        return [place for place, value in enumerate(self.state.values.tolist()) if value == value]

    def _best(self) -> int | None:
        counted = [place for place in self._measured() if self.at[place] >= self.counted_from]
        return max(counted, key=lambda place: (float(self.state.values[place]), -place), default=None)

    def _stopped_at(self) -> int | None:
        """The step at which patience ran out, where it did and there were steps left."""
        best, measured = self._best(), self._measured()
        if best is None or measured[-1] - best < PATIENCE or measured[-1] + 1 == len(self.at):
            return None
        return self.at[measured[-1]]
