"""[finetune] of a recipe: the losses, penalties and query encoders by their names, and the settings of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import Field, field_validator

from vtkit.settings.types import (
    LearningRate,
    Names,
    NonNegativeFloat,
    OneOrMore,
    PositiveFloat,
    PositiveInt,
    Ramp,
    RankingsName,
    RetrievalName,
    Section,
    Steps,
)

BM25, ENCODER = "bm25", "encoder"
"""Among the names of models: BM25 over the documents, and the encoder itself."""

Dimensions = Annotated[float, Field(ge=2, le=1_000_000)]

Side = Literal["query", "document"]

SIDES: tuple[Side, ...] = ("query", "document")


class Loss(NamedTuple):
    """A loss of fine-tuning."""

    function: str  # in ``training/losses.py``
    what: str  # its label in reports, and after a comma its explanation
    learns: Literal["judgements", "own", "all"]
    """``judgements``: which document of the batch is relevant. ``own``: a teacher's scores of a query's relevant
    document and its hard negatives. ``all``: a teacher's scores of all documents of the batch."""


LOSSES: dict[str, Loss] = {
    "infonce": Loss(
        "infonce", "InfoNCE, the relevant document against all other documents of the batch", learns="judgements"
    ),
    "margin_mse": Loss(
        "margin_mse",
        "MarginMSE, the squared error between the encoder's and the teacher's margins of a query's relevant document "
        "over its hard negatives",
        learns="own",
    ),
    "kl": Loss(
        "kl", "KL divergence from the teacher, over a query's relevant document and its hard negatives", learns="own"
    ),
    "listwise": Loss(
        "listwise",
        "listwise divergence from the teacher, KL over all documents of the batch that it scored, with its scores in "
        "standard deviations",
        learns="all",
    ),
}


class Penalty(NamedTuple):
    """A penalty on vectors that are not sparse."""

    function: str  # or class, if it keeps state, in ``training/regularizers.py``
    what: str  # its label in reports, and after a comma its explanation
    query: float = 3e-4  # λ of queries if the recipe gives none
    document: float = 1e-4  # the same of documents
    split: bool = False  # whether ``flops_definition`` is about it
    spares: Mapping[Side, int] = {}  # active dimensions up to which a vector is not penalised
    only_cased: bool = False  # whether it is about the dimensions of cased tokens alone


PENALTIES: dict[str, Penalty] = {
    "flops": Penalty("flops", "FLOPS, the squared mean weight of each dimension (arXiv:2004.05665)", split=True),
    "l1": Penalty("l1", "ℓ₁, the sum of a vector's weights", query=1e-3, document=1e-3),
    "masked_flops": Penalty(
        "masked_flops",
        "masked FLOPS, only of vectors with more than 30 (queries) or 150 (documents) active dimensions (ℓ₀ mask, "
        "arXiv:2504.14839)",
        spares={"query": 30, "document": 150},  # the paper's for documents
    ),
    "df_flops": Penalty(
        "DfFlops",
        "DF-FLOPS, with larger weights for dimensions that are active in many texts, which shortens the longest "
        "postings (arXiv:2505.15070)",
    ),
    "cased": Penalty(
        "cased",
        "cased tokens, the squared weights of their dimensions, summed over the batch (the casing study, with λ = 0.2 "
        "beside MarginMSE, which is far too much beside InfoNCE)",
        query=3e-5,
        document=3e-5,
        split=True,
        only_cased=True,
    ),
}

LossName: TypeAlias = Literal[tuple(LOSSES)]  # type: ignore[valid-type]
TaughtLoss: TypeAlias = Literal[tuple(name for name in LOSSES if LOSSES[name].learns != "judgements")]  # type: ignore[valid-type]
PenaltyName: TypeAlias = Literal[tuple(PENALTIES)]  # type: ignore[valid-type]

FlopsDefinition = Literal["batch", "splade", "cai"]

QueryEncoderName = Literal["source", "shared", "binary", "idf", "learned"]

QUERY_ENCODERS: dict[QueryEncoderName, str] = {
    "source": "as in the model: the document encoder, or the model's static table, which is not trained",
    "shared": "the document encoder, even if the model had another query encoder",
    "binary": "a table in which every token weighs 1 (SPLADE-doc, arXiv:2109.10086)",
    "idf": "a table of inverse document frequencies in ``finetune.data`` (arXiv:2411.04403)",
    "learned": "a table that is trained with the document encoder, starting from the model's own table or else from "
    "``idf`` (after Li-LSR, arXiv:2505.01452)",
}


