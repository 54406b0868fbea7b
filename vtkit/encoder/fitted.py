"""How a head or units were fitted to a dense embedder, as plain values."""

import re
from dataclasses import dataclass

from vtkit.system.results import Result

UNIT_OF_COMMON_WORDS = re.compile(r"\d+:\(.*\)'*")
"""The name of a latent unit that mostly common words and punctuation fire (:mod:`vtkit.transfer.unit_names`)."""


@dataclass(frozen=True)
class HeadFit(Result):
    """How a head was fitted."""

    texts: int  # texts that it was fitted on
    tokens: int  # their tokens
    by_ridge: float
    """Share of held-out tokens that are read back after the closed form: the token is the likeliest, its frequency in
    mind."""

    read_back: float  # the same in the end
    positive: float  # share of a held-out token's logits that are positive


@dataclass(frozen=True)
class UnitsFit(Result):
    """How latent units were learned."""

    units: int  # how many there are
    texts: int  # texts that they were learned from
    tokens: int  # their tokens
    unexplained: float | None  # share of the variance of held-out states that the units leave over; None if not learned
    dead: int  # units that fire for no token; they are masked
    revived: int  # units that were given another direction while they were learned, because they fired for no token

    @property
    def words(self) -> str:
        """The fit in words."""
        if self.unexplained is None:
            return f"{self.units:,} units are those of another encoder; {self.dead:,} of them are dead"
        return (
            f"{self.units:,} units explain {1 - self.unexplained:.1%} of the variance of held-out states; "
            f"{self.revived:,} were revived, {self.dead:,} are dead"
        )
