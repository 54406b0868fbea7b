"""How well a run answers its queries, by the measures of ir_measures.

What each measure's provider does with equal scores differs (one ranks the lower document id first, another the
higher), so it is handed the ranks of the run, never its scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vtkit.errors import RecipeError
from vtkit.search.trec import Run

Qrels = Mapping[str, Mapping[str, int]]


def evaluate(run: Run, qrels: Qrels, measures: Sequence[str]) -> dict[str, float]:
    """The mean of each measure over all queries of ``qrels``; a query without results counts 0.

    Args:
        run: results best first; queries that ``qrels`` does not judge are passed over.
        qrels: query id -> document id -> grade.
        measures: ir_measures names, such as ``nDCG@10``.

    Raises:
        RecipeError: a name that is no measure, or one whose provider is not installed.
        ValueError: no query is judged.
    """
    return {name: sum(values.values()) / len(values) for name, values in per_query(run, qrels, measures).items()}


def per_query(run: Run, qrels: Qrels, measures: Sequence[str]) -> dict[str, dict[str, float]]:
    """Measure -> query id -> value, for every query of ``qrels`` (see :func:`evaluate`)."""
    import ir_measures

    if not qrels:
        raise ValueError("no query is judged")
    validate_measures(measures)
    names: dict[Any, list[str]] = {}
    for name in measures:
        names.setdefault(ir_measures.parse_measure(name), []).append(name)  # RR@10 and MRR@10 are one measure
    ranked = {
        query: {document: float(len(results) - rank) for rank, (document, _) in enumerate(results)}
        for query, results in run.items()
        if query in qrels and results
    }
    plain = {query: dict(judged) for query, judged in qrels.items()}
    values = {name: dict.fromkeys(qrels, 0.0) for name in measures}
    if ranked:
        for entry in ir_measures.iter_calc(list(names), plain, ranked):
            for name in names[entry.measure]:
                values[name][entry.query_id] = float(entry.value)
    return values


def validate_measures(names: Iterable[str]) -> None:
    """Nothing, if every name is a measure that can be computed here.

    Raises:
        RecipeError: all the names that are not.
    """
    bad = [f"{name!r}: {complaint}" for name in names if (complaint := _complaint(name)) is not None]
    if bad:
        listed = "".join(f"\n  {line}" for line in bad)
        raise RecipeError(
            f"evaluate.measures cannot be used:{listed}\nUse ir_measures names, such as nDCG@10 or R@100."
        )


def _complaint(name: str) -> str | None:
    import ir_measures

    try:
        measure: Any = ir_measures.parse_measure(name)
    except (NameError, ValueError, SyntaxError, TypeError, AttributeError, KeyError, AssertionError):
        return "no such measure"
    try:
        ir_measures.evaluator([measure], {"q": {"d": 1}})
    except (ValueError, RuntimeError, ImportError, AssertionError):
        return "needs a package that is not installed, or is not complete"
    return None
