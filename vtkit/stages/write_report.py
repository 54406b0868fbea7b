"""Stage ``report``: everything the other stages found, as one dictionary, and the pages made from it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtkit.artifacts import facts_of, read_manifest, versions
from vtkit.recipe.sections import is_local, named_things
from vtkit.recipe.write import resolved_toml
from vtkit.stages.adapt_mlm import ADAPT
from vtkit.stages.calibrate_head import CALIBRATE
from vtkit.stages.finetune_encoder import FINETUNE
from vtkit.stages.index_corpus import opened
from vtkit.stages.stage import WHOLE_RECIPE, Stage, View
from vtkit.stages.texts import evaluation_sets
from vtkit.stages.transfer_embeddings import TRANSFER

if TYPE_CHECKING:
    from vtkit.report.data import ReportData

MODELS = ("source", *(stage.name for stage in (TRANSFER, ADAPT, CALIBRATE, FINETUNE)))
EXAMPLE_RESULTS = 5


def write_report(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write ``report.md``, ``report.json`` and ``report.html`` as asked for, the model card, and ``data.json``.

    ``inputs`` are the outputs of all other steps by their names.
    """
    from vtkit.report.html import html_page
    from vtkit.report.markdown import markdown_page
    from vtkit.report.model_card import model_card

    report = collect(recipe, inputs)
    data = json.dumps(report.to_json(), indent=1, ensure_ascii=False)
    (out / "data.json").write_text(data, encoding="utf-8")
    if "json" in recipe.report.formats:
        (out / "report.json").write_text(data, encoding="utf-8")
    if "md" in recipe.report.formats:
        (out / "report.md").write_text(markdown_page(report), encoding="utf-8")
    if "html" in recipe.report.formats:
        (out / "report.html").write_text(html_page(report), encoding="utf-8")
    (out / "model_card.md").write_text(model_card(report), encoding="utf-8")
    return {}


def collect(recipe: View, inputs: Mapping[str, Path]) -> ReportData:
    """What the finished steps of a run found."""
    from vtkit.report.data import ReportData

    found = {name: facts_of(path) for name, path in inputs.items()}
    manifests = {name: read_manifest(path) or {} for name, path in inputs.items()}
    final = _final_model(inputs)
    transfer = found["transfer"]
    return ReportData.from_json(
        {
            "name": recipe.recipe.name,
            "about": recipe.recipe.about,
            "language": recipe.recipe.language,
            "created": time.strftime("%Y-%m-%d %H:%M"),
            "seed": recipe.recipe.seed,
            "demonstration": recipe.recipe.name.startswith("quickstart"),
            "command": recipe.command,
            "needs": [
                {"setting": named.setting, "name": named.value, "local": is_local(named.value)}
                for named in named_things(recipe)
            ],
            "recipe_toml": resolved_toml(recipe),
            "versions": versions(),
            "seconds": {name: manifest.get("seconds", 0.0) for name, manifest in manifests.items()},
            "results": _results(recipe, inputs, found, final),
            "vocabulary": transfer if "overlap" in transfer else None,  # a new encoder has none
            "vocabularies": found.get("analyse"),
            "curves": {name: found[name]["curve"] for name in ("adapt", "finetune") if name in found},
            "calibration": found.get("calibrate"),
            "gates": [gate for name in inputs if name.startswith("check:") for gate in found[name]["gates"]],
            "sparsity": _sparsity(found.get(f"index:{final}")),
            "neighbours": transfer.get("neighbours", ()),
            "example": _example(recipe, inputs, final),
        }
    )


def _final_model(inputs: Mapping[str, Path]) -> str:
    return [name for name in MODELS if name in inputs][-1]


def _results(
    recipe: View, inputs: Mapping[str, Path], facts: Mapping[str, dict[str, Any]], final: str
) -> list[dict[str, Any]]:
    from vtkit.measures.significance import paired_randomization

    judged = [name for name in ("bm25", "bm25-words", *MODELS, "hybrid") if f"evaluate:{name}" in facts]
    results = []
    for folder in facts[f"evaluate:{judged[0]}"] if judged else ():
        rows = []
        baseline = _strongest_bm25(recipe, inputs, facts, folder)
        for name in judged:
            found = facts[f"evaluate:{name}"][folder]
            p_value = None
            if baseline is not None and name in (final, "hybrid"):
                first = recipe.evaluate.measures[0] if recipe.evaluate is not None else ""
                own = _per_query(inputs, name, folder)
                assert own is not None
                p_value = paired_randomization(own[first], baseline[first])
            rows.append(
                {
                    "model": {"bm25": "BM25", "bm25-words": "BM25 (words)", "hybrid": f"{final} + BM25"}.get(
                        name, name
                    ),
                    "measures": found["measures"],
                    "query_dimensions": found.get("query_dimensions"),
                    "document_dimensions": found.get("document_dimensions"),
                    "flops": found.get("flops"),
                    "tied_scores": found.get("tied_scores"),
                    "analyser": found.get("analyser"),
                    "k1": found.get("k1"),
                    "b": found.get("b"),
                    "weight": found.get("weight"),
                    "weight_queries": found.get("weight_queries"),
                    "weight_curve": found.get("weight_curve", ()),
                    "p_value_vs_bm25": p_value,
                }
            )
        any_of_them = facts[f"evaluate:{judged[0]}"][folder]
        results.append(
            {
                "set": folder,
                "queries": any_of_them["queries"],
                "documents": any_of_them["documents"],
                "rows": rows,
            }
        )
    return results


def _strongest_bm25(
    recipe: View, inputs: Mapping[str, Path], facts: Mapping[str, dict[str, Any]], folder: str
) -> dict[str, dict[str, float]] | None:
    """:func:`_per_query` of the BM25 that is better in the first measure: no claim is made against a weak one."""
    if recipe.evaluate is None:
        return None
    first = recipe.evaluate.measures[0]
    there = [name for name in ("bm25", "bm25-words") if f"evaluate:{name}" in facts]
    if not there:
        return None
    return _per_query(inputs, max(there, key=lambda name: facts[f"evaluate:{name}"][folder]["measures"][first]), folder)


def _per_query(inputs: Mapping[str, Path], name: str, folder: str) -> dict[str, dict[str, float]] | None:
    """Measure -> query -> value of one evaluated step; None where it was not evaluated."""
    path = inputs.get(f"evaluate:{name}")
    if path is None:
        return None
    return dict(json.loads((path / folder / "per_query.json").read_text("utf-8")))


def _sparsity(index: dict[str, Any] | None) -> dict[str, Any] | None:
    """Of the first set."""
    if not index:
        return None
    first = next(iter(index.values()))
    return {
        "dead_dimensions": first["dead_dimensions"],
        "documents_histogram": first["documents_histogram"],
        "document_frequencies": first["document_frequencies"],
    }


def _example(recipe: View, inputs: Mapping[str, Path], final: str) -> dict[str, Any] | None:
    index = inputs.get(f"index:{final}")
    if index is None or recipe.evaluate is None:
        return None
    from vtkit.search.searcher import explain_results

    first = recipe.corpora("evaluate.sets")[0]
    query = recipe.report.example_query
    if query is None:
        query = opened(first).queries[0].text
    return explain_results(
        str(inputs[final] / "model"),
        index / str(first.folder),
        recipe.index.engine,
        query,
        depth=EXAMPLE_RESULTS,
        query_length=recipe.index.query_length,
    )


REPORT = Stage(
    "report",
    version=5,
    reads=(WHOLE_RECIPE,),
    corpora={"evaluate.sets": evaluation_sets},
    function=write_report,
)
