"""[finetune] of a recipe: the settings of each loss, penalty and query encoder in a class, and what all share.

:data:`AnyLoss`, :data:`AnyPenalty` and :data:`AnyQueryEncoder` are the lists of these: names, tables and help are read
off their classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar, get_args

from pydantic import Field, create_model

from vtkit.data.training_files import is_training_file
from vtkit.settings.types import (
    LearningRate,
    ModelName,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Ramp,
    RankingsName,
    RetrievalName,
    Section,
    Share,
    Steps,
    first_sentence,
)

Dimensions = Annotated[float, Field(ge=2, le=1_000_000)]

Side = Literal["query", "document"]

SIDES: tuple[Side, ...] = ("query", "document")


class _Named(Section):
    """Something with the table [finetune.NAME], all settings of which are optional, so that it may stay in a recipe
    that uses another one."""

    name: ClassVar[str]
    """As the recipe names it."""


class LossSettings(_Named):
    """What all losses are asked."""

    taught: ClassVar[bool] = False
    """Whether it learns a teacher's scores."""

    compares: ClassVar[bool] = False
    """Whether it compares a query's relevant document with hard negatives of the query's own."""

    weight: PositiveFloat = 1.0
    """Weight of this loss in the sum."""


class InfonceLoss(LossSettings):
    """[finetune.infonce]: InfoNCE, the relevant document against all other documents of the batch."""

    name = "infonce"

    scale: PositiveFloat = 1.0
    """Factor on the scores inside the softmax (the inverse of the temperature)."""


_SCALE = (
    "Factor on the teacher's scores, which brings them to the size of the encoder's. Default: by the kind of teacher; 1"
    " for cross-encoders, sparse encoders, BM25 and the scores of a file, 20 for cosines, and 5 for the mean of several"
    " teachers, which is in standard deviations."
)


class MarginMseLoss(LossSettings):
    """[finetune.margin_mse]: MarginMSE, the squared error between the encoder's and the teacher's margins of a query's
    relevant document over its hard negatives."""

    name = "margin_mse"
    taught = compares = True

    scale: PositiveFloat | None = Field(default=None, description=_SCALE)


class KlLoss(LossSettings):
    """[finetune.kl]: KL divergence from the teacher's distribution over a query's relevant document and its hard
    negatives."""

    name = "kl"
    taught = compares = True

    scale: PositiveFloat | None = Field(default=None, description=_SCALE)


class ListwiseLoss(LossSettings):
    """[finetune.listwise]: KL divergence from the teacher's distribution over all documents of the batch that it
    scored, with its scores in standard deviations."""

    name = "listwise"
    taught = True


_QUERIES = "λ_q, its strength on queries once the ramp is over."
_DOCUMENTS = "λ_d, its strength on documents once the ramp is over."


class PenaltySettings(_Named):
    """What all penalties are asked; each class has its own defaults of λ."""

    counts: ClassVar[bool] = True
    """Whether it bears on all dimensions, so that ``finetune.target_active`` can be reached by it."""

    query: NonNegativeFloat = Field(description=_QUERIES)
    document: NonNegativeFloat = Field(description=_DOCUMENTS)

    def strength(self, side: Side) -> float:
        """λ of a side."""
        return self.query if side == "query" else self.document

    def settings_of(self, side: Side) -> set[str]:
        """Names of the settings that its penalty on a side reads."""
        others = {f"{other}{end}" for other in SIDES if other != side for end in ("", "_dimensions")}
        return set(type(self).model_fields) - others - ({"definition"} if side == "query" else set())


FlopsDefinition = Literal["batch", "splade", "cai"]


class FlopsPenalty(PenaltySettings):
    """[finetune.flops]: FLOPS, the squared mean weight of each dimension (arXiv:2004.05665)."""

    name = "flops"

    query: NonNegativeFloat = Field(default=3e-4, description=_QUERIES)
    document: NonNegativeFloat = Field(default=1e-4, description=_DOCUMENTS)

    definition: FlopsDefinition = "batch"
    """How relevant documents and hard negatives are combined; a λ_d from elsewhere depends on it. ``batch``: FLOPS of
    all documents of the batch (sentence-transformers). ``splade``: the mean of the FLOPS of the relevant documents and
    that of the negatives (SPLADE's code). ``cai``: their sum (CAI's code)."""


