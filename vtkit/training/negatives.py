"""Hard negatives: documents that are judged as not relevant to a query, or that rankings put near the top for it."""

import shutil
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sentence_transformers import SparseEncoder

from vtkit.data.rankings import Ranking
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.sequences import Ragged, listed
from vtkit.encoder.dense import encode_dense
from vtkit.encoder.sides import encode_side
from vtkit.search.bm25 import Bm25
from vtkit.search.dense import nearest_documents
from vtkit.search.exact import ExactIndex
from vtkit.search.sharded_encoding import kept_vectors
from vtkit.settings.finetune import BM25, ENCODER, FinetuneSection
from vtkit.system.errors import DataError
from vtkit.system.outputs import kept_array
from vtkit.system.runtime import fastest_precision
from vtkit.training.pairs import Judged
from vtkit.training.teachers import DenseTeacher, SparseTeacher, Teacher, load_teacher

RANKINGS_FOLDER = "rankings"

QUERIES_AT_ONCE = 20_000  # queries that BM25 ranks at a time


def negative_pools(
    data: RetrievalSet,
    judged: Judged,
    section: FinetuneSection,
    rankings: Callable[[int], Sequence[Ranking]],
    *,
    scored_only: bool = False,
) -> Ragged:
    """For each query the documents that its hard negatives are sampled from: those judged as not relevant; where they
    are fewer than ``section.hard_negatives``, also the first ``mining.depth`` of each ranking by turns; and where a
    query matches too little, any others. Never a document with the text of a relevant one.

    Args:
        rankings: gives the rankings, of so many documents at least; called only where a query needs them.
        scored_only: only documents that ``data`` brings a score of, which are judged: nothing is mined.
    """

    def known(row: int, query: str) -> list[int]:
        scores = data.by_number(data.scores, query) if scored_only else {}
        relevant = set(judged.relevant[row].tolist())
        return [
            number
            for number, grade in data.by_number(data.qrels, query).items()
            if grade <= 0 and (number in scores or not scored_only) and number not in relevant
        ]

    pools = Ragged.of(known(row, query.id) for row, query in enumerate(data.queries))
    needing = np.zeros(len(pools), dtype=bool)
    needing[judged.pairs[:, 0]] = True
    needing &= pools.lengths < section.hard_negatives
    if scored_only or not needing.any():
        return pools
    depth, most = section.mining.depth, int(judged.relevant.lengths.max(initial=0))
    mined = rankings(depth + most)

    def filled(row: int) -> Sequence[int]:
        own: list[int] = pools[row].tolist()
        if not needing[row]:
            return own
        relevant = set(judged.relevant[row].tolist())
        tops = ([each for each in listed(ranking[row]) if each >= 0 and each not in relevant] for ranking in mined)
        pool = list(dict.fromkeys([*own, *merged([top[:depth] for top in tops])]))
        if len(pool) < depth:  # a query that matches too little: fill up with any other documents
            count = len(data.documents)
            others = np.random.default_rng([3, row]).choice(count, min(4 * depth, count), replace=False).tolist()
            pool += [other for other in others if other not in relevant and other not in pool]
            pool = pool[:depth]
        return pool

    return Ragged.of(map(filled, range(len(pools))))


def system_rankings(
    names: Sequence[str],
    queries: Sequence[str],
    documents: Sequence[str],
    lengths: tuple[int, int],
    bm25: Callable[[], Bm25],
    folder: Path,
    depth: int,
    setting: str,
    encoder: SparseEncoder | None = None,
    read: Sequence[str] | None = None,
) -> list[npt.NDArray[np.int32]]:
    """The rankings of the systems ``names``, (queries, depth) each, kept in files below ``folder``: a killed run does
    not encode the documents again.

    Args:
        names: BM25, ``encoder``, or folders and hub ids of models, as ``setting`` of the recipe gives them.
        lengths: tokens that queries and documents are cut at.
        read: what ``encoder`` reads of each document, where that is not its text.
    """

    def by_bm25() -> npt.NDArray[np.int32]:
        parts = [queries[start : start + QUERIES_AT_ONCE] for start in range(0, len(queries), QUERIES_AT_ONCE)]
        return np.concatenate([bm25().search(part, depth)[0] for part in parts])

    rankings = []
    for place, name in enumerate(names, 1):
        if name == BM25:
            rankings.append(kept_array(folder / "bm25.npy", by_bm25))
            continue
        own = encoder if name == ENCODER else None
        model, texts = (name, documents) if own is None else (own, read or documents)
        file = folder / (f"model-{place}.npy" if own is None else "encoder.npy")
        rankings.append(model_ranking(model, queries, texts, lengths, depth, file, setting))
    return rankings


def model_ranking(
    model: SparseEncoder | str,
    queries: Sequence[str],
    documents: Sequence[str],
    lengths: tuple[int, int],
    depth: int,
    file: Path,
    setting: str = "",
) -> npt.NDArray[np.int32]:
    """The best ``depth`` documents of each query, (queries, depth), kept in ``file``, by an encoder as it is now or by
    the model of that name; both cut at ``lengths``."""

    vectors = file.with_suffix(".vectors")  # of the documents, until their ranking is there

    def ranked() -> npt.NDArray[np.int32]:
        named = isinstance(model, str)
        searching: Teacher = load_teacher(model, lengths, setting) if named else SparseTeacher(model, lengths[1])
        precision, said = fastest_precision(), "encoding documents for hard negatives"
        if isinstance(searching, DenseTeacher):
            embedder = searching.embedder
            asking = encode_dense(embedder, queries, "query", precision, "encoding queries")
            encoded = encode_dense(embedder, documents, "document", precision, said, vectors)
            return nearest_documents(asking, encoded, depth, lambda a, b: np.asarray(embedder.similarity(a, b)))[0]
        if not isinstance(searching, SparseTeacher):
            raise DataError(
                f"{setting} = {model} is a cross-encoder, which scores pairs and cannot search. Name it as a teacher, "
                "and a dense or sparse encoder here."
            )
        encoder, (query_length, length) = searching.encoder, lengths
        weights = kept_vectors(encoder, documents, length, vectors, precision, said)
        terms = encode_side(encoder, queries, "query", query_length, precision=precision)
        return ExactIndex.build(weights).search(terms, depth)[0]

    ranking = kept_array(file, ranked)
    shutil.rmtree(vectors, ignore_errors=True)
    return ranking


def merged(rankings: Sequence[Sequence[int]]) -> list[int]:
    """The documents of several rankings of one query by turns, each once."""
    turns = (document for rank in zip_longest(*rankings) for document in rank if document is not None)
    return list(dict.fromkeys(turns))
