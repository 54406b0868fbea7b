"""Of each shipped recipe, the steps and sample sizes that are lowered, and the files that its user brings."""

import gzip
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .datasets import japanese, korean
from .texts import ROOT, Sample, dictionary, parallel

RECIPES = sorted(path.stem for path in (ROOT / "recipes").glob("*.toml"))
"""All shipped recipes."""


@dataclass(frozen=True)
class Rehearsed:
    """How a recipe is rehearsed."""

    lowered: Mapping[str, int]
    """Steps and sample sizes, by setting."""

    bring: Callable[[Path], None] | None = None
    """Writes the user's own files that it names, into its folder."""

    other: Mapping[str, str] | None = None
    """Settings that are no sizes, of a variant."""

    recipe: str = ""
    """The shipped recipe, where the rehearsal has another name."""


def bring_japanese(folder: Path) -> None:
    """Pairs of questions and passages."""
    collection = japanese()
    passages = {document.id: " ".join(document.contents.split()) for document in collection.documents}
    questions = {query.id: query.text for queries in collection.queries.values() for query in queries}
    pairs = [(q, d) for judged in collection.qrels.values() for q, grades in judged.items() for d in grades]
    _write(folder / "pairs.tsv.gz", "".join(f"{questions[q]}\t{passages[d]}\n" for q, d in pairs))


def bring_collection(folder: Path) -> None:
    """A Korean collection as a BEIR folder, a dictionary and sentence pairs."""
    write_beir(folder / "collection", korean())
    _write(folder / "dictionary-en-xx.tsv.gz", dictionary("ko"))
    _write(folder / "sentences-en-xx.tsv.gz", parallel("ko"))


CSV = {"adapt.steps": 2, "adapt.batch_size": 4, "finetune.steps": 2, "finetune.batch_size": 2}
"""Of the recipes that begin with a new encoder of BERT-base's size, which nothing here makes smaller."""

PAPER = {"adapt.steps": 3, "adapt.batch_size": 16, "finetune.steps": 3, "finetune.batch_size": 16}

REHEARSED: Mapping[str, Rehearsed] = {
    "quickstart": Rehearsed({"adapt.steps": 20}),
    "quickstart_english": Rehearsed({"adapt.steps": 20, "finetune.epochs": 2}),
    "korean_splade": Rehearsed({"adapt.steps": 4, "finetune.steps": 4}),
    "japanese_splade": Rehearsed({"finetune.steps": 4, "finetune.batch_size": 4}, bring_japanese),
    "from_embedder": Rehearsed({"source.steps": 20}, bring_collection),
    "without_judgements": Rehearsed({"adapt.steps": 4}, bring_collection),
    "with_judgements": Rehearsed({"adapt.steps": 4, "finetune.steps": 4}, bring_collection),
    "modernbert_to_uncased": Rehearsed(PAPER),
    "vt_backbones": Rehearsed(PAPER, other={"source.model": "FacebookAI/roberta-base"}),
    "bert_cased": Rehearsed(PAPER, None, {"source.model": "google-bert/bert-base-cased"}, "vt_backbones"),
    "vt_initialisation": Rehearsed(PAPER, other={"transfer.method": "overlap_mean"}),
    "vt_activation": Rehearsed(PAPER, other={"calibrate.target_activation": "0.3"}),
    "vt_head_only": Rehearsed(PAPER),
    "vt_inference_free": Rehearsed(PAPER),
    "sembridge": Rehearsed({"finetune.steps": 3, "finetune.batch_size": 16}),
    "sembridge_bridge": Rehearsed({}),
    "casing": Rehearsed({"finetune.steps": 3, "finetune.batch_size": 16}),
    "biomedical_adalm": Rehearsed(PAPER),
    "science_adalm": Rehearsed(PAPER),
    "cai_gpl": Rehearsed({"adapt.steps": 3, "adapt.batch_size": 4}, None, {"adapt.distill.queries": "crops"}),
    "chemistry_bpe": Rehearsed(PAPER),
    "csv_splade_doc": Rehearsed(CSV),
    "csv_unicoil": Rehearsed({**CSV, "expand_documents.steps": 2, "expand_documents.batch_size": 4}),
    "opensearch_source": Rehearsed(
        {},
        bring_collection,
        {
            "source.model": "opensearch-project/opensearch-neural-sparse-encoding-doc-v2-distill",
            "adapt": "none",  # which needs queries and documents encoded alike
        },
        "without_judgements",
    ),
}
"""Name -> how it is rehearsed; all shipped recipes, and one with a source that OpenSearch published."""

FAST = ("opensearch_source",)
"""Recipes that ``make test`` runs to their reports."""

CHECKED = ("korean_splade", "chemistry_bpe", "from_embedder", "biomedical_adalm")
"""Recipes that ``make test`` checks with their data."""


def lay_out(folder: Path) -> None:
    """A copy of the repository's recipes, tokenizers and the quickstart's data, with the files that users bring."""
    for name in ("recipes", "tokenizers"):
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
    for rehearsed in REHEARSED.values():
        if rehearsed.bring is not None:
            rehearsed.bring(folder / "recipes")


def options(name: str) -> list[str]:
    """The ``--set`` options of a rehearsal."""
    rehearsed = REHEARSED[name]
    return [
        argument
        for key, value in {"sweep": "none", **rehearsed.lowered, **(rehearsed.other or {})}.items()
        for argument in ("--set", f"{key}={value}")
    ]


def write_beir(folder: Path, collection: Sample) -> None:
    """``collection`` as a BEIR folder."""
    import json

    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (
        ("corpus", [{"_id": each.id, "title": each.title, "text": each.text} for each in collection.documents]),
        ("queries", [{"_id": q.id, "text": q.text} for queries in collection.queries.values() for q in queries]),
    ):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, "utf-8")
    for split, qrels in collection.qrels.items():
        rows_of = "".join(f"{q}\t{d}\t{grade}\n" for q, judged in qrels.items() for d, grade in judged.items())
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows_of}", "utf-8")


def _write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
