"""How large collections are, and what a stage does with one: what estimates of disk and time are made from."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

from vtkit.data.collections import files_of
from vtkit.settings.named import is_local
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import DataError

DIMENSIONS = 256
"""Active dimensions a document that an index is estimated by, where ``index.top_dimensions`` does not say less."""

NUMBER = 4
"""Bytes of a float32 or an int32."""

RUN_LINE = 48
"""Bytes of a line of a TREC run."""

SAMPLE = 2**21
"""Bytes at the beginning of a collection by which its lines are estimated."""

CHARACTERS_A_TOKEN = 4.5
"""Bytes of UTF-8, over the scripts."""

QUERY = 12
"""Tokens of a query."""

FOUND_S, RANKED_S, SUMMED_S = 0.2e-6, 0.9e-6, 4.6e-6
"""To search for, judge and sum up one result of a query."""

TEXT_S = 0.4e-6
"""To count one byte of text."""


@dataclass(frozen=True)
class SetCost:
    """What a stage does with one evaluation set."""

    indexes: int = 0
    """Bytes of vectors, postings and documents that it writes."""

    runs: int = 0
    """Bytes of run files."""

    encoded: float = 0.0
    """Tokens through the run's encoder."""

    embedded: float = 0.0
    """Tokens through a dense embedder of the same size."""

    programs: float = 0.0
    """Seconds of plain programs on the machine of the factors (:mod:`vtkit.pipeline.cost`)."""


@dataclass(frozen=True)
class Counts:
    """What is in a collection."""

    documents: int
    queries: int
    bytes: int


def counts_of(name: str) -> Counts | None:
    """About how many documents and queries a folder has, and the bytes of its texts; None where it is not here."""
    if not is_local(name):
        return None
    try:
        files, queries = files_of(name, "corpus"), files_of(name, "queries")
    except DataError:
        return None
    lines, written = zip(*map(_lines, files), strict=True)
    return Counts(sum(lines), sum(_lines(file)[0] for file in queries), sum(written))


def written(name: str) -> int:
    """About how many bytes of text a file or a collection has; 0 where it is not here."""
    counts = counts_of(name)
    if counts is not None:
        return counts.bytes
    return _lines(Path(name))[1] if is_local(name) and Path(name).is_file() else 0


def _lines(path: Path) -> tuple[int, int]:
    """About how many lines and bytes of text a file has, from its beginning."""
    whole = path.stat().st_size
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet

            record = pyarrow.parquet.read_metadata(path)
            groups = [record.row_group(number).total_byte_size for number in range(record.num_row_groups)]
            return record.num_rows, sum(groups)
        with path.open("rb") as raw:
            if path.suffix == ".gz":
                text = gzip.GzipFile(fileobj=raw).read(SAMPLE)
            elif path.suffix == ".zst":
                import pyarrow

                text = pyarrow.CompressedInputStream(raw, "zstd").read(SAMPLE)
            else:
                text = raw.read(SAMPLE)
            share = len(text) / max(min(raw.tell(), whole), 1)
    except Exception:  # whatever a library says of damage: it is found, and named, where the file is read
        return 0, whole
    return round(text.count(b"\n") * whole * share / max(len(text), 1)), round(whole * share)


def tokens_a_document(counts: Counts) -> float:
    """On average."""
    return counts.bytes / max(counts.documents, 1) / CHARACTERS_A_TOKEN


def tokens_read(recipe: Recipe, counts: Counts) -> float:
    """Tokens that an encoder reads of all documents."""
    return counts.documents * min(float(recipe.index.document_length), tokens_a_document(counts))


def queries_of(recipe: Recipe, counts: Counts) -> int:
    """Queries that are judged."""
    limit = None if recipe.evaluate is None else recipe.evaluate.max_queries
    return min(counts.queries, limit or counts.queries)


def results_of(recipe: Recipe, counts: Counts) -> int:
    """Results of all queries together."""
    depth = 0 if recipe.evaluate is None else recipe.evaluate.depth
    return queries_of(recipe, counts) * min(depth, counts.documents)


def posting_bytes(recipe: Recipe, counts: Counts) -> int:
    """Of all documents, as vectors or in posting lists."""
    return counts.documents * min(DIMENSIONS, recipe.index.top_dimensions or DIMENSIONS) * 2 * NUMBER


def searched(recipe: Recipe, counts: Counts) -> SetCost:
    """Searching a set and judging what is found."""
    results = results_of(recipe, counts)
    return SetCost(runs=results * RUN_LINE, programs=0.05 + (FOUND_S + RANKED_S) * results)
