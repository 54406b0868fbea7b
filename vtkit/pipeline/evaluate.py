"""Evaluation of named systems (models, BM25, sums, indexes, runs, run files) on named collections."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from vtkit.data.collections import load_retrieval
from vtkit.data.hub import located
from vtkit.data.overlap import own_documents_doubt
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.sources import default_split, splits_of
from vtkit.data.text import digest
from vtkit.data.trec import read_trec
from vtkit.evaluation.collection import Collection
from vtkit.evaluation.results import SetResults
from vtkit.pipeline.folder import is_run_folder, open_run
from vtkit.pipeline.steps.deploy_index import DEPLOY, DEPLOYED
from vtkit.pipeline.steps.evaluate_systems import EVALUATE_HYBRID
from vtkit.pipeline.steps.texts import distinct
from vtkit.pipeline.store import result_of
from vtkit.settings.evaluate import ComparisonSettings
from vtkit.settings.index import IndexSection
from vtkit.system import console
from vtkit.system.errors import DataError, RecipeError, VtkitError, machine_failure
from vtkit.system.outputs import new_folder, refuse_existing

if TYPE_CHECKING:
    from vtkit.evaluation.comparison import Comparison
    from vtkit.evaluation.results import Ranking
    from vtkit.evaluation.systems import RunSystem, System
    from vtkit.search.searcher import Searcher

    Given = RunSystem | Searcher

P = ParamSpec("P")
T = TypeVar("T")

Kind = Literal["bm25", "bm25-words", "model", "index", "deployed", "run"]
GIVEN = ("index", "deployed", "run")  # kinds that are not computed here
Way = Literal["weighted", "raw", "max", "product"]

SUMS: Mapping[str, Way] = {"+bm25": "weighted", "+bm25:raw": "raw", "+bm25:max": "max", "+bm25:product": "product"}
"""Behind a model: how its scores and BM25's are brought together."""

SYSTEM_FORMS = (
    "a sparse encoder or dense embedder (folder or hub id), bm25, bm25-words, MODEL+bm25 for their sum "
    "(MODEL+bm25:raw, MODEL+bm25:max and MODEL+bm25:product combine the scores of MODEL and bm25-words as they are), "
    "the folder of a run or of an index by `vtkit build` or `vtkit index`, or a TREC run file"
)
RESULTS, MTEB = "results.json", "mteb"


@dataclass
class Named:
    """A system by its name."""

    label: str
    kind: Kind
    name: str
    settings: IndexSection
    summed: Way | None = None  # its sum or product with BM25
    run: Path | None = None  # the run whose final model or index it is
    given: Mapping[str, Given | None] = field(default_factory=dict)
    """Collection that it is evaluated on -> its results or its index there; None for systems that are computed here."""


