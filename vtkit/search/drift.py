"""Differences between documents that are added to an index and those that its model was made for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.sampling import spread
from vtkit.encoder.truncation import TEXTS_LOOKED_AT
from vtkit.system import console
from vtkit.system.checksums import remembered
from vtkit.system.results import Result
from vtkit.vocabulary.forms import Vocabulary, whole_ids
from vtkit.vocabulary.words import script_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

UNTRIMMED = "untrimmed.json"  # tokenizer file of the source, in the folder of an index with a trimmed vocabulary
BUILT = "built.json"  # beside it, what `vtkit build` knows of the index

CHARACTERS_LOOKED_AT = 10_000  # of a text
OF_OLD = 0.01  # share of the old letters from which on a script is one of theirs

LOST, OTHER = 0.02, 0.05
"""Shares of lost tokens, beyond those that texts of the same source lose, and of letters in other scripts from which on
the index should be built again."""


@dataclass(frozen=True)
class Drift(Result):
    """Shares of new documents that the encoder reads worse than the old ones, from samples of both."""

    lost: float | None  # share of their tokens that trimming removed from the vocabulary; None if it is not trimmed
    usual: float  # the same share of held-out texts of the collection that it was trimmed to
    other_scripts: float  # share of their letters in scripts that the old documents hardly have
    unread: float  # share of their letters that the vocabulary lacks
    tokens: float  # mean number of tokens
    old_tokens: float  # that of the old documents

    @classmethod
    def between(
        cls, old: Sequence[str], new: Sequence[str], tokenizer: PreTrainedTokenizerFast, untrimmed: Path
    ) -> Drift:
        """The drift from ``old`` to ``new`` texts, by the beginnings of some of each.

        Args:
            tokenizer: cuts the texts for the encoder.
            untrimmed: the tokenizer file that it was trimmed from, if there is one.
        """
        old, new = beginnings(old), beginnings(new)
        vocabulary, lost, usual = Vocabulary(tokenizer), None, 0.0
        if untrimmed.is_file():
            from tokenizers import Tokenizer

            encodings = Tokenizer.from_file(str(untrimmed)).encode_batch(list(new), add_special_tokens=False)
            gone = [token not in vocabulary.ids for encoding in encodings for token in encoding.tokens]
            lost = sum(gone) / max(len(gone), 1)
            usual = remembered(untrimmed.with_name(BUILT)).get("lost_tokens") or 0.0
        before, scripts = (Counter(map(script_of, filter(str.isalpha, "".join(texts)))) for texts in (old, new))
        known = {script for script, count in before.items() if count >= OF_OLD * before.total()}
        other = sum(count for script, count in scripts.items() if script not in known)
        letters = max(sum(map(str.isalnum, "".join(new))), 1)
        unread = sum(len(vocabulary.unread(text)) for text in new) / letters
        lengths = (sum(map(len, whole_ids(tokenizer, texts))) / max(len(texts), 1) for texts in (new, old))
        return cls(lost, usual, other / max(scripts.total(), 1), unread, *lengths)

    @property
    def reasons(self) -> Iterator[str]:
        """The reasons to build the index again."""
        if self.lost is not None and self.lost >= self.usual + LOST:
            usual = f"{self.usual:.1%} of those of texts like the old ones"
            yield f"the trimmed vocabulary lacks {self.lost:.1%} of the tokens of the new documents, and {usual}"
        if self.other_scripts >= OTHER:
            yield f"{self.other_scripts:.0%} of their letters are in scripts that the others hardly have"
        if self.unread >= OTHER:
            yield f"the vocabulary lacks {self.unread:.0%} of their letters"


def said_of_unread(reader: str, lost: Collection[str], letters: int, texts: str) -> str:
    """A message that the vocabulary of ``reader`` lacks the letters ``lost`` of so many in some texts."""
    shown = console.one_line("".join(dict.fromkeys(lost)), 20)
    return (
        f"{reader} cannot read {len(lost):,} of the {letters:,} letters of {texts} ({shown}): its vocabulary lacks "
        "them, and what stands for them is noise"
    )


def beginnings(texts: Sequence[str]) -> list[str]:
    """The beginnings of up to :data:`TEXTS_LOOKED_AT` of ``texts``, spread evenly."""
    return [text[:CHARACTERS_LOOKED_AT] for text in spread(texts, TEXTS_LOOKED_AT)]
