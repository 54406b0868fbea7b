"""How good an encoder was from time to time while it was trained."""

from dataclasses import dataclass

from vtkit.system.results import Result


@dataclass(frozen=True)
class Validated(Result):
    """The validations of a training run, and what they decided."""

    metric: str
    judged_on: str  # what the queries are, in words
    queries: int
    documents: int  # searched: all that are judged, and a sample of the others where there are many
    steps: tuple[int, ...]
    values: tuple[float, ...]  # at these steps
    counted_from: int  # step at which the penalties are at full strength: what was measured before is not compared
    best_step: int | None  # whose weights the training ends with; None: those of its last step, as no validation counts
    stopped_at: int | None  # step after which it was stopped; None: it went on to its end

    def words(self) -> str:
        """The decision and its reason, in one or two sentences."""
        measured = f"{self.metric} on {self.queries} {self.judged_on} over {self.documents} documents"
        if self.best_step is None:
            return (
                f"{measured}: there was no validation after the ramp (step {self.counted_from}), so the weights of the "
                "last step are kept."
            )
        best = self.values[self.steps.index(self.best_step)]
        kept = f"{measured}: best {best:.4f} at step {self.best_step}, and its weights are kept"
        if self.stopped_at is None:
            return f"{kept}; {self.values[-1]:.4f} at the last step, {self.steps[-1]}."
        return f"{kept}. Stopped at step {self.stopped_at}, since no later validation was better."
