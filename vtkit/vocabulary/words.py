"""The definition of a word, by the script it is written in.

Scripts with spaces: the stretch between two spaces without the punctuation and symbols around it. Chinese, Japanese,
Thai, Lao, Khmer and Burmese: the words of ICU's dictionaries (:mod:`vtkit.data.unspaced`). Tibetan: each letter with
its marks. All kinds may stand in one text, even in one stretch.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Literal

import regex
from fontTools.unicodedata import Scripts, script

from vtkit.data.unspaced import RUN, UNSPACED, cut_run

Punctuation = Literal["keep", "cut"]
"""The effect of punctuation inside a stretch: ``keep`` leaves *wild-type* one word, ``cut`` makes it two."""

RULE = (
    "white-space words without the punctuation around them; in Chinese, Japanese, Thai, Lao, Khmer and Burmese the "
    "words of ICU's dictionaries; letters of Tibetan (with their marks) are words of their own"
)
"""The definition, in words for a report."""

SCRIPTS = (
    *("Latin", "Han", "Hiragana", "Katakana", "Hangul", "Arabic", "Cyrillic", "Devanagari", "Bengali", "Telugu"),
    *("Thai", "Greek", "Hebrew", "Tamil", "Gujarati", "Gurmukhi", "Kannada", "Malayalam", "Oriya", "Sinhala"),
    *("Lao", "Khmer", "Myanmar", "Tibetan", "Georgian", "Armenian", "Ethiopic", "Mongolian", "Bopomofo", "Thaana"),
    *("Syriac", "Cherokee", "Tifinagh", "Nko", "Yi", "Coptic", "Inherited", "Common"),
)
"""Scripts told apart; letters of any other are ``Other``."""

KANA_SHARE = 0.05  # from this share of kana among its Han and kana on, a text is Japanese: Chinese text has none
OPENING = 1000  # characters of a text that its script is read from

_CHARACTERS = rf"{UNSPACED}\p{{Tibetan}}"
_WIDE_MARKS = r"\u3001-\u3004\u3008-\u3020\u3030\u303d-\u303f\u30fb\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
_OTHERS = rf"(?P<run>{RUN})|[\p{{Tibetan}}&&\p{{L}}]\p{{M}}*"
_LETTER = rf"[[\p{{L}}\p{{N}}]--[[{_CHARACTERS}]--\p{{N}}]]"
_INSIDE = rf"[^\s{_WIDE_MARKS}[[{_CHARACTERS}]--\p{{N}}]]"
_WORD: dict[Punctuation, regex.Pattern[str]] = {
    "keep": regex.compile(rf"(?V1){_OTHERS}|{_LETTER}\p{{M}}*(?:{_INSIDE}*{_LETTER}\p{{M}}*)?"),
    "cut": regex.compile(rf"(?V1){_OTHERS}|{_LETTER}\p{{M}}*(?:[\u200c\u200d]?{_LETTER}\p{{M}}*)*"),
}
_HAS_LETTER = regex.compile(r"(?V1)[\p{L}--\p{Lm}]")
"""A run's words are those with a letter; the mark of a long vowel or of a repetition alone is none."""

_ASCII_WORD: dict[Punctuation, re.Pattern[str]] = {
    "keep": re.compile(r"[A-Za-z0-9](?:[^ \t-\r]*[A-Za-z0-9])?"),
    "cut": re.compile("[A-Za-z0-9]+"),
}
"""The same for text of ASCII characters, by the faster library."""


def words(text: str, punctuation: Punctuation = "keep") -> list[str]:
    """The words of ``text``, in its order."""
    return [text[start:end] for start, end in word_spans(text, punctuation)]


def word_spans(text: str, punctuation: Punctuation = "keep") -> Iterator[tuple[int, int]]:
    """Spans of the words of ``text``, in characters; no word holds white space."""
    if text.isascii():
        yield from (match.span() for match in _ASCII_WORD[punctuation].finditer(text))
        return
    for match in _WORD[punctuation].finditer(text):
        if match["run"] is None:
            yield match.span()
            continue
        start = match.start()
        for word in cut_run(match["run"]):
            if _HAS_LETTER.search(word):
                yield start, start + len(word)
            start += len(word)


@cache
def script_of(character: str) -> str:
    """The script a character is written in, one of :data:`SCRIPTS` or ``Other``."""
    name = Scripts.NAMES[script(character)]
    return name if name in SCRIPTS else "Other"


def script_of_text(text: str) -> str:
    """The script of most letters in the opening of a text: ``Japanese`` for Han with kana, ``none`` without letters."""
    if text.isascii():
        return "Latin" if any(map(str.isalpha, text[:OPENING])) else "none"
    counts = Counter(map(script_of, text[:OPENING]))
    kana = counts.pop("Hiragana", 0) + counts.pop("Katakana", 0)
    counts["Han"] += kana
    best = max(("Other", *SCRIPTS[:-2]), key=counts.__getitem__)  # the last two are no scripts
    if not counts[best]:
        return "none"
    return "Japanese" if best == "Han" and kana >= KANA_SHARE * counts["Han"] else best
