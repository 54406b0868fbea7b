"""The contents of ``report.json``, as frozen classes from which every page is made.

A part that a run does not have (no fine-tuning, no judged sets) is None or empty, and gives no section. Numbers that
could not be measured are None or not finite.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vtkit.encoder.calibrated import Calibration
from vtkit.evaluation.analyses.coverage import Coverage
from vtkit.evaluation.gates.result import GateResult
from vtkit.evaluation.results import Number, SetResults
from vtkit.search.measures.cost import SearchCost, Sparsity
from vtkit.search.measures.masked_predictions import HeldOutPredictions
from vtkit.system.results import Result
from vtkit.training.validated import Validated
from vtkit.transfer.result import Neighbour, Probed
from vtkit.vocabulary.profiles import VocabularyAnalysis

WeightedToken = tuple[str, float]


@dataclass(frozen=True)
class Overlap(Result):
    """How the vocabulary of the source model and the new one overlap, and where the new rows came from."""

    source_size: int
    target_size: int
    overlap: Mapping[str, int]  # rule of the overlap -> tokens
    overlap_share: float  # of the new tokens
    methods: Mapping[str, int]  # method of transfer -> rows it gave
    probed: tuple[Probed, ...] = ()  # the methods that `auto` compared


@dataclass(frozen=True)
class ExampleResult(Result):
    """One document found for the example query."""

    rank: int
    score: Number
    id: str
    title: str = ""
    text: str = ""
    tokens: tuple[WeightedToken, ...] = ()  # words of the query, each with its part of the score
    relevant: bool = False  # whether it is judged to be relevant to the query


@dataclass(frozen=True)
class Example(Result):
    """A query, the tokens it is searched as, and its results."""

    query: str
    tokens: tuple[WeightedToken, ...] = ()
    results: tuple[ExampleResult, ...] = ()
    why: str = ""  # why this query is shown, in words


@dataclass(frozen=True)
class QueryOutcome(Result):
    """One query by two systems."""

    query: str
    value: float
    baseline: float
    tokens: tuple[WeightedToken, ...] = ()  # the tokens it is searched as
    document: str = ""  # a relevant document whose scores by both are compared; this and the next two are of runs only
    ranks: tuple[int | None, int | None] = (None, None)  # of that document, by the baseline and by the system
    changes: tuple[tuple[str, float, float], ...] = ()
    """Tokens, each with its part of the document's score by both, the largest differences first."""


@dataclass(frozen=True)
class Outcomes(Result):
    """The queries of one set that a system won and lost beside a baseline, by one measure."""

    set: str
    measure: str
    system: str
    baseline: str
    queries: int
    won: int
    lost: int
    most_won: tuple[QueryOutcome, ...] = ()  # the largest difference first, as in `most_lost`
    most_lost: tuple[QueryOutcome, ...] = ()


@dataclass(frozen=True)
class Need(Result):
    """A file, folder, model or collection that the recipe names."""

    setting: str
    name: str
    local: bool  # whether it is a path; otherwise a name on the hub


@dataclass(frozen=True)
class ReportData(Result):
    """A run, as its report tells it: the contents of ``report.json``."""

    name: str = ""
    about: str | None = None
    language: str | None = None
    created: str = ""
    seed: int | None = None
    demonstration: bool = False
    command: tuple[str, ...] = ()  # the command line that the run was started with, word by word
    needs: tuple[Need, ...] = ()
    recipe_toml: str = ""  # the recipe with every setting
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, Number] = field(default_factory=dict)  # step -> time it took
    results: tuple[SetResults, ...] = ()
    source_p_value: Number = None
    """p of the difference between the source and the final model, averaged over the sets; None without a source."""

    to_try: tuple[str, ...] = ()  # settings that may bring the index closer to a better embedder
    warnings: tuple[str, ...] = ()  # that the steps of the run raised
    vocabulary: Overlap | None = None
    vocabularies: VocabularyAnalysis | None = None
    neighbours: tuple[Neighbour, ...] = ()
    curves: Mapping[str, Mapping[str, tuple[Number, ...]]] = field(default_factory=dict)
    """Training stage -> ``steps``, and the values of each curve at these."""

    validated: Mapping[str, tuple[Validated, ...]] = field(default_factory=dict)
    """Training stage -> the validations of each of its trainings."""

    removed: int = 0  # mined documents that margins removed in fine-tuning
    trainings: int = 1  # trainings of fine-tuning, whose weights the model has the mean of
    mean_value: Number | None = None  # validation value of the averaged weights
    held_out: HeldOutPredictions | None = None  # of masked tokens, before and after adaptation by MLM
    calibration: Calibration | None = None
    kind: str = "splade"  # the encoder's kind: `splade` or `unicoil`
    named_apart: bool = False  # dimensions are latent units or another vocabulary
    summed: bool = False  # they are latent units that the model sums over tokens, so that vtkit takes roots of them
    units: str | None = None  # how latent units were learned, in words
    query_encoder: str | None = None  # encoder of queries; None if it is that of documents
    words_added: float | None = None  # mean words added to a document; None without expansion
    activation: str | None = None  # fine-tuning's function from logits to weights, if set
    gates: tuple[GateResult, ...] = ()
    sparsity: Sparsity | None = None  # of the index of the final model, first evaluation set
    examples: tuple[Example, ...] = ()
    outcomes: Outcomes | None = None
    cost: SearchCost | None = None  # of the deployed index, on the first set; rows have that of peers
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    """Model, in words -> how its queries and documents meet, on the first queries of the first set; the source before
    the final model. Empty for latent units, which name no tokens."""

    query_tokens_shared: Number = None  # mean share of a query's dimensions in a document relevant to it
    without_evidence: tuple[str, ...] = ()  # a few new words that no method had evidence for

    @property
    def judged(self) -> list[SetResults]:
        """The sets on which an encoder was judged."""
        return [results for results in self.results if results.value(results.final) is not None]
