"""Runs beside each other: what differs in their recipes, what came of it, and which tokens won and lost queries."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtkit.data.retrieval import RetrievalSet
from vtkit.evaluation.comparison import compared
from vtkit.evaluation.judging import PER_QUERY, Evaluated, EvaluateResult, Judged, read_per_query
from vtkit.pipeline.folder import RESOLVED, RunFolder, open_run, report_of
from vtkit.pipeline.steps.encode_corpus import opened
from vtkit.pipeline.steps.texts import evaluation_sets
from vtkit.pipeline.store import result_of
from vtkit.recipe.problems import known_settings
from vtkit.report.compared import Beside, ComparedRuns, ComparedSet, Line, QueryDifference, TokenDifference
from vtkit.report.data import ReportData
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import DataError, RecipeError, VtkitError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from vtkit.search.searcher import Searcher

TOKENS_SHOWN = 6  # that made most of the difference, of each query
NAMES = ("recipe.name", "recipe.about")  # settings that say nothing of what a run does


@dataclass(frozen=True)
class QueryFilter:
    """Which queries count."""

    fewest_words: int = 0
    most_words: int | None = None
    split: bool = False  # only those with a word that the vocabulary of the first run's source cuts into several tokens


def compare_runs(
    folders: Sequence[Path], *, model: str | None = None, queries: int = 5, only: QueryFilter | None = None
) -> ComparedRuns:
    """Compare runs, with the store beside them, with the first of them: the results of the stage ``model``, by default
    of the index to be used, else of the final model. Of the queries won and lost so many are explained, for which the
    runs' models are loaded."""
    if len(folders) < 2:
        raise RecipeError("Name at least two runs to compare.")
    runs = [open_run(folder) for folder in folders]
    names = [folder.absolute().name for folder in folders]
    names = names if len(set(names)) == len(names) else [str(folder) for folder in folders]
    judged = [_judged_model(run, model) for run in runs]
    resolved = [dict(_flat(_written(folder))) for folder in folders]
    reports, notes, recipes, unknown = [], [], [], set()
    for name, folder, run in zip(names, folders, runs, strict=True):
        try:
            reports.append(report_of(folder))
        except VtkitError as error:
            reports.append(None)
            notes.append(f"{name}: {error}")
        recipe, passed_over = _recipe(folder)
        recipes.append(recipe)
        passed_over = list(dict.fromkeys((*run.unknown, *passed_over)))
        unknown.update(passed_over)
        if passed_over:
            notes.append(f"{name}: this version of vtkit does not know and ignores {', '.join(passed_over)}.")
    results = [
        result_of(run.steps[f"evaluate:{of}"], EvaluateResult).sets for run, of in zip(runs, judged, strict=True)
    ]
    sets = []
    for name in dict.fromkeys(name for sets_of_run in results for name in sets_of_run):
        values = [per_query(run, of, name) for run, of in zip(runs, judged, strict=True)]
        sets.append(_compare_set(name, folders, names, results, values, model, queries, only or QueryFilter()))
    settings = [line for line in differing(resolved) if _tells(line, recipes, unknown)]
    figures = [*_figures(runs, reports), *_costs(runs)]
    return ComparedRuns(tuple(names), tuple(judged), tuple(settings), tuple(figures), tuple(sets), tuple(notes))


def reports_of(folders: Sequence[Path], found: ComparedRuns) -> dict[str, ReportData]:
    """The reports that this version can read, by the names of the runs."""
    reports = {}
    for name, folder in zip(found.runs, folders, strict=True):
        with suppress(VtkitError):
            report = report_of(folder)
            if report is not None:
                reports[name] = report
    return reports


def _judged_model(run: RunFolder, model: str | None) -> str:
    there = [step.removeprefix("evaluate:") for step in run.steps if step.startswith("evaluate:")]
    wanted = [model] if model is not None else ["deployed", run.final_model]
    judged = next((name for name in wanted if name in there), None)
    if judged is None:
        raise VtkitError(
            f"{run.folder} has no results for {' or '.join(wanted)}. "
            + (f"Choose another with --model: {', '.join(there)}." if there else "Run its recipe to the end.")
        )
    return judged


def _recipe(folder: Path) -> tuple[Recipe, list[str]]:
    """The recipe of a run, and its settings that this version does not know."""
    try:
        return known_settings(Recipe, _written(folder), values=True)
    except ValueError as error:
        raise DataError(f"{folder / RESOLVED} cannot be read by this version of vtkit ({error}).") from error


