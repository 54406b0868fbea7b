"""What the tokens of a vocabulary stand for, whatever family wrote them: the canonical form is the pair of "starts a
word" and plain text (``school``, ``Ġschool``, ``▁school`` start a word; ``##ing``, ``ing`` continue one)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from vtkit.system.errors import DataError
from vtkit.vocabulary.existing import check_ids, roles_by_id

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Family = Literal["wordpiece", "byte-level", "sentencepiece"]

FILLER = re.compile(
    r"\[unused\d+\]|<unused\d+>|<extra_id_\d+>|madeupword\d+|(<\|?|\[)reserved[\w ]*(\|?>|\])|\[[SX]_?SEP\w*\]",
    re.IGNORECASE,
)
"""Tokens that stand for nothing. They fill up a vocabulary, and equal spelling is no equal meaning."""


class Canonical(NamedTuple):
    """What a token stands for, whatever its family."""

    starts_word: bool
    surface: str


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The vocabulary of a tokenizer, which must not change; what its tokens stand for is worked out once."""

    tokenizer: PreTrainedTokenizerFast

    @classmethod
    def of(cls, vocabulary: Vocabulary | PreTrainedTokenizerFast) -> Vocabulary:
        """That of a tokenizer; a vocabulary stays itself."""
        return vocabulary if isinstance(vocabulary, Vocabulary) else cls(vocabulary)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def tokens(self) -> list[str]:
        """The token of each id as the vocabulary writes it (:func:`tokens`)."""
        return tokens(self.tokenizer)

    @cached_property
    def special(self) -> set[int]:
        """The ids of special tokens and of fillers, which stand for no word."""
        special = {number for number, added in self.tokenizer.added_tokens_decoder.items() if added.special}
        fillers = {number for number, token in enumerate(self.tokens) if FILLER.fullmatch(token)}
        return set(roles_by_id(self.tokenizer)) | special | fillers

    @cached_property
    def forms(self) -> list[Canonical | None]:
        """The canonical form of each id; None for special tokens, fillers and ids without a token."""
        family = token_family(self.tokenizer)
        plain = {number: added.content for number, added in self.tokenizer.added_tokens_decoder.items()}
        forms: list[Canonical | None] = []
        for number, token in enumerate(self.tokens):
            if not token or number in self.special:
                forms.append(None)
            elif number in plain and family != "wordpiece":
                forms.append(_spaced(plain[number]))
            else:
                forms.append(canonical(token, family))
        return forms

    @cached_property
    def surfaces(self) -> list[tuple[str, bool]]:
        """The text each id stands for, and whether it starts a word; empty for special tokens, fillers, ids without a
        token, and bytes that are no whole character."""
        pairs = []
        for form in self.forms:
            if form is None or any("\ud800" <= character <= "\udfff" for character in form.surface):
                pairs.append(("", False))
            else:
                pairs.append((form.surface, form.starts_word))
        return pairs

    @cached_property
    def texts(self) -> list[str]:
        """The text of each id without surrounding space; empty for ids that stand for none."""
        return [surface.strip() for surface, _ in self.surfaces]

    @cached_property
    def legible(self) -> list[str]:
        """The token of each id as a person reads it: as it is written, but byte-level tokens as text (``ĠWünsche``, not
        ``ĠWÃ¼nsche``), with bytes that are no whole character as ``<E0>``."""
        parts = (self.tokenizer.backend_tokenizer.pre_tokenizer, self.tokenizer.backend_tokenizer.decoder)
        byte_level = any(part is not None and b'"ByteLevel"' in part.__getstate__() for part in parts)
        return [_as_text(token) if byte_level else token for token in self.tokens]


def token_family(tokenizer: PreTrainedTokenizerFast) -> Family:
    """How the tokenizer marks the beginnings of words."""
    layout = json.loads(tokenizer.backend_tokenizer.to_str())
    model = layout["model"]
    prefix = model.get("continuing_subword_prefix")
    around = json.dumps([layout.get("pre_tokenizer"), layout.get("decoder")])
    if (model.get("type") in ("WordPiece", "WordLevel") and prefix != "") or prefix == "##":
        return "wordpiece"
    if '"ByteLevel"' in around:
        return "byte-level"
    if '"Metaspace"' in around or "▁" in json.dumps(layout.get("normalizer"), ensure_ascii=False):
        return "sentencepiece"
    raise DataError(
        "The tokenizer does not mark word starts in any known way (## continues, Ġ starts, ▁ starts), so its tokens "
        "cannot be compared with others. WordPiece, byte-level BPE and SentencePiece tokenizers can be used."
    )


def canonical(token: str, family: Family) -> Canonical:
    """What ``token`` stands for: whether it starts a word, and its text. Bytes that are no whole character stay lone
    surrogates, equal to the same bytes only; a bare mark is a word start without text."""
    match family:
        case "wordpiece":
            if token.startswith("##") and len(token) > 2:
                return Canonical(False, token[2:])
            return Canonical(True, token)
        case "byte-level":
            if all(character in _BYTE_OF for character in token):
                raw = bytes(_BYTE_OF[character] for character in token)
                return _spaced(raw.decode("utf-8", "surrogateescape"))
            return _spaced(token)  # an added token, written as plain text
        case "sentencepiece":
            return _spaced(token.replace("▁", " "))


def _as_text(token: str) -> str:
    form = canonical(token, "byte-level")
    surface = "".join(f"<{ord(c) - 0xDC00:02X}>" if 0xDC80 <= ord(c) < 0xDD00 else c for c in form.surface)
    return f"Ġ{surface}" if form.starts_word else surface


def tokens(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The token of each id as the vocabulary writes it; the empty string for ids without one."""
    vocabulary = tokenizer.get_vocab()
    check_ids(vocabulary)
    listed = [""] * (max(vocabulary.values()) + 1)
    for token, number in vocabulary.items():
        listed[number] = token
    return listed


def _spaced(text: str) -> Canonical:
    return Canonical(True, text[1:]) if text.startswith(" ") else Canonical(False, text)


def _byte_alphabet() -> Iterable[tuple[str, int]]:
    """The characters by which byte-level vocabularies write bytes (GPT-2): printable ones as themselves, the others
    as the characters from U+0100 on, in order."""
    moved = 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            yield chr(byte), byte
        else:
            yield chr(256 + moved), byte
            moved += 1


_BYTE_OF = dict(_byte_alphabet())
