"""[adapt] of a recipe: training without judgements, a table for each objective."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from vtkit.settings.finetune import SIDES, Reporter, TargetActive
from vtkit.settings.types import (
    CorpusName,
    LearningRate,
    ModelName,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    Share,
    Steps,
)

Objective = Literal["crop", "align", "distill"]
"""Objectives of adaptation that train the sparse vectors themselves."""


class GeneratorSection(Section):
    """[adapt.distill.generator]: a sequence-to-sequence model that writes queries of documents (docT5query, GPL)."""

    model: ModelName | None = None
    """Hub id or folder, such as ``doc2query/msmarco-t5-base-v1`` or one of the mT5 models for other languages."""

    prompt: str = ""
    """Put before each document; what the model was trained with, such as ``"text2query: "``."""

    queries: Annotated[int, Field(ge=1, le=100)] = 3
    """Queries a document."""


class DistillSection(Section):
    """[adapt.distill]: a teacher's scores of queries and documents of the corpus."""

    teachers: tuple[ModelName, ...] = ()
    """Hub ids or folders of dense or sparse sentence-transformers models or cross-encoders. Of several teachers the
    mean counts, each score in standard deviations of that teacher's scores of the query. Default: BM25 alone; with it
    the embedder that a head or units were fitted to ([source.head], [source.units])."""

    bm25: bool | None = None
    """BM25 over the corpus is a teacher too. Default: unless a cross-encoder teaches."""

    loss: Literal["listwise", "margin_mse"] | None = None
    """``margin_mse``: the squared error of the margins between a query's first candidate and its others against the
    teacher's margins (GPL, arXiv:2112.07577). ``listwise``: the divergence from the teacher's distribution over all
    documents of the batch that it was asked about. Default: ``margin_mse`` where a cross-encoder teaches, which is
    asked about a query's own candidates only, ``listwise`` elsewhere."""

    queries: Literal["crops", "openings", "generated"] = "crops"
    """``crops``: spans of documents, as of ``crop``. ``openings``: their titles or first sentences, which are then
    removed from the documents. ``generated``: what ``generator`` writes of the documents."""

    generator: GeneratorSection = GeneratorSection()

    query_corpus: tuple[CorpusName, ...] = ()
    """Queries without judgements, such as those of a search log, instead of ``queries``."""

    candidates: Annotated[int, Field(ge=1, le=1000)] = 2
    """Documents a query: its own and further ones sampled from those that BM25 and ``mining`` find; all of them for
    ``query_corpus``."""

    mining: tuple[ModelName, ...] = ()
    """Dense or sparse models whose best documents are candidates too, beside BM25's (GPL mines with two)."""

    @property
    def generates(self) -> bool:
        """Whether its queries are written by a model."""
        return self.queries == "generated" and not self.query_corpus


