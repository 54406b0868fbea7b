"""Two systems' runs made into one."""

from __future__ import annotations

from vtkit.search.trec import Run


def sum_runs(a: Run, b: Run, depth: int) -> Run:
    """S = S_a + S_b over the union of both lists, as CAI (arXiv:2211.03988) joins BM25 and a sparse encoder.

    A document that only one list holds has only that score. Scores are added as they are: bring both to one
    scale first if they are not on it. Equal sums keep the order in which documents come, ``a`` first.

    Args:
        a, b: the runs; a query that only one of them has keeps its results.
        depth: results a query.
    """
    joined: Run = {}
    for query in [*a, *(query for query in b if query not in a)]:
        sums: dict[str, float] = {}
        for run in (a, b):
            for document, score in run.get(query, []):
                sums[document] = sums.get(document, 0.0) + score
        joined[query] = sorted(sums.items(), key=lambda result: -result[1])[:depth]
    return joined
