"""The data sets that recipes name, in the files of their repositories: samples of real collections."""

import gzip
import io
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow
import pyarrow.parquet

from .texts import Sample, lines, sample
from .tokenizer_files import Files

Rows = Iterable[Mapping[str, Any]]


def miracl_topics() -> Files:
    """macavaney/miracl-noauth: topics and judgements of each language, TREC's columns."""
    files: Files = {}
    for language, collection in (("ko", korean()), ("ja", japanese())):
        stem = f"miracl-v1.0-{language}"
        for ours, theirs in (("train", "train"), ("test", "dev")):
            topics = "".join(f"{query.id}\t{query.text}\n" for query in collection.queries[ours])
            files[f"{stem}/topics/topics.{stem}-{theirs}.tsv"] = topics.encode()
            judged = _flat(collection.qrels[ours])
            rows = "".join(f"{query}\tQ0\t{document}\t{grade}\n" for query, document, grade in judged)
            files[f"{stem}/qrels/qrels.{stem}-{theirs}.tsv"] = rows.encode()
    return files


def miracl_corpus() -> Files:
    """miracl/miracl-corpus: passages in shards, 3 of Korean, 14 of Japanese."""
    files: Files = {}
    for language, collection, shards in (("ko", korean(), 3), ("ja", japanese(), 14)):
        for shard in range(shards):
            rows = [
                {"docid": document.id, "title": document.title, "text": document.text}
                for document in collection.documents[shard::shards]
            ]
            files[f"miracl-corpus-v1.0-{language}/docs-{shard}.jsonl.gz"] = gzip.compress(_jsonl(rows), mtime=0)
    return files


def webfaq() -> Files:
    """PaDaS-Lab/webfaq-retrieval: jsonl in a folder a language, and a README whose head says which file is what."""
    files: Files = {}
    configs: dict[str, dict[str, str]] = {}
    for language, collection in (("kor", korean()), ("jpn", japanese())):
        files[f"{language}/corpus.jsonl"] = _jsonl(_documents(collection))
        configs[f"{language}-corpus"] = {"corpus": f"{language}/corpus.jsonl"}
        for split in collection.queries:
            files[f"{language}/queries-{split}.jsonl"] = _jsonl(_queries(collection, split))
            files[f"{language}/qrels-{split}.jsonl"] = _jsonl(
                {"query-id": query, "corpus-id": document, "score": float(grade)}
                for query, document, grade in _flat(collection.qrels[split])
            )
        for part in ("queries", "qrels"):
            configs[f"{language}-{part}"] = {s: f"{language}/{part}-{s}.jsonl" for s in collection.queries}
    return {"README.md": _readme(configs), **files}


def mteb(collection: Sample, splits: Mapping[str, str]) -> Files:
    """mteb's copies of BEIR: jsonl, judgements in a folder, and a README that says which configuration is what.

    Args:
        splits: split of the repository -> that of the sample.
    """
    queries = {row["_id"]: row for split in splits.values() for row in _queries(collection, split)}
    judged = {
        f"qrels/{name}.jsonl": _jsonl(
            {"query-id": query, "corpus-id": document, "score": float(grade)}
            for query, document, grade in _flat(collection.qrels[split])
        )
        for name, split in splits.items()
    }
    configs = {
        "default": {name: f"qrels/{name}.jsonl" for name in splits},
        "corpus": {"corpus": "corpus.jsonl"},
        "queries": {"queries": "queries.jsonl"},
    }
    return {
        "README.md": _readme(configs),
        "corpus.jsonl": _jsonl(_documents(collection)),
        "queries.jsonl": _jsonl(queries.values()),
        **judged,
    }


def chemteb() -> Files:
    """BASF-AI's retrieval tasks: parquet in folders, and a README with the configurations corpus, queries, default."""
    collection = chemistry()
    folders = {"corpus": ("corpus", "corpus"), "queries": ("queries", "queries"), "default": ("data", "test")}
    return {
        "README.md": _readme({name: {split: f"{folder}/*"} for name, (folder, split) in folders.items()}),
        "corpus/corpus-00000-of-00001.parquet": _parquet(_documents(collection)),
        "queries/queries-00000-of-00001.parquet": _parquet(_queries(collection, "test")),
        "data/test-00000-of-00001.parquet": _parquet(
            {"query-id": query, "corpus-id": document, "score": grade}
            for query, document, grade in _flat(collection.qrels["test"])
        ),
    }


def generated_queries() -> Files:
    """BASF-AI/dolma-chem-only-query-generated: paragraphs and a query written for each."""
    rows = [{"paragraph": document, "generated_query": query} for query, document in chemistry().pairs]
    return _columns("data/train-00000-of-00001.parquet", rows, "default", "data/train-*")


