"""Gate results: collect them, show them, and stop the run on failures.

A gate finds that its figures *fail* (NaN, vectors without a dimension, scores all equal, a text of unknown tokens, rows
that should be copies and are not), that they are worth a *warning* (outside what working runs show), or that they
*pass*. Failures stop the run, but for the gates that the recipe names in ``gates.warn``; those in ``gates.off`` do not
look. Warnings never stop a run; the baselines of the literature have some (docs/transfer.md#gates).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from vtkit.settings.gates import Gate as Gate
from vtkit.settings.gates import GatesSection
from vtkit.system import console
from vtkit.system.errors import CollapseError
from vtkit.system.results import Result

PROBE_TEXTS, SNIPPETS = 64, 300  # texts that the gates look at, and snippets of the gate `retrieval`
PROBE_LENGTH = 128  # tokens that these texts are cut at

Finding = Literal["pass", "warn", "fail"]
Stage = Literal["vocabulary", "transfer", "adapt", "calibrate"]
Seen = tuple[Finding, str, str]
"""A gate's finding, its figures in words, and what to change (empty for ``pass``)."""


@dataclass(frozen=True)
class GateResult(Result):
    """The result of one gate."""

    gate: Gate
    stage: Stage
    finding: Finding
    level: Literal["fail", "warn"]
    seen: str  # the figures in words
    advice: str  # what to change; empty where the finding is `pass`

    @property
    def stops(self) -> bool:
        return self.finding == "fail" and self.level == "fail"


def gate_results(
    section: GatesSection, stage: Stage, gates: Iterable[tuple[Gate, Callable[[], Seen]]]
) -> list[GateResult]:
    """The results of the gates of one stage that are not off, each with its level in the recipe."""
    outcomes = [(gate, look()) for gate, look in gates if gate not in section.off]
    return [
        GateResult(gate, stage, finding, "warn" if gate in section.warn else "fail", seen, advice)
        for gate, (finding, seen, advice) in outcomes
    ]


def passed(gates: list[GateResult]) -> list[GateResult]:
    """Show one line for each gate, a warning if it did not pass.

    Raises:
        CollapseError: the failures of the gates that stop the run.
    """
    stopping = []
    for result in gates:
        place, seen = f"gate {result.gate} after {result.stage}", console.one_line(result.seen, 400)
        if result.finding == "pass":
            console.say(f"{place}: pass; {seen}", short=f"{place}: pass")
        elif result.stops:
            remedy = f'To go on in spite of it, add "{result.gate}" to gates.warn.'
            stopping.append(f"{place}: {seen}. {result.advice} {remedy}")
        else:
            console.warn(f"{place}: {result.finding}; {seen}. {result.advice}")
    if stopping:
        raise CollapseError("\n".join(stopping))
    return gates
