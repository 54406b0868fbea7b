"""Stage ``report``: the results of all other stages in one record, and the pages made from it."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from vtkit.encoder.calibrated import Calibration
from vtkit.encoder.model_folder import OUTPUT_TOKENIZER
from vtkit.evaluation.analyses.coverage import Coverage
from vtkit.evaluation.gates.result import GateResult
from vtkit.evaluation.results import SetResults, SystemResult, read_per_query
from vtkit.pipeline.stage import WHOLE_RECIPE, Stage, View
from vtkit.pipeline.steps.adapt_encoder import ADAPT, AdaptResult
from vtkit.pipeline.steps.calibrate_head import CALIBRATE
from vtkit.pipeline.steps.deploy_index import DEPLOY, DEPLOYED
from vtkit.pipeline.steps.encode_corpus import EncodedSet
from vtkit.pipeline.steps.evaluate_systems import peers_of
from vtkit.pipeline.steps.expand_documents import EXPAND_DOCUMENTS, ExpanderResult
from vtkit.pipeline.steps.finetune_encoder import FINETUNE, FinetuneResult
from vtkit.pipeline.steps.tabulate_queries import QUERY_TABLE
from vtkit.pipeline.steps.texts import collection_of, evaluation_sets, used_where_left_open
from vtkit.pipeline.steps.transfer_embeddings import TRANSFER
from vtkit.pipeline.store import read_manifest, result_of, versions
from vtkit.recipe.write import resolved_toml
from vtkit.report.data import Need, Overlap, ReportData
from vtkit.search.measures.cost import Sparsity
from vtkit.search.measures.significance import Values, holm, paired_randomization, paired_randomization_over_sets
from vtkit.settings.named import is_local, named_things
from vtkit.settings.recipe import Recipe
from vtkit.settings.types import SEED
from vtkit.system import console
from vtkit.transfer.result import TransferResult
from vtkit.vocabulary.profiles import VocabularyAnalysis

R = TypeVar("R")

MODEL_LABELS = {"source": "source model"} | {
    stage.name: stage.label for stage in (TRANSFER, ADAPT, CALIBRATE, FINETUNE, QUERY_TABLE)
}
"""Model -> its name in reports, in the order the models are made."""

ENCODER = "encoder"  # the row and its label of a source that was transferred nowhere: new, trimmed, or with a new head

LEXICAL = {"none": "in the deployed index", "bm25": "with BM25 in one index"}  # `index.lexical` -> words


def write_report(recipe: View, inputs: Mapping[str, Path], out: Path) -> ReportData:
    """Write ``report.md``, ``report.json`` and ``report.html``, and the model card.

    ``inputs`` are the outputs of all other steps by their names.
    """
    from vtkit.report.content import report_page
    from vtkit.report.model_card import model_card
    from vtkit.report.pages import html_page, markdown_page

    report = collect(recipe, inputs)
    page = report_page(report)
    (out / "report.json").write_text(json.dumps(report.to_json(), indent=1, ensure_ascii=False), encoding="utf-8")
    (out / "report.md").write_text(markdown_page(page), encoding="utf-8")
    (out / "report.html").write_text(html_page(page), encoding="utf-8")
    (out / "model_card.md").write_text(model_card(report), encoding="utf-8")
    return report


def collect(recipe: View, inputs: Mapping[str, Path]) -> ReportData:
    """The results of the finished steps of a run, as the data of its report."""
    from vtkit.encoder.layout import sums_units_in

    transfer = result_of(inputs["transfer"], TransferResult)
    labels = {name: label for name, label in MODEL_LABELS.items() if name == "source" or name in inputs}
    labels |= {} if transfer.moved is not None else {"transfer": ENCODER}  # nothing was transferred
    final = list(labels)[-1]
    moved = transfer.moved
    adapted = _found(inputs, "adapt", AdaptResult)
    tuned = _found(inputs, "finetune", FinetuneResult)
    expander = _found(inputs, "expand", ExpanderResult)
    words_added = _found(inputs, EXPAND_DOCUMENTS.name, float)
    sparsity = _found(inputs, f"index:{final}", dict[str, Sparsity])
    table = _found(inputs, QUERY_TABLE.name, str)
    encoded = _found(inputs, f"encode:{final}", dict[str, EncodedSet])
    if encoded is None and table is not None:  # the vectors of the model before it serve both
        encoded = _found(inputs, f"encode:{list(labels)[-2]}", dict[str, EncodedSet])
    calibrated = _found(inputs, "calibrate", Calibration)
    queries = QUERY_TABLES[table] if table is not None else _query_encoder(tuned, calibrated, encoded)
    results, source_p_value = _results(recipe, inputs, labels, final, encoded, queries)
    manifests = {name: read_manifest(path) or {} for name, path in inputs.items()}
    of_steps = [warning for manifest in manifests.values() for warning in manifest.get("warnings", ())]
    return ReportData(
        name=recipe.recipe.name,
        about=recipe.recipe.about,
        language=recipe.recipe.language,
        created=time.strftime("%Y-%m-%d %H:%M"),
        seed=recipe.recipe.seed,
        demonstration=recipe.recipe.name.startswith("quickstart"),
        command=recipe.command,
        needs=tuple(Need(named.setting, named.value, is_local(named.value)) for named in named_things(recipe)),
        recipe_toml=resolved_toml(recipe, used_where_left_open(recipe)),
        versions=versions(),
        seconds={name: manifest["seconds"] for name, manifest in manifests.items() if manifest},
        results=results,
        source_p_value=source_p_value,
        to_try=_to_try(recipe),
        vocabulary=None
        if moved is None
        else Overlap(
            moved.source_size, transfer.target_size, moved.overlap, moved.overlap_share, moved.methods, moved.probed
        ),
        vocabularies=_found(inputs, "profile", VocabularyAnalysis),
        neighbours=moved.neighbours if moved is not None else (),
        curves={
            name: {curve: tuple(values) for curve, values in training.curve.items()}
            for name, training in {"adapt": adapted, "expand": expander, "finetune": tuned}.items()
            if training is not None
        },
        validated={"finetune": () if tuned is None else tuned.validated},
        trainings=1 if tuned is None else tuned.trainings,
        removed=0 if tuned is None else tuned.removed,
        mean_value=None if tuned is None else tuned.mean_value,
        held_out=None if adapted is None else adapted.held_out,
        calibration=calibrated,
        kind=transfer.kind,
        units=None if transfer.units is None else transfer.units.words,
        named_apart=(inputs[final] / "model" / OUTPUT_TOKENIZER).is_dir(),
        summed=sums_units_in(inputs[final] / "model"),
        query_encoder=queries,
        words_added=words_added,
        activation=None if tuned is None else ACTIVATIONS.get(tuned.activation),
        gates=tuple(
            gate for name in inputs if name.startswith("check:") for gate in result_of(inputs[name], list[GateResult])
        ),
        sparsity=next(iter((sparsity or {}).values()), None),
        **_searches(recipe, inputs, labels, results),
        without_evidence=_without_evidence(inputs["transfer"]),
        warnings=tuple(dict.fromkeys([*of_steps, *console.warned()])),
    )


DIMENSIONS = 1000  # a document, from which on more units of an embedder add little


def _to_try(recipe: View) -> tuple[str, ...]:
    """Settings that may bring the index closer to a dense embedder that is better."""
    source, kept = recipe.source, recipe.index.top_dimensions
    if not source.fitted:
        distilled = recipe.adapt is not None and "distill" in recipe.adapt.objectives
        return () if distilled else ('adapt.objective = "distill"',)
    more = (f"index.top_dimensions = {DIMENSIONS}",) if kept is not None and kept < DIMENSIONS else ()
    summed = source.units is not None and source.units.pooling == "max"
    return (*more, 'source.units.pooling = "sum"') if summed else more


QUERY_TABLES = {  # `query_encoder` of [finetune], [calibrate] or [index] -> words
    "binary": "a static table in which every token weighs 1",
    "idf": "a static table of inverse document frequencies",
    "learned": "a static table that was trained with the encoder of documents",
}

ACTIVATIONS = {"log1p": "log(1 + ReLU(x))", "log1p_log1p": "log(1 + log(1 + ReLU(x)))"}
"""``finetune.activation`` -> words."""


def _query_encoder(
    tuned: FinetuneResult | None, calibrated: Calibration | None, encoded: dict[str, EncodedSet] | None
) -> str | None:
    """The query encoder of the final model: as fine-tuning or calibration made it, or that of the model itself."""
    if tuned is not None and tuned.query_encoder in QUERY_TABLES:
        return QUERY_TABLES[tuned.query_encoder]
    if calibrated is not None and calibrated.query_encoder and (tuned is None or tuned.query_encoder == "source"):
        return QUERY_TABLES[calibrated.query_encoder]
    return next((each.query_encoder for each in (encoded or {}).values()), None)


def _found(inputs: Mapping[str, Path], name: str, kind: type[R]) -> R | None:
    """The result of the step ``name``, or None if the run has no such step."""
    return result_of(inputs[name], kind) if name in inputs else None


def rows_of(recipe: Recipe, models: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Name behind ``evaluate:`` -> name and label of its row, in the order of the report.

    Args:
        models: the recipe's models with their labels, the final one last.
    """
    names = {name: ENCODER if label == ENCODER else name for name, label in models.items()}
    final, label = list(models.items())[-1]
    engine = "" if recipe.index.engine == "exact" else f" ({recipe.index.engine})"
    rows = {"bm25": ("BM25",) * 2, "bm25-words": ("BM25 (words)",) * 2}
    rows |= {name: (names[name], of_model) for name, of_model in models.items()}
    rows["hybrid"] = f"{names[final]} + BM25", f"{label} + BM25"
    rows[DEPLOYED] = DEPLOYED, LEXICAL[recipe.index.lexical] + engine
    for peer in peers_of(recipe):
        rows[f"peer:{peer}"] = (f"{peer} (dense)",) * 2
        rows[f"hybrid-peer:{peer}"] = (f"{peer} (dense) + BM25",) * 2
    return rows