class TargetActive(Section):
    """Active dimensions to reach by the end of training; the λ that reaches them is found on the way
    (docs/training.md)."""

    query: Dimensions | None = None
    """Of a query, on average."""

    document: Dimensions | None = None
    """Of a document, on average."""


class FinetuneValidation(Section):
    """[finetune.validation]: the encoder is evaluated while it is trained. Training stops after five validations in a
    row without improvement, and ends with the best weights."""

    every: Steps = 50
    """Steps between validations."""

    queries: str | Annotated[float, Field(gt=0, lt=1)] | None = None
    """Judgements of ``data`` to validate on, such as ``dev``, neither those trained on nor those that [evaluate] uses;
    or a share of the training queries, such as 0.1, which are then not trained on. Default: snippets of the
    documents of ``data``."""

    @field_validator("queries", mode="before")
    @classmethod
    def _name_or_share(cls, given: Any) -> Any:
        if isinstance(given, str) or given is None or (isinstance(given, float) and 0 < given < 1):
            return given
        raise ValueError(f"must be the name of judgements or a share between 0 and 1, not {given}")

    @property
    def split(self) -> str | None:
        """The judgements to validate on, where some are named."""
        return self.queries if isinstance(self.queries, str) else None

    @property
    def share(self) -> float | None:
        """The share of the training queries to validate on, where that is given."""
        return self.queries if isinstance(self.queries, float) else None


Activation = Literal["source", "log1p", "log1p_log1p"]


class MiningSection(Section):
    """[finetune.mining]: where hard negatives come from: the top of one or several rankings, without the documents that
    are relevant to the query."""

    rankings: tuple[Annotated[str, Names("model", (BM25, ENCODER))], ...] = (BM25,)
    """``bm25``: BM25's ranking. ``encoder``: that of the encoder itself, before fine-tuning. All others: of dense or
    sparse sentence-transformers models, hub ids or folders."""

    files: tuple[RankingsName, ...] = ()
    """Published rankings by ids: msmarco-hard-negatives (.jsonl with ``qid`` and ``neg``, lists of document ids by
    system), ColBERT's lines, .parquet with a query id and document ids, TREC runs."""

    depth: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Negatives are sampled from this many documents at the top of each ranking (``range_max`` of
    sentence-transformers)."""

    range_min: Annotated[int, Field(ge=0, le=10_000)] = 0
    """The first so many of these documents are no negatives: they may be relevant without a judgement."""

    absolute_margin: NonNegativeFloat | None = None
    """A document is no negative if its score plus this margin is above the lowest score of the query's relevant
    documents, by the ranking's own model."""

    relative_margin: NonNegativeFloat | None = None
    """The same with a margin that is a share of that lowest score, such as 0.05 (arXiv:2407.15831)."""

    rounds: Annotated[int, Field(ge=1, le=10)] = 1
    """Number of trainings, each from the same initial weights. From the second on, negatives are also mined with the
    encoder of the previous training. The last one is kept; each takes as long as the first."""

    @property
    def has_margins(self) -> bool:
        """Whether documents that score close to a relevant one are removed."""
        return self.absolute_margin is not None or self.relative_margin is not None


def _kinds(kinds: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"``{name}``: {what}." for name, what in kinds)


