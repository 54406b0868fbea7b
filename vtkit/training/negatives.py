"""Hard negatives: documents that are judged as not relevant to a query, or that rankings put near the top for it."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from vtkit.search.engine import index_in_memory
from vtkit.search.index_info import Ids, Scores
from vtkit.search.sharded_encoding import EncodeTexts, kept_vectors
from vtkit.settings.finetune import BM25, ENCODER, FinetuneSection, MiningSection
from vtkit.system.errors import DataError
from vtkit.system.outputs import kept_array
from vtkit.system.runtime import fastest_precision
from vtkit.training.pairs import Judged
from vtkit.training.teachers import DenseTeacher, SparseTeacher, Teacher, load_teacher

RANKINGS_FOLDER = "rankings"

QUERIES_AT_ONCE = 20_000  # queries that BM25 ranks at a time
REMOVED = -2  # REMOVED - id stands in a ranking for a document that a margin removed
LARGEST = 1e30  # more than any score

Clear = Callable[..., npt.NDArray[np.int32]]
"""Marks false negatives in ids and scores of a ranking, whose first query has the number in the third argument."""


def negative_pools(
    data: RetrievalSet,
    judged: Judged,
    section: FinetuneSection,
    rankings: Callable[[int], Sequence[Ranking]],
    *,
    scored_only: bool = False,
    removed: Callable[[int], object] = lambda count: None,
) -> Ragged:
    """For each query the documents that its hard negatives are sampled from: those judged as not relevant; where they
    are fewer than ``section.hard_negatives``, also the first ``mining.depth`` of each ranking by turns, without the
    first ``mining.range_min``; and where a query matches too little, any others. Never a document with the text of a
    relevant one, or one that :func:`without_false_negatives` removed from a ranking.

    Args:
        rankings: gives the rankings, of so many documents at least; called only where a query needs them.
        scored_only: only documents that ``data`` brings a score of, which are judged: nothing is mined.
        removed: gets the number of documents that margins removed, of each query that mines.
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
    needing = np.isin(np.arange(len(pools)), judged.pairs[:, 0]) & (pools.lengths < section.hard_negatives)
    if scored_only or not needing.any():
        return pools
    mining, most = section.mining, int(judged.relevant.lengths.max(initial=0))
    mined = rankings(mining.depth + most)
    least = section.hard_negatives if mining.has_margins or mining.range_min else mining.depth

    def filled(row: int) -> Sequence[int]:
        own: list[int] = pools[row].tolist()
        if not needing[row]:
            return own
        ranked = [listed(ranking[row]) for ranking in mined]
        too_close = {REMOVED - each for ranking in ranked for each in ranking if each <= REMOVED}
        removed(len(too_close))
        excluded = too_close | set(judged.relevant[row].tolist())
        tops = [[each for each in ranking if each >= 0 and each not in excluded] for ranking in ranked]
        pool = list(dict.fromkeys([*own, *merged([top[mining.range_min : mining.depth] for top in tops])]))
        if len(pool) < least:  # a query that matches too little: fill up with any other documents
            count = len(data.documents)
            others = np.random.default_rng([3, row]).choice(count, min(4 * mining.depth, count), replace=False).tolist()
            excluded.update(*(top[: mining.range_min] for top in tops))
            pool = [*pool, *(other for other in others if other not in excluded and other not in pool)][:least]
        return pool

    return Ragged.of(map(filled, range(len(pools))))


def without_false_negatives(
    relevant: Ragged, mining: MiningSection, ids: Ids, scores: Scores, start: int = 0
) -> npt.NDArray[np.int32]:
    """``ids`` of a ranking, with ``REMOVED - id`` for each document that scores too close to the query's relevant
    documents, and may be relevant itself (NV-Retriever, arXiv:2407.15831).

    As ``mine_hard_negatives`` of sentence-transformers does, a document with the score s is removed if s +
    ``absolute_margin`` > p or s > p - ``relative_margin`` times the magnitude of p, with p the lowest score of a
    relevant document. If one is not in the ranking, it scores less than all that are, so that all are removed.

    Args:
        relevant: the relevant documents of each query.
        ids: (queries, depth), best first, and negative where there is none.
        scores: (queries, depth).
        start: the number of the first of these queries.
    """
    if not mining.has_margins:
        return ids
    absolute, relative = mining.absolute_margin or 0.0, mining.relative_margin or 0.0
    marked = ids.copy()
    for row, (found, values) in enumerate(zip(ids, scores, strict=True)):
        own = np.isin(found, relevant[start + row])
        lowest = float(values[own].min(initial=LARGEST)) if own.sum() == len(relevant[start + row]) else -LARGEST
        close = (values > lowest - max(absolute, relative * abs(lowest))) & ~own & (found >= 0)
        marked[row, close] = REMOVED - found[close]
    return marked


