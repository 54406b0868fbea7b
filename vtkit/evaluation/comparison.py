"""Systems compared on collections: measures with intervals, and paired tests against one of the systems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtkit.evaluation.judging import Evaluated, Judged
from vtkit.search.measures.significance import bonferroni, holm, mean_interval, paired_randomization, paired_t
from vtkit.settings.evaluate import Correction
from vtkit.system.results import Result


@dataclass(frozen=True)
class Tested(Result):
    """The difference of a system from the baseline in one measure."""

    difference: float
    randomization: float
    """p of Fisher's randomisation test, corrected for all systems that are compared on the collection; so ``t``."""

    t: float  # p of Student's paired t-test


@dataclass(frozen=True)
class Cell(Result):
    """One system on one collection."""

    system: str
    collection: str
    evaluated: Evaluated
    intervals: Mapping[str, tuple[float, float]]  # measure -> 95 % interval of its mean over the queries
    tested: Mapping[str, Tested]
    """Measure -> the comparison with the baseline; empty for the baseline itself and where it has no results."""


@dataclass(frozen=True)
class Failure(Result):
    """A system that could not be evaluated on a collection."""

    system: str
    collection: str
    reason: str


@dataclass(frozen=True)
class Comparison(Result):
    """All systems on all collections."""

    measures: tuple[str, ...]
    baseline: str
    correction: Correction
    cells: tuple[Cell, ...]
    failures: tuple[Failure, ...]

    def cell(self, system: str, collection: str) -> Cell:
        """The cell of a system on a collection, as ``cells`` calls them or by paths that end in these names. KeyError:
        there is none."""
        for cell in self.cells:
            if cell.system in (system, Path(system).name) and cell.collection in (collection, Path(collection).name):
                return cell
        raise KeyError((system, collection))

    def by_collection(self) -> dict[str, list[Cell]]:
        """The cells of each collection."""
        cells: dict[str, list[Cell]] = {}
        for cell in self.cells:
            cells.setdefault(cell.collection, []).append(cell)
        return cells


def compared(
    judged: Mapping[str, Judged], collection: str, measures: Sequence[str], baseline: str, correction: Correction
) -> list[Cell]:
    """Compare the systems evaluated on one collection with ``baseline``, if it is among them."""
    correct = holm if correction == "holm" else bonferroni
    tested: dict[str, dict[str, Tested]] = {name: {} for name in judged}
    others = [name for name in judged if name != baseline]
    for measure in measures if baseline in judged else ():
        base = judged[baseline].per_query[measure]
        values = {name: judged[name].per_query[measure] for name in others}
        randomization = correct({name: paired_randomization(values[name], base) for name in others})
        t = correct({name: paired_t(values[name], base) for name in others})
        reached = judged[baseline].evaluated.measures[measure]
        for name in others:
            difference = judged[name].evaluated.measures[measure] - reached
            tested[name][measure] = Tested(difference, randomization[name], t[name])
    cells = []
    for name, of in judged.items():
        intervals = {measure: mean_interval(list(of.per_query[measure].values())) for measure in measures}
        cells.append(Cell(name, collection, of.evaluated, intervals, tested[name]))
    return cells
