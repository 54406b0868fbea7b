"""How large collections are, and what a stage does with one: what estimates of disk and time are made from."""

import gzip
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vtkit.data.collections import files_of, splits_of
from vtkit.data.parts import Part
from vtkit.settings.evaluate import DEPTH
from vtkit.settings.named import is_local
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import DataError

DIMENSIONS = 256
"""Active dimensions a document that an index is estimated by, where ``index.top_dimensions`` does not say less."""

NUMBER = 4  # bytes of a float32 or an int32
RUN_LINE = 48  # bytes of a line of a TREC run
SAMPLE = 2**21  # bytes at the beginning of a collection by which its lines are estimated
CHARACTERS_A_TOKEN = 4.5  # bytes of UTF-8, over the scripts
QUERY = 12  # tokens of a query
FOUND_S, RANKED_S, SUMMED_S = 0.2e-6, 1.3e-6, 4.6e-6  # to search for, judge and sum up one result of a query
BALANCED_S = 12e-6  # to sum up and judge one result of a training query with each weight of a sum (``WEIGHTS``)

BALANCING, SPANS = 1000, 256
"""Training queries, at most, that bring two rankings together, and spans where there are none."""

SPANNED = 500  # documents, at most, of which spans are searched for, to see what an encoder finds

PARTS: tuple[Part, ...] = ("corpus", "queries", "qrels")

TEXT_S = 0.4e-6  # to count one byte of text


@dataclass(frozen=True)
class SetCost:
    """What a stage does with one evaluation set."""

    indexes: int = 0  # bytes of vectors, postings and documents that it writes
    runs: int = 0  # bytes of run files
    encoded: float = 0.0  # tokens through the run's encoder
    embedded: float = 0.0  # tokens through a dense embedder of the same size
    programs: float = 0.0
    """Seconds of plain programs on the machine of the factors (:mod:`vtkit.pipeline.cost`)."""


@dataclass(frozen=True)
class Counts:
    """What is in a collection."""

    documents: int
    queries: int  # those that are judged by default
    bytes: int
    training: int = 0  # queries with other judgements


def counts_of(name: str) -> Counts | None:
    """About how many documents and judged queries a folder has, and the bytes of its texts; None if it is not here."""
    if not is_local(name):
        return None
    try:
        files, queries, qrels = (files_of(name, part) for part in PARTS)
        alone = len(splits_of(name)) == 1
    except DataError:
        return None
    lines, written = zip(*map(_lines, files), strict=True)
    asked = sum(_lines(file)[0] for file in queries)
    judged = min(sum(map(_judged, qrels)), asked)
    return Counts(sum(lines), judged, sum(written), 0 if alone else asked - judged)


def texts_of(name: str) -> tuple[int, int]:
    """About how many texts and bytes of text a file or a collection has; nothing where it is not here."""
    counts = counts_of(name)
    if counts is not None:
        return counts.documents, counts.bytes
    return _lines(Path(name)) if is_local(name) and Path(name).is_file() else (0, 0)


def _judged(path: Path) -> int:
    """About how many queries a file of judgements has, the lines of one standing together."""
    return _first(path, path.stat().st_mtime_ns)[2]


def _lines(path: Path) -> tuple[int, int]:
    """About how many lines and bytes of text a file has, from its beginning."""
    return _first(path, path.stat().st_mtime_ns)[:2]


@lru_cache(maxsize=1000)
def _first(path: Path, changed: int) -> tuple[int, int, int]:
    """Lines, bytes of text, and different first words of lines, which ``changed`` at that time."""
    whole = path.stat().st_size
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet

            record = pyarrow.parquet.read_metadata(path)
            groups = [record.row_group(number).total_byte_size for number in range(record.num_row_groups)]
            return record.num_rows, sum(groups), record.num_rows
        with path.open("rb") as raw:
            if path.suffix == ".gz":
                text = gzip.GzipFile(fileobj=raw).read(SAMPLE)
            elif path.suffix == ".zst":
                import pyarrow

                text = pyarrow.CompressedInputStream(raw, "zstd").read(SAMPLE)
            else:
                text = raw.read(SAMPLE)
            unpacked = whole * len(text) / max(min(raw.tell(), whole), 1)
    except Exception:  # whatever a library says of damage: it is found, and named, where the file is read
        return 0, whole, 0
    share = unpacked / max(len(text), 1)
    words = {line.split(None, 1)[0] for line in text.splitlines() if line.strip()}
    return round(text.count(b"\n") * share), round(unpacked), round(len(words) * share)


def tokens_a_document(counts: Counts) -> float:
    """On average."""
    return counts.bytes / max(counts.documents, 1) / CHARACTERS_A_TOKEN


def tokens_read(recipe: Recipe, counts: Counts) -> float:
    """Tokens that an encoder reads of all documents."""
    return counts.documents * min(float(recipe.index.document_length), tokens_a_document(counts))


def spanned(counts: Counts) -> int:
    """Documents of probe pairs (:mod:`vtkit.evaluation.probed_weight`)."""
    return min(SPANNED, counts.documents)


def tokens_of_spans(recipe: Recipe, counts: Counts) -> float:
    """Tokens that an encoder reads of them."""
    return tokens_read(recipe, counts) * spanned(counts) / max(counts.documents, 1)


def queries_of(recipe: Recipe, counts: Counts) -> int:
    """Queries that are judged."""
    limit = None if recipe.evaluate is None else recipe.evaluate.max_queries
    return min(counts.queries, limit or counts.queries)


def results_of(recipe: Recipe, counts: Counts) -> int:
    """Results of all queries together."""
    return queries_of(recipe, counts) * min(DEPTH, counts.documents) * (recipe.evaluate is not None)


def posting_bytes(recipe: Recipe, counts: Counts) -> int:
    """Of all documents, as vectors or in posting lists."""
    return counts.documents * min(DIMENSIONS, recipe.index.top_dimensions or DIMENSIONS) * 2 * NUMBER


def searched(recipe: Recipe, counts: Counts) -> SetCost:
    """Searching a set and judging what is found."""
    results = results_of(recipe, counts)
    return SetCost(runs=results * RUN_LINE, programs=0.05 + (FOUND_S + RANKED_S) * results)


def balancing_of(counts: Counts) -> int:
    """Queries that bring two rankings together."""
    return min(counts.training, BALANCING) or SPANS


def balanced_s(recipe: Recipe, counts: Counts) -> float:
    """Seconds to bring two rankings together (:mod:`vtkit.evaluation.balancing`): spans only give deviations."""
    depth = 0 if recipe.evaluate is None else min(DEPTH, counts.documents)
    return balancing_of(counts) * depth * (BALANCED_S if counts.training else RANKED_S)
