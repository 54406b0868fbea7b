"""Situations in which somebody first writes a recipe, on parts of the real collections: the answers to ``vtkit recipe
new``, and the figures of the run as written.

    VTKIT_DATA=../shared python tests/situations.py FOLDER [--documents 100 1200] [--only pairs] [--set adapt.steps=50]
        [--collection jaquad-ja]

Prints a line of JSON for each run: its collection, nDCG@10 of BM25, of the encoder alone and of the one index, p of the
index against BM25, and seconds. FOLDER keeps collections, recipes and runs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Command = Callable[..., str]
"""Calls ``vtkit`` with arguments, and returns what it prints; raises where it fails."""

SHARED = Path(os.environ.get("VTKIT_DATA", Path(__file__).resolve().parents[2] / "shared"))


@dataclass(frozen=True)
class Situation:
    """What somebody has: a collection, and what leads from the source's language to its language."""

    collection: str
    language: str
    parallel: tuple[str, ...] = ()
    judged: bool = False
    tokenizer: str | None = None
    embedder: str | None = None
    text: str | None = None
    """Further text of the language."""

    def on(self, collection: str) -> Situation:
        """The same situation on another collection, with the parallel files of its language; English needs none."""
        language = collection[-2:]
        parallel = tuple(re.sub(f"-{self.language}\\b", f"-{language}", name) for name in self.parallel)
        if language == "en":
            parallel = ()
        return replace(self, collection=collection, language=language, parallel=parallel)

    def answers(self, shared: Path, collection: Path) -> list[str]:
        """The options of ``vtkit recipe new``."""
        given = ["--language", self.language]
        if self.embedder is None:
            given += ["--source", str(shared / "models" / "minilm-splade-en")]
        else:
            given += ["--embedder", os.environ.get("VTKIT_EMBEDDER") or str(shared / "models" / self.embedder)]
        given += ["--corpus", str(collection), "--evaluate", str(collection)]
        given += ["--corpus", str(shared / "data" / "text" / f"{self.text}.txt.gz")] if self.text else []
        for name in self.parallel:
            given += ["--parallel", str(shared / "data" / "parallel" / f"{name}.tsv.gz")]
        given += ["--train", str(collection)] if self.judged else []
        given += ["--tokenizer", str(shared / "vocab" / self.tokenizer)] if self.tokenizer else []
        return given


SITUATIONS = {
    "pairs": Situation("xquadr-hi", "hi", ("dict-wiktionary-en-hi", "tatoeba-en-hi", "en-hi.pud")),
    "judgements": Situation("jaquad-ja", "ja", ("dict-wiktionary-en-ja", "tatoeba-en-ja", "en-ja.pud"), judged=True),
    "dictionary": Situation("xquadr-ar", "ar", ("dict-wiktionary-en-ar",)),
    "no-bridge": Situation("xquadr-zh", "zh"),
    "domain": Situation("chemrxivquest-en", "en"),
    "tokenizer": Situation(
        "xquadr-zh", "zh", ("dict-wiktionary-en-zh", "tatoeba-en-zh", "en-zh.pud"), tokenizer="bert-base-chinese"
    ),
}

DENSE = "all-MiniLM-L6-v2"
"""Reads English; VTKIT_EMBEDDER names another one, which the languages below need."""

SITUATIONS["embedder"] = Situation("chemrxivquest-en", "en", embedder=DENSE)
OF_LANGUAGES = {
    f"embedder-{collection}": Situation(collection, collection[-2:], embedder=DENSE, text=text)
    for collection, text in (
        *(("arcdr-ar", "miracl-queries-ar"), ("xquadr-zh", "miracl-queries-zh"), ("xquadr-hi", "miracl-queries-hi")),
        *(("jaquad-ja", "jglue-sentences-ja"), ("korquad-ko", "klue-sentences-ko")),
        *(("scifact-en", "biomed-abstracts-en"), ("med-en", "biomed-abstracts-en")),
    )
}


