"""Systems compared on collections: measures with intervals, and paired tests against one of the systems."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vtkit.evaluation.results import PerQuery, SetResults, SystemResult, Tested, means
from vtkit.search.measures.significance import bonferroni, holm, mean_interval, paired_randomization, paired_t
from vtkit.settings.evaluate import Correction
from vtkit.system.results import Result


@dataclass(frozen=True)
class Failure(Result):
    """A system that could not be evaluated on a collection."""

    system: str
    collection: str
    reason: str


@dataclass(frozen=True)
class Comparison(Result):
    """All systems on all collections."""

    baseline: str
    correction: Correction
    sets: tuple[SetResults, ...]
    failures: tuple[Failure, ...]

    def result(self, system: str, collection: str) -> SystemResult:
        """A system on a collection, as ``sets`` calls them or by paths that end in these names. KeyError: there is
        none."""
        for of in self.sets:
            for row in of.rows:
                if row.system in (system, Path(system).name) and of.set in (collection, Path(collection).name):
                    return row
        raise KeyError((system, collection))


def compared(results: SetResults, values: Mapping[str, PerQuery], baseline: str, correction: Correction) -> SetResults:
    """``results`` with intervals, and with tests of the systems against ``baseline`` if it is among them.

    Args:
        values: system -> its values by query.
    """
    correct = holm if correction == "holm" else bonferroni
    tested: dict[str, dict[str, Tested]] = {name: {} for name in values}
    others = {name: of for name, of in values.items() if name != baseline}
    for measure, base in values[baseline].items() if baseline in values else ():
        randomization = correct({name: paired_randomization(of[measure], base) for name, of in others.items()})
        t = correct({name: paired_t(of[measure], base) for name, of in others.items()})
        for name, of in others.items():
            difference = means(of)[measure] - means(values[baseline])[measure]
            tested[name][measure] = Tested(difference, randomization[name], t[name])
    rows = []
    for row in results.rows:
        intervals = {measure: mean_interval([*of.values()]) for measure, of in values[row.system].items()}
        rows.append(replace(row, intervals=intervals, tested=tested[row.system]))
    return replace(results, rows=tuple(rows))
