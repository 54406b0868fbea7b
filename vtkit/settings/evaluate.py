"""[evaluate] of a recipe."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from vtkit.settings.index import DocumentWeighting, Lexical
from vtkit.settings.named import is_local
from vtkit.settings.types import ModelName, Occurrences, RetrievalName, Section

_LISTED = {"sets": "collection", "weightings": "weighting", "lexical": "lexical part", "peers": "peer"}
"""List of [evaluate] -> what stands in it."""


class EvaluateSection(Section):
    """[evaluate]: what the run is judged on, before and after each stage that changes the model."""

    sets: Annotated[tuple[RetrievalName, ...], Field(min_length=1)]
    """Folders of collections, or names such as "miracl:ko" and "ir_datasets:beir/scifact/test" (docs/data.md)."""

    split: str | None = None
    """Which judgements to use (``qrels/SPLIT.tsv``). Default: a public collection's first, else "test"."""

    measures: Annotated[tuple[str, ...], Field(min_length=1)] = ("nDCG@10", "R@100", "RR@10")
    """ir_measures names."""

    depth: Annotated[int, Field(ge=10, le=10_000)] = 1000
    """Results a query."""

    max_queries: Occurrences | None = None
    """Judge only so many queries, sampled with the seed. Default: all."""

    models: Annotated[
        tuple[Literal["source", "transfer", "adapt", "calibrate", "finetune", "query-table"], ...], Field(min_length=1)
    ] = ("source", "transfer", "adapt", "calibrate", "finetune", "query-table")
    """Which stages' models to judge; those the recipe does not build are skipped."""

    bm25: bool = True
    """Judge BM25 too, with ``index.bm25_analyser`` and over plain words, and its sum with the final model
    (docs/evaluation.md)."""

    weightings: tuple[DocumentWeighting, ...] = ()
    """Judge the final model under these ``index.document_weighting`` too; nothing is encoded again."""

    lexical: tuple[Lexical, ...] = ()
    """Judge the final model with these ``index.lexical`` too, each under each weighting."""

    peers: tuple[ModelName, ...] = ()
    """Dense embedders (folders or hub ids of sentence-transformers models) that could be used instead, judged beside
    the encoders. Each encodes with its own prompts and up to its own length, is searched exactly, and is summed
    with BM25 too."""

    @field_validator("sets", "weightings", "lexical", "peers")
    @classmethod
    def _nothing_twice(cls, listed: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        names: dict[str, str] = {}
        for name in listed:
            same = os.path.realpath(name) if info.field_name in ("sets", "peers") and is_local(name) else name
            if same in names:
                other = "" if names[same] == name else f" (also called {names[same]})"
                what = _LISTED[str(info.field_name)]
                raise ValueError(f"{name} is listed twice{other}: each {what} is judged once")
            names[same] = name
        return listed
