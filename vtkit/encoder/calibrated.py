"""What a calibration did to an encoder, as plain values: made by :mod:`vtkit.encoder.calibration`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vtkit.system.results import Result

Definition = Literal["token", "pooled"]
"""What an activation is counted over: (position, token) logits, padding left out, or dimensions after max-pooling."""

ActivationRates = Mapping[Definition, float]
"""Shares above zero on one set of texts; the pooled share is the mean over texts."""

QUERY_TOKENS = 16  # A probe text's beginning of so many tokens, special tokens included, stands in for a query
RANKS = 10  # best scores of a query among which ties are counted


@dataclass(frozen=True)
class ProbeMetrics(Result):
    """Statistics of an encoder's vectors of probe texts: one column of the table."""

    token: float  # share of (position, token) logits above zero
    pooled: float  # share of vocabulary dimensions active in a text's vector (folded, where the encoder's vectors are)
    query_dimensions: float  # active dimensions of the first :data:`QUERY_TOKENS` tokens of a text, mean
    document_dimensions: float  # active dimensions of a text, mean
    spread: float
    """Standard deviation of a query's scores over all other texts, divided by their mean; mean over queries."""

    tied: float  # share of a query's :data:`RANKS` best scores that another text has too; mean over queries


ROWS = (
    ("token activation rate", "token", "{:.3%}"),
    ("pooled activation rate", "pooled", "{:.3%}"),
    ("active dimensions, queries", "query_dimensions", "{:.1f}"),
    ("active dimensions, documents", "document_dimensions", "{:.1f}"),
    ("score spread", "spread", "{:.3f}"),
    ("tied scores", "tied", "{:.2%}"),
)
"""The table's rows: what they are called, the figure, and its format."""


@dataclass(frozen=True)
class TokenShifts(Result):
    """Statistics of a calibration by token."""

    tokens: int  # tokens whose bias was moved: those that occur in the corpus and are not masked
    unseen: int  # tokens left alone because the corpus does not hold them
    mean: float  # absolute shift, mean over the tokens moved
    bounded: int  # tokens that would have been moved farther than the bound


@dataclass(frozen=True)
class Calibration(Result):
    """The steps of a calibration, and the statistics before and after it."""

    shift: float  # the paper's c: how much the decoder bias was lowered in all, in logits
    target: float | None  # share of activations that was asked for; None where none was
    definition: Definition
    before: ActivationRates  # on the texts that the shift was solved on, as ``after``
    after: ActivationRates
    held_out: ActivationRates
    probe: Mapping[str, ProbeMetrics]  # ``before`` and ``after``, on the texts held out
    tokens: TokenShifts | None = None  # shifts of single tokens; None where none were asked for
    query_encoder: Literal["binary", "idf"] | None = None  # the static table that queries got; None where they got none

    def table(self) -> list[tuple[str, str, str]]:
        """The rows of the before/after table: name, before, after."""
        before, after = self.probe["before"], self.probe["after"]
        return [(name, form.format(getattr(before, key)), form.format(getattr(after, key))) for name, key, form in ROWS]

    def done(self) -> str:
        """The steps of the calibration in words, in their order."""
        steps = []
        if self.tokens is not None:
            steps.append(
                f"{self.tokens.tokens} tokens moved towards their document frequencies (by {self.tokens.mean:.3f} on "
                f"average, {self.tokens.bounded} at the bound, {self.tokens.unseen} that do not occur left alone)"
            )
        if self.target is not None or self.shift:
            steps.append(f"bias {'lowered' if self.shift >= 0 else 'raised'} by {abs(self.shift):.4f}")
        if self.target is not None:
            steps[-1] += f" for a {self.definition} activation rate of {self.target:.2%}"
        return ", ".join(steps) or "logits are left as they are"
