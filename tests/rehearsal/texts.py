"""Small real collections and parallel text: of the folder VTKIT_DATA where it is there, else of the quickstart."""

import gzip
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vtkit.data.collections import load_retrieval
from vtkit.data.retrieval import Document, Query, RetrievalSet

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "recipes" / "quickstart_data"
SHARED = Path(os.environ.get("VTKIT_DATA", ROOT.parent / "shared"))

DOCUMENTS, QUERIES = 400, 40
"""Of a collection: documents, and judged queries a split."""


@dataclass(frozen=True)
class Sample:
    """A part of a collection: its documents, and queries with relevant documents under ``train`` and ``test``."""

    documents: list[Document]
    queries: dict[str, list[Query]]
    qrels: dict[str, dict[str, dict[str, int]]]

    @property
    def texts(self) -> list[str]:
        return [document.contents for document in self.documents]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Text of each query and of its first relevant document."""
        by_id = {document.id: document.contents for document in self.documents}
        return [
            (query.text, by_id[next(iter(self.qrels[split][query.id]))])
            for split, queries in self.queries.items()
            for query in queries
        ]


def from_shared(name: str) -> Path | None:
    """A file or folder of VTKIT_DATA; None where it is not there."""
    path = SHARED / name
    return path if path.exists() else None


@cache
def sample(name: str | None, otherwise: str = "elements-en") -> Sample:
    """Some of the documents and queries of the collection ``name`` of VTKIT_DATA, else (or without a name) of the
    quickstart's ``otherwise``. A collection with one split gives one half of its queries to each."""
    folder = (from_shared(f"data/{name}") if name else None) or QUICKSTART / otherwise
    splits = [split for split in ("train", "test") if (folder / "qrels" / f"{split}.tsv").exists()]
    loaded = {split: load_retrieval(folder, split) for split in splits}
    queries = {split: _about_different_documents(loaded[split]) for split in splits}
    qrels = {split: dict(loaded[split].qrels) for split in splits}
    if splits == ["test"]:
        half = len(queries["test"]) // 2
        queries = {"train": queries["test"][:half], "test": queries["test"][half:]}
        qrels["train"] = qrels["test"]
    qrels = {split: {query.id: qrels[split][query.id] for query in queries[split]} for split in queries}
    wanted = {document for judged in qrels.values() for each in judged.values() for document in each}
    documents = loaded["test"].documents
    kept = [document for document in documents if document.id in wanted]
    kept += [document for document in documents if document.id not in wanted][: max(DOCUMENTS - len(kept), 0)]
    return Sample(kept, queries, qrels)


def _about_different_documents(collection: RetrievalSet) -> list[Query]:
    """The first queries each of which has a relevant document that none before it has."""
    found: dict[str, Query] = {}
    for query in collection.queries:
        found.setdefault(next(iter(collection.qrels[query.id])), query)
        if len(found) == QUERIES:
            break
    return list(found.values())


@cache
def parallel(language: str) -> str:
    """Sentence pairs, English and ``language``, a tab between."""
    for name in (f"pud-en-{language}", f"en-{language}.pud"):
        path = from_shared(f"data/parallel/{name}.tsv.gz")
        if path is not None:
            return gzip.decompress(path.read_bytes()).decode()
    return (QUICKSTART / "parallel-en-ko.tsv").read_text(encoding="utf-8")


@cache
def dictionary(language: str) -> str:
    """A dictionary, English and ``language``, a tab between; without VTKIT_DATA the first of the quickstart's pairs."""
    path = from_shared(f"data/parallel/dict-wiktionary-en-{language}.tsv.gz")
    if path is not None:
        return gzip.decompress(path.read_bytes()).decode()
    return "".join((QUICKSTART / "parallel-en-ko.tsv").read_text(encoding="utf-8").splitlines(keepends=True)[:200])


@cache
def lines(name: str, otherwise: str, most: int = 2000) -> list[str]:
    """Lines of the text ``name`` of VTKIT_DATA, else the documents of the quickstart's ``otherwise``."""
    path = from_shared(f"data/text/{name}.txt.gz")
    if path is None:
        return sample(None, otherwise).texts
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.strip()[:4000] for line, _ in zip(file, range(most), strict=False) if line.strip()]
