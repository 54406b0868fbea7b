"""MIRACL, Wikipedia passages and native speakers' questions in 18 languages (Zhang et al., TACL 2023).

Read from the plain files of its two hub repositories (their loading scripts no longer run), or from a folder
that holds the same files:

    miracl-v1.0-ko/topics/topics.miracl-v1.0-ko-dev.tsv      query id, tab, text
    miracl-v1.0-ko/qrels/qrels.miracl-v1.0-ko-dev.tsv        query id, Q0, document id, grade
    miracl-corpus-v1.0-ko/docs-0.jsonl.gz, docs-1 ...        docid, title, text
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from vtkit.data import hub
from vtkit.data import text as texts
from vtkit.data.corpora import shards_in
from vtkit.data.problems import Problems
from vtkit.data.public.record import PublicCollection
from vtkit.data.retrieval import (
    RetrievalSet,
    checked_collection,
    read_documents,
    read_judgements,
    read_query_columns,
    splits_in,
    splits_there,
)
from vtkit.errors import DataError

TOPICS = "miracl/miracl"
CORPUS = "miracl/miracl-corpus"

_FOLDER = re.compile(r"miracl-v1\.0-([a-z]{2,3})")


def _read_miracl(language: str, split: str, root: Path | None) -> RetrievalSet:
    """``root`` has ``miracl-v1.0-LANGUAGE`` and ``miracl-corpus-v1.0-LANGUAGE`` (the latter also below
    ``miracl-corpus``)."""
    if root is None:
        topics_root = hub.fetch(TOPICS, [f"miracl-v1.0-{language}/*"])
        corpus_root = hub.fetch(CORPUS, [f"miracl-corpus-v1.0-{language}/*"])
        advice = "Run again with --download, or name a folder that holds the files."
    else:
        topics_root = corpus_root = root
        advice = f"MIRACL's layout is {_files_of(language)}."
    stem = f"miracl-v1.0-{language}"
    topics = texts.find_file(topics_root / stem / "topics", f"topics.{stem}-{split}.tsv")
    judgements = texts.find_file(topics_root / stem / "qrels", f"qrels.{stem}-{split}.tsv")
    shards = _shards(corpus_root, language)
    complaints = []
    if topics is None:
        complaints.append(f"topics.{stem}-{split}.tsv is missing")
    if judgements is None:
        there = splits_there(topics_root / stem / "qrels", f"qrels.{stem}-")
        complaints.append(f"qrels.{stem}-{split}.tsv is missing ({there})")
    if not shards:
        complaints.append(f"docs-*.jsonl.gz of miracl-corpus-v1.0-{language} are missing")
    if topics is None or judgements is None or not shards:
        where = str(root) if root is not None else f"{TOPICS} and {CORPUS} of the Hugging Face hub"
        raise DataError(f"{where}: {'; '.join(complaints)}. {advice}")
    problems = Problems()
    return checked_collection(
        f"miracl-{language}",
        read_documents(shards, problems, id_field="docid"),
        read_query_columns(topics, problems),
        read_judgements(judgements, problems),
        problems,
        corpus=shards[0].parent,
        queries_file=topics,
        judgements_file=judgements,
    )


def _layout(folder: Path) -> dict[str, list[str]]:
    """The languages whose topics and judgements lie in ``folder``, sorted, each with its splits."""
    stems = {match[1]: path for path in folder.iterdir() if (match := _FOLDER.fullmatch(path.name)) and path.is_dir()}
    return {name: splits_in(path / "qrels", f"qrels.{path.name}-") for name, path in sorted(stems.items())}


def _shards(root: Path, language: str) -> list[Path]:
    name = f"miracl-corpus-v1.0-{language}"
    folders: Iterable[Path] = (root / name, root / "miracl-corpus" / name)
    return next((shards for folder in folders if (shards := shards_in(folder))), [])


def _files_of(language: str) -> str:
    stem = f"miracl-v1.0-{language}"
    return (
        f"{stem}/topics/topics.{stem}-SPLIT.tsv, {stem}/qrels/qrels.{stem}-SPLIT.tsv and "
        f"miracl-corpus-v1.0-{language}/docs-N.jsonl.gz"
    )


MIRACL = PublicCollection(
    "miracl",
    title="MIRACL",
    languages=(
        *("ar", "bn", "de", "en", "es", "fa", "fi", "fr", "hi"),
        *("id", "ja", "ko", "ru", "sw", "te", "th", "yo", "zh"),
    ),
    example="ko",
    splits=("dev", "train"),
    repositories=(TOPICS, CORPUS),
    read=_read_miracl,
    layout=_layout,
)
"""The judgements of its test splits are not published."""
