"""Teachers, models whose scores an encoder is trained on, and the files that keep the scores: how well each document of
a step answers each query of it, as an array (queries, documents), NaN where a teacher was not asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor, nn

from vtkit.data.executors import elsewhere, in_order
from vtkit.data.hub import read_json
from vtkit.data.retrieval import RetrievalSet
from vtkit.encoder.checkpoint import load_encoder
from vtkit.encoder.dense import EmbedTexts, encode_dense, load_dense
from vtkit.encoder.families import settle_input
from vtkit.encoder.model_folder import SAFELY, library_errors, model_folder, model_kind, refuse_incomplete
from vtkit.encoder.sides import encode_side
from vtkit.encoder.truncation import shortened
from vtkit.search.bm25 import Bm25
from vtkit.search.sharded_encoding import EncodeTexts, kept_vectors
from vtkit.system import console
from vtkit.system.distributed import alone, is_main
from vtkit.system.errors import DataError
from vtkit.system.outputs import kept_array
from vtkit.system.runtime import HoldsModels, fastest_device, fastest_precision, quiet_libraries
from vtkit.training.losses import LISTWISE_TEMPERATURE, own_candidates, standardized
from vtkit.vocabulary.existing import prepare_tokenizer

SCORES_FOLDER = "teacher-scores"

STEPS_AT_ONCE = 20  # steps whose scores are one file: what a killed run loses at most
READING = "documents read for the teacher"

COSINE_SCALE = 20.0
"""The scale of cosines, which lie within a few tenths of each other; sentence-transformers multiplies by it, too."""

ENSEMBLE_SCALE = 5.0  # the scale of the mean of several teachers' scores in standard deviations
LEAST_DEVIATION, GOOD_DEVIATION = 0.15, 2.0
"""Standard deviations of a query's targets before the softmax: below the first they are nearly uniform (99 % of the
highest entropy), the second leaves weight on several documents."""

BM25_DEPTH = 1000  # documents beyond so many of a query count 0 with BM25


@dataclass(frozen=True)
class Asked:
    """The texts of one step."""

    queries: list[str]
    documents: list[str]
    numbers: list[int]  # of the documents, in the corpus
    candidates: int  # documents of each query's own: i, n + i, 2n + i, … are those of the i-th of n queries
    rows: Sequence[int] = ()  # numbers of the queries in the training data, if they are of them


@dataclass(frozen=True)
class Read:
    """Vectors of documents that a teacher has read."""

    rows: Mapping[int, int]  # number of a document -> its row
    vectors: Any  # (documents, width), an array or a sparse matrix

    @classmethod
    def of(cls, steps: Sequence[Asked], encode: Callable[[list[str]], Any]) -> Read:
        """The documents of ``steps``, each encoded once."""
        texts = {number: text for step in steps for number, text in zip(step.numbers, step.documents, strict=True)}
        return cls({number: row for row, number in enumerate(texts)}, encode(list(texts.values())))

    def __getitem__(self, step: Asked) -> Any:
        """The vectors of the documents of a step."""
        return self.vectors[[self.rows[number] for number in step.numbers]]


@dataclass(frozen=True)
class SparseTeacher:
    """A sparse encoder: dot products of its vectors."""

    encoder: SparseEncoder
    max_length: int
    read: Read | None = None

    @property
    def scale(self) -> float:
        """:data:`COSINE_SCALE` if its scores are cosines, else 1."""
        return COSINE_SCALE if self.encoder.similarity_fn_name == "cosine" else 1.0

    def reading(self, steps: Sequence[Asked], folder: Path | None = None) -> Read:
        """The vectors of all documents of ``steps``, in ``folder`` or in memory."""
        precision = fastest_precision()
        work = EncodeTexts(self.encoder, side="document", max_length=self.max_length, precision=precision)
        return Read.of(steps, lambda texts: kept_vectors(work, texts, READING, folder))

    def scores(self, steps: Sequence[Asked]) -> np.ndarray:
        """Float32 (steps, queries, documents)."""
        queries, documents = _texts(steps)
        read = self.read or self.reading(steps)
        if queries == documents:
            pairs = [(read[step], read[step]) for step in steps]
        else:
            asking = encode_side(self.encoder, queries, "query", self.max_length, precision=fastest_precision())
            pairs = [(asking[own], read[step]) for step, own in _with_places(steps)]
        return np.stack([(asked @ known.T).toarray() for asked, known in pairs]).astype(np.float32)


@dataclass(frozen=True)
class DenseTeacher:
    """A dense embedder: its own similarity of its own vectors, with its own prompts."""

    embedder: Any
    read: Read | None = None

    @property
    def scale(self) -> float:
        """:data:`COSINE_SCALE` if its scores are cosines, else 1."""
        modules = list(self.embedder)
        normalized = bool(modules) and isinstance(modules[-1], Normalize)
        return COSINE_SCALE if normalized or self.embedder.similarity_fn_name == "cosine" else 1.0

    def reading(self, steps: Sequence[Asked], folder: Path | None = None) -> Read:
        """The vectors of all documents of ``steps``, in ``folder`` or in memory."""
        embedder, precision = self.embedder, fastest_precision()
        return Read.of(steps, lambda texts: encode_dense(embedder, texts, "document", precision, READING, folder))

    def scores(self, steps: Sequence[Asked]) -> np.ndarray:
        """Float32 (steps, queries, documents)."""
        read = self.read or self.reading(steps)
        asking = EmbedTexts(self.embedder, "query", fastest_precision())(_texts(steps)[0])["vectors"]
        pairs = [(asking[own], read[step]) for step, own in _with_places(steps)]
        return np.stack([np.asarray(self.embedder.similarity(*pair)) for pair in pairs]).astype(np.float32)


@dataclass(frozen=True)
class CrossEncoderTeacher(HoldsModels):
    """A cross-encoder, which is asked for each query's own candidates only: its logits, before any activation."""

    model: Any  # its `max_seq_length` cuts a pair
    query_length: int  # tokens a query is cut at, so that a long one leaves the document its room
    scale: float = 1.0

    def scores(self, steps: Sequence[Asked]) -> np.ndarray:
        """Float32 (steps, queries, documents), NaN for the candidates of others."""
        count = len(steps[0].queries)
        shorter = _cut(self.model.tokenizer, _texts(steps)[0], self.query_length)
        pairs = [
            (query, document)
            for step, own in _with_places(steps)
            for number, query in enumerate(shorter[own])
            for document in step.documents[number::count]
        ]
        values = self.model.predict(pairs, batch_size=32, activation_fn=nn.Identity(), show_progress_bar=False)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            asked, read = (console.one_line(text, 60) for text in pairs[bad[0]])
            raise DataError(
                f"the cross-encoder scores {len(bad)} of {len(pairs)} pairs with NaN or infinity, the first query "
                f'"{asked}" and document "{read}". Its weights or its precision are at fault: name another one.'
            )
        scores = np.full((len(steps), count, len(steps[0].documents)), np.nan, dtype=np.float32)
        for query, own in enumerate(np.reshape(values, (len(steps), count, -1)).swapaxes(0, 1)):
            scores[:, query, query::count] = own
        return scores