def _results(
    recipe: View,
    inputs: Mapping[str, Path],
    labels: dict[str, str],
    final: str,
    encoded: dict[str, EncodedSet] | None,
    query_encoder: str | None,
) -> tuple[tuple[SetResults, ...], float | None]:
    """One entry for each evaluation set; its rows are BM25, the models as they were made, the sum, and the peers. The
    second value is as of :func:`with_tests`."""
    if recipe.evaluate is None:
        return (), None
    named = rows_of(recipe, labels)
    steps = {name: inputs[f"evaluate:{name}"] for name in named if f"evaluate:{name}" in inputs}
    evaluated = {name: result_of(step, dict[str, SetResults]) for name, step in steps.items()}
    results: list[SetResults] = []
    values: list[dict[str, Values]] = []
    for folder, of_first in next(iter(evaluated.values()), {}).items():
        on_set = {name: of_sets[folder].rows[0] for name, of_sets in evaluated.items()}
        deployed, of_documents = on_set.get(DEPLOYED), (encoded or {}).get(folder)
        exactly = deployed is not None and deployed.fusion is not None and deployed.agreement is None
        passages = None if of_documents is None else of_documents.passages
        if exactly and passages is None:  # of passages, the best sum is not the sum of the best
            on_set.pop("hybrid", None)  # the same sum, searched exactly: equal rankings are one row
        rows, of_set = [], dict[str, Values]()
        for name, result in on_set.items():
            system, label = named[name]
            of_set[system] = read_per_query(steps[name] / folder)[recipe.evaluate.measures[0]]
            row = replace(result, system=system, label=label)
            rows.append(replace(row, query_encoder=query_encoder) if name == final else row)
        results.append(
            replace(
                of_first,
                rows=tuple(rows),
                share_cut=None if of_documents is None else of_documents.share_cut,
                document_length=recipe.index.document_length,
                passages=passages,
            )
        )
        values.append(of_set)
    return with_tests(results, values)


