"""Comparison of runs: different settings, results, and the tokens by which queries were won and lost."""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtkit.data.retrieval import RetrievalSet
from vtkit.evaluation.comparison import compared
from vtkit.evaluation.results import PER_QUERY, PerQuery, SetResults, means, read_per_query
from vtkit.pipeline.folder import RESOLVED, RunFolder, open_run, report_of
from vtkit.pipeline.steps.texts import collection_of, evaluation_sets
from vtkit.pipeline.steps.write_report import REPORT
from vtkit.pipeline.store import read_manifest, result_of
from vtkit.recipe.load import dotted
from vtkit.report.compared import ComparedRuns
from vtkit.report.data import Outcomes, QueryOutcome, ReportData
from vtkit.report.wording import is_number
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import DataError, RecipeError, VtkitError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from vtkit.search.searcher import Searcher

TOKENS_SHOWN = 6  # that made most of the difference, of each query


def compare_runs(
    folders: Sequence[Path],
    *,
    model: str | None = None,
    queries: int = 5,
    min_words: int = 0,
    max_words: int | None = None,
    split: bool = False,
) -> tuple[ComparedRuns, dict[str, ReportData]]:
    """Compare runs, with the store beside them, with the first of them; the second value holds their reports by name.

    Args:
        model: the stage whose results are compared; default: the index to be used, else the final model.
        queries: how many of the queries won and lost are explained, for which the runs' models are loaded.
        min_words, max_words: of the queries that are compared.
        split: compare only queries with a word that the first run's source vocabulary cuts into several tokens.
    """
    if len(folders) < 2:
        raise RecipeError("Name at least two runs to compare.")
    if len({os.path.realpath(folder) for folder in folders}) < len(folders):
        raise RecipeError("A run is named twice. Name different runs to compare.")
    opened = [open_run(folder) for folder in folders]
    names = [folder.absolute().name for folder in folders]
    names = names if len(set(names)) == len(names) else [str(folder) for folder in folders]
    runs, models = dict(zip(names, opened, strict=True)), [_evaluated_model(run, model) for run in opened]
    notes, reports = list[str](), dict[str, ReportData]()
    for name, run in runs.items():
        try:
            if (report := report_of(run.folder)) is not None:
                reports[name] = report
        except VtkitError as error:
            notes.append(f"{name}: {error}")
    recipes = [_recipe(run) for run in opened]
    read = set[str]().union(*map(_settings_read, opened))
    settings = {
        name: values
        for name, values in by_run([dict(dotted(recipe)) for recipe in recipes]).items()
        if any(value != values[0] for value in values) and any(f"{name}.".startswith(f"{setting}.") for setting in read)
    }
    figures = by_run([_figures(run, reports.get(name)) for name, run in runs.items()])
    steps = {name: run.steps[f"evaluate:{of}"] for (name, run), of in zip(runs.items(), models, strict=True)}
    evaluated = {name: result_of(step, dict[str, SetResults]) for name, step in steps.items()}
    sets, outcomes = list[SetResults](), list[Outcomes]()
    not_compared, not_explained = dict[str, str](), dict[str, str]()
    for folder in dict.fromkeys(folder for of_run in evaluated.values() for folder in of_run):
        sets.append(SetResults(set=folder, queries=0))
        values = _common_values({name: step / folder for name, step in steps.items()})
        if isinstance(values, str):
            not_compared[folder] = values
            continue
        kept, collection = set(next(iter(values[names[0]].values()))), None
        if queries or split or min_words or max_words is not None:
            collection = _collection(opened[0].folder, recipes[0], folder)
            tokenizer = _source_tokenizer(opened[0]) if split else None
            texts = {query.id: query.text for query in collection.queries if query.id in kept}
            kept = {query for query, text in texts.items() if _passes(text, min_words, max_words, tokenizer)}
        if not kept:
            not_compared[folder] = "no query passes the filters"
            continue
        values = {
            name: {each: {query: value for query, value in of[each].items() if query in kept} for each in of}
            for name, of in values.items()
        }
        rows = (replace(evaluated[name][folder].rows[0], system=name, measures=means(values[name])) for name in names)
        documents = evaluated[names[0]][folder].documents
        on_set = SetResults(set=folder, rows=tuple(rows), queries=len(kept), documents=documents)
        sets[-1] = compared(on_set, values, names[0], "holm")
        beside, why = _outcomes(folder, values, runs, model, queries, collection)
        outcomes += beside
        not_explained |= {folder: why} if why else {}
    comparison = ComparedRuns(
        runs=tuple(names),
        models=tuple(models),
        settings=settings,
        figures=figures,
        sets=tuple(sets),
        outcomes=tuple(outcomes),
        not_compared=not_compared,
        not_explained=not_explained,
        notes=tuple(notes),
    )
    return comparison, reports


def _recipe(run: RunFolder) -> dict[str, Any]:
    """The recipe of a run, with every setting."""
    path, remedy = run.folder / RESOLVED, "Run its recipe again: vtkit run RECIPE."
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise VtkitError(f"{path} is missing. {remedy}") from error
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}). {remedy}") from error


