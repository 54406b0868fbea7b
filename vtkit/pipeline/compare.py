"""Comparison of runs: different settings, results, and the tokens by which queries were won and lost."""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtkit.data.retrieval import RetrievalSet
from vtkit.evaluation.comparison import compared
from vtkit.evaluation.judging import PER_QUERY, Evaluated, EvaluateResult, Judged, read_per_query
from vtkit.pipeline.folder import RESOLVED, RunFolder, open_run, report_of
from vtkit.pipeline.steps.texts import collection_of, evaluation_sets
from vtkit.pipeline.steps.write_report import REPORT
from vtkit.pipeline.store import read_manifest, result_of
from vtkit.recipe.load import dotted
from vtkit.report.compared import Beside, ComparedRuns, ComparedSet, Line, QueryDifference, TokenDifference
from vtkit.report.data import ReportData
from vtkit.report.wording import is_number
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import DataError, RecipeError, VtkitError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from vtkit.search.searcher import Searcher

TOKENS_SHOWN = 6  # that made most of the difference, of each query


@dataclass(frozen=True)
class QueryFilter:
    """The queries that are compared."""

    fewest_words: int = 0
    most_words: int | None = None
    split: bool = False  # only queries with a word that the first run's source vocabulary cuts into several tokens

    def passes(self, text: str, tokenizer: PreTrainedTokenizerFast | None) -> bool:
        """Whether a query is compared; ``tokenizer`` is that of the source if :attr:`split`."""
        words = text.split()
        if len(words) < self.fewest_words or (self.most_words is not None and len(words) > self.most_words):
            return False
        return tokenizer is None or any(len(tokenizer.tokenize(word)) > 1 for word in words)


@dataclass(frozen=True)
class _Opened:
    """A run that is compared."""

    folder: Path
    name: str
    run: RunFolder
    judged: str  # the model whose results are compared

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """Its recipe, with every setting."""
        path, remedy = self.folder / RESOLVED, "Run its recipe again: vtkit run RECIPE."
        try:
            return tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError as error:
            raise VtkitError(f"{path} is missing. {remedy}") from error
        except ValueError as error:
            raise DataError(f"{path} is damaged ({error}). {remedy}") from error

    @cached_property
    def sets(self) -> Mapping[str, Evaluated]:
        """Its results on each evaluation set."""
        return result_of(self.run.steps[f"evaluate:{self.judged}"], EvaluateResult).sets


def compare_runs(
    folders: Sequence[Path], *, model: str | None = None, queries: int = 5, only: QueryFilter | None = None
) -> tuple[ComparedRuns, dict[str, ReportData]]:
    """Compare runs, with the store beside them, with the first of them; the second value holds their reports by name.

    Args:
        model: the stage whose results are compared; default: the index to be used, else the final model.
        queries: how many of the queries won and lost are explained, for which the runs' models are loaded.
    """
    if len(folders) < 2:
        raise RecipeError("Name at least two runs to compare.")
    if len({os.path.realpath(folder) for folder in folders}) < len(folders):
        raise RecipeError("A run is named twice. Name different runs to compare.")
    opened = [open_run(folder) for folder in folders]
    names = [folder.absolute().name for folder in folders]
    names = names if len(set(names)) == len(names) else [str(folder) for folder in folders]
    judged = [_judged_model(run, model) for run in opened]
    runs = [_Opened(*each) for each in zip(folders, names, opened, judged, strict=True)]
    notes, reports = list[str](), dict[str, ReportData]()
    for each in runs:
        try:
            if (report := report_of(each.folder)) is not None:
                reports[each.name] = report
        except VtkitError as error:
            notes.append(f"{each.name}: {error}")
    read = set[str]().union(*(_settings_read(each.run) for each in runs))
    settings = [
        line
        for line in differing([dict(dotted(each.recipe)) for each in runs])
        if any(f"{line.name}.".startswith(f"{setting}.") for setting in read)
    ]
    figures = differing([_figures(each.run, reports.get(each.name)) for each in runs], equal=True)
    sets = dict.fromkeys(name for each in runs for name in each.sets)
    compared_sets = tuple(_compare_set(name, runs, model, queries, only or QueryFilter()) for name in sets)
    lines = tuple(settings), tuple(figures)
    return ComparedRuns(tuple(names), tuple(judged), *lines, compared_sets, tuple(notes)), reports