def part_of(collection: Path, folder: Path, documents: int, seed: int = 0) -> Path:
    """``folder``, with so many documents of a collection, and the queries that find all their answers among them."""
    folder.mkdir(parents=True)
    texts, queries = (_lines(collection / f"{name}.jsonl") for name in ("corpus", "queries"))
    kept = random.Random(seed).sample(texts, min(documents, len(texts)))
    there = {text["_id"] for text in kept}
    lost, judged = set(), {}
    for path in sorted((collection / "qrels").glob("*.tsv")):
        judged[path.name] = [line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]]
        lost |= {query for query, document, _ in judged[path.name] if document not in there}
    (folder / "qrels").mkdir()
    for name, rows in judged.items():
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(row) for row in rows if row[0] not in lost)]
        (folder / "qrels" / name).write_text("\n".join(lines) + "\n", "utf-8")
    for name, kind in (("corpus", kept), ("queries", [query for query in queries if query["_id"] not in lost])):
        lines = [json.dumps(entry, ensure_ascii=False) for entry in kind]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def _lines(path: Path) -> list[dict[str, Any]]:
    """The entries of a file, which may be compressed: ``corpus.jsonl`` or ``corpus.jsonl.gz``."""
    packed = path.with_name(f"{path.name}.gz")
    raw = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    return [json.loads(line) for line in raw.decode("utf-8").splitlines() if line]


def write_recipe(
    name: str,
    documents: int,
    folder: Path,
    shared: Path,
    vtkit: Command,
    on: str | None = None,
    tokenizer: str | None = None,
) -> Path:
    """Write the recipe of a situation, on a part of its collection, and check it with its data."""
    situation = (SITUATIONS | OF_LANGUAGES)[name]
    situation = situation.on(on) if on else situation
    situation = replace(situation, tokenizer=tokenizer) if tokenizer else situation
    called = f"{name}-{documents}" + (f"-{on}" if on else "")
    collection = folder / "collections" / f"{situation.collection}-{documents}"
    if not collection.exists():
        part_of(shared / "data" / situation.collection, collection, documents)
    recipe = folder / f"{called}.toml"
    vtkit("recipe", "new", "--name", called, *situation.answers(shared, collection), "--out", str(recipe))
    vtkit("recipe", "check", str(recipe), "--data")
    return recipe


def run_recipe(recipe: Path, settings: Sequence[str], vtkit: Command) -> dict[str, Any]:
    """Run the recipe of a situation, and read its figures in the report."""
    begun = time.monotonic()
    vtkit("run", str(recipe), *(word for setting in settings for word in ("--set", setting)))
    report = json.loads((recipe.parent / "runs" / recipe.stem / "report.json").read_text("utf-8"))
    found = report["results"][0]
    index = next(row for row in found["rows"] if row["role"] == "deployed")
    encoder = [row for row in found["rows"] if row["role"] == "encoder"][-1]
    dense = [row for row in found["rows"] if row["role"] in ("peer", "peer-sum")]
    bm25 = max((row for row in found["rows"] if row["role"] == "bm25"), key=_effectiveness)
    return {
        "recipe": recipe.stem,
        "collection": found["set"],
        "documents": found["documents"],
        "queries": found["queries"],
        "bm25": round(_effectiveness(bm25), 4),
        "encoder": round(_effectiveness(encoder), 4),
        "index": round(_effectiveness(index), 4),
        "p": index["p_value_vs_bm25"],
        "weight": (index["fusion"] or {}).get("weight"),
        "dense": [round(_effectiveness(row), 4) for row in dense],
        "dimensions": encoder.get("document_dimensions"),
        "seconds": round(time.monotonic() - begun),
    }


def _effectiveness(row: dict[str, Any]) -> float:
    return float(row["measures"]["nDCG@10"])


def command_in(folder: Path) -> Command:
    """``vtkit`` in ``folder``, in a process of its own."""

    def vtkit(*arguments: str) -> str:
        command = [sys.executable, "-m", "vtkit", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            raise RuntimeError(f"vtkit {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    return vtkit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, nargs="+", default=[100, 1200])
    parser.add_argument("--only", nargs="+", default=list(SITUATIONS), choices=[*SITUATIONS, *OF_LANGUAGES])
    parser.add_argument(
        "--collection", help="Run the situation on this collection of the folder of data instead of its own."
    )
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--tokenizer", help="Use this folder of vocabularies instead of the situation's own.")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for documents in given.documents:
        for name in given.only:
            folder = given.folder.absolute()
            vtkit = command_in(folder)
            recipe = write_recipe(name, documents, folder, SHARED.absolute(), vtkit, given.collection, given.tokenizer)
            found = run_recipe(recipe, given.set, vtkit)
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