def pubmed() -> Files:
    """MedRAG/pubmed: jsonl a file of PubMed, without configurations."""
    rows = [
        {"id": f"pubmed23n0001_{n}", "title": "", "content": text, "contents": text, "PMID": n}
        for n, text in enumerate(lines("biomed-abstracts-en", "elements-en"))
    ]
    return {"chunk/pubmed23n0001.jsonl": _jsonl(rows[::2]), "chunk/pubmed23n0002.jsonl": _jsonl(rows[1::2])}


def s2orc() -> Files:
    """sentence-transformers/s2orc, its configuration of titles and abstracts."""
    rows = [{"title": document.title, "abstract": document.text} for document in science().documents]
    name = "title-abstract-pair"
    return _columns(f"{name}/train-00000-of-00001.parquet", rows, name, f"{name}/train-*")


def msmarco_corpus() -> Files:
    """sentence-transformers/msmarco-corpus: passages and queries."""
    passages = [{"pid": n, "text": document.text} for n, document in enumerate(web().documents)]
    queries = [{"qid": n, "text": query.text} for n, query in enumerate(web().queries["train"])]
    return {
        "README.md": _readme({name: {"train": f"{name}/train-*"} for name in ("passage", "query")}),
        "passage/train-00000-of-00001.parquet": _parquet(passages),
        "query/train-00000-of-00001.parquet": _parquet(queries),
    }


def wikipedia() -> Files:
    """wikimedia/wikipedia, its dump of November 2023 in English."""
    rows = [
        {"id": str(n), "url": f"https://en.wikipedia.org/wiki/{n}", "title": document.title, "text": document.text}
        for n, document in enumerate(web().documents)
    ]
    name = "20231101.en"
    return _columns(f"{name}/train-00000-of-00001.parquet", rows, name, f"{name}/train-*")


def korean() -> Sample:
    return sample(None, "elements-ko")


def japanese() -> Sample:
    return sample("jaquad-ja", "elements-ko")


def chemistry() -> Sample:
    return sample("chemrxivquest-en")


def science() -> Sample:
    return sample("scifact-en")


def medicine() -> Sample:
    return sample("med-en")


def web() -> Sample:
    return sample("boolq-en")


_SPLITS = {"train": "train", "test": "test"}

DATASETS: Mapping[str, Callable[[], Files]] = {
    "macavaney/miracl-noauth": miracl_topics,
    "miracl/miracl-corpus": miracl_corpus,
    "PaDaS-Lab/webfaq-retrieval": webfaq,
    "mteb/scifact": lambda: mteb(science(), _SPLITS),
    "mteb/scidocs": lambda: mteb(science(), {"test": "test"}),
    "mteb/trec-covid": lambda: mteb(medicine(), {"test": "test"}),
    "mteb/nfcorpus": lambda: mteb(medicine(), {**_SPLITS, "dev": "test"}),
    "mteb/msmarco": lambda: mteb(web(), {"train": "train", "dev": "test", "test": "test"}),
    "BASF-AI/ChemHotpotQARetrieval": chemteb,
    "BASF-AI/ChemNQRetrieval": chemteb,
    "BASF-AI/dolma-chem-only-query-generated": generated_queries,
    "MedRAG/pubmed": pubmed,
    "sentence-transformers/s2orc": s2orc,
    "sentence-transformers/msmarco-corpus": msmarco_corpus,
    "wikimedia/wikipedia": wikipedia,
}
"""Repository -> its files."""


def _documents(collection: Sample) -> list[dict[str, str]]:
    return [{"_id": each.id, "title": each.title, "text": each.text} for each in collection.documents]


def _queries(collection: Sample, split: str) -> list[dict[str, str]]:
    return [{"_id": query.id, "text": query.text} for query in collection.queries[split]]


def _flat(qrels: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, int]]:
    return [(query, document, grade) for query, judged in qrels.items() for document, grade in judged.items()]


def _columns(path: str, rows: Rows, config: str, pattern: str) -> Files:
    return {"README.md": _readme({config: {"train": pattern}}), path: _parquet(rows)}


def _readme(configs: Mapping[str, Mapping[str, str]]) -> bytes:
    """The head of a README that names the files of each configuration and split, as the hub writes it."""
    head = ["---", "configs:"]
    for name, splits in configs.items():
        head += [f"- config_name: {name}", "  data_files:"]
        for split, path in splits.items():
            head += [f"  - split: {split}", f"    path: {path}"]
    return "\n".join([*head, "---", ""]).encode()


def _jsonl(rows: Rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _parquet(rows: Rows) -> bytes:
    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in rows]), written)
    return written.getvalue()
