"""Results in the layout of mteb's cache, as ``mteb.ResultCache`` and the tables of its leaderboard read them.

::

    results/SYSTEM/no_revision_available/TASK.json

Fields and names of measures are those that ``TaskResult.to_disk`` of mteb 2.26 writes for a retrieval task. Its
abstention measures (``nauc_…``) are left out. A public collection of vtkit has the name of mteb's task; any other
task is called as its folder.
"""

import json
import re
from pathlib import Path
from typing import Any

from vtkit.data.sources import is_public
from vtkit.data.trec import Run
from vtkit.evaluation.collection import Collection
from vtkit.search.measures.effectiveness import evaluate

CUTS = (1, 3, 5, 10, 20, 100, 1000)
MEASURES = {"ndcg": "nDCG", "map": "AP", "recall": "R", "precision": "P", "mrr": "RR", "hit_rate": "Success"}
"""mteb's name -> that of ir_measures."""

MAIN, REVISION, FORMAT = "ndcg_at_10", "no_revision_available", "2.26.0"

_TASKS = {
    "arguana": "ArguAna",
    "climate-fever": "ClimateFEVER",
    "dbpedia-entity": "DBPedia",
    "fever": "FEVER",
    "fiqa": "FiQA2018",
    "hotpotqa": "HotpotQA",
    "msmarco": "MSMARCO",
    "nfcorpus": "NFCorpus",
    "nq": "NQ",
    "quora": "QuoraRetrieval",
    "scidocs": "SCIDOCS",
    "scifact": "SciFact",
    "trec-covid": "TRECCOVID",
    "webis-touche2020": "Touche2020",
}
"""Collection of BEIR -> mteb's task."""

_SCRIPTS = {"ko": "Hang", "ja": "Jpan", "zh": "Hans"}
"""Language -> the script of all its letters, where Unicode has several."""


def write_mteb(folder: Path, system: str, on: Collection, run: Run, depth: int, seconds: float) -> Path:
    """Write mteb's measures of a run at its cuts, and its main score (nDCG@10, or at the deepest cut there is), below
    ``folder``; returns the file.

    Args:
        system: what the model is called.
        depth: results a query in ``run``; measures of more are left out.
        seconds: that encoding and searching took.
    """
    (task, subset), collection, split = mteb_task(on.name), on.judged, str(on.split)
    cuts = [cut for cut in CUTS if cut <= depth]
    names = {f"{name}_at_{cut}": f"{kind}@{cut}" for name, kind in MEASURES.items() for cut in cuts}
    values = evaluate(run, collection.qrels, list(names.values()))
    measured = {name: round(values[measure], 5) for name, measure in names.items()}
    main = MAIN if MAIN in measured else f"ndcg_at_{max(cuts)}"
    measured |= {"accuracy": measured["recall_at_1"], "main_score": measured[main]}
    languages = languages_in_mteb([text for text in collection.contents[:1000] if text])
    scores: dict[str, list[dict[str, Any]]] = {split: [{**measured, "hf_subset": subset, "languages": languages}]}
    place = folder / "results" / re.sub(r"[^\w.+-]+", "_", system.replace("/", "__")) / REVISION / f"{task}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_file():  # further subsets of a task, such as miracl:ko beside miracl:ja
        for other, rows in json.loads(place.read_text("utf-8"))["scores"].items():
            kept = [each for each in rows if (other, each["hf_subset"]) != (split, subset)]
            scores[other] = kept + scores.get(other, [])
    record = {
        "dataset_revision": "unknown",
        "task_name": task,
        "mteb_version": FORMAT,
        "scores": scores,
        "evaluation_time": round(seconds, 3),
        "kg_co2_emissions": None,
    }
    place.write_text(json.dumps(record, indent=2, ensure_ascii=False), encoding="utf-8")
    return place


def mteb_task(name: str) -> tuple[str, str]:
    """The task and its subset that a collection is in mteb; of a folder its name."""
    if not is_public(name) or Path(name).is_dir():
        return Path(name).name, "default"
    kind, _, subset = name.partition(":")
    if kind in ("beir", "msmarco", "chemteb", "nanobeir"):
        task = _TASKS.get(subset or kind) or f"CQADupstack{subset.removeprefix('cqadupstack-').capitalize()}Retrieval"
        if kind == "chemteb":
            task = f"Chem{task}Retrieval"
        elif kind == "nanobeir":
            task = f"Nano{task.removesuffix('Retrieval').replace('ClimateFEVER', 'ClimateFever')}Retrieval"
        return (re.sub(r"\W+", "-", name) if name.startswith("msmarco:") else task), "default"
    tasks = {"miracl": "MIRACLRetrieval", "miracl-hard": "MIRACLRetrievalHardNegatives", "webfaq": "WebFAQRetrieval"}
    if kind in tasks:  # each language is a subset
        return tasks[kind], subset
    return re.sub(r"\W+", "-", name), "default"


def languages_in_mteb(texts: list[str]) -> list[str]:
    """ISO 639-3 code and ISO 15924 script of texts, such as ``eng-Latn``; nothing where they do not tell."""
    from fontTools import unicodedata
    from lingua import IsoCode639_1, Language

    from vtkit.data.parallel import languages_of

    code = languages_of([(text, "") for text in texts])[0]
    if code is None:
        return []
    language = Language.from_iso_code_639_1(IsoCode639_1.from_str(code))
    letters = (char for text in texts for char in text if char.isalpha())
    script = _SCRIPTS.get(code) or unicodedata.script(next(letters, "a"))
    return [f"{language.iso_code_639_3.name.lower()}-{script}"]
