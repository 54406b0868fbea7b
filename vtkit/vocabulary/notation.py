"""How tokens are written: the one place that knows the marks of the families (``##`` continues a word, ``Ġ`` and ``▁``
start one, ``</w>`` ends one, ``<0x80>`` is a byte). They are read from the tokenizer, which may use others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from vtkit.system.errors import DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Family = Literal["wordpiece", "byte-level", "sentencepiece", "word ends"]
Shown = Literal["prefix", "space", "suffix", "nothing"]

FILLER = re.compile(
    r"\[unused\d+\]|<unused\d+>|<extra_id_\d+>|madeupword\d+|(<\|?|\[)reserved[\w ]*(\|?>|\])|\[[SX]_?SEP\w*\]"
    r"|<\W?\w+>NOTUSED",
    re.IGNORECASE,
)
"""Tokens that stand for nothing. They fill up a vocabulary, and equal spelling is no equal meaning."""

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_ESCAPED = re.compile(r"[\udc00-\udcff]")
_FIRST = 0xDC00  # the lone surrogate of byte 0, so that those from 0x80 on are Python's (``surrogateescape``)


class Canonical(NamedTuple):
    """The canonical form of a token: whether it starts a word, and its text, whatever family wrote it (``school``,
    ``Ġschool`` and ``▁school`` start a word; ``##ing`` and ``ing`` continue one)."""

    starts_word: bool
    surface: str

    @property
    def is_bytes(self) -> bool:
        """Whether the token holds bytes that are no whole character (:meth:`Notation.read`)."""
        return _ESCAPED.search(self.surface) is not None

    @property
    def letter(self) -> Canonical | None:
        """The character of the token of an ASCII byte; None for all other forms."""
        if len(self.surface) != 1 or not 0 <= (byte := ord(self.surface) - _FIRST) < 0x80:
            return None
        return Canonical(True, "") if byte == ord(" ") else Canonical(False, chr(byte))


@dataclass(frozen=True)
class Notation:
    """The marks of a vocabulary."""

    starts: Shown  # by what a token shows whether it starts a word
    prefix: str = ""  # in front of tokens that continue a word
    suffix: str = ""  # behind tokens that end a word
    space: str = ""  # written for a space
    byte_level: bool = False  # each byte is written as a letter (GPT-2)
    by_normalizer: bool = False  # the normalizer does that, not the pre-tokenizer
    byte_tokens: bool = True  # tokens such as ``<0x80>`` are bytes

    @classmethod
    def of(cls, backend: Tokenizer) -> Notation:
        """The notation of a tokenizer, read from its model, normalizer, pre-tokenizer and decoder."""
        model, normalizer = backend.model, backend.normalizer
        prefix = getattr(model, "continuing_subword_prefix", None) or ""
        suffix = getattr(model, "end_of_word_suffix", None) or ""
        around = [*steps_of(backend.pre_tokenizer), *steps_of(backend.decoder)]
        by_normalizer = any(step["type"] == "ByteLevel" for step in steps_of(normalizer))
        byte_level = by_normalizer or any(step["type"] == "ByteLevel" for step in around)
        space = next((str(step["replacement"]) for step in around if step["type"] == "Metaspace"), "")
        if not space and not byte_level and normalizer is not None:
            between = normalizer.normalize_str("a b").rpartition("a")[2].partition("b")[0]
            space = between if len(between) == 1 and between != " " else ""
        notation = cls("space", prefix, suffix, space, byte_level, by_normalizer, not byte_level)
        if (space or byte_level) and not (prefix or suffix):
            return notation
        if space or byte_level:
            mark = notation.written(" ")
            lengths = (len(token.removesuffix(suffix)) for token in backend.get_vocab() if token.startswith(mark))
            if any(length > len(mark) for length in lengths):
                return notation
        if prefix or type(model).__name__ == "WordLevel":
            return replace(notation, starts="prefix")
        return replace(notation, starts="suffix" if suffix else "nothing")

    @property
    def family(self) -> Family:
        """The family whose tokens show beginnings of words in this way; a DataError if these do not show any."""
        if self.starts == "space":
            return "byte-level" if self.byte_level else "sentencepiece"
        if self.starts != "nothing":
            return "wordpiece" if self.starts == "prefix" else "word ends"
        raise DataError(
            f"The tokenizer does not mark word starts in any known way ({WORDPIECE.prefix} continues, "
            f"{BYTE_LEVEL.written(' ')} starts, {SENTENCEPIECE.space} starts), so its tokens cannot be compared with "
            "others. WordPiece, byte-level BPE and SentencePiece tokenizers can be used."
        )

    def read(self, token: str) -> Canonical:
        """The canonical form of ``token``.

        Bytes that are no whole character are lone surrogates, U+DC00 and the byte, equal to the same bytes only, of
        whichever family: Python's ``surrogateescape`` for those from 0x80 on; tokens for ASCII bytes as well, which
        :class:`vtkit.vocabulary.forms.Vocabulary` reads as characters if nothing else writes them. A bare mark is a
        word start without text. A token that ends a word with a suffix stands for the word, and one without is a part.
        """
        if self.byte_tokens and (byte := _BYTE.fullmatch(token)):
            return Canonical(False, chr(_FIRST + int(byte[1], 16)))
        continues, text, ends = self._parts(token)
        text = self._decoded(text, self.byte_level)
        if self.starts == "space":
            return Canonical(text.startswith(" "), text.removeprefix(" "))
        return Canonical(ends if self.starts == "suffix" else not continues, text)

    def write(self, form: Canonical) -> str | None:
        """The token of ``form``; None if this notation has none."""
        if form.is_bytes and not self.byte_level:
            token = f"<0x{ord(form.surface[0]) - _FIRST:02X}>"
        else:
            marked = form.starts_word and self.starts == "space"
            try:
                token = self.written(f" {form.surface}" if marked else form.surface)
            except UnicodeEncodeError:  # an ASCII byte beside its letter
                return None
            token = (self.prefix if self.starts == "prefix" and not form.starts_word else "") + token
            token += self.suffix if self.starts == "suffix" and form.starts_word else ""
        return token if token and self.read(token) == form else None

    def written(self, text: str) -> str:
        """``text`` with its spaces and bytes as tokens have them."""
        text = text.replace(" ", self.space or " ")
        return "".join(_LETTERS[byte] for byte in text.encode("utf-8", "surrogateescape")) if self.byte_level else text

    def normalized(self, text: str) -> str:
        """The text that the normalizer has written as ``text``."""
        return self._decoded(text, self.by_normalizer)

    def characters(self, token: str) -> list[str]:
        """The tokens of single characters that a BPE model begins to merge ``token`` from."""
        continues, text, ends = self._parts(token)
        parts = [f"{self.prefix if place or continues else ''}{character}" for place, character in enumerate(text)]
        return [*parts[:-1], f"{parts[-1]}{self.suffix if ends else ''}"] if parts else []

    def joined(self, left: str, right: str) -> str:
        """The token that a BPE model merges two into."""
        return left + right[len(self.prefix) :]

    def variants(self, character: str) -> list[str]:
        """The tokens that hold nothing but ``character``, a letter of the notation's."""
        return [f"{before}{character}{after}" for before in ("", self.prefix) for after in ("", self.suffix)]

    def is_byte(self, token: str) -> bool:
        """Whether ``token`` is a single byte, as vocabularies hold them so that no text is unknown."""
        return self._parts(token)[1] in _BYTE_OF if self.byte_level else _BYTE.fullmatch(token) is not None

    def legible(self, token: str) -> str:
        """``token`` as a person reads it: as it is written, but letters of bytes as text (``ĠWünsche``, not
        ``ĠWÃ¼nsche``), with bytes that are no whole character as ``<E0>``."""
        if not self.byte_level:
            return token
        text = self._decoded(token, True)
        mark = self.written(" ") if text.startswith(" ") else ""
        return mark + _ESCAPED.sub(lambda escaped: f"<{ord(escaped[0]) - _FIRST:02X}>", text.removeprefix(" "))

    def _parts(self, token: str) -> tuple[bool, str, bool]:
        """Whether a token has the prefix; what is between; and whether it has the suffix. A bare mark is text."""
        continues = 0 < len(self.prefix) < len(token) and token.startswith(self.prefix)
        ends = 0 < len(self.suffix) < len(token) and token.endswith(self.suffix)
        return continues, token[len(self.prefix) * continues : len(token) - len(self.suffix) * ends], ends

    def _decoded(self, written: str, in_letters: bool) -> str:
        if in_letters and all(character in _BYTE_OF for character in written):
            written = bytes(_BYTE_OF[character] for character in written).decode("utf-8", "surrogateescape")
        return written.replace(self.space, " ") if self.space else written


def steps_of(part: Any) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or decoder, as a tokenizer file has them."""
    waiting = [] if part is None else [json.loads(part.__getstate__())]
    while waiting:
        step = waiting.pop(0)
        yield step
        waiting[:0] = next((step[name] for name in ("normalizers", "pretokenizers", "decoders") if name in step), [])


# The letter of each byte in byte-level vocabularies (GPT-2): printable ones are themselves, the others the characters
# from U+0100 on, in order.
_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_OTHERS = iter(range(256, 512))
_LETTERS = [chr(byte if byte in _PRINTABLE else next(_OTHERS)) for byte in range(256)]
_BYTE_OF = {letter: byte for byte, letter in enumerate(_LETTERS)}

WORDPIECE = Notation("prefix", prefix="##")
BYTE_LEVEL = Notation("space", byte_level=True, byte_tokens=False)
SENTENCEPIECE = Notation("space", space="▁")
WORD_ENDS = Notation("suffix", suffix="</w>")
"""The usual notations of the families, in which vtkit writes the vocabularies that it makes."""
