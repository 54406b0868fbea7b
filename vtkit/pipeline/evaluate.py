"""Evaluating systems by their names on collections by theirs: models, BM25, sums, indexes, runs, run files."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from vtkit.data.collections import default_split, load_retrieval, splits_of
from vtkit.data.hub import located
from vtkit.data.overlap import say_own_documents
from vtkit.data.retrieval import RetrievalSet
from vtkit.evaluation.judging import EvaluateResult
from vtkit.pipeline.folder import is_run_folder, open_run
from vtkit.pipeline.steps.deploy_index import DEPLOY, DEPLOYED, DeployResult
from vtkit.pipeline.steps.evaluate_runs import EVALUATE_HYBRID
from vtkit.pipeline.steps.texts import distinct
from vtkit.pipeline.store import result_of
from vtkit.settings.analysers import Analysis
from vtkit.settings.index import IndexSection
from vtkit.system import console
from vtkit.system.errors import DataError, RecipeError, VtkitError, machine_failure
from vtkit.system.outputs import new_folder, refuse_existing

if TYPE_CHECKING:
    from vtkit.evaluation.balance import Balance
    from vtkit.evaluation.comparison import Comparison, Correction
    from vtkit.evaluation.judging import Judged
    from vtkit.evaluation.systems import Bm25System, RunSystem, System
    from vtkit.search.searcher import Searcher
    from vtkit.training.teachers import CrossEncoderTeacher, Teacher

    Given = RunSystem | Searcher
    Fitting = Mapping[str, Mapping[str, Given]]
    """Label of a system whose results or index are there -> collection -> those of it."""

P = ParamSpec("P")
T = TypeVar("T")

Kind = Literal["bm25", "bm25-words", "model", "index", "deployed", "run"]
Way = Literal["balanced", "raw", "max", "product"]

SUMS: Mapping[str, Way] = {
    "+bm25": "balanced",
    "+bm25:raw": "raw",
    "+bm25:max": "max",
    "+bm25:product": "product",
}
"""Behind a model: how its scores and BM25's are brought together."""

SYSTEM_FORMS = (
    "a sparse encoder or dense embedder (folder or hub id), bm25, bm25-words, MODEL+bm25 for their sum "
    "(MODEL+bm25:raw, MODEL+bm25:max and MODEL+bm25:product combine the scores of MODEL and bm25-words as they are), "
    "the folder of a run or of an index that `vtkit index` made, or a TREC run file"
)
RESULTS, MTEB = "results.json", "mteb"

ARGUMENTS = ("measures", "depth", "balance", "rerank", "baseline", "language")  # arguments that errors name


@dataclass(frozen=True)
class Named:
    """A system by its name."""

    label: str
    kind: Kind
    name: str
    settings: IndexSection
    summed: Way | None = None  # its sum or product with BM25
    run: Path | None = None  # the run whose final model or index it is


@dataclass(frozen=True)
class Setting:
    """How systems are evaluated."""

    measures: Sequence[str] = ("nDCG@10", "RR@10", "R@100", "R@1000", "AP", "Judged@10")
    depth: int = 1000
    language: str | None = None  # ISO 639 code for BM25; None: told by the documents of each collection
    max_queries: int | None = None
    seed: int = 42
    balance_on: str | None = None
    """Judgements whose queries choose the weights of sums; None: spans of the documents do, for nothing says on which
    queries a model was trained."""

    query_language: str | None = None  # of queries that a run's deployed index translates; None: as they are
    rerank: str | None = None  # cross-encoder that reranks every system, as a row of its own ...
    reranked: int = 100  # ... so many results a query
    ignore_identical_ids: bool = False  # whether a document with a query's id is the query itself, and no result