@dataclass(frozen=True)
class Bm25Teacher:
    """BM25 over the corpus."""

    bm25: Callable[[], Bm25]  # makes it, where it is asked
    scale: float = 1.0

    def scores(self, steps: Sequence[Asked]) -> np.ndarray:
        """Float32 (steps, queries, documents)."""
        ids, values = (ranked.tolist() for ranked in self.bm25().search(_texts(steps)[0], BM25_DEPTH))
        return _of_numbers(steps, [dict(zip(*ranked, strict=True)) for ranked in zip(ids, values, strict=True)], 0.0)


@dataclass(frozen=True)
class GivenScores:
    """The scores that come with training data, by the numbers of its queries: several may have the same text."""

    data: RetrievalSet
    scale: float = 1.0

    def scores(self, steps: Sequence[Asked]) -> np.ndarray:
        """Float32 (steps, queries, documents), NaN where the data bring none."""
        ids = (self.data.queries[row].id for step in steps for row in step.rows)
        return _of_numbers(steps, [self.data.by_number(self.data.scores, query) for query in ids], np.nan)


@dataclass(frozen=True)
class Ensemble:
    """Several teachers: the mean of their scores, each in standard deviations of its scores of the query, over the
    documents that all of them were asked about."""

    teachers: Sequence[Teacher]
    scale: float = ENSEMBLE_SCALE

    def scores(self, steps: Sequence[Asked]) -> np.ndarray:
        """Float32 (steps, queries, documents), NaN where one of them was not asked."""
        scores = torch.from_numpy(np.stack([teacher.scores(steps) for teacher in self.teachers]))
        scores = scores.masked_fill(scores.isnan().any(dim=0), torch.nan)
        scaled = standardized(scores.flatten(0, 2)).view(scores.shape)
        return np.asarray(scaled.mean(dim=0))


Teacher: TypeAlias = SparseTeacher | DenseTeacher | CrossEncoderTeacher | Bm25Teacher | GivenScores | Ensemble
"""A model that scores documents for queries. Its ``scores`` takes steps of one size; its ``scale`` is the factor that
brings the scores to the size of an encoder's, where a recipe names none."""


def single_or_ensemble(teachers: Sequence[Teacher]) -> Teacher:
    """The one teacher, or the :class:`Ensemble` of several."""
    return teachers[0] if len(teachers) == 1 else Ensemble(teachers)