class FinetuneSection(Section):
    """[finetune]: training of the sparse vectors on queries with relevant documents."""

    data: RetrievalName
    """Judged queries: a collection's folder or name, or training data (docs/data.md): a .tsv, .jsonl or .parquet
    file of pairs, triples, or tuples with a teacher's scores, or two columns of a dataset,
    ``datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT``."""

    split: str = "train"
    """Judgements to train on (``qrels/SPLIT.tsv``); a file has no splits."""

    query_encoder: QueryEncoderName = Field(
        default="source",
        description=f"How queries are encoded. {_kinds(QUERY_ENCODERS.items())} With a table a query has one weight "
        "for each distinct token and needs no model.",
    )

    activation: Activation = "source"
    """How logits become weights. ``source``: as in the model. ``log1p``: log(1 + ReLU(x)). ``log1p_log1p``: log(1 +
    log(1 + ReLU(x))), which makes large weights smaller (arXiv:2504.14839)."""

    loss: Annotated[tuple[LossName, ...], OneOrMore(LossName), Field(min_length=1)] = Field(
        default=("infonce",),
        description=f"{_kinds((name, loss.what) for name, loss in LOSSES.items())} A list: their sum. All "
        "that mention a teacher learn from ``teachers``.",
    )

    loss_weights: tuple[PositiveFloat, ...] = ()
    """Weight of each loss of a list, in the same order. Default: 1 each."""

    infonce_scale: PositiveFloat = 1.0
    """``infonce``: factor on the scores inside the softmax (the inverse of the temperature)."""

    teacher_scale: PositiveFloat | None = None
    """Factor on the teacher's scores in losses over a query's relevant document and its hard negatives, which brings
    them to the size of the encoder's. Default: by the kind of teacher; 1 for cross-encoders, sparse encoders, BM25 and
    the scores of a file, 20 for cosines, and 5 for the mean of several teachers, which is in standard deviations."""

    query_penalty: Annotated[tuple[PenaltyName, ...], OneOrMore(PenaltyName)] = Field(
        default=("flops",),
        description="What keeps queries sparse. "
        + _kinds((name, f"{kind.what}; λ_q {kind.query:g}, λ_d {kind.document:g}") for name, kind in PENALTIES.items())
        + " A list: all of them; an empty one: none.",
    )

    document_penalty: Annotated[tuple[PenaltyName, ...], OneOrMore(PenaltyName)] = ("flops",)
    """Penalties that keep documents sparse; as ``query_penalty``."""

    query_lambda: Annotated[tuple[NonNegativeFloat, ...], OneOrMore(float)] = ()
    """λ_q, the strength of ``query_penalty`` once the ramp is over; of several penalties a list in the same order.
    Default: the λ_q of each."""

    document_lambda: Annotated[tuple[NonNegativeFloat, ...], OneOrMore(float)] = ()
    """λ_d, the same for ``document_penalty``. Default: the λ_d of each."""

    flops_definition: FlopsDefinition = "batch"
    """How ``flops`` and ``cased`` combine relevant documents and hard negatives; a λ_d from elsewhere depends on it.
    ``batch``: of all documents of the batch (sentence-transformers). ``splade``: the mean of the penalty of the
    relevant documents and that of the negatives (SPLADE's code). ``cai``: their sum (CAI's code)."""

    ramp: Ramp = 0.33
    """Share of the steps over which the penalties rise quadratically to full strength."""

    target_active: TargetActive | None = None
    """Active dimensions of queries and documents to reach by the end, as in ``{query = 30, document = 150}``. λ of the
    side's first penalty is then found while training, and ``ramp`` is the share of the steps over which the target is
    approached."""

    teachers: tuple[Annotated[str, Names("model", (BM25,))], ...] = ()
    """Hub ids or folders of dense or sparse sentence-transformers models or cross-encoders; ``bm25`` is BM25 over the
    documents. With several teachers, their scores are averaged, each in standard deviations of that teacher's scores
    for the query. Default: BM25, unless ``data`` or ``scores`` have scores."""

    scores: tuple[RankingsName, ...] = ()
    """Files with a teacher's scores for documents of ``data``, named by ids (docs/data.md): .parquet with a query id,
    document ids and scores, or triplets with a margin; ColBERT's lines; TREC runs. Only scored documents are then
    trained on."""

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

    validation: FinetuneValidation | None = None

    @property
    def losses(self) -> dict[LossName, float]:
        """The losses that are summed -> their weights."""
        return dict(zip(self.loss, self.loss_weights or (1.0,) * len(self.loss), strict=True))

    @property
    def fixed_queries(self) -> bool:
        """Whether queries go through a table that is not trained."""
        return self.query_encoder in ("binary", "idf")

    @property
    def learns(self) -> set[str]:
        """The targets of its losses (:attr:`Loss.learns`)."""
        return {LOSSES[name].learns for name in self.loss}

    def penalties(self, side: Side) -> dict[PenaltyName, float]:
        """The penalties on a side -> λ; none on queries that nothing can make sparser."""
        names, given = getattr(self, f"{side}_penalty"), getattr(self, f"{side}_lambda")
        if side == "query" and self.fixed_queries:
            return {}
        return dict(zip(names, given or (getattr(PENALTIES[name], side) for name in names), strict=False))

    def target(self, side: Side) -> float | None:
        """Active dimensions that a side is to end with, where that is said."""
        target: float | None = getattr(self.target_active, side, None)
        return target

    @property
    def taught(self) -> bool:
        """Whether one of its losses learns a teacher's scores."""
        return self.learns != {"judgements"}

    @property
    def asks_bm25(self) -> bool:
        """Whether BM25 finds negatives or teaches, for which the language counts."""
        finds = self.hard_negatives > 0 and BM25 in self.mining.rankings
        return finds or (self.taught and (BM25 in self.teachers or not self.teachers))

    @property
    def settings_read(self) -> set[str]:
        """Dotted paths of the settings that its losses, penalties and query encoder read; the others have no effect."""
        without_effect = {
            "mining": True,  # its settings are read one by one
            "infonce_scale": "judgements" not in self.learns,
            "teacher_scale": "own" not in self.learns,
            "teachers": not self.taught,
            "scores": not self.taught,
            "query_penalty": self.fixed_queries,
            "flops_definition": not any(PENALTIES[name].split for name in self.penalties("document")),
        }
        names = {name for name in type(self).model_fields if not without_effect.get(name, False)}
        if self.hard_negatives:
            names |= {f"mining.{setting}" for setting in MiningSection.model_fields}
        for side in SIDES:
            if len(self.penalties(side)) <= (self.target(side) is not None):  # whose λ is found
                names -= {f"{side}_lambda"}
        names |= {f"target_active.{side}" for side in SIDES if self.target_active is not None}
        if self.validation is not None:
            names |= {f"validation.{setting}" for setting in FinetuneValidation.model_fields}
        return {f"finetune.{name}" for name in names}

    def _faults(self) -> Iterator[str]:
        for setting in ("loss", "query_penalty", "document_penalty"):
            if len(set(getattr(self, setting))) < len(getattr(self, setting)):
                yield f"{setting} lists something twice"
        if self.loss_weights and len(self.loss_weights) != len(self.loss):
            yield f"loss_weights has {len(self.loss_weights)} numbers for {len(self.loss)} losses: give one for each"
        comparing = [name for name in self.loss if LOSSES[name].learns == "own"]
        if comparing and not self.hard_negatives:
            yield (
                f"the loss {' + '.join(comparing)} compares a query's relevant document with its hard negatives: set "
                "finetune.hard_negatives to 1 or more"
            )
        for side in SIDES:
            names, strengths = getattr(self, f"{side}_penalty"), getattr(self, f"{side}_lambda")
            if names and strengths and len(strengths) != len(names):
                yield f"{side}_lambda has {len(strengths)} numbers for {len(names)} penalties: give one for each"
            target = self.target(side)
            if target is None:
                continue
            if side == "query" and self.fixed_queries:
                yield (
                    f"target_active.query: with query_encoder {self.query_encoder} a query always has one dimension "
                    "for each distinct token. Remove it"
                )
            elif not names or PENALTIES[names[0]].only_cased:
                why = f"{names[0]} concerns only some dimensions" if names else "there is none"
                yield f"target_active.{side} is reached by the first penalty of finetune.{side}_penalty, but {why}"
            elif (spared := PENALTIES[names[0]].spares.get(side, 0)) >= target:
                yield (
                    f"{names[0]} penalises no text with {spared} active dimensions or fewer, but "
                    f'target_active.{side} is {target:g}: set {side}_penalty to "flops"'
                )
        if self.validation is not None and self.validation.split == self.split:
            yield f'validation.queries is "{self.split}", which is trained on: name other judgements, or a share'
        if self.mining.rounds > 1 and not self.hard_negatives:
            yield "mining.rounds needs hard negatives: set finetune.hard_negatives to 1 or more"
        if self.hard_negatives and not (self.mining.rankings or self.mining.files):
            yield "mining has no source of hard negatives: name rankings or files there, or set hard_negatives to 0"
        if self.mining.range_min >= self.mining.depth:
            yield "mining.range_min leaves out all documents of mining.depth: lower it, or raise depth"
        if self.mining.files and self.mining.has_margins:
            yield "mining.files lack the scores that a margin compares: remove the files or the margins"