class _Problems(list[str]):
    """Problems with the systems and collections that were named, raised together."""

    def tried(self, look: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """The value of ``look`` as a list, which is empty if ``look`` raised an error for the user."""
        try:
            return [look(*args, **kwargs)]
        except VtkitError as error:
            self.append(str(error).replace("\n", "\n  "))
            return []


def evaluate_named(
    systems: Sequence[str],
    collections: Sequence[str],
    settings: ComparisonSettings,
    index: IndexSection | None = None,
    out: Path | None = None,
) -> Comparison:
    """Judge each system (:data:`SYSTEM_FORMS`) on each collection; a system that fails on one does not stop the others.

    Args:
        index: how models encode and are searched; a run's model goes by the run's own settings.
        out: folder for ``results.json``, ``report.html`` and ``report.md``, ``mteb/`` (results as mteb has them) and,
            for every system and collection, its run file and its values by query. Encoded documents are kept beside it
            until it is whole, so that the same command goes on after a kill.
    """
    from vtkit.search.measures.effectiveness import validate_measures

    if out is not None:
        refuse_existing(out)
    problems = _Problems()
    problems.tried(validate_measures, settings.measures, settings.depth)
    asked = dict.fromkeys(systems)
    runs = [open_run(Path(name)) for name in asked if is_run_folder(Path(name))]
    if index is None and runs:  # figures beside a run are those of its report
        first = runs[0].index
        index = IndexSection(precision=first.precision, bm25_analyser=first.bm25_analyser, passages=first.passages)
    if settings.language is None and len({run.language for run in runs}) == 1:
        settings = settings.model_copy(update={"language": runs[0].language})
    named = [each for name in asked for these in problems.tried(_named, name, index) for each in these]
    if settings.rerank is not None:
        problems.tried(_check_model, settings.rerank, reranks=True)
    wanted = settings.baseline or next((name for name in ("bm25", "bm25-words", *asked) if name in asked), "")
    own, short = [each.label for each in named], [Path(each.label).name or each.label for each in named]
    for each, label in zip(named, short, strict=True):
        each.label = label if short.count(label) == 1 else each.label
    compared_with = named[own.index(wanted)].label if wanted in own else wanted
    if compared_with not in (*(each.label for each in named), *asked):
        problems.append(f"baseline {settings.baseline}: name one of the systems: {', '.join(asked)}.")
    folders: dict[str, str] = {}  # collection -> the name of its folder in the results, no two alike
    for name in dict.fromkeys(collections):
        folders[name] = distinct(_file_name(Path(name).name), folders.values())
    opened = [place for name, folder in folders.items() for place in problems.tried(_opened, name, folder, settings)]
    for each in named:
        each.given = {place.name: None for place in opened}
        for given in problems.tried(_given, each, settings.query_language) if each.kind in GIVEN else ():
            misfits = [(place.name, one, _misfit(one, place)) for one in given for place in opened]
            each.given = {place: one for place, one, why in misfits if not why}
            if misfits and not each.given and each.kind != "deployed":
                problems.append(f"{each.name} belongs to another collection: {'; '.join(why for *_, why in misfits)}.")
        if each.summed and each.kind != "model":
            problems.append(f"{each.label}: only models can be summed with BM25. Evaluate other sums as run files.")
    for place in opened if any(each.summed or each.kind.startswith("bm25") for each in named) else ():
        if place.language is None:
            problems.append(
                f"{place.name}: BM25 needs the language, which the texts do not show. Name it with --language."
            )
        elif settings.language is None and not problems:
            console.say(f"{place.name}: language {place.language}, detected from its texts")
    if problems:
        raise RecipeError("nothing was evaluated:\n" + "\n".join(f"  {each}" for each in problems))
    with ExitStack() as stack:
        if out is None:
            kept, folder = Path(stack.enter_context(TemporaryDirectory(prefix="vtkit-evaluate-"))), None
        else:
            kept, folder = out.absolute().with_name(f".{out.name}.vectors"), stack.enter_context(new_folder(out))
        comparison = _evaluated(named, opened, settings, compared_with, kept, folder)
    if out is not None and not comparison.failures:
        shutil.rmtree(kept, ignore_errors=True)
    return comparison


def _evaluated(
    named: Sequence[Named],
    opened: Sequence[Collection],
    settings: ComparisonSettings,
    baseline: str,
    kept: Path,
    out: Path | None,
) -> Comparison:
    from vtkit.evaluation.comparison import Comparison, Failure, compared
    from vtkit.evaluation.mteb_results import write_mteb
    from vtkit.report.data import Outcomes
    from vtkit.report.evaluated import evaluated_page
    from vtkit.report.pages import html_page, markdown_page
    from vtkit.report.searches import outcomes

    rankings: dict[str, dict[str, Ranking]] = {place.name: {} for place in opened}
    failures: list[Failure] = []
    together: dict[tuple[str, ...], list[Named]] = {}  # a model with its sums: loaded and encoded once
    for each in named:
        together.setdefault((each.kind, each.name, each.settings.model_dump_json()), []).append(each)
    for same in together.values():
        loaded = _Loaded(same[0], settings, kept)
        for place, each in ((place, each) for place in opened for each in same if place.name in each.given):
            console.say(f"{each.label} on {place.name}")
            started = time.perf_counter()
            try:
                for label, of in loaded.rankings(each, place):
                    rankings[place.name][label] = of
                    if out is not None:
                        of.write(out / place.folder / _file_name(label), tag=_file_name(label))
                        write_mteb(out / MTEB, label, place, of.run, settings.depth, time.perf_counter() - started)
            except Exception as error:  # the others are evaluated, whatever the error is
                reason = str(machine_failure(error) or error).strip() or type(error).__name__
                if not isinstance(error, VtkitError):
                    reason = f"{type(error).__name__}: {reason}"
                console.warn(f"{each.label} on {place.name} failed: {console.one_line(reason, 300)}")
                failures.append(Failure(each.label, place.name, reason))
    order = [label for each in named for label in (each.label, _reranked(each, settings))]
    sets, won = [], list[Outcomes]()
    for place in opened:
        there = {label: rankings[place.name][label] for label in order if label in rankings[place.name]}
        rows = (replace(of.result, system=label) for label, of in there.items())
        results = SetResults.of(place.name, place.judged, rows)
        values = {label: of.per_query for label, of in there.items()}
        sets += [compared(results, values, baseline, settings.correction)] if there else []
        others = [label for label in rankings[place.name] if baseline in values and label != baseline]
        for label in others if out is not None else ():  # for its pages
            both = values[label][results.measure], values[baseline][results.measure]
            won.append(outcomes(None, place.judged, *both, measure=results.measure, names=(label, baseline)))
    comparison = Comparison(baseline, settings.correction, tuple(sets), tuple(failures))
    if out is not None:
        page = evaluated_page(comparison, won, time.strftime("%Y-%m-%d %H:%M"))
        (out / "report.html").write_text(html_page(page), encoding="utf-8")
        (out / "report.md").write_text(markdown_page(page), encoding="utf-8")
        comparison.to_file(out / RESULTS)
    return comparison


class _Loaded:
    """A model, or other system, with its sums: loaded once for all collections, and each collection encoded once."""

    def __init__(self, named: Named, settings: ComparisonSettings, kept: Path) -> None:
        from vtkit.training.teachers import load_teacher

        self.named, self.settings, self.kept = named, settings, kept
        lengths = named.settings.query_length, named.settings.document_length
        self.load: Callable[[str], Any] = cache(lambda name: load_teacher(name, lengths, "model"))  # of whatever kind
        self._encoded: tuple[Collection, System] | None = None

    def rankings(self, named: Named, place: Collection) -> Iterator[tuple[str, Ranking]]:
        """The system on a collection, and then its results reranked, each under its label."""
        from vtkit.evaluation.systems import cost_of, reranked

        system = self.system(named, place)
        ranking = system.rank(place.judged, self.settings.depth)
        ranking = replace(ranking, result=replace(ranking.result, cost=cost_of(system, place.judged)))
        yield named.label, ranking.evaluated(place.judged, self.settings.measures)
        if self.settings.rerank is not None:
            cross_encoder = self.load(self.settings.rerank)
            ranking = reranked(place.judged, ranking.run, cross_encoder, self.settings.rerank_depth)
            yield _reranked(named, self.settings), ranking.evaluated(place.judged, self.settings.measures)

    def system(self, named: Named, place: Collection) -> System:
        """The system over the documents of a collection."""
        from vtkit.encoder.checkpoint import load_encoder
        from vtkit.evaluation.systems import RunSystem, SparseSystem, query_vectors
        from vtkit.system.runtime import fastest_device

        if named.kind in ("bm25", "bm25-words"):
            return place.bm25(str(place.language), named.settings, words=named.kind == "bm25-words")
        if named.kind == "model":
            return self._sum(named, place) if named.summed else self._whole(place)
        given = named.given[place.name]
        assert given is not None
        if isinstance(given, RunSystem):
            return given
        if named.run is None or self.settings.query_language is not None:
            return SparseSystem(given.index, given.encode, role="index" if named.run is None else "deployed")
        run = open_run(named.run)  # queries are encoded as when the run evaluated the index, in its precision
        encoder = load_encoder(run.model(run.final_model), fastest_device())
        encode = query_vectors(encoder, named.settings, f"encoding the queries of {place.name}")
        return SparseSystem(given.index, encode, role="deployed", lexical=given.lexical)

    def _whole(self, place: Collection) -> System:
        """The model over all documents of a collection; those of the last one are kept for its sums."""
        if self._encoded is None or self._encoded[0] is not place:
            name = self.named.name
            made_from = digest(name) if os.path.isdir(name) else hashlib.sha256(name.encode()).hexdigest()
            self._encoded = place, self._over(place.whole, _file_name(f"{Path(name).name}-{made_from[:12]}"))
        return self._encoded[1]

    def _over(self, documents: RetrievalSet, folder: str = "") -> System:
        """The model over the documents of any collection, whose vectors are kept in ``folder``; else in memory."""
        from vtkit.evaluation.systems import DenseSystem, SparseSystem
        from vtkit.training.teachers import SparseTeacher

        model, name, settings = self.load(self.named.name), self.named.name, self.named.settings
        kept = self.kept / folder if folder else None
        if isinstance(model, SparseTeacher):
            return SparseSystem.over(model.encoder, documents, settings, kept)
        # cross-encoders are refused
        return DenseSystem.over(model.embedder, documents, name, settings.precision, settings.passages, kept)

    def _sum(self, named: Named, place: Collection) -> System:
        """The sum with BM25, weighted as in a run, on queries of the collection that are not evaluated. A run's model
        keeps the run's fusion weight on the run's own collections."""
        from vtkit.evaluation.fusion_queries import fusion_queries, fusion_weight, weight_queries
        from vtkit.evaluation.systems import SumSystem

        language, settings = str(place.language), self.settings
        system = self._whole(place)
        if named.summed is not None and named.summed != "weighted":
            return SumSystem(system, place.bm25(language, named.settings, words=True), named.summed)
        bm25 = place.bm25(language, named.settings)
        split, measure, seed = settings.fusion_queries, settings.measures[0], settings.seed
        step = None if named.run is None or split else open_run(named.run).steps.get(EVALUATE_HYBRID.name)
        of_run = None if step is None else result_of(step, dict[str, SetResults]).get(place.folder)
        fusion = None if of_run is None else of_run.rows[0].fusion
        if of_run is not None and fusion is not None and of_run.documents == len(place.whole.documents):
            console.say(f"  the encoder weighs {fusion.weight:g}, as in the run")
            return SumSystem(system, bm25, fusion)
        training = None if split is None else weight_queries(load_retrieval(place.name, split), place.whole, seed)
        queries = fusion_queries(place.whole, training, seed, named.settings.passages)
        weight = fusion_weight(queries, system, self._over, bm25, measure, settings.depth)
        return SumSystem(system, bm25, weight)


def _opened(name: str, folder: str, settings: ComparisonSettings) -> Collection:
    """Open a collection, sample its queries and set its language if one is given.

    Raises:
        RecipeError: the collection has no other judgements called ``settings.fusion_queries``.
    """
    place = Collection(name, settings.split or default_split(name), folder)
    place.whole = replace(place.whole, own_documents=settings.ignore_identical_ids or place.whole.own_documents)
    if doubt := own_documents_doubt(place.whole, "ignore_identical_ids"):
        console.warn(doubt)
    others = [other for other in splits_of(name) if other != place.split] if settings.fusion_queries is not None else []
    if settings.fusion_queries is not None and settings.fusion_queries not in others:
        raise RecipeError(
            f"fusion_queries {settings.fusion_queries}: beside {place.split!r}, which is evaluated, {name} has "
            f"{', '.join(others) or 'no judgements'}. Name other judgements, or leave fusion_queries out."
        )
    place.judged = place.whole.sample(settings.max_queries, settings.seed)
    if settings.language is not None:
        place.language = settings.language
    return place


def _named(name: str, index: IndexSection | None) -> list[Named]:
    """The systems that ``name`` stands for. A run stands for its final model and, if that is another, its deployed
    index."""
    from vtkit.search.segments import is_index_folder

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
    """Refuse (DataError) a ``name`` that is not a ranking model, or not a reranker if ``reranks``."""
    from vtkit.encoder.model_folder import find_model, model_kind

    label = f"rerank {name}" if reranks else name
    if not os.path.isdir(name) and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise DataError(f"{label}: not found. Name {'a cross-encoder' if reranks else SYSTEM_FORMS}.")
    is_cross_encoder = model_kind(find_model(name, label), label) == "cross_encoder"
    if reranks and not is_cross_encoder:
        raise DataError(f"{label} is not a cross-encoder. Name a model that scores a query and a document together.")
    if is_cross_encoder and not reranks:
        raise DataError(f"{label} is a cross-encoder, which cannot search by itself. Name it as rerank.")


def _given(named: Named, query_language: str | None) -> list[Given]:
    """The results in a run file, an index, or the deployed index of each set of a run."""
    from vtkit.evaluation.systems import RunSystem
    from vtkit.pipeline.search import open_searcher

    place = Path(named.name)
    if named.kind == "run":
        return [RunSystem(read_trec(place))]
    if named.kind == "index":
        return [open_searcher(place, model=None, collection=None)]
    sets = result_of(open_run(place).steps[DEPLOY.name], list[str])
    return [open_searcher(place, model=None, collection=each, query_language=query_language) for each in sets]


def _misfit(given: Given, place: Collection) -> str:
    """The reason why a run file or an index does not belong to a collection; empty if it does."""
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
    count = given.index.postings.ranked
    if count != len(place.whole.documents):
        return f"{place.name} has {len(place.whole.documents):,} documents, the index {count:,}"
    pairs = ((given.documents[number].id, place.whole.documents[number].id) for number in range(count))
    strange = next((own for own, there in pairs if own != there), None)
    return f"{place.name} has another document in the place of {strange!r}" if strange is not None else ""


def _reranked(named: Named, settings: ComparisonSettings) -> str:
    """The label of the row that reranks a system."""
    return f"{named.label} > {Path(settings.rerank or '').name}"


def _file_name(label: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", label).strip("-.") or "system"