def with_tests(
    results: Sequence[SetResults], values: Sequence[Mapping[str, Values]]
) -> tuple[tuple[SetResults, ...], float | None]:
    """``results`` with the p values of their rows, and the p value of the source against the final model.

    One test a set is planned, that of :attr:`SetResults.planned` against the better BM25; these are corrected for one
    another over the sets (Holm). All other rows are tested against BM25 without a correction: their p values explore.
    Dense embedders are also tested against the planned row, corrected over all embedders and sets. The source and the
    final model are tested once, by the mean over the sets.

    Args:
        values: of each set, row -> query -> first measure.
    """
    bm25: dict[tuple[str, str], float] = {}
    planned: dict[tuple[str, str], float] = {}
    pairs = []  # the source and the final model on each set
    for of, by_row in zip(results, values, strict=True):
        for row in of.rows:
            if of.bm25 is not None and row.role != "bm25":
                bm25[of.set, row.system] = paired_randomization(by_row[row.system], by_row[of.bm25.system])
            if of.planned is not None and row.peer:
                planned[of.set, row.system] = paired_randomization(by_row[row.system], by_row[of.planned.system])
        if "source" in by_row and of.final is not None and of.final.system != "source":
            pairs.append((by_row["source"], by_row[of.final.system]))
    of_plan = [(of.set, of.planned.system) for of in results if of.planned is not None]
    bm25 |= holm({claim: bm25[claim] for claim in of_plan if claim in bm25})
    planned = holm(planned)
    source = paired_randomization_over_sets(*zip(*pairs, strict=True)) if pairs else None

    def with_p(of: SetResults, row: SystemResult) -> SystemResult:
        claim = of.set, row.system
        return replace(row, p_value_vs_bm25=bm25.get(claim), p_value_vs_planned=planned.get(claim))

    return tuple(replace(of, rows=tuple(with_p(of, row) for row in of.rows)) for of in results), source


