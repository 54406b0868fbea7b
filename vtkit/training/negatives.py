"""Hard negatives: documents that are judged as not relevant to a query, or that rankings put near the top for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sentence_transformers import SparseEncoder

from vtkit.data.rankings import Ranking, read_rankings
from vtkit.data.retrieval import RetrievalSet
from vtkit.encoder.dense import encode_dense
from vtkit.encoder.sides import encode_side
from vtkit.errors import DataError
from vtkit.recipe.finetune import FinetuneSection, RankingSystems
from vtkit.runtime import fastest_precision
from vtkit.search.bm25 import Bm25
from vtkit.search.dense import nearest_documents
from vtkit.search.engine import search_exactly
from vtkit.training.pairs import Judged
from vtkit.training.resuming import kept_array
from vtkit.training.teachers import DenseTeacher, SparseTeacher, load_teacher

RANKINGS_FOLDER = "rankings"


def negative_pools(
    data: RetrievalSet,
    judged: Judged,
    section: FinetuneSection,
    rankings: Callable[[int], Sequence[Ranking]],
    *,
    scored_only: bool = False,
) -> list[list[int]]:
    """For each query the documents that its hard negatives are sampled from.

    Those judged as not relevant; where they are fewer than ``section.hard_negatives``, also the first ``mining.depth``
    of each ranking, after ``mining.skip``, by turns; and where a query matches too little, any others. Never a relevant
    document nor one with the text of one.

    Args:
        data: the collection.
        judged: its judgements.
        section: settings.
        rankings: gives the rankings, of so many documents at least; called only where a query needs them.
        scored_only: only documents that ``data`` brings a score of, which are judged: nothing is mined.
    """
    number = {document.id: i for i, document in enumerate(data.documents)}
    pools: list[list[int]] = []
    for row, query in enumerate(data.queries):
        scores = data.scores.get(query.id, {})
        known = [
            number[name]
            for name, grade in data.qrels.get(query.id, {}).items()
            if grade <= 0 and (name in scores or not scored_only)
        ]
        pools.append([document for document in known if document not in judged.relevant[row]])
    needing = {query for query, _ in judged.pairs if len(pools[query]) < section.hard_negatives}
    if scored_only or not needing:
        return pools
    depth, most = section.mining.depth, max(map(len, judged.relevant), default=0)
    found = rankings(section.mining.skip + depth + most)
    everything = np.arange(len(data.documents))
    for row in needing:
        tops = [_top(ranking[row], judged.relevant[row], section.mining.skip, depth) for ranking in found]
        pool = list(dict.fromkeys([*pools[row], *merged(tops)]))
        if len(pool) < depth:  # a query that matches too little: fill up with any other documents
            others = np.random.default_rng([3, row]).permutation(everything)[: 4 * depth].tolist()
            pool += [other for other in others if other not in judged.relevant[row] and other not in pool]
            pool = pool[:depth]
        pools[row] = pool
    return pools


def _top(ranking: Sequence[int], relevant: set[int], skip: int, depth: int) -> list[int]:
    kept = [int(document) for document in ranking if document >= 0 and int(document) not in relevant]
    return kept[skip : skip + depth]


def mined_rankings(
    data: RetrievalSet,
    section: FinetuneSection,
    encoder: SparseEncoder,
    bm25: Callable[[], Bm25],
    folder: Path,
    depth: int,
    read: Sequence[str] | None = None,
) -> list[Ranking]:
    """:func:`system_rankings` of ``section.mining``, with the lengths of ``section``."""
    lengths = section.query_length, section.document_length
    return system_rankings(data, section.mining, lengths, encoder, bm25, folder, depth, "finetune.mining", read)


def system_rankings(
    data: RetrievalSet,
    systems: RankingSystems,
    lengths: tuple[int, int],
    encoder: SparseEncoder,
    bm25: Callable[[], Bm25],
    folder: Path,
    depth: int,
    setting: str,
    read: Sequence[str] | None = None,
) -> list[Ranking]:
    """The rankings of ``systems``, each of ``depth`` documents; those of models are kept in files below ``folder``, so
    that a killed run does not encode the documents again.

    Args:
        data: whose documents are ranked for its queries.
        systems: what ranks.
        lengths: tokens that queries and documents are cut at.
        encoder: the one of the run, as it is now.
        bm25: makes BM25 over the documents.
        folder: below the run's checkpoints.
        depth: documents a query.
        setting: table of ``systems``, for messages.
        read: what ``encoder`` reads of each document, where that is not its text.

    Raises:
        DataError: a model is missing, damaged or a cross-encoder, which cannot search; a file of rankings is damaged.
    """
    queries, texts = [query.text for query in data.queries], [document.contents for document in data.documents]
    found: list[Ranking] = []
    if systems.bm25:
        found.append(bm25().search(queries, depth)[0].tolist())
    folder.mkdir(parents=True, exist_ok=True)
    if systems.encoder:
        own = SparseTeacher(encoder, lengths[1])
        found.append(
            kept_array(folder / "encoder.npy", lambda: _search(own, queries, read or texts, lengths, depth)).tolist()
        )
    for place, name in enumerate(systems.models, 1):

        def searched(name: str = name) -> npt.NDArray[np.int32]:
            return model_ranking(name, queries, texts, lengths, depth, f"{setting}.models")

        found.append(kept_array(folder / f"model-{place}.npy", searched).tolist())
    found += [ranking for file in systems.files for ranking in read_rankings(file, data)]
    return found


def model_ranking(
    name: str, queries: Sequence[str], documents: Sequence[str], lengths: tuple[int, int], depth: int, setting: str
) -> npt.NDArray[np.int32]:
    """The best ``depth`` documents of each query by the model ``name``, (queries, depth).

    Args:
        name: a folder or of the hub.
        queries: texts.
        documents: texts.
        lengths: tokens that both are cut at.
        depth: documents a query.
        setting: that names it, for messages.

    Raises:
        DataError: the model is missing, damaged or a cross-encoder, which cannot search.
    """
    model = load_teacher(name, lengths, setting)
    if not isinstance(model, SparseTeacher | DenseTeacher):
        raise DataError(
            f"{setting} = {name} is a cross-encoder, which scores pairs and cannot search. Name it as a teacher, and a "
            "dense or sparse encoder here."
        )
    return _search(model, queries, documents, lengths, depth)


def merged(rankings: Sequence[Sequence[int]]) -> list[int]:
    """The documents of several rankings of one query by turns, each once."""
    turns = (document for rank in zip_longest(*rankings) for document in rank if document is not None)
    return list(dict.fromkeys(turns))


def _search(
    model: SparseTeacher | DenseTeacher,
    queries: Sequence[str],
    documents: Sequence[str],
    lengths: tuple[int, int],
    depth: int,
) -> npt.NDArray[np.int32]:
    precision = fastest_precision()
    if isinstance(model, DenseTeacher):
        asked = encode_dense(model.embedder, queries, "query", precision, "encoding queries")
        read = encode_dense(model.embedder, documents, "document", precision, "encoding documents for hard negatives")
        return nearest_documents(asked, read, depth, lambda a, b: np.asarray(model.embedder.similarity(a, b)))[0]
    weights = encode_side(
        model.encoder,
        documents,
        "document",
        lengths[1],
        precision=precision,
        description="encoding documents for hard negatives",
    )
    terms = encode_side(model.encoder, queries, "query", lengths[0], precision=precision)
    return search_exactly(weights, terms, depth)[0]
