"""How well a run answers its queries, by the measures of ir_measures.

What each measure's provider does with equal scores differs (one ranks the lower document id first, another the
higher), so it is handed the ranks of the run, never its scores.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vtkit.data.trec import Run
from vtkit.system.errors import RecipeError

DEEPEST = 10_000  # results a query that a recipe may ask for at the most

_LONGEST_NAME = 100

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


def validate_measures(names: Iterable[str], depth: int = DEEPEST) -> None:
    """Refuse names that are no measures, or none that the first ``depth`` results can give."""
    bad = [f"{name[:_LONGEST_NAME]!r}: {why}" for name in names if (why := _complaint(name, depth)) is not None]
    if bad:
        listed = "".join(f"\n  {line}" for line in bad)
        raise RecipeError(f"measures cannot be used:{listed}\nUse ir_measures names, such as nDCG@10 or R@100.")


def _complaint(name: str, depth: int) -> str | None:
    import ir_measures

    if len(name) > _LONGEST_NAME:
        return "no such measure"
    try:
        measure: Any = ir_measures.parse_measure(name)
    except (NameError, ValueError, SyntaxError, TypeError, AttributeError, KeyError, AssertionError):
        return "no such measure"
    # Providers are given no such number: some of them take it to the end of the process.
    for setting, value in measure.params.items():
        most = depth if setting == "cutoff" else DEEPEST
        if isinstance(value, bool) and setting in ("cutoff", "rel"):
            return f"{setting} must be a whole number, not {value}"
        if isinstance(value, int) and not isinstance(value, bool) and setting != "recall" and not 1 <= value <= most:
            why = ", as many results as are ranked" if setting == "cutoff" else ""
            return f"{setting} must be from 1 to {most}{why}"
    try:
        tried = ir_measures.evaluator([measure], {"q": {"d": 1, "e": 0}})
        list(tried.iter_calc({"q": {"d": 2.0, "e": 1.0}}))
    except Exception as error:  # of every provider its own
        said = f": {str(error)[:80]}" if str(error).isprintable() else ""
        return f"cannot be computed here: needs a package that is missing or incomplete ({type(error).__name__}{said})"
    return None