def _judged_model(run: RunFolder, model: str | None) -> str:
    there = [step.removeprefix("evaluate:") for step in run.steps if step.startswith("evaluate:")]
    wanted = [model] if model is not None else ["deployed", run.final_model]
    if found := [name for name in wanted if name in there]:
        return found[0]
    raise VtkitError(
        f"{run.folder} has no results for {' or '.join(wanted)}. "
        + (f"Choose another with --model: {', '.join(there)}." if there else "Run its recipe to the end.")
    )


def differing(runs: Sequence[Mapping[str, Any]], *, equal: bool = False) -> list[Line]:
    """The settings or figures that are not the same in all runs, each with its value in every one; ``equal`` adds those
    that are."""
    names = dict.fromkeys(name for run in runs for name in run)
    lines = (Line(name, tuple(run.get(name) for run in runs)) for name in names)
    return [line for line in lines if equal or any(value != line.values[0] for value in line.values)]


def _settings_read(run: RunFolder) -> set[str]:
    """The settings that the stages of a run read, by its manifests, and the names of their texts and files."""
    read = {"recipe.seed", "source.recipe"}
    for name, folder in run.steps.items():
        if "/" not in name and name != REPORT.name:  # the report quotes the whole recipe
            manifest = read_manifest(folder) or {}
            read |= {re.split(r"[ \[]", key)[0] for part in ("settings", "files") for key in manifest.get(part, ())}
    return read - {""}


def _figures(run: RunFolder, report: ReportData | None) -> dict[str, Any]:
    """The numbers of a report by their names in ``report.json``: vocabulary, calibration, cost, seconds, and the last
    value of each curve; and the cost of the final encoder on each set."""
    figures = dict[str, Any]()
    if report is not None:
        written = report.to_json()
        parts = {name: written[name] or {} for name in ("vocabulary", "calibration", "cost")}
        for side in ("documents", "queries") if report.vocabularies is not None else ():
            cut = (written["vocabularies"]["target"] or {}).get(side) or {}
            parts["vocabulary"][f"tokens_per_word, {side}"] = cut.get("tokens_per_word")
        seconds = Counter[str]()
        for step, took in report.seconds.items():
            seconds[step.partition(":")[0]] += took or 0.0  # type: ignore[assignment]
        ends = {
            f"{stage}: {name} at the end": values[-1]
            for stage, curves in report.curves.items()
            for name, values in curves.items()
            if values and name != "steps"
        }
        numbers = {**dict(dotted(parts)), **ends, **{f"seconds.{stage}": took for stage, took in seconds.items()}}
        figures = {**numbers, "seconds": float(seconds.total())}
    evaluated = run.steps.get(f"evaluate:{run.final_model}")
    for name, of in (result_of(evaluated, EvaluateResult).sets if evaluated is not None else {}).items():
        for field in ("query_dimensions", "document_dimensions", "flops"):
            figures[f"{field}, {name}"] = getattr(of, field)
    return {name: round(value, 4) for name, value in figures.items() if is_number(value)}


def per_query(run: RunFolder, model: str, folder: str) -> dict[str, dict[str, float]] | None:
    """Measure -> query -> value of one model on one evaluation set; None if it was not evaluated there."""
    place = run.steps[f"evaluate:{model}"] / folder
    return read_per_query(place) if (place / PER_QUERY).is_file() else None


