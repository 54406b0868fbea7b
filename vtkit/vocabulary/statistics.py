"""A vocabulary that was built, and statistics of how: plain values, for manifests, tables and pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtkit.system import console
from vtkit.system.results import Result

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FAR_BELOW = 0.5  # share of the tokens asked for, below which their number is worth a warning


def say_if_smaller(size: int, most: int, base: int = 0) -> None:
    """Say that a corpus gives a vocabulary of fewer than ``most`` tokens, of which ``base`` were there before; a
    warning where it gives far fewer."""
    if size < most:
        tell = console.warn if size - base < FAR_BELOW * (most - base) else console.say
        tell(f"the corpus gives a vocabulary of {size:,} tokens; its size may be {most:,}")


@dataclass(frozen=True)
class CorpusCounts(Result):
    """Counts of the corpus that a vocabulary was trained on."""

    texts: int
    characters: int
    words: int  # as the pre-tokenizer cuts them
    distinct_words: int


@dataclass(frozen=True)
class Increment(Result):
    """One size of the vocabulary, and how it cuts the corpus."""

    size: int  # tokens of the vocabulary
    added: int  # how many of them the base does not have
    tokens: int  # tokens that the corpus is cut into
    tokens_per_word: float  # the same for each word between white space
    entropy: float
    """Unigram entropy I(C) = Σ log p(x) over all tokens x of the corpus, in nats: negative, rising towards 0."""

    gain: float | None
    """The rise of I(C) since the increment before, as a share of its magnitude there; None for the base."""

    share_of_first_gain: float | None
    """The rise of I(C), as a share of the rise by the first increment; None if that is zero."""


@dataclass(frozen=True)
class ExpansionStats(Result):
    """How an expanded vocabulary came to its size."""

    base_size: int
    added: int  # new tokens
    unused: int
    """New tokens that the result makes nowhere in the corpus: other tokens take their place, or the base keeps upper
    case and the corpus never has them in lower case."""

    stopped: str  # what ended the growth: a rule, or `size` where the wanted size is reached
    why: str  # the same in words
    curve: tuple[Increment, ...]  # the base, then every increment tried; the last is the result


@dataclass(frozen=True)
class Built:
    """A tokenizer, and what is to be said of how it was made."""

    tokenizer: PreTrainedTokenizerFast
    corpus: CorpusCounts | None = None  # what a trained one was trained on
    expansion: ExpansionStats | None = None  # how an expanded one came to its size
    added: tuple[str, ...] = ()  # the tokens that an expanded one has behind its base's, most frequent first


@dataclass(frozen=True)
class TrimStats(Result):
    """Statistics of a trimmed vocabulary, and of texts that were not counted for it."""

    base_size: int  # tokens of the vocabulary before
    texts: int  # texts whose tokens were counted
    held_out: int  # texts that a vocabulary trimmed in the same way without them was tried on
    changed: float  # share of those that it cuts into other tokens
    lost: float  # share of their tokens that it does not have

    def words(self, size: int) -> str:
        """Both in words, for a vocabulary of ``size`` tokens."""
        return (
            f"{size:,} of {self.base_size:,} tokens are kept. New text loses about {self.lost:.2%} of its tokens to "
            f"shorter ones, in {self.changed:.0%} of {self.held_out:,} held-out texts; more text keeps more of them"
        )
