"""[evaluate] of a recipe."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from vtkit.settings.named import is_local
from vtkit.settings.types import SEED, LanguageCodes, ModelName, Occurrences, PositiveInt, RetrievalName, Section, Seed

Correction = Literal["holm", "bonferroni"]
DEPTH = 1000  # results for each query, as deep as the papers' R@1000 asks for


class EvaluateSection(Section):
    """[evaluate]: evaluation, before and after each stage that changes the model."""

    sets: Annotated[tuple[RetrievalName, ...], Field(min_length=1)]
    """Folders of collections, or names such as "miracl:ko" and "ir_datasets:beir/scifact/test" (docs/data.md)."""

    split: str | None = None
    """Judgements to use (``qrels/SPLIT.tsv``). Default: a public collection's first, else "test"."""

    measures: Annotated[tuple[str, ...], Field(min_length=1)] = ("nDCG@10", "R@100", "RR@10")
    """Measures by their ir_measures names."""

    max_queries: Occurrences | None = None
    """Most queries to evaluate, sampled with the seed. Default: all."""

    ignore_identical_ids: bool = False
    """Leave a document with a query's id out of the query's results and negatives, because it is the query itself.
    Always so in BEIR's and NanoBEIR's ArguAna and Quora; elsewhere ids of both meet by chance."""

    models: Annotated[
        tuple[Literal["source", "transfer", "adapt", "calibrate", "finetune", "query-table"], ...], Field(min_length=1)
    ] = ("source", "transfer", "adapt", "calibrate", "finetune", "query-table")
    """Stages whose models are evaluated; stages that the recipe does not have are skipped."""

    bm25: bool = True
    """Evaluate BM25 too, with ``index.bm25_analyser`` and with plain words, and its sum with the final model
    (docs/evaluation.md)."""

    peers: tuple[ModelName, ...] = ()
    """Dense embedders and multi-vector encoders (folders or hub ids) to compare with. Each encodes with its own
    prompts and maximal length, is searched exactly, and is also summed with BM25."""

    @field_validator("sets", "peers")
    @classmethod
    def _nothing_twice(cls, listed: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        names: dict[str, str] = {}
        for name in listed:
            same = os.path.realpath(name) if is_local(name) else name
            if same in names:
                other = "" if names[same] == name else f" (also called {names[same]})"
                what = "collection" if info.field_name == "sets" else "peer"
                raise ValueError(f"{name} is listed twice{other}: each {what} is evaluated once")
            names[same] = name
        return listed


class ComparisonSettings(Section):
    """Settings of ``vtkit evaluate``, which compares any systems on collections."""

    split: str | None = None
    """Judgements to use. Default: as in recipes, a public collection's first, else "test"."""

    measures: Annotated[tuple[str, ...], Field(min_length=1)] = (
        "nDCG@10",
        "RR@10",
        "R@100",
        "R@1000",
        "AP",
        "Judged@10",
    )
    """Measure by its ir_measures name. May be repeated. Default: nDCG@10, RR@10, R@100, R@1000, AP and Judged@10."""

    baseline: str | None = None
    """System to test the others against. Default: BM25 if it is evaluated, else the first."""

    correction: Correction = "holm"
    """Correction of the p values of several systems on a collection."""

    fusion_queries: str | None = None
    """Judgements whose queries choose the fusion weight of MODEL+bm25; the model must not be trained on them. Default:
    snippets of the documents choose it."""

    query_language: str | None = None
    """Language of the queries, if it is that of the source (en). A run whose transfer had parallel text translates them
    for its deployed index."""

    rerank: ModelName | None = None
    """Cross-encoder that reranks each system, which adds a row for each."""

    rerank_depth: PositiveInt = 100
    """Results per query that `rerank` scores."""

    depth: Annotated[int, Field(ge=1, le=10_000)] = DEPTH
    """Results per query."""

    language: LanguageCodes | None = None
    """Language for BM25, an ISO 639 code, or several: en,ko. Default: detected in the documents of each collection."""

    max_queries: Occurrences | None = None
    """Evaluate a sample of this many queries."""

    seed: Seed = SEED
    """Seed of samples."""

    ignore_identical_ids: bool = False
    """Leave a document with a query's id out of its results: it is the query itself."""
