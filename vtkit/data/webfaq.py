"""WebFAQ retrieval, questions and answers of FAQ pages in 20 languages (Dinzinger et al., arXiv:2502.20936).

The hub repository says in the head of its README which files hold what: three configurations a language, such as
``kor-corpus``, ``kor-queries`` and ``kor-qrels``, each with a jsonl file a split. That head is followed here, so
that a revision with other file names still loads; a folder with such a README serves as well as the hub.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vtkit.data import hub
from vtkit.data import text as texts
from vtkit.data.retrieval import Problems, RetrievalSet, assemble, check_id, read_documents, read_queries
from vtkit.errors import DataError

REPOSITORY = "PaDaS-Lab/webfaq-retrieval"
LANGUAGES = (
    *("ara", "dan", "deu", "eng", "fas", "fra", "hin", "ind", "ita", "jpn"),
    *("kor", "nld", "pol", "por", "rus", "spa", "swe", "tur", "vie", "zho"),
)


def load_webfaq(language: str, split: str = "test", root: str | Path | None = None) -> RetrievalSet:
    """The questions of ``split`` (``train`` or ``test``), each judged relevant to its own answer.

    Args:
        language: three letters, such as ``kor``.
        split: ``train`` or ``test``.
        root: a copy of the hub repository; None for the hub's cache and, where downloads are allowed, the hub.

    Raises:
        DataError: a language or split WebFAQ does not have, or files that are missing or damaged.
    """
    check_language(language)
    folder = hub.fetch(REPOSITORY, ["README.md"]) if root is None else Path(root)
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
    return assemble(
        f"webfaq-{language}",
        read_documents(corpus_files, problems),
        [query for path in query_files for query in read_queries(path, problems)],
        _read_judgements(judgement_files, problems),
        problems,
        corpus=corpus_files[0],
        queries_file=query_files[0],
        judgements_file=judgement_files[0],
    )


def check_language(language: str) -> None:
    """Raise DataError unless WebFAQ's retrieval sets have ``language``."""
    if language not in LANGUAGES:
        raise DataError(f"WebFAQ's retrieval sets have no language {language!r}. They have: {', '.join(LANGUAGES)}.")


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
    return [path] if isinstance(path, str) else list(path)


def _found(folder: Path, patterns: list[str]) -> list[Path]:
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    if not paths:
        raise DataError(f"{folder}: {', '.join(patterns)} is missing. Run again with --download.")
    wrong = [path.name for path in paths if ".jsonl" not in path.name and ".json" not in path.name]
    if wrong:
        raise DataError(f"{folder}: {', '.join(wrong)} is no jsonl file; this form of WebFAQ cannot be read.")
    return paths


def _read_judgements(paths: list[Path], problems: Problems) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for path, number, entry in _entries(paths):
        if isinstance(entry, str):
            problems.add(path, f"line {number}: {entry}")
            continue
        query, document, grade = entry.get("query-id"), entry.get("corpus-id"), entry.get("score")
        if not isinstance(query, str) or not isinstance(document, str) or not isinstance(grade, int | float):
            problems.add(path, f"line {number}: needs query-id, corpus-id and score")
        elif complaint := check_id(query) or check_id(document):
            problems.add(path, f"line {number}: {complaint}")
        else:
            qrels.setdefault(query, {})[document] = int(grade)
    return qrels


def _entries(paths: list[Path]) -> Iterator[tuple[Path, int, dict[str, Any] | str]]:
    for path in paths:
        for number, entry in texts.read_jsonl(path):
            yield path, number, entry