class L1Penalty(PenaltySettings):
    """[finetune.l1]: L1, the sum of a vector's weights."""

    name = "l1"

    query: NonNegativeFloat = Field(default=1e-3, description=_QUERIES)
    document: NonNegativeFloat = Field(default=1e-3, description=_DOCUMENTS)


class MaskedFlopsPenalty(PenaltySettings):
    """[finetune.masked_flops]: FLOPS of only those vectors that are not sparse enough yet (ℓ₀ mask,
    arXiv:2504.14839)."""

    name = "masked_flops"

    query: NonNegativeFloat = Field(default=3e-4, description=_QUERIES)
    document: NonNegativeFloat = Field(default=1e-4, description=_DOCUMENTS)

    query_dimensions: PositiveInt = 30
    """Queries with at most this many active dimensions are not penalised."""

    document_dimensions: PositiveInt = 150
    """Documents with at most this many active dimensions are not penalised."""

    def threshold(self, side: Side) -> int:
        """Active dimensions up to which a vector of a side is left alone."""
        return self.query_dimensions if side == "query" else self.document_dimensions


class DfFlopsPenalty(PenaltySettings):
    """[finetune.df_flops]: FLOPS with larger weights for dimensions that are active in many texts, which shortens the
    longest postings (DF-FLOPS, arXiv:2505.15070)."""

    name = "df_flops"

    query: NonNegativeFloat = Field(default=3e-4, description=_QUERIES)
    document: NonNegativeFloat = Field(default=1e-4, description=_DOCUMENTS)

    alpha: Share = 0.1
    """A dimension that is active in this share of the texts has half the largest weight."""


class CasedPenalty(PenaltySettings):
    """[finetune.cased]: Squared weights of the dimensions of cased tokens (the casing study). The study has λ = 0.2
    beside MarginMSE, which is far too much beside InfoNCE; the default suits InfoNCE."""

    name = "cased"
    counts = False

    query: NonNegativeFloat = Field(default=1e-3, description=_QUERIES)
    document: NonNegativeFloat = Field(default=1e-3, description=_DOCUMENTS)


class QueryEncoderSettings(_Named):
    """How queries are encoded."""

    fixed: ClassVar[bool] = False
    """Whether it is a table that training leaves as it is, so that nothing makes queries sparser."""


class SourceQueries(QueryEncoderSettings):
    """[finetune.source]: As in the model: the document encoder, or the model's static table, which is not trained."""

    name = "source"


class SharedQueries(QueryEncoderSettings):
    """[finetune.shared]: The document encoder, even if the model had another query encoder."""

    name = "shared"


class BinaryQueries(QueryEncoderSettings):
    """[finetune.binary]: A table in which every token weighs 1 (SPLADE-doc, arXiv:2109.10086)."""

    name = "binary"
    fixed = True


class IdfQueries(QueryEncoderSettings):
    """[finetune.idf]: A table of inverse document frequencies in ``finetune.data`` (arXiv:2411.04403)."""

    name = "idf"
    fixed = True


class LearnedQueries(QueryEncoderSettings):
    """[finetune.learned]: A table that is trained together with the document encoder, starting from the model's own
    table or else from ``idf`` (after Li-LSR, arXiv:2505.01452)."""

    name = "learned"

    learning_rate: LearningRate = 1e-2
    """Peak learning rate of the table's weights, which start at up to 10; the schedule is the encoder's."""


class TargetActive(Section):
    """Active dimensions to reach by the end of training; the λ that reaches them is found on the way
    (docs/training.md)."""

    query: Dimensions | None = None
    """Of a query, on average."""

    document: Dimensions | None = None
    """Of a document, on average."""

    def of(self, side: Side) -> float | None:
        """The aim of a side, where it has one."""
        return self.query if side == "query" else self.document


Reporter = Literal["tensorboard", "wandb"]


class FinetuneValidation(Section):
    """[finetune.validation]: the encoder is evaluated while it is trained. Training stops when it no longer improves,
    and ends with the best weights. The queries are those of ``split`` or a ``share`` of the training queries; without
    either, probe pairs made from the documents of ``data``."""

    every: Steps = 50
    """Steps between validations."""

    patience: PositiveInt = 5
    """Training stops after this many validations in a row without improvement."""

    split: str | None = None
    """Judgements of ``data`` to validate on, such as ``dev``; neither those trained on nor those that [evaluate]
    uses."""

    share: Share | None = None
    """Share of the training queries to validate on instead of training on them."""


