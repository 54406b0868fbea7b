"""[adapt] of a recipe: training without judgements, a table for each objective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from vtkit.settings.finetune import TargetActive, TaughtLoss
from vtkit.settings.types import (
    CorpusName,
    LearningRate,
    ModelName,
    Names,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    Share,
    Steps,
)

Objective = Literal["crop", "align", "distill"]  # objectives of adaptation that train the sparse vectors themselves


class DistillSection(Section):
    """[adapt.distill]: learning the scores of ``teachers`` for queries and documents of the corpus."""

    loss: TaughtLoss | None = None
    """A loss of ``finetune.loss`` that learns a teacher's scores, of a query's two candidates (``margin_mse``, as in
    GPL, arXiv:2112.07577) or of all documents of the batch (``listwise``, with half as much InfoNCE of the query's own
    document). Default: ``margin_mse`` with a cross-encoder, which scores only a query's own candidates, else
    ``listwise``."""

    queries: Annotated[str, Names("model", ("crops", "openings"))] = "crops"
    """``crops``: spans of documents, as for ``crop``. ``openings``: titles or first sentences, which are removed from
    the documents. All else: a sequence-to-sequence model that writes three queries for each document (docT5query, GPL),
    hub id or folder, such as ``doc2query/msmarco-t5-base-v1`` or one of the multilingual mT5 models."""

    mining: tuple[ModelName, ...] = ()
    """Dense or sparse models. The second candidate of each query, beside its own document, is sampled from their best
    results and BM25's (GPL mines with two)."""


class AdaptSection(Section):
    """[adapt]: training in the new vocabulary without judgements."""

    objective: (
        Literal["auto", "mlm", "sap", "crop", "align", "distill"]
        | Annotated[tuple[Objective, ...], Field(min_length=1)]
    ) = "auto"
    """``crop``: find a document by a span of it. ``align``: reproduce the source encoder's scores of sentences, on the
    parallel text of the transfer. ``distill``: reproduce a teacher's scores. A list of these trains on all of them at
    each step. ``mlm``: predict masked tokens; for masked language models only, since an encoder that has learned
    retrieval loses it. ``sap``: reproduce a teacher's vectors over the same output vocabulary (squared error on the
    dimensions where either is positive; MILCO). ``auto``: chosen by the kind of source and the available text
    (docs/training.md)."""

    corpus: tuple[CorpusName, ...] = ()
    """Text in the language or domain to search in. Default: the fine-tuning documents, else the evaluation
    documents."""

    train: Literal["embeddings", "head", "all"] | None = None
    """``embeddings``: only embeddings, decoder and its bias are trained, and the transformer is frozen (the
    vocabulary-transfer paper). ``head``: only what follows the transformer is trained, such as a fitted head or units;
    no gradient goes through the transformer. ``all``: everything is trained (AdaLM; a scratch source). Default:
    ``embeddings`` for ``mlm`` and ``sap``, ``all`` for the others."""

    steps: Steps = 400
    """Optimiser steps."""

    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 32
    """Texts, pairs or queries in each step, for each objective."""

    max_length: PositiveInt = 128
    """Texts are cut at this many tokens."""

    flops: NonNegativeFloat = 1e-3
    """``crop``, ``align``, ``distill``: λ of the FLOPS penalties on queries and documents, which rises over a third of
    the steps."""

    target_active: TargetActive | None = None
    """``crop``, ``align``, ``distill``: active dimensions of queries and documents to reach by the end, as in ``{query
    = 30, document = 150}``, instead of ``flops``. λ is then found while training, and the target approached over the
    first third of the steps."""

    teachers: tuple[ModelName, ...] = ()
    """``distill``: hub ids or folders of dense or sparse sentence-transformers models or cross-encoders. BM25 over the
    corpus teaches too, unless a cross-encoder does. With several teachers, their scores are averaged, each in standard
    deviations of that teacher's scores for the query. Default: BM25 alone, together with the embedder for a fitted head
    or units ([source.head], [source.units]). ``sap``: one sparse encoder over the target's output vocabulary."""

    mask_rate: Share = 0.3
    """``mlm``: expected share of the tokens of each text that are masked."""

    new_token_weight: PositiveFloat = 2.0
    """``mlm``: how many times likelier a new token is masked than one shared with the source (λ of the paper)."""

    learning_rate: LearningRate = 1e-4
    """Peak of the cosine schedule."""

    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps over which the learning rate rises."""

    checkpoint_every: Steps = 200
    """Steps between checkpoints; an interrupted run continues from the last one."""

    distill: DistillSection = DistillSection()

    @property
    def objectives(self) -> tuple[str, ...]:
        """The objectives that it names; ``auto`` is one of these."""
        return self.objective if isinstance(self.objective, tuple) else (self.objective,)

    def _faults(self) -> Iterator[str]:
        distill = self.distill
        if self.objective == "sap" and len(self.teachers) != 1:
            yield f'objective "sap" has one teacher, not {len(self.teachers)}: name it in teachers'
        if len(set(self.objectives)) < len(self.objectives):
            yield "an objective is listed twice"
        if {"crop", "distill"} <= set(self.objectives):
            yield '"distill" also learns from spans: remove "crop" from the list'
        if distill.queries == "generated":
            yield "distill.queries names the model that writes them"
