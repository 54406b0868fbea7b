"""Runs beside each other: what differs in their recipes, what came of it, and which tokens won and lost queries."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtkit.data.retrieval import RetrievalSet
from vtkit.evaluation.comparison import Cell, compared
from vtkit.evaluation.judging import PER_QUERY, EvaluateResult, Judged
from vtkit.pipeline.folder import RunFolder, open_run, report_of
from vtkit.pipeline.steps.encode_corpus import opened
from vtkit.pipeline.steps.texts import evaluation_sets
from vtkit.pipeline.store import result_of
from vtkit.recipe.load import load_recipe
from vtkit.report.data import ReportData
from vtkit.system.errors import DataError, RecipeError, VtkitError
from vtkit.system.results import Result

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from vtkit.search.results import Explanation
    from vtkit.search.searcher import Searcher

RESOLVED = "recipe.resolved.toml"

TOKENS_SHOWN = 6
"""That made most of the difference, of each query."""

NAMES = ("recipe.name", "recipe.about")
"""Settings that say nothing of what a run does."""


@dataclass(frozen=True)
class Line(Result):
    """One setting or figure of every run, in their order; None where a run has none."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class TokenDifference(Result):
    """A token's part of the score of a query's relevant document, in the baseline and in the other run."""

    token: str
    before: float
    after: float


@dataclass(frozen=True)
class QueryDifference(Result):
    """A query on which a run and the baseline differ."""

    id: str
    text: str
    before: float
    """The main measure in the baseline ..."""

    after: float
    """... and in the run."""

    document: str
    """The relevant document whose scores are told."""

    ranks: tuple[int | None, int | None]
    """Of that document, in both."""

    tokens: tuple[TokenDifference, ...]
    """The largest differences first."""


@dataclass(frozen=True)
class Beside(Result):
    """A run beside the baseline, on one evaluation set."""

    run: str
    won: int
    """Queries with a larger value of the main measure than in the baseline."""

    lost: int
    queries_won: tuple[QueryDifference, ...] = ()
    """Some of them, the largest differences first."""

    queries_lost: tuple[QueryDifference, ...] = ()


@dataclass(frozen=True)
class ComparedSet(Result):
    """All runs on one evaluation set."""

    set: str
    queries: int
    """That were compared: those of every run, filtered as it was asked for."""

    measures: tuple[str, ...]
    cells: tuple[Cell, ...]
    """A run each, in their order."""

    beside: tuple[Beside, ...]
    not_compared: str = ""
    """Why the runs cannot be compared on it."""


@dataclass(frozen=True)
class ComparedRuns(Result):
    """Runs beside each other; the first is the baseline."""

    runs: tuple[str, ...]
    models: tuple[str, ...]
    """Whose results are compared, of each run."""

    settings: tuple[Line, ...]
    """That are not the same in all."""

    figures: tuple[Line, ...]
    """Vocabulary, overlap, origins of the rows, calibration, training and cost."""

    sets: tuple[ComparedSet, ...]


@dataclass(frozen=True)
class QueryFilter:
    """Which queries count."""

    fewest_words: int = 0
    most_words: int | None = None
    split: bool = False
    """Only those with a word that the vocabulary of the first run's source cuts into several tokens."""


def compare_runs(
    folders: Sequence[Path], *, model: str | None = None, queries: int = 5, only: QueryFilter | None = None
) -> ComparedRuns:
    """Compare runs with the first of them.

    Args:
        folders: of two runs or more, with the store beside them.
        model: stage whose results are compared; by default the index to be used, else the final model.
        queries: of those won and lost so many are explained, for which the runs' models are loaded; 0 for none.
        only: which queries count; all by default.

    Raises:
        RecipeError: fewer than two runs.
        VtkitError: no such run, or one without results.
    """
    if len(folders) < 2:
        raise RecipeError("Comparing takes two runs or more.")
    runs = [open_run(folder) for folder in folders]
    names = _names(folders)
    judged = [_judged_model(run, model) for run in runs]
    resolved = [_resolved(folder) for folder in folders]
    reports = [report_of(folder) for folder in folders]
    results = [
        result_of(run.steps[f"evaluate:{of}"], EvaluateResult).sets for run, of in zip(runs, judged, strict=True)
    ]
    sets = []
    for name in dict.fromkeys(name for found in results for name in found):
        values = [per_query(run, of, name) for run, of in zip(runs, judged, strict=True)]
        sets.append(_compare_set(name, folders, names, results, values, model, queries, only or QueryFilter()))
    return ComparedRuns(
        tuple(names), tuple(judged), tuple(differing(resolved)), tuple(_figures(runs, reports)), tuple(sets)
    )


def _names(folders: Sequence[Path]) -> list[str]:
    plain = [folder.absolute().name for folder in folders]
    return plain if len(set(plain)) == len(plain) else [str(folder) for folder in folders]


def _judged_model(run: RunFolder, model: str | None) -> str:
    there = [step.removeprefix("evaluate:") for step in run.steps if step.startswith("evaluate:")]
    wanted = [model] if model is not None else ["deployed", run.final_model]
    found = next((name for name in wanted if name in there), None)
    if found is None:
        raise VtkitError(
            f"{run.folder} has no results of {' or '.join(wanted)}. "
            + (f"There are {', '.join(there)}: choose with --model." if there else "Run its recipe to the end.")
        )
    return found


def _resolved(folder: Path) -> dict[str, Any]:
    try:
        return dict(_flat(tomllib.loads((folder / RESOLVED).read_text("utf-8"))))
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