class _Problems(list[str]):
    """Problems with the systems and collections that were named, raised together."""

    def tried(self, look: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """The value of ``look``; nothing, and another problem, where it raises an error for the user."""
        try:
            return [look(*args, **kwargs)]
        except VtkitError as error:
            self.append(error.message.replace("\n", "\n  "))
            return []


class Collection:
    """A collection, and what several systems need of it, made once."""

    def __init__(self, name: str, folder: str, split: str | None, setting: Setting) -> None:
        self.name, self.folder, self._setting = name, folder, setting
        self._bm25: dict[Analysis, Bm25System] = {}
        self.split = split or default_split(name)
        self.whole = load_retrieval(name, self.split)
        if setting.ignore_identical_ids:
            self.whole = replace(self.whole, own_documents=True)
        say_own_documents(self.whole, "{ignore_identical_ids}")
        if setting.balance_on is not None and (
            setting.balance_on == self.split or setting.balance_on not in splits_of(name)
        ):
            others = [other for other in splits_of(name) if other != self.split]
            raise RecipeError(
                f"{{balance}} {setting.balance_on}: beside {self.split!r}, which is evaluated, {name} has "
                f"{', '.join(others) or 'no judgements'}. Name other judgements, or leave {{balance}} out.",
                "balance",
            )
        self.judged = self.whole.sample(setting.max_queries, setting.seed)

    @cached_property
    def language(self) -> str:
        """For BM25; RecipeError where the documents do not say."""
        if self._setting.language is not None:
            return self._setting.language
        from vtkit.data.parallel import language_of

        language = language_of(self.whole.contents[:4000])
        if language is None:
            raise RecipeError(
                f"{self.name}: BM25 needs the language, which the texts do not show. Give {{language}}.", "language"
            )
        console.say(f"{self.name}: language {language}, detected from its texts")
        return language

    def bm25(self, analysis: Analysis) -> Bm25System:
        """BM25 over its documents; with the same analysis the same."""
        from vtkit.evaluation.systems import Bm25System

        if analysis not in self._bm25:
            self._bm25[analysis] = Bm25System.over(self.whole, self.language, analysis)
        return self._bm25[analysis]


def evaluate_named(
    systems: Sequence[str],
    collections: Sequence[str],
    setting: Setting,
    *,
    split: str | None = None,
    index: IndexSection | None = None,
    baseline: str | None = None,
    correction: Correction = "holm",
    out: Path | None = None,
) -> Comparison:
    """Judge each system (:data:`SYSTEM_FORMS`) on each collection; a system that fails on one does not stop the others.

    Args:
        index: how models encode and are searched; a run's model goes by the run's own settings.
        baseline: the system that others are compared with; default: BM25, or else the first.
        out: folder for ``results.json``, ``report.html`` and ``report.md``, ``mteb/`` (results as mteb has them) and,
            for every system and collection, its run file and its values by query. Encoded documents are kept beside it
            until it is whole, so that the same command goes on after a kill.
    """
    from vtkit.search.measures.effectiveness import validate_measures

    if out is not None:
        refuse_existing(out)
    problems = _Problems()
    problems.tried(validate_measures, setting.measures, setting.depth)
    asked = dict.fromkeys(systems)
    runs = [open_run(Path(name)) for name in asked if is_run_folder(Path(name))]
    if index is None and runs:  # figures beside a run are those of its report
        index = IndexSection(precision=runs[0].index.precision, bm25_analyser=runs[0].index.bm25_analyser)
    if setting.language is None and len({run.language for run in runs}) == 1:
        setting = replace(setting, language=runs[0].language)
    named = [each for name in asked for found in problems.tried(_named, name, index) for each in found]
    if setting.rerank is not None:
        problems.tried(_check_model, setting.rerank, reranks=True)
    own, named = named, _told_apart(named)
    labels = {each.label: known.label for each, known in zip(own, named, strict=True)}
    wanted = baseline or next((name for name in ("bm25", "bm25-words", *asked) if name in asked), "")
    compared_with = labels.get(wanted, wanted)
    if compared_with not in (*labels.values(), *asked):
        problems.append(f"{{baseline}} {baseline}: name one of the systems: {', '.join(asked)}.")
    folders: dict[str, str] = {}  # collection -> the name of its folder in the results, no two alike
    for name in dict.fromkeys(collections):
        folders[name] = distinct(_file_name(Path(name).name), folders.values())
    opened = [
        place for name, folder in folders.items() for place in problems.tried(Collection, name, folder, split, setting)
    ]
    given = {
        each.label: made for each in named for made in problems.tried(_given, each, setting.query_language) if made
    }
    fitting: Fitting = {
        label: {place.name: one for one in made for place in opened if not _misfit(one, place)}
        for label, made in given.items()
    }
    places = {
        each.label: [place for place in opened if each.label not in given or place.name in fitting[each.label]]
        for each in named
    }
    for each in named:
        if opened and each.kind != "deployed" and each.label in given and not places[each.label]:
            reasons = "; ".join(_misfit(given[each.label][0], place) for place in opened)
            problems.append(f"{each.name} belongs to another collection: {reasons}.")
        if each.summed and each.kind != "model":
            problems.append(f"{each.label}: only models can be summed with BM25. Evaluate other sums as run files.")
    if any(each.summed or each.kind == "bm25" for each in named) and not problems:
        for place in opened:
            problems.tried(lambda where: where.language, place)
    if problems:
        raise RecipeError("nothing was evaluated:\n" + "\n".join(f"  {each}" for each in problems), *ARGUMENTS)
    if out is None:
        with TemporaryDirectory(prefix="vtkit-evaluate-") as work:
            return _evaluated(named, places, fitting, opened, setting, compared_with, correction, Path(work), None)
    kept = out.absolute().with_name(f".{out.name}.vectors")
    with new_folder(out) as work:
        comparison = _evaluated(named, places, fitting, opened, setting, compared_with, correction, kept, work)
        text = json.dumps(comparison.to_json(), indent=1, ensure_ascii=False)
        (work / RESULTS).write_text(text, encoding="utf-8")
    if not comparison.failures:
        shutil.rmtree(kept, ignore_errors=True)
    return comparison


def _evaluated(
    named: Sequence[Named],
    places: Mapping[str, Sequence[Collection]],
    fitting: Fitting,
    opened: Sequence[Collection],
    setting: Setting,
    baseline: str,
    correction: Correction,
    kept: Path,
    out: Path | None,
) -> Comparison:
    from vtkit.evaluation.comparison import Cell, Comparison, Failure, compared
    from vtkit.evaluation.mteb_results import write_mteb

    judged: dict[str, dict[str, Judged]] = {place.name: {} for place in opened}
    failures: list[Failure] = []
    together: dict[tuple[str, ...], list[Named]] = {}  # a model with its sums: loaded and encoded once
    for each in named:
        together.setdefault((each.kind, each.name, each.settings.model_dump_json()), []).append(each)
    for same in together.values():
        loaded = _Loaded(same[0], setting, fitting.get(same[0].label))
        for place, each in ((place, each) for place in opened for each in same if place in places[each.label]):
            console.say(f"{each.label} on {place.name}")
            started = time.perf_counter()
            try:
                for label, of in loaded.judge(each, place, kept):
                    judged[place.name][label] = of
                    if out is not None:
                        of.write(out / place.folder / _file_name(label), tag=_file_name(label))
                        task = place.judged, place.name, place.split
                        write_mteb(out / MTEB, label, *task, of.run, setting.depth, time.perf_counter() - started)
            except Exception as error:  # whatever it is, the other cells are evaluated, and it is named
                reason = str(machine_failure(error) or error).strip() or type(error).__name__
                if not isinstance(error, VtkitError):
                    reason = f"{type(error).__name__}: {reason}"
                console.warn(f"{each.label} on {place.name} failed: {console.one_line(reason, 300)}")
                failures.append(Failure(each.label, place.name, reason))
    cells: list[Cell] = []
    for place in opened:
        on_place = judged[place.name]
        order = [label for each in named for label in (each.label, _reranked(each, setting)) if label in on_place]
        cells += compared({name: on_place[name] for name in order}, place.name, setting.measures, baseline, correction)
    comparison = Comparison(tuple(setting.measures), baseline, correction, tuple(cells), tuple(failures))
    if out is not None:
        _write_pages(comparison, [(place, judged[place.name]) for place in opened], out)
    return comparison


def _write_pages(found: Comparison, judged: Sequence[tuple[Collection, Mapping[str, Judged]]], out: Path) -> None:
    """``report.html`` and ``report.md``."""
    from vtkit.report.evaluated import evaluated_charts, evaluated_page
    from vtkit.report.pages import html_page, markdown_page
    from vtkit.report.searches import outcomes

    measure = found.measures[0]
    won = [
        outcomes(None, place.judged, of.per_query[measure], base.per_query[measure], measure=measure, names=names)
        for place, systems in judged
        if (base := systems.get(found.baseline)) is not None
        for label, of in systems.items()
        if label != found.baseline and (names := (label, found.baseline))
    ]
    page = evaluated_page(found, won, time.strftime("%Y-%m-%d %H:%M"))
    (out / "report.html").write_text(html_page(page, evaluated_charts(found)), encoding="utf-8")
    (out / "report.md").write_text(markdown_page(page), encoding="utf-8")


class _Loaded:
    """A model, or other system, with its sums: loaded once for all collections, and each collection encoded once."""

    def __init__(self, named: Named, setting: Setting, given: Mapping[str, Given] | None) -> None:
        self.named, self.setting, self.given = named, setting, given
        self._encoded: tuple[Collection, System] | None = None

    @cached_property
    def model(self) -> Teacher:
        """The loaded model; the loader of teachers recognises its kind."""
        return _load(self.named.name, self.named.settings)

    @cached_property
    def cross_encoder(self) -> CrossEncoderTeacher:
        from vtkit.training.teachers import CrossEncoderTeacher

        assert self.setting.rerank is not None
        loaded = _load(self.setting.rerank, self.named.settings)
        assert isinstance(loaded, CrossEncoderTeacher)  # its configuration says so
        return loaded

    def judge(self, named: Named, place: Collection, kept: Path) -> Iterator[tuple[str, Judged]]:
        """The system on a collection, and then its results reranked, each under its label."""
        from vtkit.evaluation.judging import judge
        from vtkit.evaluation.systems import RerankedSystem, RunSystem, cost_of

        system = self.system(named, place, kept)
        ranking = system.rank(place.judged, self.setting.depth)
        ranking = replace(ranking, facts=replace(ranking.facts, cost=cost_of(system, place.judged)))
        yield named.label, judge(place.judged, ranking, self.setting.measures)
        if self.setting.rerank is not None:
            reranked = RerankedSystem(RunSystem(ranking.run), self.cross_encoder, self.setting.reranked)
            ranking = reranked.rank(place.judged, self.setting.depth)
            yield _reranked(named, self.setting), judge(place.judged, ranking, self.setting.measures)

    def system(self, named: Named, place: Collection, kept: Path) -> System:
        """The system over the documents of a collection."""
        from vtkit.encoder.checkpoint import load_encoder
        from vtkit.evaluation.systems import RunSystem, SparseSystem, query_vectors
        from vtkit.system.runtime import fastest_device

        if self.given is not None:
            given = self.given[place.name]
            if isinstance(given, RunSystem):
                return given
            if named.run is None or self.setting.query_language is not None:
                return SparseSystem(given.index, given.encode, role="index" if named.run is None else "deployed")
            run = open_run(named.run)  # queries are encoded as when the run evaluated the index, in its precision
            encoder = load_encoder(run.model(run.final_model), fastest_device())
            encode = query_vectors(encoder, named.settings, f"encoding the queries of {place.name}")
            return SparseSystem(given.index, encode, role="deployed", lexical=given.lexical)
        match named.kind:
            case "bm25":
                return place.bm25(named.settings.bm25_analyser)
            case "bm25-words":
                return place.bm25("words")
            case _:
                return self._sum(named, place, kept) if named.summed else self._whole(place, kept)

    def _whole(self, place: Collection, kept: Path) -> System:
        """The model over all documents of a collection; those of the last one are kept for its sums."""
        if self._encoded is None or self._encoded[0] is not place:
            self._encoded = place, self._over(place.whole, kept)
        return self._encoded[1]

    def _over(self, documents: RetrievalSet, kept: Path | None = None) -> System:
        """The model over the documents of any collection, a few of them without ``kept``."""
        from vtkit.evaluation.systems import DenseSystem, SparseSystem
        from vtkit.training.teachers import DenseTeacher, SparseTeacher

        model, name, settings = self.model, self.named.name, self.named.settings
        if isinstance(model, SparseTeacher):
            folder = None if kept is None else kept / _file_name(f"{Path(name).name}-{_digest_of(name)[:12]}")
            return SparseSystem.over(model.encoder, documents, settings, folder)
        assert isinstance(model, DenseTeacher)  # cross-encoders are refused before
        return DenseSystem.over(model.embedder, documents, name, settings.precision)

    def _sum(self, named: Named, place: Collection, kept: Path) -> System:
        """The sum with BM25, balanced as that of a run, on queries of the collection that are not judged; that of a
        run's model on the run's own collection is the run's."""
        from vtkit.evaluation.balancing import balance_of, balancing_queries
        from vtkit.evaluation.probe import probed_by_spans
        from vtkit.evaluation.systems import AboveLast, PlainSum, SumSystem
        from vtkit.training.teachers import DenseTeacher

        analysis, seed, way = named.settings.bm25_analyser, self.setting.seed, named.summed
        if way is not None and way != "balanced":
            return PlainSum(self._whole(place, kept), place.bm25("words"), way)
        summable = AboveLast if isinstance(self.model, DenseTeacher) else (lambda system: system)
        system, bm25, balance_on = summable(self._whole(place, kept)), place.bm25(analysis), self.setting.balance_on
        if named.run is not None and balance_on is None and (balance := _own_balance(named.run, place)) is not None:
            console.say(f"  the encoder weighs {balance.weight:g}, as in the run")
            return SumSystem(system, bm25, balance)
        probed = probed_by_spans(place.whole, lambda spans: summable(self._over(spans)), seed, place.language, analysis)
        training = None if balance_on is None else load_retrieval(place.name, balance_on)
        balancing = balancing_queries(place.whole, training, seed)
        measure = self.setting.measures[0]
        return SumSystem(system, bm25, balance_of(system, bm25, balancing, self.setting.depth, measure, probed))


def _own_balance(run: Path, place: Collection) -> Balance | None:
    """How a run balances the sum with BM25 on one of its own collections; None for others."""
    step = open_run(run).steps.get(EVALUATE_HYBRID.name)
    judged = None if step is None else result_of(step, EvaluateResult).sets.get(place.folder)
    return judged.balance if judged is not None and judged.documents == len(place.whole.documents) else None


def _load(name: str, settings: IndexSection) -> Teacher:
    from vtkit.training.teachers import load_teacher

    return load_teacher(name, (settings.query_length, settings.document_length), "model")


def _named(name: str, index: IndexSection | None) -> list[Named]:
    """The systems that ``name`` stands for. A run stands for its final model and, if that is another, its deployed
    index."""
    from vtkit.search.folders import is_index_folder

    settings = index or IndexSection()
    if name in ("bm25", "bm25-words"):
        return [Named(name, name, name, settings)]  # type: ignore[arg-type]
    ending = next((each for each in SUMS if name.endswith(each)), "")
    plain, summed = name.removesuffix(ending), SUMS.get(ending)
    path = Path(plain)
    if path.is_file():
        return [Named(name, "run", plain, settings, summed)]
    if is_index_folder(path):
        return [Named(name, "index", plain, settings, summed)]
    if is_run_folder(path):
        run = open_run(path)
        model = Named(name, "model", run.model(run.final_model), run.index, summed, path)
        if summed is not None or DEPLOY.name not in run.steps:
            return [model]
        return [model, Named(f"{name} ({DEPLOYED})", "deployed", plain, run.index, run=path)]
    _check_model(plain)
    return [Named(name, "model", located(plain), settings, summed)]


def _check_model(name: str, *, reranks: bool = False) -> None:
    """Refuse (DataError) a ``name`` that is no model that can rank, or rerank."""
    from vtkit.encoder.model_folder import find_model, model_kind

    label = f"{{rerank}} {name}" if reranks else name
    if not os.path.isdir(name) and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise DataError(f"{label}: not found. Name {'a cross-encoder' if reranks else SYSTEM_FORMS}.")
    is_cross_encoder = model_kind(find_model(name, label), label) == "cross_encoder"
    if reranks and not is_cross_encoder:
        raise DataError(f"{label} is not a cross-encoder. Name a model that scores a query and a document together.")
    if is_cross_encoder and not reranks:
        raise DataError(f"{label} is a cross-encoder, which cannot search by itself. Name it as {{rerank}}.", "rerank")


def _told_apart(named: Sequence[Named]) -> list[Named]:
    """Labels made short: the last part of a path, where no other system has the same."""
    short = [Path(each.label).name or each.label for each in named]
    return [
        replace(each, label=label if short.count(label) == 1 else each.label)
        for each, label in zip(named, short, strict=True)
    ]


def _given(named: Named, query_language: str | None) -> list[Given]:
    """The results of a run file, or an index; of a run the index of each of its sets. Nothing for other systems."""
    from vtkit.evaluation.systems import RunSystem
    from vtkit.pipeline.search import open_searcher

    match named.kind:
        case "run":
            return [RunSystem.load(Path(named.name))]
        case "index":
            return [open_searcher(Path(named.name), model=None, collection=None)]
        case "deployed":
            sets = result_of(open_run(Path(named.name)).steps[DEPLOY.name], DeployResult).sets
            run = Path(named.name)
            return [open_searcher(run, model=None, collection=each, query_language=query_language) for each in sets]
        case _:
            return []


def _misfit(given: Given, place: Collection) -> str:
    """Why a run file or an index is not of a collection; empty where it is."""
    from vtkit.evaluation.systems import RunSystem

    if isinstance(given, RunSystem):
        asked = {query.id for query in place.whole.queries}
        known = [query for query in given.run if query in asked]
        if not known:
            return f"{place.name} has none of its {len(given.run):,} queries"
        documents = [document for query in known for document, _ in given.run[query]]
        numbers = place.whole.numbers_of(documents)
        unknown = next((name for name, number in zip(documents, numbers, strict=True) if number < 0), None)
        return f"{place.name} has no document {unknown!r}" if unknown is not None else ""
    count = given.index.info.documents
    if count != len(place.whole.documents):
        return f"{place.name} has {len(place.whole.documents):,} documents, the index {count:,}"
    pairs = ((given.documents[number]["_id"], place.whole.documents[number].id) for number in range(count))
    strange = next((own for own, there in pairs if own != there), None)
    return f"{place.name} has another document in the place of {strange!r}" if strange is not None else ""


def _reranked(named: Named, setting: Setting) -> str:
    """The label of the row that reranks a system."""
    return f"{named.label} > {Path(setting.rerank or '').name}"


def _file_name(label: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", label).strip("-.") or "system"


def _digest_of(name: str) -> str:
    import hashlib

    from vtkit.data.text import digest

    return digest(name) if os.path.isdir(name) else hashlib.sha256(name.encode()).hexdigest()
