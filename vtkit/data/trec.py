"""Runs, the results of a system for each query, and TREC's run files."""

from collections.abc import Iterable, Iterator, Sequence
from gzip import GzipFile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vtkit.data.problems import Problems, numbers
from vtkit.data.text import read_lines

Run = dict[str, list[tuple[str, float]]]  # query id -> (document id, score), best first


def to_run(
    query_ids: Sequence[str], document_ids: Sequence[str], ids: npt.NDArray[np.int32], scores: npt.NDArray[np.float32]
) -> Run:
    """The run of a search's arrays, (queries, depth); negative ``ids`` are not results."""
    return {
        query: [(document_ids[at], score) for at, score in zip(*row, strict=True) if at >= 0]
        for query, *row in zip(query_ids, ids.tolist(), scores.tolist(), strict=True)
    }


def trec_lines(run: Run, tag: str, first: int = 1) -> Iterator[str]:
    """``query Q0 document rank score tag`` lines, ranks from ``first``; a query without results has none."""
    for query, results in run.items():
        for rank, (document, score) in enumerate(results, first):
            yield f"{query} Q0 {document} {rank} {score:.9g} {tag}"


def write_trec(run: Run, path: str | Path, tag: str) -> None:
    """Write :func:`trec_lines` to a file, compressed by gzip; equal runs give equal bytes."""
    if not tag or tag.split() != [tag]:
        raise ValueError(f"the tag of a run is one word, not {tag!r}")
    with Path(path).open("wb") as packed, GzipFile("", "wb", 6, packed, mtime=0) as file:
        for query, results in run.items():
            file.write("".join(f"{line}\n" for line in trec_lines({query: results}, tag)).encode())


def read_trec(path: str | Path) -> Run:
    """The run in a TREC file, plain or compressed, with results ordered by score (equal scores by line)."""
    run: Run = {}
    path, problems = Path(path), Problems()
    lines = trec_rows(enumerate(read_lines(path), 1))
    for query, document, score in problems.parsed(path, lines, lambda row: [(*row[:2], *numbers(row[2:]))]):
        run.setdefault(query, []).append((document, score))
    for query, results in run.items():
        if len({document for document, _ in results}) < len(results):
            problems.add(path, f"query {query!r} lists a document twice")
        results.sort(key=lambda result: -result[1])
    problems.stop_if_any()
    return run


def trec_rows(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, tuple[str, str, str] | str]]:
    """Number, and query, document and score as it is written, of each line that is not blank; or its complaint."""
    for number, line in lines:
        columns = [column for column in line.replace("\t", " ").split(" ") if column]
        if len(columns) == 6:
            yield number, (columns[0], columns[2], columns[4])
        elif columns:
            yield number, f"is not query, Q0, document, rank, score and tag: {line.strip()[:80]!r}"