FIGURES: dict[str, Callable[[ReportData], Any]] = {
    "tokens of the vocabulary": lambda report: report.vocabulary and report.vocabulary.target_size,
    "known to the source": lambda report: report.vocabulary and round(report.vocabulary.overlap_share, 4),
    "tokens a word of a document": lambda report: _tokens_a_word(report, "documents"),
    "tokens a word of a query": lambda report: _tokens_a_word(report, "queries"),
    "calibration: bias lowered by": lambda report: report.calibration and round(report.calibration.shift, 3),
}
"""Of a report, in the order in which a comparison has them."""


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


def _last(report: ReportData, stage: str, name: str) -> float | None:
    values = [value for value in report.curves.get(stage, {}).get(name, ()) if value is not None]
    return round(float(values[-1]), 4) if values else None


def _seconds(report: ReportData, stage: str) -> float | None:
    values = [value or 0 for name, value in report.seconds.items() if name.partition(":")[0] == stage]
    return round(sum(values), 1) if values else None


def per_query(run: RunFolder, model: str, folder: str) -> dict[str, dict[str, float]] | None:
    """Measure -> query -> value of one model on one evaluation set; None where it was not judged on it."""
    path = run.steps[f"evaluate:{model}"] / folder / PER_QUERY
    if not path.is_file():
        return None
    try:
        return {str(name): dict(values) for name, values in json.loads(path.read_text("utf-8")).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged. Run the recipe again: vtkit run RECIPE.") from error


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
        return ComparedSet(name, 0, (), (), (), "not every run was judged on it")
    if not measures or any(queries != asked[0] for queries in asked):
        return ComparedSet(name, 0, (), (), (), "the runs were judged on other queries, or by other measures")
    collection = None
    kept = asked[0]
    if only != QueryFilter() or explained:
        collection = _collection(folders[0], name)
        kept = {query.id for query in collection.queries if query.id in kept and _counts(query.text, only, folders[0])}
    if not kept:
        return ComparedSet(name, 0, tuple(measures), (), (), "no query is as it was asked for")
    judged = {}
    for run, result, of_run in zip(names, results, there, strict=True):
        of_kept = {
            measure: {query: value for query, value in of_run[measure].items() if query in kept} for measure in measures
        }
        means = {measure: sum(of.values()) / len(kept) for measure, of in of_kept.items()}
        facts = result[name].facts | {"queries": len(kept), "documents": result[name].documents, "measures": means}
        judged[run] = Judged(type(result[name])(**facts), {}, of_kept)
    cells = compared(judged, name, measures, names[0], "holm")
    beside, first = [], None
    for number, run in enumerate(names[1:], 1):
        before, after = (judged[each].per_query[measures[0]] for each in (names[0], run))
        order = sorted(kept, key=lambda query: (before[query] - after[query], query))  # the largest gain first
        won, lost = ([q for q in order if after[q] > before[q]], [q for q in order[::-1] if after[q] < before[q]])
        differences: list[list[QueryDifference]] = [[], []]
        if explained and collection is not None and won + lost:
            first = first or _searcher(folders[0], name, model)
            explain = _explaining(first, _searcher(folders[number], name, model))
            differences = [
                [_difference(query, before[query], after[query], collection, explain) for query in some[:explained]]
                for some in (won, lost)
            ]
        beside.append(Beside(run, len(won), len(lost), tuple(differences[0]), tuple(differences[1])))
    return ComparedSet(name, len(kept), tuple(measures), tuple(cells), tuple(beside))


def _collection(folder: Path, name: str) -> RetrievalSet:
    recipe = load_recipe(folder / RESOLVED).recipe
    return next(opened(corpus) for corpus in evaluation_sets(recipe) if corpus.folder == name)


def _counts(text: str, only: QueryFilter, folder: Path) -> bool:
    words = text.split()
    if len(words) < only.fewest_words or (only.most_words is not None and len(words) > only.most_words):
        return False
    return not only.split or any(_pieces(folder, word) > 1 for word in words)


def _pieces(folder: Path, word: str) -> int:
    """Tokens that the vocabulary of the source cuts a word into."""
    return len(_source_tokenizer(folder)(word, add_special_tokens=False)["input_ids"])


@cache
def _source_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    from vtkit.encoder.checkpoint import load_source_tokenizer

    source = open_run(folder).models.get("source")
    if source is None:
        raise VtkitError(f"{folder} has no source model whose vocabulary could split words.")
    return load_source_tokenizer(source)


Explain = Callable[[str, str], "tuple[Explanation, Explanation]"]


def _searcher(folder: Path, name: str, model: str | None) -> Searcher:
    from vtkit.pipeline.search import open_searcher

    return open_searcher(folder, model=None if model in (None, "deployed") else model, collection=name)


def _explaining(before: Searcher, after: Searcher) -> Explain:
    """What explains the score of a document for a query in two runs."""
    return lambda query, document: (before.explain(query, document), after.explain(query, document))


def _difference(query: str, before: float, after: float, collection: RetrievalSet, explain: Explain) -> QueryDifference:
    text = next(each.text for each in collection.queries if each.id == query)
    grades = collection.qrels[query]
    document = max(sorted(grades), key=lambda each: grades[each])
    found = explain(text, document)
    parts: list[dict[str, float]] = []
    for each in found:
        own = {token.token: token.product for token in each.tokens}
        special = sum(token.product for token in each.special_tokens)
        parts.append(own | ({"special tokens": special} if special else {}))
    tokens = [
        TokenDifference(token, round(parts[0].get(token, 0.0), 4), round(parts[1].get(token, 0.0), 4))
        for token in dict.fromkeys([*parts[0], *parts[1]])
    ]
    tokens.sort(key=lambda each: -abs(each.after - each.before))
    ranks = (found[0].rank, found[1].rank)
    return QueryDifference(query, text, before, after, document, ranks, tuple(tokens[:TOKENS_SHOWN]))