AnyLoss = InfonceLoss | MarginMseLoss | KlLoss | ListwiseLoss

AnyPenalty = FlopsPenalty | L1Penalty | MaskedFlopsPenalty | DfFlopsPenalty | CasedPenalty

AnyQueryEncoder = SourceQueries | SharedQueries | BinaryQueries | IdfQueries | LearnedQueries

LOSSES: dict[str, type[AnyLoss]] = {kind.name: kind for kind in get_args(AnyLoss)}  # in the order of help texts

PENALTIES: dict[str, type[AnyPenalty]] = {kind.name: kind for kind in get_args(AnyPenalty)}
"""Name of each penalty -> its settings, in the order of help texts."""

QUERY_ENCODERS: dict[str, type[AnyQueryEncoder]] = {kind.name: kind for kind in get_args(AnyQueryEncoder)}
"""Name of each query encoder -> its settings, in the order of help texts."""

_TABLES: dict[str, type[_Named]] = {  # name of each table of a choice -> its settings
    **LOSSES,
    **PENALTIES,
    **{name: kind for name, kind in QUERY_ENCODERS.items() if kind.model_fields},
}

if TYPE_CHECKING:
    LossName = str
    PenaltyName = str
    QueryEncoderName = str
    _Tables = Section
else:
    LossName = Literal[tuple(LOSSES)]
    PenaltyName = Literal[tuple(PENALTIES)]
    QueryEncoderName = Literal[tuple(QUERY_ENCODERS)]
    _Tables = create_model(
        "_Tables", __base__=Section, __module__=__name__, **{name: (kind, kind()) for name, kind in _TABLES.items()}
    )

Kind = TypeVar("Kind", bound=_Named)

Activation = Literal["source", "log1p", "log1p_log1p"]


class RankingSystems(Section):
    """Systems that rank the documents of ``finetune.data`` for its queries."""

    bm25: bool = True
    """BM25's ranking."""

    encoder: bool = False
    """The ranking of the encoder itself, before fine-tuning."""

    models: tuple[ModelName, ...] = ()
    """Rankings of dense or sparse sentence-transformers models, hub ids or folders."""

    files: tuple[RankingsName, ...] = ()
    """Published rankings by ids: msmarco-hard-negatives (.jsonl with ``qid`` and ``neg``, lists of document ids by
    system), ColBERT's lines, .parquet with a query id and document ids, TREC runs."""

    @property
    def any(self) -> bool:
        """Whether there is one at all."""
        return bool(self.bm25 or self.encoder or self.models or self.files)