def _compare_set(
    name: str, runs: Sequence[_Opened], model: str | None, explained: int, only: QueryFilter
) -> ComparedSet:
    from vtkit.pipeline.search import open_searcher

    stage = None if model == "deployed" else model  # whose index is searched; None: the index to be used
    values = [value for each in runs if (value := per_query(each.run, each.judged, name)) is not None]
    if len(values) < len(runs):
        return ComparedSet(name, 0, (), (), (), not_compared="not every run was evaluated on it")
    measures = [measure for measure in values[0] if all(measure in each for each in values)]
    asked = [set(each[measures[0]]) for each in values] if measures else []
    if not measures or any(queries != asked[0] for queries in asked):
        reason = "the runs were evaluated on different queries or by different measures"
        return ComparedSet(name, 0, (), (), (), not_compared=reason)
    kept, baseline = asked[0], runs[0]
    if only != QueryFilter() or explained:
        try:
            recipe = Recipe.model_validate(baseline.recipe)
        except ValueError as error:
            path = baseline.folder / RESOLVED
            raise DataError(f"{path} cannot be read by this version of vtkit ({error}).") from error
        collection = collection_of(next(of for of in evaluation_sets(recipe) if of.folder == name)).whole
        texts = {query.id: query.text for query in collection.queries if query.id in kept}
        tokenizer = _source_tokenizer(baseline) if only.split else None
        kept = {query for query, text in texts.items() if only.passes(text, tokenizer)}
    if not kept:
        return ComparedSet(name, 0, tuple(measures), (), (), not_compared="no query passes the filters")

    judged = {}
    for each, of_run in zip(runs, values, strict=True):
        of_kept = {measure: {q: value for q, value in of_run[measure].items() if q in kept} for measure in measures}
        means = {measure: sum(of.values()) / len(kept) for measure, of in of_kept.items()}
        evaluated = replace(each.sets[name], queries=len(kept), measures=means, not_comparable=())
        judged[each.name] = Judged(evaluated, {}, of_kept)
    cells = compared(judged, name, measures, baseline.name, "holm")
    beside, searcher, not_explained = [], None, ""
    before = judged[baseline.name].per_query[measures[0]]
    for each in runs[1:]:
        after = judged[each.name].per_query[measures[0]]
        order = sorted(kept, key=lambda query: (before[query] - after[query], query))  # the largest gain first
        won, lost = ([q for q in order if after[q] > before[q]], [q for q in order[::-1] if after[q] < before[q]])
        differences: list[tuple[QueryDifference, ...]] = [(), ()]
        if explained and won + lost:
            try:
                searcher = searcher or open_searcher(baseline.folder, model=stage, collection=name)
                searchers = searcher, open_searcher(each.folder, model=stage, collection=name)
                differences = [
                    tuple(_difference(q, before[q], after[q], collection, searchers) for q in some[:explained])
                    for some in (won, lost)
                ]
            except VtkitError as error:
                not_explained = str(error)
        beside.append(Beside(each.name, len(won), len(lost), *differences))
    return ComparedSet(name, len(kept), tuple(measures), tuple(cells), tuple(beside), not_explained=not_explained)


def _source_tokenizer(baseline: _Opened) -> PreTrainedTokenizerFast:
    from vtkit.encoder.checkpoint import load_source_tokenizer

    source = baseline.run.models.get("source")
    if source is None:
        raise VtkitError(f"{baseline.folder} has no source model whose vocabulary splits words: leave out --split.")
    return load_source_tokenizer(source)


def _difference(
    query: str, before: float, after: float, collection: RetrievalSet, searchers: Sequence[Searcher]
) -> QueryDifference:
    text = next(each.text for each in collection.queries if each.id == query)
    grades = collection.qrels[query]
    document = max(sorted(grades), key=lambda each: grades[each])
    explanations = [searcher.explain(text, document) for searcher in searchers]
    parts: list[dict[str, float]] = []
    for each in explanations:
        own = {token.token: token.product for token in each.tokens}
        special = sum(token.product for token in each.special_tokens)
        parts.append(own | ({"special tokens": special} if special else {}))
    left, right = parts
    names = left | right
    tokens = [TokenDifference(name, round(left.get(name, 0.0), 4), round(right.get(name, 0.0), 4)) for name in names]
    tokens.sort(key=lambda each: -abs(each.after - each.before))
    ranks = (explanations[0].rank, explanations[1].rank)
    return QueryDifference(query, text, before, after, document, ranks, tuple(tokens[:TOKENS_SHOWN]))
