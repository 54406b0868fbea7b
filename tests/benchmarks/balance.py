"""The weight of an encoder beside BM25: what the rules lose against the best weight.

    python tests/benchmarks/balance.py COLLECTION=PARTNER ... [--documents 500] [--queries 300] [--split test]

COLLECTION is a folder whose name ends in the code of its language, PARTNER a sparse encoder or a dense embedder. A line
for each pair: nDCG@10 of BM25, of the partner and at the best of 21 weights; then weight and loss by spans alone, and
with the scale of scores taken from the queries, which are then a query log (``index.query_log``); then, for comparison,
the mean loss where half of the judged queries choose the weight and the other half judge it, by the plain maximum and
by ``chosen_weight``, over 100 draws.
"""

import argparse
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer, SparseEncoder

from vtkit.data.collections import load_retrieval
from vtkit.data.retrieval import RetrievalSet
from vtkit.encoder.dense import load_dense
from vtkit.evaluation.balance import WEIGHTS, chosen_weight, deviation, weighted_sum
from vtkit.evaluation.balancing import balancing_queries
from vtkit.evaluation.probe import probed_by_spans
from vtkit.evaluation.systems import AboveLast, Bm25System, DenseSystem, SparseSystem, System
from vtkit.search.measures.effectiveness import per_query
from vtkit.settings.index import IndexSection

SEED = 5
DEPTH = 1000
MEASURE = "nDCG@10"
FINE = [step / 20 for step in range(21)]
INDEX = IndexSection(document_length=128, precision="bf16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="+")
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--split", default="test")
    arguments = parser.parse_args()
    print("| collection | partner | queries | BM25 | partner | best | spans | query log | half | half, near spans |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    losses = []
    for pair in arguments.pairs:
        folder, _, partner = pair.partition("=")
        collection = part(folder, arguments.split, arguments.documents, arguments.queries)
        row, lost = compared(collection, over_of(partner), collection.name[-2:])
        print(f"| {collection.name} | {Path(partner).name} | {len(collection.queries)} | {row} |", flush=True)
        losses.append(lost)
    print("mean loss", *(f"{value:.4f}" for value in np.mean(losses, axis=0)))
    print("above .003", *(np.array(losses) > 0.003).sum(axis=0), "of", len(losses))


def part(folder: str, split: str, documents: int, queries: int) -> RetrievalSet:
    """Some judged queries of a collection, with all their relevant documents and others at random."""
    whole, draw = load_retrieval(folder, split), random.Random(0)
    asked = [query for query in whole.queries if any(grade > 0 for grade in whole.qrels[query.id].values())]
    under = whole.under(draw.sample(asked, min(queries, len(asked))))
    relevant = {name for judged in under.qrels.values() for name, grade in judged.items() if grade > 0}
    others = [document.id for document in whole.documents if document.id not in relevant]
    kept = relevant | set(draw.sample(others, max(0, min(len(others), documents - len(relevant)))))
    qrels = {query: {name: g for name, g in judged.items() if name in kept} for query, judged in under.qrels.items()}
    found = [document for document in whole.documents if document.id in kept]
    return replace(under, name=Path(folder).name, documents=found, qrels=qrels)


def over_of(partner: str) -> Callable[[RetrievalSet], System]:
    """The partner over the documents of a collection."""
    if (Path(partner) / "1_SpladePooling").exists():
        encoder = SparseEncoder(partner, device="cpu")
        return lambda collection: SparseSystem.over(encoder, collection, INDEX)
    embedder: SentenceTransformer = load_dense(partner, "partner")
    return lambda collection: AboveLast(DenseSystem.over(embedder, collection, partner, INDEX.precision))


def compared(
    collection: RetrievalSet, over: Callable[[RetrievalSet], System], language: str
) -> tuple[str, list[float]]:
    """The columns of a pair from BM25 on, and the loss of each rule."""
    systems = over(collection), Bm25System.over(collection, language, "full")
    spans = balancing_queries(collection, None, SEED).asked
    probed = probed_by_spans(collection, over, SEED, language, "full")
    assert probed is not None
    runs = [system.rank(collection, DEPTH).run for system in systems]
    by_spans = tuple(deviation(system.rank(spans, DEPTH).run) for system in systems)
    by_log = tuple(map(deviation, runs))

    def values(weight: float, deviations: tuple[float, ...]) -> np.ndarray:
        summed = weighted_sum(*runs, 10, weight, (deviations[0], deviations[1]))
        return np.array([*per_query(summed, collection.qrels, [MEASURE])[MEASURE].values()])

    curve = np.array([values(weight, by_spans) for weight in FINE])
    best = curve.mean(axis=1).max()
    lost = [float(best - values(probed.weight, deviations).mean()) for deviations in (by_spans, by_log)]
    draw, halves = np.random.default_rng(0), []
    tenths = [FINE.index(weight) for weight in WEIGHTS]
    for _ in range(100):
        choosing, judging = np.array_split(draw.permutation(curve.shape[1]), 2)
        means, judged = curve[:, choosing].mean(axis=1), curve[:, judging].mean(axis=1)
        near = FINE.index(chosen_weight({FINE[at]: curve[at, choosing] for at in tenths}, probed.weight))
        plain = tenths[int(means[tenths].argmax())]
        halves.append([judged.max() - judged[plain], judged.max() - judged[near]])
    lost += [float(value) for value in np.mean(halves, axis=0)]
    means = curve.mean(axis=1)
    row = f"{means[0]:.3f} | {means[-1]:.3f} | {FINE[int(means.argmax())]:.2f}: {best:.3f}"
    row += f" | {probed.weight:.2f}: −{lost[0]:.3f}"
    return row + "".join(f" | −{value:.3f}" for value in lost[1:]), lost


if __name__ == "__main__":
    main()
