"""WebFAQ retrieval, questions and answers of FAQ pages in 20 languages (Dinzinger et al., arXiv:2502.20936).

The hub repository says in the head of its README which files hold what: three configurations a language, such as
``kor-corpus``, ``kor-queries`` and ``kor-qrels``, each with a jsonl file a split. That head is followed here, so
that a revision with other file names still loads; a folder with such a README serves as well as the hub.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vtkit.data import hub
from vtkit.data import text as texts
from vtkit.data.problems import Problems
from vtkit.data.public.record import PublicCollection
from vtkit.data.retrieval import (
    Query,
    RetrievalSet,
    add_judgement,
    check_id,
    checked_collection,
    read_documents,
    read_queries,
)
from vtkit.errors import DataError

REPOSITORY = "PaDaS-Lab/webfaq-retrieval"


def _read_webfaq(language: str, split: str, root: Path | None) -> RetrievalSet:
    """Each question judged relevant to its own answer; ``root`` is a copy of the hub repository."""
    folder = hub.fetch(REPOSITORY, ["README.md"]) if root is None else root
    files = _files(folder, language)
    judgements = files["qrels"].get(split)
    if judgements is None:
        raise DataError(f"WebFAQ has no judgements {split!r} in {language!r}. It has: {', '.join(files['qrels'])}.")
    corpus = [pattern for patterns in files["corpus"].values() for pattern in patterns]
    # Newer revisions split the queries as the judgements are, older ones have them all in one file.
    by_split = files["queries"]
    queries = (
        by_split[split] if split in by_split else [pattern for patterns in by_split.values() for pattern in patterns]
    )
    if root is None:
        folder = hub.fetch(REPOSITORY, ["README.md", *corpus, *queries, *judgements])
    corpus_files, query_files = _found(folder, corpus), _found(folder, queries)
    judgement_files = _found(folder, judgements)
    problems = Problems()
    return checked_collection(
        f"webfaq-{language}",
        read_documents(corpus_files, problems),
        _read_queries(query_files, problems),
        _read_judgements(judgement_files, problems),
        problems,
        corpus=corpus_files[0],
        queries_file=query_files[0],
        judgements_file=judgement_files[0],
    )


def _files(folder: Path, language: str) -> dict[str, dict[str, list[str]]]:
    """For corpus, queries and qrels: split -> patterns of file names, as the head of the README names them."""
    from huggingface_hub import metadata_load

    readme = folder / "README.md"
    try:
        head: dict[str, Any] = metadata_load(readme) or {}
        configurations = {entry["config_name"]: entry["data_files"] for entry in head["configs"]}
        files = {}
        for part in ("corpus", "queries", "qrels"):
            splits: list[dict[str, Any]] = configurations[f"{language}-{part}"]
            files[part] = {entry["split"]: _patterns(entry["path"]) for entry in splits}
    except Exception as error:  # those of YAML have no nearer base in common with the rest
        raise DataError(
            f"{readme}: does not say which files hold the corpus, the queries and the qrels of {language!r} "
            f"({type(error).__name__}: {error}). It should be the README of {REPOSITORY}."
        ) from error
    return files


def _patterns(path: str | list[str]) -> list[str]:
    patterns = [path] if isinstance(path, str) else list(path)
    for pattern in patterns:
        if not pattern or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ValueError(f"{pattern!r} does not lie in the repository")
    return patterns


def _found(folder: Path, patterns: list[str]) -> list[Path]:
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    if not paths:
        raise DataError(f"{folder}: {', '.join(patterns)} is missing. Run again with --download.")
    wrong = [path.name for path in paths if ".jsonl" not in path.name and ".json" not in path.name]
    if wrong:
        raise DataError(f"{folder}: {', '.join(wrong)} is no jsonl file; this form of WebFAQ cannot be read.")
    return paths


def _read_queries(paths: list[Path], problems: Problems) -> list[Query]:
    queries: list[Query] = []
    files: dict[str, Path] = {}
    for path in paths:
        for query in read_queries(path, problems):
            if files.setdefault(query.id, path) != path:
                problems.add(path, f"query {query.id!r} is in {files[query.id].name} too")
            queries.append(query)
    return queries


def _read_judgements(paths: list[Path], problems: Problems) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for path in paths:
        with problems.reading(path):
            for number, entry in texts.read_jsonl(path):
                if isinstance(entry, str):
                    problems.add(path, f"line {number}: {entry}")
                    continue
                query, document, grade = entry.get("query-id"), entry.get("corpus-id"), entry.get("score")
                if not isinstance(query, str) or not isinstance(document, str) or not isinstance(grade, int | float):
                    problems.add(path, f"line {number}: needs query-id, corpus-id and score")
                elif complaint := check_id(query) or check_id(document):
                    problems.add(path, f"line {number}: {complaint}")
                else:
                    add_judgement(qrels, path, number, query, document, grade, problems)
    return qrels


WEBFAQ = PublicCollection(
    "webfaq",
    title="WebFAQ",
    languages=(
        *("ara", "dan", "deu", "eng", "fas", "fra", "hin", "ind", "ita", "jpn"),
        *("kor", "nld", "pol", "por", "rus", "spa", "swe", "tur", "vie", "zho"),
    ),
    example="kor",
    splits=("test", "train"),
    repositories=(REPOSITORY,),
    read=_read_webfaq,
)