def check_targets(logits: Tensor, setting: str = "", scale: float = 1.0) -> None:
    """Refuse the targets of a first sample of queries if they are nearly uniform: they teach that all documents are
    equally good.

    Args:
        logits: whose softmax, for each query, is the target; (queries, documents), NaN where the teacher was not asked.
        setting: argument that sets ``scale``, by which the scores were multiplied, if the recipe can.
    """
    rows = [row[~row.isnan()] for row in logits]
    deviations = [float(row.std(correction=0)) for row in rows if len(row) > 1]
    deviation = sum(deviations) / max(len(deviations), 1)
    if deviation >= LEAST_DEVIATION or not deviations:
        return
    if deviation < 1e-6:
        raise DataError("The teacher gives all documents of a query the same score. Name another teacher.")
    factor = f"{setting} to about {scale * GOOD_DEVIATION / deviation:.2g} (now {scale:g})"
    remedy = f"Set {factor}, or name another teacher" if setting else "Name another teacher"
    raise DataError(
        "The teacher scores a query's documents nearly alike, so that training would teach that all are equally good "
        f"(the targets' standard deviation is {deviation:.2g}). {remedy}."
    )


def load_teacher(name: str, lengths: tuple[int, int], setting: str) -> Teacher:
    """The teacher in a folder or of the hub: a cross-encoder, a sparse encoder or a dense embedder.

    Args:
        lengths: tokens that a sparse teacher cuts queries and documents at, and a cross-encoder both together, as far
            as it has positions; embedders have limits of their own.

    Raises:
        DataError: nothing is there, it is damaged, would run code of its own, or is a cross-encoder with several
            labels.
    """
    folder, label = model_folder(name, f"{setting} ="), f"{setting} = {name}"
    kind = model_kind(folder, label)
    architectures = str((read_json(folder / "config.json", label) or {}).get("architectures"))
    if kind == "sparse_encoder" or ("MaskedLM" in architectures and not (folder / "modules.json").is_file()):
        return SparseTeacher(load_encoder(name, fastest_device()), lengths[1])
    if kind == "cross_encoder":
        with quiet_libraries(), library_errors(f"{label} cannot be loaded as a cross-encoder"):
            weights = {"dtype": torch.float32, "weights_only": True}
            model = CrossEncoder(str(folder), device=fastest_device(), **SAFELY, model_kwargs=weights)
            refuse_incomplete(model.model, folder, label)
            prepare_tokenizer(model.tokenizer, f"of {name}")
            settle_input(model[0])
            model.model.config.pad_token_id = model.tokenizer.pad_token_id  # a decoder reads the last token before it
        if model.num_labels != 1:
            raise DataError(
                f"{label} is a classifier of {model.num_labels} labels, and a teacher gives one score. Name a "
                "cross-encoder for ranking."
            )
        # of a pair without texts: special tokens, a prompt, a chat template
        around = model.preprocess([("", "")], prompt=model.prompts.get(model.default_prompt_name))["input_ids"].shape[1]
        model.max_seq_length = min(sum(lengths) + around, model.max_seq_length)
        return CrossEncoderTeacher(model, lengths[0])
    return DenseTeacher(load_dense(name, setting).to(fastest_device()))


class KeptScores:
    """A teacher's scores of every step, made some steps at a time when training comes to them, and kept in files below
    ``folder``; with ``own``, of each query's own candidates only."""

    def __init__(self, teacher: Teacher, steps: Sequence[Asked], folder: Path, *, own: bool = False) -> None:
        self._job, self._steps, self._own = ScoreSteps(teacher, own), steps, own
        self.scale = teacher.scale
        self._folder = folder / SCORES_FOLDER
        self._start, self._part = -1, torch.empty(0)
        self._unprepared = True
        self.compares_nothing = bool((self._scores_from(0).isfinite().sum(dim=2) < 2).all())
        """Whether each query of the first steps has a score of one document only."""

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, step: int) -> Tensor:
        """Float32 (queries, documents), or (queries, candidates) of ``own`` ones."""
        place = range(len(self))[step]
        return self._scores_from(place - place % STEPS_AT_ONCE)[place % STEPS_AT_ONCE]

    def own(self, step: int) -> Tensor:
        """The scores of each query's own candidates, its relevant document first, (queries, candidates)."""
        return self[step] if self._own else own_candidates(self[step])

    def check(self, factor: float | None = None, setting: str = "") -> None:
        """:func:`check_targets` of the first steps' own candidates times ``factor``; None: of all documents in standard
        deviations."""
        first = range(min(STEPS_AT_ONCE, len(self)))
        if factor is not None:
            check_targets(factor * torch.cat([self.own(step) for step in first]), setting, factor)
        else:
            check_targets(standardized(torch.cat([self[step] for step in first])) / LISTWISE_TEMPERATURE)

    def _scores_from(self, start: int) -> Tensor:
        """The scores of the steps that are one file, (steps, queries, documents or candidates)."""
        if start and self._unprepared:
            self._unprepared = False
            self._prepare()
        if start != self._start:
            self._start, self._part = start, torch.from_numpy(self._job(self._task(start)))
        return self._part

    def _task(self, start: int) -> tuple[Path, int, Sequence[Asked]]:
        return self._folder / f"{start:08d}.npy", start, self._steps[start : start + STEPS_AT_ONCE]

    def _prepare(self) -> None:
        """Let the teacher read the documents of all steps at once, or other processes ask a cross-encoder ahead, once
        the first steps have shown that it is of use."""
        if not is_main():  # the others get the scores
            return
        with alone():
            teacher = _with_vectors(self._job.teacher, self._steps, self._folder / "vectors")
            self._job = replace(self._job, teacher=teacher)
            if isinstance(teacher, CrossEncoderTeacher) and elsewhere():
                ahead = map(self._task, range(0, len(self), STEPS_AT_ONCE))
                with console.progress("scores of the teacher", total=len(self)) as bar:
                    for number, _ in enumerate(in_order(self._job, ahead, bar, few=0), 1):
                        bar.reach(min(number * STEPS_AT_ONCE, len(self)))