def _written(folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((folder / RESOLVED).read_text("utf-8"))
    except FileNotFoundError as error:
        raise VtkitError(f"{folder / RESOLVED} is missing. Run its recipe again: vtkit run RECIPE.") from error
    except ValueError as error:
        raise DataError(f"{folder / RESOLVED} is damaged ({error}). Run its recipe again: vtkit run RECIPE.") from error


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def differing(recipes: Sequence[Mapping[str, Any]]) -> list[Line]:
    """The settings that are not the same in all of some recipes, each with its value in every one; names left out."""
    lines = []
    for setting in dict.fromkeys(name for recipe in recipes for name in recipe):
        values = tuple(recipe.get(setting) for recipe in recipes)
        if setting not in NAMES and any(value != values[0] for value in values):
            lines.append(Line(setting, values))
    return lines


def _tells(line: Line, recipes: Sequence[Recipe], unknown: Set[str]) -> bool:
    """Report whether a difference can have an effect. Settings without an effect in any run have none, nor have
    settings of earlier versions on which all those runs agree."""

    def within(names: Iterable[str]) -> bool:
        return any(f"{line.name}.".startswith(f"{name}.") for name in names)

    section, _, _ = line.name.partition(".")
    read = [getattr(getattr(recipe, section, None), "settings_read", None) for recipe in recipes]
    values = [value for value in line.values if value is not None]
    if within(unknown):
        return any(value != values[0] for value in values)
    return any(of is None or within(of) for of in read)


FIGURES: dict[str, Callable[[ReportData], Any]] = {  # of a report, in the order in which a comparison has them
    "tokens of the vocabulary": lambda report: report.vocabulary and report.vocabulary.target_size,
    "known to the source": lambda report: report.vocabulary and round(report.vocabulary.overlap_share, 4),
    "tokens a word of a document": lambda report: _tokens_a_word(report, "documents"),
    "tokens a word of a query": lambda report: _tokens_a_word(report, "queries"),
    "calibration: bias lowered by": lambda report: report.calibration and round(report.calibration.shift, 3),
    "bytes of the index": lambda report: report.cost and report.cost.index_bytes,
    "milliseconds a query": lambda report: report.cost and round(report.cost.query_ms, 1),
}


def _tokens_a_word(report: ReportData, of: str) -> float | None:
    if report.vocabularies is None:
        return None
    cut = getattr(report.vocabularies.target, of)
    return None if cut is None else round(cut.tokens_per_word, 3)


def _figures(runs: Sequence[RunFolder], reports: Sequence[ReportData | None]) -> Iterator[Line]:
    def line(name: str, figure: Callable[[ReportData], Any]) -> Line:
        return Line(name, tuple(None if report is None else figure(report) for report in reports))

    lines = [line(name, figure) for name, figure in FIGURES.items()]
    there = [report for report in reports if report is not None]
    for origin in dict.fromkeys(name for report in there if report.vocabulary for name in report.vocabulary.methods):
        lines.append(
            line(f"rows from {origin}", lambda r, origin=origin: r.vocabulary and r.vocabulary.methods.get(origin))  # type: ignore[misc]
        )
    curves = dict.fromkeys((stage, name) for report in there for stage, of in report.curves.items() for name in of)
    for stage, name in curves:
        if name != "steps":
            lines.append(line(f"{stage}: {name} at the end", lambda r, at=(stage, name): _last(r, *at)))  # type: ignore[misc]
    for stage in dict.fromkeys(name.partition(":")[0] for report in there for name in report.seconds):
        lines.append(line(f"seconds of {stage}", lambda r, stage=stage: _seconds(r, stage)))  # type: ignore[misc]
    lines.append(line("seconds of all stages", lambda report: round(sum(v or 0 for v in report.seconds.values()), 1)))
    return (each for each in lines if any(value is not None for value in each.values))


def _costs(runs: Sequence[RunFolder]) -> Iterator[Line]:
    """Active dimensions and FLOPS of the final encoders on each set."""
    steps = [run.steps.get(f"evaluate:{run.final_model}") for run in runs]
    results = [{} if step is None else result_of(step, EvaluateResult).sets for step in steps]
    costs = {"query dimensions": "query_dimensions", "document dimensions": "document_dimensions", "FLOPS": "flops"}
    for name in dict.fromkeys(name for sets in results for name in sets):
        for label, field in costs.items():
            values = [getattr(sets[name], field) if name in sets else None for sets in results]
            if any(value is not None for value in values):
                shown = tuple(None if value is None else round(value, 3) for value in values)
                yield Line(f"{label}, {name}", shown)


def _last(report: ReportData, stage: str, name: str) -> float | None:
    values = [value for value in report.curves.get(stage, {}).get(name, ()) if value is not None]
    return round(float(values[-1]), 4) if values else None


def _seconds(report: ReportData, stage: str) -> float | None:
    values = [value or 0 for name, value in report.seconds.items() if name.partition(":")[0] == stage]
    return round(sum(values), 1) if values else None


def per_query(run: RunFolder, model: str, folder: str) -> dict[str, dict[str, float]] | None:
    """Measure -> query -> value of one model on one evaluation set; None where it was not judged on it."""
    place = run.steps[f"evaluate:{model}"] / folder
    return read_per_query(place) if (place / PER_QUERY).is_file() else None


def _compare_set(
    name: str,
    folders: Sequence[Path],
    names: Sequence[str],
    results: Sequence[Mapping[str, Any]],
    values: Sequence[Mapping[str, Mapping[str, float]] | None],
    model: str | None,
    explained: int,
    only: QueryFilter,
) -> ComparedSet:
    there = [each for each in values if each is not None]
    measures = [measure for measure in there[0] if all(measure in each for each in there)]
    asked = [set(each[measures[0]]) for each in there] if measures else []
    if len(there) < len(values):
        return ComparedSet(name, 0, (), (), (), not_compared="not every run was evaluated on it")
    if not measures or any(queries != asked[0] for queries in asked):
        return ComparedSet(
            name, 0, (), (), (), not_compared="the runs were evaluated on different queries or by different measures"
        )
    collection = None
    kept = asked[0]
    if only != QueryFilter() or explained:
        collection = next(opened(corpus) for corpus in evaluation_sets(_recipe(folders[0])[0]) if corpus.folder == name)
        kept = {query.id for query in collection.queries if query.id in kept and _counts(query.text, only, folders[0])}
    if not kept:
        return ComparedSet(name, 0, tuple(measures), (), (), not_compared="no query passes the filters")

    judged = {}
    for run, result, of_run in zip(names, results, there, strict=True):
        of_kept = {measure: {q: value for q, value in of_run[measure].items() if q in kept} for measure in measures}
        means = {measure: sum(of.values()) / len(kept) for measure, of in of_kept.items()}
        facts = result[name].facts | {"queries": len(kept), "documents": result[name].documents, "measures": means}
        judged[run] = Judged(Evaluated(**facts), {}, of_kept)
    cells = compared(judged, name, measures, names[0], "holm")
    beside, first, not_explained = [], None, ""
    for number, run in enumerate(names[1:], 1):
        before, after = (judged[each].per_query[measures[0]] for each in (names[0], run))
        order = sorted(kept, key=lambda query: (before[query] - after[query], query))  # the largest gain first
        won, lost = ([q for q in order if after[q] > before[q]], [q for q in order[::-1] if after[q] < before[q]])
        differences: list[list[QueryDifference]] = [[], []]
        if explained and collection is not None and won + lost:
            try:
                first = first or _searcher(folders[0], name, model)
                searchers = first, _searcher(folders[number], name, model)
                differences = [
                    [
                        _difference(query, before[query], after[query], collection, searchers)
                        for query in some[:explained]
                    ]
                    for some in (won, lost)
                ]
            except VtkitError as error:
                not_explained = str(error)
        beside.append(Beside(run, len(won), len(lost), tuple(differences[0]), tuple(differences[1])))
    return ComparedSet(name, len(kept), tuple(measures), tuple(cells), tuple(beside), not_explained=not_explained)


def _counts(text: str, only: QueryFilter, folder: Path) -> bool:
    words = text.split()
    if len(words) < only.fewest_words or (only.most_words is not None and len(words) > only.most_words):
        return False
    if not only.split:
        return True
    tokenizer = _source_tokenizer(folder)
    return any(len(tokenizer(word, add_special_tokens=False)["input_ids"]) > 1 for word in words)


@cache
def _source_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    from vtkit.encoder.checkpoint import load_source_tokenizer

    source = open_run(folder).models.get("source")
    if source is None:
        raise VtkitError(f"{folder} has no source model whose vocabulary splits words: leave out --split.")
    return load_source_tokenizer(source)


def _searcher(folder: Path, name: str, model: str | None) -> Searcher:
    from vtkit.pipeline.search import open_searcher

    return open_searcher(folder, model=None if model in (None, "deployed") else model, collection=name)


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
    tokens = [
        TokenDifference(token, round(parts[0].get(token, 0.0), 4), round(parts[1].get(token, 0.0), 4))
        for token in dict.fromkeys([*parts[0], *parts[1]])
    ]
    tokens.sort(key=lambda each: -abs(each.after - each.before))
    ranks = (explanations[0].rank, explanations[1].rank)
    return QueryDifference(query, text, before, after, document, ranks, tuple(tokens[:TOKENS_SHOWN]))
