"""What counts as a word, by the script it is written in; no dictionary and no model that counts could depend on.

Scripts with spaces: the stretch between two spaces without the punctuation and symbols around it. Scripts without:
each Han character, each run of hiragana, each run of katakana, and each letter of Thai, Lao, Khmer, Myanmar and
Tibetan with its marks (a *character word*). Both kinds may stand in one text, even in one stretch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal

import numpy as np
import regex
from numpy.typing import NDArray

Punctuation = Literal["keep", "cut"]
"""What punctuation inside a stretch does: ``keep`` leaves *wild-type* one word, ``cut`` makes it two."""

RULE = (
    "white-space words without the punctuation around them; Chinese characters, runs of hiragana, runs of katakana and "
    "letters of Thai, Lao, Khmer, Myanmar and Tibetan (with their marks) are words of their own"
)
"""The definition, in words for a report."""

SCRIPTS = (
    *("Latin", "Han", "Hiragana", "Katakana", "Hangul", "Arabic", "Cyrillic", "Devanagari", "Bengali", "Telugu"),
    *("Thai", "Greek", "Hebrew", "Tamil", "Gujarati", "Gurmukhi", "Kannada", "Malayalam", "Oriya", "Sinhala"),
    *("Lao", "Khmer", "Myanmar", "Tibetan", "Georgian", "Armenian", "Ethiopic", "Mongolian", "Bopomofo", "Thaana"),
    *("Syriac", "Cherokee", "Tifinagh", "Nko", "Yi", "Coptic", "Inherited", "Common"),
)
"""Scripts told apart; letters of any other are ``Other``."""

KANA_SHARE = 0.05
"""From this share of kana among its Han and kana on, a text is Japanese: Chinese text has none."""

OPENING = 1000
"""Characters of a text that its script is read from."""

_UNSPACED = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_CHARACTERS = rf"\p{{Han}}\p{{Hiragana}}\p{{Katakana}}ー{_UNSPACED}"
_WIDE_MARKS = r"\u3001-\u3004\u3008-\u3020\u3030\u303d-\u303f\u30fb\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
_CHARACTER_WORDS = (
    r"\p{Han}\p{M}*"
    r"|\p{Hiragana}[\p{Hiragana}\p{M}ー]*"
    r"|[\p{Katakana}&&\p{L}][[\p{Katakana}&&\p{L}]\p{M}ー]*"
    rf"|[[{_UNSPACED}]&&\p{{L}}]\p{{M}}*(?:(?<=[\u1039\u17d2])\p{{L}}\p{{M}}*)*"
)
_LETTER = rf"[[\p{{L}}\p{{N}}]--[[{_CHARACTERS}]--\p{{N}}]]"
_INSIDE = rf"[^\s{_WIDE_MARKS}[[{_CHARACTERS}]--\p{{N}}]]"
_WORD: dict[Punctuation, regex.Pattern[str]] = {
    "keep": regex.compile(rf"(?V1){_CHARACTER_WORDS}|{_LETTER}\p{{M}}*(?:{_INSIDE}*{_LETTER}\p{{M}}*)?"),
    "cut": regex.compile(rf"(?V1){_CHARACTER_WORDS}|{_LETTER}\p{{M}}*(?:[\u200c\u200d]?{_LETTER}\p{{M}}*)*"),
}
_ASCII_WORD: dict[Punctuation, re.Pattern[str]] = {
    "keep": re.compile(r"[A-Za-z0-9](?:[^ \t-\r]*[A-Za-z0-9])?"),
    "cut": re.compile("[A-Za-z0-9]+"),
}
"""The same for text of ASCII characters, by the faster library."""


def words(text: str, punctuation: Punctuation = "keep") -> list[str]:
    """The words of ``text``, in its order."""
    found: list[str] = _WORD[punctuation].findall(text)
    return found


def word_spans(text: str, punctuation: Punctuation = "keep") -> Iterator[tuple[int, int]]:
    """Where the words of ``text`` begin and end, in characters; no word holds white space."""
    pattern = (_ASCII_WORD if text.isascii() else _WORD)[punctuation]
    return (match.span() for match in pattern.finditer(text))


def lowered(word: str, language: str | None = None) -> str:
    """``word`` in lower case; Turkish and Azerbaijani (``tr``, ``az``) have a dotted and a dotless i."""
    if language in ("tr", "az"):
        word = word.replace("İ", "i").replace("I", "ı")
    return word.lower()


def script_of(character: str) -> str:
    """The script a character is written in, one of :data:`SCRIPTS` or ``Other``."""
    return ("Other", *SCRIPTS)[int(_script_codes(np.array([ord(character)], dtype=np.uint32))[0])]


def script_of_text(text: str) -> str:
    """The script that most letters in the opening of ``text`` are written in; ``Japanese`` for Han with kana.

    ``none`` for a text without letters.
    """
    if text.isascii():
        return "Latin" if any(map(str.isalpha, text[:OPENING])) else "none"
    codes = np.frombuffer(text[:OPENING].encode("utf-32-le", "surrogatepass"), dtype="<u4")
    found = np.bincount(_script_codes(codes), minlength=len(SCRIPTS) + 1)
    found[_COMMON:] = 0
    kana = int(found[_HIRAGANA] + found[_KATAKANA])
    found[_HAN] += kana
    found[_HIRAGANA] = found[_KATAKANA] = 0
    best = int(found.argmax())
    if not found[best]:
        return "none"
    if best == _HAN:
        return "Japanese" if kana >= KANA_SHARE * int(found[_HAN]) else "Han"
    return ("Other", *SCRIPTS)[best]


_HAN, _HIRAGANA, _KATAKANA = (SCRIPTS.index(name) + 1 for name in ("Han", "Hiragana", "Katakana"))
_COMMON = SCRIPTS.index("Inherited") + 1
_PLANES = 0x20000
"""The characters of the two planes up to here are looked up; the next two hold Han characters only."""


def _script_codes(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Script numbers (1 + the place in :data:`SCRIPTS`, 0 for others) of code points."""
    table = _script_table()
    return table[np.minimum(codes, len(table) - 1)]


@cache
def _script_table() -> NDArray[np.uint8]:
    alternatives = "|".join(rf"(?P<{name}>\p{{{name}}}+)" for name in SCRIPTS)
    table = np.zeros(0xE0000 + 1, dtype=np.uint8)
    everything = "".join(" " if 0xD800 <= code < 0xE000 else chr(code) for code in range(_PLANES))
    for match in regex.finditer(alternatives, everything):
        table[match.start() : match.end()] = SCRIPTS.index(str(match.lastgroup)) + 1
    table[_PLANES:0x40000] = _HAN
    table[0x40000:] = 0
    table[0xD800:0xE000] = 0
    return table