@dataclass(frozen=True)
class ScoreSteps:
    """The work on some steps: the teacher's scores, kept in their file."""

    teacher: Teacher
    own: bool  # of each query's own candidates only

    def __call__(self, task: tuple[Path, int, Sequence[Asked]], bar: console.Bar | None = None) -> NDArray[np.float32]:
        """Float32 (steps, queries, documents or candidates)."""
        file, start, part = task
        queries, candidates = len(part[0].queries), part[0].candidates
        own = np.arange(queries)[:, None] + queries * np.arange(candidates)  # columns of a query's candidates

        def asked() -> NDArray[np.float32]:
            # in the middle of a training step: nothing of it may change what the teacher says, nor the reverse
            device = "cuda" if torch.cuda.is_available() else "cpu"
            with torch.random.fork_rng(), torch.no_grad(), torch.autocast(device, enabled=False):
                scores = self.teacher.scores(part)
            of_own = np.take_along_axis(scores, own[None], axis=2)
            wrong = np.isinf(scores).any(axis=2) | np.isnan(of_own).any(axis=2)
            if wrong.any():
                step, query = np.argwhere(wrong)[0].tolist()
                raise DataError(
                    f"the teacher gives {int(wrong.sum())} of {wrong.size} queries scores that are infinite, missing "
                    f"or NaN (the first is query {query + 1} of step {start + step}, "
                    f'"{console.one_line(part[step].queries[query], 60)}"). Name another teacher.'
                )
            return of_own if self.own else scores

        wanted = (len(part), queries, candidates if self.own else len(part[0].documents))
        return kept_array(file, asked, lambda kept: kept.shape == wanted and kept.dtype == np.float32)


def _with_vectors(teacher: Teacher, steps: Sequence[Asked], folder: Path) -> Teacher:
    """The teacher with the vectors of all documents of ``steps``, if it has vectors, in ``folder``."""
    match teacher:
        case SparseTeacher() | DenseTeacher():
            return replace(teacher, read=teacher.reading(steps, folder))
        case Ensemble():
            return Ensemble([_with_vectors(each, steps, folder / str(n)) for n, each in enumerate(teacher.teachers)])
        case _:
            return teacher


def _cut(tokenizer: Any, texts: Sequence[str], length: int) -> list[str]:
    """The beginning of each text that its first ``length`` tokens stand for."""
    read = tokenizer(
        shortened(tokenizer, texts, length),
        truncation=True, max_length=length, add_special_tokens=False, return_offsets_mapping=True,
    )  # fmt: skip
    return [
        text[: offsets[-1][1]] if len(offsets) == length else text
        for text, offsets in zip(texts, read["offset_mapping"], strict=True)
    ]


def _texts(steps: Sequence[Asked]) -> tuple[list[str], list[str]]:
    """All queries and all documents, step after step."""
    return [text for step in steps for text in step.queries], [text for step in steps for text in step.documents]


def _with_places(steps: Sequence[Asked]) -> Iterator[tuple[Asked, slice]]:
    """Each step with the places of its queries among those of all."""
    queries = len(steps[0].queries)
    for number, step in enumerate(steps):
        yield step, slice(number * queries, (number + 1) * queries)


def _of_numbers(steps: Sequence[Asked], scores: Sequence[Mapping[int, float]], other: float) -> np.ndarray:
    """The ``scores`` of each query by document number for its step's documents, ``other`` for those without a score."""
    rows = [
        [[known.get(number, other) for number in step.numbers] for known in scores[own]]
        for step, own in _with_places(steps)
    ]
    return np.array(rows, dtype=np.float32)