def _evaluated_model(run: RunFolder, model: str | None) -> str:
    there = [step.removeprefix("evaluate:") for step in run.steps if step.startswith("evaluate:")]
    wanted = [model] if model is not None else ["deployed", run.final_model]
    if found := [name for name in wanted if name in there]:
        return found[0]
    raise VtkitError(
        f"{run.folder} has no results for {' or '.join(wanted)}. "
        + (f"Choose another with --model: {', '.join(there)}." if there else "Run its recipe to the end.")
    )


def by_run(runs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Settings or figures, each with its value in every run; None if a run lacks it."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: tuple(run.get(name) for run in runs) for name in names}


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
    for name, of in (result_of(evaluated, dict[str, SetResults]) if evaluated is not None else {}).items():
        for field in ("query_dimensions", "document_dimensions", "flops"):
            figures[f"{field}, {name}"] = getattr(of.rows[0], field)
    return {name: round(value, 4) for name, value in figures.items() if is_number(value)}


def _common_values(folders: Mapping[str, Path]) -> dict[str, dict[str, dict[str, float]]] | str:
    """Run -> its values by query, of the measures that all runs have; or why the runs cannot be compared."""
    if not all((folder / PER_QUERY).is_file() for folder in folders.values()):
        return "not every run was evaluated on it"
    values = {run: read_per_query(folder) for run, folder in folders.items()}
    first, *others = values.values()
    measures = [measure for measure in first if all(measure in each for each in others)]
    if not measures or any(each[measures[0]].keys() != first[measures[0]].keys() for each in others):
        return "the runs were evaluated on different queries or by different measures"
    return {run: {measure: of[measure] for measure in measures} for run, of in values.items()}


def _collection(folder: Path, recipe: Mapping[str, Any], name: str) -> RetrievalSet:
    try:
        sets = evaluation_sets(Recipe.model_validate(recipe))
    except ValueError as error:
        raise DataError(f"{folder / RESOLVED} cannot be read by this version of vtkit ({error}).") from error
    return collection_of(next(of for of in sets if of.folder == name)).whole


def _source_tokenizer(baseline: RunFolder) -> PreTrainedTokenizerFast:
    from vtkit.encoder.checkpoint import load_source_tokenizer

    source = baseline.models.get("source")
    if source is None:
        raise VtkitError(f"{baseline.folder} has no source model whose vocabulary splits words: leave out --split.")
    return load_source_tokenizer(source)


def _passes(text: str, fewest: int, most: int | None, tokenizer: PreTrainedTokenizerFast | None) -> bool:
    """Whether a query has so many words, and one that ``tokenizer`` splits."""
    words = text.split()
    if len(words) < fewest or (most is not None and len(words) > most):
        return False
    return tokenizer is None or any(len(tokenizer.tokenize(word)) > 1 for word in words)


def _outcomes(
    folder: str,
    values: Mapping[str, PerQuery],
    runs: Mapping[str, RunFolder],
    model: str | None,
    explained: int,
    collection: RetrievalSet | None,
) -> tuple[list[Outcomes], str]:
    """The queries that each run wins and loses on a set beside the first one, by the first measure; and why they are
    not explained."""
    from vtkit.pipeline.search import open_searcher

    stage = None if model == "deployed" else model  # whose index is searched; None: the index to be used
    baseline, *others = values
    of_baseline: Searcher | None = None
    measure = next(iter(values[baseline]))
    before, outcomes, why = values[baseline][measure], list[Outcomes](), ""
    for run in others:
        after = values[run][measure]
        order = sorted(before, key=lambda query: (before[query] - after[query], query))  # the largest gain first
        won, lost = ([q for q in order if after[q] > before[q]], [q for q in order[::-1] if after[q] < before[q]])
        shown: list[tuple[QueryOutcome, ...]] = [(), ()]
        if collection is not None and explained and won + lost:
            try:
                of_baseline = of_baseline or open_searcher(runs[baseline].folder, model=stage, collection=folder)
                searchers = of_baseline, open_searcher(runs[run].folder, model=stage, collection=folder)
                shown = [
                    tuple(_outcome(q, before[q], after[q], collection, searchers) for q in some[:explained])
                    for some in (won, lost)
                ]
            except VtkitError as error:
                why = str(error)
        outcomes.append(Outcomes(folder, measure, run, baseline, len(before), len(won), len(lost), *shown))
    return outcomes, why


def _outcome(
    query: str, before: float, after: float, collection: RetrievalSet, searchers: Sequence[Searcher]
) -> QueryOutcome:
    """A query, with the tokens that change the score of its relevant document most."""
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
    changes = [(name, round(left.get(name, 0.0), 4), round(right.get(name, 0.0), 4)) for name in left | right]
    changes.sort(key=lambda change: -abs(change[2] - change[1]))
    return QueryOutcome(
        query=text,
        value=after,
        baseline=before,
        document=document,
        ranks=(explanations[0].rank, explanations[1].rank),
        changes=tuple(changes[:TOKENS_SHOWN]),
    )