class MiningSection(RankingSystems):
    """[finetune.mining]: where hard negatives come from: the top of one or several rankings, without the documents that
    are relevant to the query."""

    depth: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Negatives are sampled from this many documents at the top of each ranking."""

    rounds: Annotated[int, Field(ge=1, le=10)] = 1
    """Number of trainings, each from the same initial weights. From the second on, negatives are also mined with the
    encoder of the previous training. The last one is kept; each takes as long as the first."""


def _summaries(kinds: dict[str, type[AnyLoss]] | dict[str, type[AnyPenalty]] | dict[str, type[AnyQueryEncoder]]) -> str:
    return " ".join(f"``{name}``: {first_sentence(kind)}." for name, kind in kinds.items())


class FinetuneSection(_Tables):
    """[finetune]: training of the sparse vectors on queries with relevant documents. The settings of each loss, penalty
    and query encoder stand in a table of its name; tables that are not used may stay in the recipe."""

    data: RetrievalName
    """Judged queries: a collection's folder or name, or training data (docs/data.md): a .tsv, .jsonl or .parquet
    file of pairs, triples, or tuples with a teacher's scores, or two columns of a dataset,
    ``datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT``."""

    split: str = "train"
    """Judgements to train on (``qrels/SPLIT.tsv``); a file has no splits."""

    query_encoder: QueryEncoderName = Field(
        default="source",
        description="How queries are encoded. "
        + _summaries(QUERY_ENCODERS)
        + " With a table a query has one weight for"
        " each distinct token and needs no model.",
    )

    activation: Activation = "source"
    """How logits become weights. ``source``: as in the model. ``log1p``: log(1 + ReLU(x)). ``log1p_log1p``: log(1 +
    log(1 + ReLU(x))), which makes large weights smaller (arXiv:2504.14839)."""

    loss: LossName | Annotated[tuple[LossName, ...], Field(min_length=1)] = Field(
        default="infonce",
        description=_summaries(LOSSES) + " A list: their sum, each times its ``weight``. All but ``infonce`` learn from"
        " ``teachers``.",
    )

    query_penalty: PenaltyName | tuple[PenaltyName, ...] = Field(
        default="flops",
        description="What keeps queries sparse. " + _summaries(PENALTIES) + " A list: all of them; an empty one: none.",
    )

    document_penalty: PenaltyName | tuple[PenaltyName, ...] = "flops"
    """Penalties that keep documents sparse; as ``query_penalty``."""

    ramp: Ramp = 0.33
    """Share of the steps over which the penalties rise quadratically to full strength."""

    target_active: TargetActive | None = None
    """Active dimensions of queries and documents to reach by the end, as in ``{query = 30, document = 150}``. λ of the
    side's first penalty is then found while training, and ``ramp`` is the share of the steps over which the target is
    approached."""

    teachers: tuple[ModelName, ...] = ()
    """Hub ids or folders of dense or sparse sentence-transformers models or cross-encoders. With several
    teachers, their scores are averaged, each in standard deviations of that teacher's scores for the query."""

    scores: tuple[RankingsName, ...] = ()
    """Files with a teacher's scores for documents of ``data``, named by ids (docs/data.md): .parquet with a query id,
    document ids and scores, or triplets with a margin; ColBERT's lines; TREC runs. Only scored documents are then
    trained on."""

    bm25: bool | None = None
    """Use BM25 over the documents as a teacher. Default: only if there is no other teacher, neither ``teachers`` nor
    scores in ``data`` or ``scores``."""

    epochs: PositiveFloat = 3.0
    """Passes over the pairs; ``steps`` overrides it."""

    steps: Steps | None = None
    """Optimiser steps, instead of epochs."""

    trainings: Annotated[int, Field(ge=1, le=100)] = 1
    """Number of trainings from the same encoder, with ``recipe.seed`` and the seeds after it; the model gets the mean
    of their weights (uniform soup, arXiv:2203.05482). Search takes as long as with one, training that many times as
    long."""

    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 32
    """Pairs a step; the other documents of the step are negatives for each query."""

    texts_at_once: PositiveInt | None = None
    """Texts whose activations are held at a time; short texts are grouped up to 1,024 tokens. The gradient is that of
    the whole batch, with less memory and about a third more time. Default: the whole batch."""

    hard_negatives: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Additional negatives for each query: documents of ``data`` judged as not relevant, and if there are too few,
    documents found by ``mining``."""

    mining: MiningSection = MiningSection()

    query_length: PositiveInt = 64
    """Queries are cut at this many tokens."""

    document_length: PositiveInt = 128
    """Documents are cut at this many tokens."""

    learning_rate: LearningRate = 2e-5
    """Peak learning rate; it rises over ``warmup`` and falls linearly to zero."""

    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of the steps over which the learning rate rises."""

    checkpoint_every: Steps = 100
    """Steps between checkpoints; an interrupted run continues from the last one."""

    report_to: tuple[Reporter, ...] = ()
    """Programs that show the curves during training: ``tensorboard``, ``wandb`` (offline without --download)."""

    validation: FinetuneValidation | None = None

    @property
    def losses(self) -> tuple[AnyLoss, ...]:
        """The settings of the losses that are summed."""
        names = self.loss if isinstance(self.loss, tuple) else (self.loss,)
        return tuple(getattr(self, name) for name in names)

    @property
    def queries(self) -> AnyQueryEncoder:
        """The settings of the query encoder."""
        found: AnyQueryEncoder = getattr(self, self.query_encoder, None) or QUERY_ENCODERS[self.query_encoder]()
        return found

    @property
    def table_learning_rate(self) -> float | None:
        """Of the query table; None where none is trained."""
        return self.queries.learning_rate if isinstance(self.queries, LearnedQueries) else None

    @property
    def fixed_queries(self) -> bool:
        """Whether queries go through a table that is not trained."""
        return self.queries.fixed

    def penalties(self, side: Side) -> tuple[AnyPenalty, ...]:
        """The settings of the penalties on a side; none on queries that nothing can make sparser."""
        if side == "query" and self.fixed_queries:
            return ()
        names = self.query_penalty if side == "query" else self.document_penalty
        return tuple(getattr(self, name) for name in (names if isinstance(names, tuple) else (names,)))

    def target(self, side: Side) -> float | None:
        """Active dimensions that a side is to end with, where that is said."""
        return None if self.target_active is None else self.target_active.of(side)

    @property
    def taught(self) -> bool:
        """Whether one of its losses learns a teacher's scores."""
        return any(loss.taught for loss in self.losses)

    @property
    def bm25_teaches(self) -> bool:
        """Whether BM25 is asked for scores, if ``data`` bring none."""
        return self.taught and (not self.teachers if self.bm25 is None else self.bm25)

    @property
    def asks_bm25(self) -> bool:
        """Whether BM25 finds negatives or teaches, for which the language counts."""
        return (self.hard_negatives > 0 and self.mining.bm25) or self.bm25_teaches

    @property
    def settings_read(self) -> set[str]:
        """Dotted paths of the settings that its losses, penalties and query encoder read; the others have no effect."""
        names = set(type(self).model_fields) - set(_TABLES)
        if self.fixed_queries:
            names -= {"query_penalty"}
        names |= {f"{self.query_encoder}.{setting}" for setting in type(self.queries).model_fields}
        names -= {"mining"}
        if not self.taught:
            names -= {"teachers", "scores", "bm25"}
        if self.hard_negatives:
            names |= {f"mining.{setting}" for setting in MiningSection.model_fields}
        names |= {f"{loss.name}.{setting}" for loss in self.losses for setting in type(loss).model_fields}
        for side in SIDES:
            for place, own in enumerate(self.penalties(side)):
                unused = {side} if place == 0 and self.target(side) is not None else set()  # λ is found
                names |= {f"{own.name}.{setting}" for setting in own.settings_of(side) - unused}
        names |= {f"target_active.{side}" for side in SIDES if self.target_active is not None}
        if self.validation is not None:
            names |= {f"validation.{setting}" for setting in FinetuneValidation.model_fields}
        return {f"finetune.{name}" for name in names}

    def _faults(self) -> Iterator[str]:
        for setting, named in (
            ("loss", self.losses),
            ("query_penalty", self.penalties("query")),
            ("document_penalty", self.penalties("document")),
        ):
            if len({each.name for each in named}) < len(named):
                yield f"{setting} lists something twice"
        comparing = [loss.name for loss in self.losses if loss.compares]
        if comparing and not self.hard_negatives:
            yield (
                f"the loss {' + '.join(comparing)} compares a query's relevant document with its hard negatives: set "
                "finetune.hard_negatives to 1 or more"
            )
        for side in SIDES:
            first = self.penalties(side)[0] if self.penalties(side) else None
            target = self.target(side)
            if target is None:
                continue
            if side == "query" and self.fixed_queries:
                yield (
                    f"target_active.query: with query_encoder {self.query_encoder} a query always has one dimension "
                    "for each distinct token. Remove it"
                )
                continue
            if first is None or not first.counts:
                why = "there is none" if first is None else f"{first.name} concerns only some dimensions"
                yield f"target_active.{side} is reached by the first penalty of finetune.{side}_penalty, but {why}"
            elif isinstance(first, MaskedFlopsPenalty) and first.threshold(side) >= target:
                yield (
                    f"masked_flops.{side}_dimensions is {first.threshold(side)}, but target_active.{side} is "
                    f"{target:g}: texts below the threshold are not penalised, so set it lower"
                )
        given = self.teachers or self.scores or is_training_file(self.data)
        if self.taught and not given and self.bm25 is False:
            yield "bm25 = false leaves no teacher: name one in finetune.teachers"
        if self.validation is not None:
            if self.validation.split is not None and self.validation.share is not None:
                yield "validation.split and validation.share both choose the queries: remove one"
            if self.validation.split == self.split:
                yield f'validation.split is "{self.split}", which is trained on: name another, or set validation.share'
        if self.mining.rounds > 1 and not self.hard_negatives:
            yield "mining.rounds needs hard negatives: set finetune.hard_negatives to 1 or more"
        if self.hard_negatives and not self.mining.any:
            yield (
                "mining.bm25 = false leaves no source of hard negatives: set mining.encoder, name mining.models or "
                "mining.files, or set hard_negatives to 0"
            )