class AdaptSection(Section):
    """[adapt]: training in the new vocabulary without judgements."""

    objective: Literal["auto", "mlm", "sap"] | Objective | Annotated[tuple[Objective, ...], Field(min_length=1)] = (
        "auto"
    )
    """What is learned. ``crop``: to find a document by a span of it. ``align``: the source encoder's scores of
    sentences, on parallel text. ``distill``: a teacher's scores. A list of these trains on all of them at each step.
    ``mlm``: to predict masked tokens; for masked language models, since an encoder that has learned retrieval loses
    it. ``sap``: a teacher's vectors over the same output vocabulary (squared error on the dimensions where either is
    positive; MILCO). ``auto``: chosen by the kind of source and the text given (docs/training.md)."""

    corpus: tuple[CorpusName, ...] = ()
    """Text of the language or domain searched in. Default: the fine-tuning documents, else the evaluation documents."""

    train: Literal["embeddings", "head", "all"] | None = None
    """``embeddings``: the transformer is frozen and only embeddings, decoder and its bias learn (the
    vocabulary-transfer paper). ``head``: only what stands behind the transformer learns, such as a fitted head or
    units, so that no gradient goes through it. ``all``: everything learns (AdaLM; a scratch source). Default:
    ``embeddings`` for ``mlm`` and ``sap``, ``all`` for the others."""

    steps: Steps = 400
    """Optimiser steps."""

    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 32
    """Texts, pairs or queries a step, of each objective."""

    max_length: PositiveInt = 128
    """Tokens a text is cut at."""

    flops: NonNegativeFloat = 1e-3
    """``crop``, ``align``, ``distill``: λ of the FLOPS penalties on queries and documents, which rises over a
    third of the steps."""

    target_active: TargetActive | None = None
    """``crop``, ``align``, ``distill``: active dimensions of queries and documents to end with, as in ``{query = 30,
    document = 150}``, instead of ``flops``: λ is found while training, and the aim approached over the first third
    of the steps."""

    teacher: ModelName | None = None
    """``sap``: hub id or folder of a sparse encoder over the target's output vocabulary."""

    mask_rate: Share = 0.3
    """``mlm``: expected share of the tokens of each text that is masked."""

    new_token_weight: PositiveFloat = 2.0
    """``mlm``: how many times likelier a new token is masked than one shared with the source (λ of the paper)."""

    prior: Literal["none", "unigram"] | None = None
    """``mlm``: ``unigram`` adds the log frequency of each token in the corpus to its logit inside the softmax, so that
    what is merely common is not written into rows and bias, which a sparse encoder takes for term weights (logit
    adjustment, arXiv:2007.07314). Default: ``unigram`` for encoders that have learned to retrieve, ``none`` for masked
    language models, whose bias holds the frequencies already."""

    learning_rate: LearningRate = 1e-4
    """Peak of the cosine schedule."""

    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps over which the learning rate rises."""

    checkpoint_every: Steps = 200
    """Steps between checkpoints; a killed run continues from the last."""

    report_to: tuple[Reporter, ...] = ()
    """Programs that show the curves while training goes on: ``tensorboard``, ``wandb`` (offline without --download)."""

    distill: DistillSection = DistillSection()

    @property
    def objectives(self) -> tuple[str, ...]:
        """The objectives that it names; ``auto`` is one of these."""
        return self.objective if isinstance(self.objective, tuple) else (self.objective,)

    @property
    def settings_read(self) -> set[str]:
        """Dotted paths of the settings that its objectives read; the others have no effect."""
        own = set(type(self).model_fields) - {"distill"}
        masked = {"mask_rate", "new_token_weight", "prior"}
        sparse = {"flops", "target_active"}
        objectives = set(self.objectives)
        tables: set[str] = set()
        if "auto" in objectives:
            objectives |= {"mlm", "crop", "align"}
        if not objectives & {"mlm"}:
            own -= masked
        if not objectives & {"sap"}:
            own -= {"teacher"}
        if not objectives & {"crop", "align", "distill"}:
            own -= sparse
        elif self.target_active is not None:
            tables |= {f"target_active.{side}" for side in SIDES}
        if "distill" in objectives:
            tables |= {f"distill.{setting}" for setting in DistillSection.model_fields}
            if self.distill.generates:
                tables |= {f"distill.generator.{setting}" for setting in GeneratorSection.model_fields}
        return {f"adapt.{name}" for name in own | tables}

    @model_validator(mode="after")
    def _objective_has_its_teacher(self) -> AdaptSection:
        if (self.objective == "sap") != (self.teacher is not None):
            raise ValueError('objective "sap" and the setting teacher belong together: give both or neither')
        if len(set(self.objectives)) < len(self.objectives):
            raise ValueError("an objective is listed twice")
        if {"crop", "distill"} <= set(self.objectives):
            raise ValueError('"distill" learns from spans too: leave "crop" out of the list')
        if not self.distill.teachers and self.distill.bm25 is False:
            raise ValueError("distill.bm25 = false leaves no teacher: name one in distill.teachers")
        if self.distill.loss == "margin_mse" and self.distill.candidates < 2:
            raise ValueError("distill.loss margin_mse compares candidates: set distill.candidates to 2 or more")
        if self.distill.queries == "generated" and self.distill.generator.model is None:
            raise ValueError('distill.queries = "generated" takes a model that writes them: distill.generator.model')
        return self