@dataclass(frozen=True)
class Ranked:
    """A ranking task of a training: for each query the best ``depth`` of the documents."""

    queries: Sequence[str]
    documents: Sequence[str]
    lengths: tuple[int, int]  # tokens that queries and documents are cut at
    depth: int
    clear: Clear = lambda ids, scores, start=0: ids  # marks documents that are no negatives


def system_rankings(
    names: Sequence[str],
    ranked: Ranked,
    bm25: Callable[[], Bm25],
    folder: Path,
    setting: str,
    encoder: SparseEncoder | None = None,
    read: Sequence[str] | None = None,
) -> list[npt.NDArray[np.int32]]:
    """The rankings of the systems ``names``, (queries, depth) each, kept in files below ``folder``: a killed run does
    not encode the documents again.

    Args:
        names: BM25, ``encoder``, or folders and hub ids of models, as ``setting`` of the recipe gives them.
        read: what ``encoder`` reads of each document, where that is not its text.
    """

    def by_bm25() -> npt.NDArray[np.int32]:
        starts = range(0, len(ranked.queries), QUERIES_AT_ONCE)
        parts = ((start, ranked.queries[start : start + QUERIES_AT_ONCE]) for start in starts)
        return np.concatenate([ranked.clear(*bm25().search(part, ranked.depth), start) for start, part in parts])

    rankings = []
    for place, name in enumerate(names, 1):
        if name == BM25:
            rankings.append(kept_array(folder / "bm25.npy", by_bm25))
            continue
        if name == ENCODER and encoder is not None:
            own = replace(ranked, documents=read or ranked.documents)
            rankings.append(model_ranking(encoder, own, folder / "encoder.npy", setting))
        else:
            rankings.append(model_ranking(name, ranked, folder / f"model-{place}.npy", setting))
    return rankings


def model_ranking(model: SparseEncoder | str, ranked: Ranked, file: Path, setting: str = "") -> npt.NDArray[np.int32]:
    """The best documents of each query, (queries, depth), kept in ``file``, by an encoder as it is now or by the model
    of that name."""

    vectors = file.with_suffix(".vectors")  # of the documents, until their ranking is there
    queries, documents, lengths = ranked.queries, ranked.documents, ranked.lengths

    def searched() -> npt.NDArray[np.int32]:
        named = isinstance(model, str)
        searching: Teacher = load_teacher(model, lengths, setting) if named else SparseTeacher(model, lengths[1])
        precision, said = fastest_precision(), "encoding documents for hard negatives"
        if isinstance(searching, DenseTeacher):
            embedder = searching.embedder
            asking = encode_dense(embedder, queries, "query", precision, "encoding queries")
            encoded = encode_dense(embedder, documents, "document", precision, said, vectors)
            nearest = nearest_documents(
                asking, encoded, ranked.depth, lambda a, b: np.asarray(embedder.similarity(a, b))
            )
            return ranked.clear(*nearest)
        if not isinstance(searching, SparseTeacher):
            raise DataError(
                f"{setting} = {model} is a cross-encoder, which scores pairs and cannot search. Name it as a teacher, "
                "and a dense or sparse encoder here."
            )
        work = EncodeTexts(searching.encoder, side="document", max_length=lengths[1], precision=precision)
        weights = kept_vectors(work, documents, said, vectors)
        terms = encode_side(searching.encoder, queries, "query", lengths[0], precision=precision)
        return ranked.clear(*index_in_memory(weights).search(terms, ranked.depth))

    ranking = kept_array(file, searched)
    shutil.rmtree(vectors, ignore_errors=True)
    return ranking


def merged(rankings: Sequence[Sequence[int]]) -> list[int]:
    """The documents of several rankings of one query by turns, each once."""
    turns = (document for rank in zip_longest(*rankings) for document in rank if document is not None)
    return list(dict.fromkeys(turns))