def _searches(
    recipe: View, inputs: Mapping[str, Path], labels: Mapping[str, str], results: Sequence[SetResults]
) -> dict[str, Any]:
    """Fields of :class:`ReportData` about searching the index to be used with the queries of the first set."""
    final = list(labels)[-1]
    if f"index:{final}" not in inputs or recipe.evaluate is None:
        return {}
    from vtkit.report.searches import examples, outcomes, query_tokens_shared, search_cost, term_coverage
    from vtkit.search.searcher import Searcher
    from vtkit.search.segments import Manifest

    first, measure = recipe.corpora("evaluate.sets")[0], recipe.evaluate.measures[0]
    folder = str(first.folder)
    index = inputs.get(DEPLOY.name, inputs[f"index:{final}"]) / folder
    manifest = Manifest.load(index).searched_by(str(inputs[final] / "model"), recipe.index)
    searcher = Searcher.load(index, manifest)
    collection = collection_of(first).whole.sample(recipe.evaluate.max_queries, SEED)
    collection = replace(collection, name=folder)
    compared = None
    if results and results[0].bm25 is not None and results[0].planned is not None:
        steps = {system: name for name, (system, _) in rows_of(recipe, labels).items()}
        system, baseline = results[0].planned, results[0].bm25
        values = (
            read_per_query(inputs[f"evaluate:{steps[row.system]}"] / folder)[measure] for row in (system, baseline)
        )
        names = "the index to deploy" if system.role == "deployed" else "the encoder", baseline.label
        compared = outcomes(searcher, collection, *values, measure=measure, names=names)
    # the source and the final model, on the indexes that they were evaluated on
    of_sources = [folder / "model" for name, folder in inputs.items() if "/" in name and (folder / "model").is_dir()]
    source = recipe.source.model or (str(of_sources[-1]) if of_sources else None)
    models = {"source": source, final: str(inputs[final] / "model")}
    coverages: dict[str, Coverage] = {}
    for name, model in models.items():
        if model is not None and f"index:{name}" in inputs:
            home = inputs[f"index:{name}"] / folder
            evaluated = Searcher.load(home, Manifest.load(home).searched_by(model, recipe.index))
            covered = term_coverage(evaluated, collection)
            if covered is not None:
                coverages[labels[name]] = covered
    return {
        "outcomes": compared,
        "examples": examples(searcher, collection, recipe.report.example_query, compared),
        "query_tokens_shared": query_tokens_shared(searcher, collection),
        "cost": search_cost(searcher, collection),
        "coverage": coverages,
    }


def _without_evidence(transfer: Path) -> tuple[str, ...]:
    """The first new words, the most frequent in most vocabularies, that the transfer had no evidence for."""
    from vtkit.report.diagnosis import NO_EVIDENCE
    from vtkit.transfer.provenance import PROVENANCE, output_vocabulary, read_provenance

    if not (transfer / PROVENANCE).is_file():
        return ()
    vocabulary = output_vocabulary(transfer)
    without = (o.target_id for o in read_provenance(transfer / PROVENANCE) if o.method in NO_EVIDENCE)
    forms = (vocabulary.surfaces[number] for number in without)
    # Without a prefix, tokens that start no word may still be words, of scripts without spaces.
    words = (surface for surface, starts in forms if starts or not vocabulary.notation.prefix)
    return tuple(islice((word for word in words if len(word) > 1 and word.isalpha()), WORDS_SHOWN))


WORDS_SHOWN = 5  # new words without evidence that the advice of a report names


REPORT = Stage(
    "report",
    version=20,
    reads=(WHOLE_RECIPE,),
    corpora={"evaluate.sets": evaluation_sets},
    function=write_report,
    draws=True,
)
