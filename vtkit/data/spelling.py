"""Letters and signs that writers of a script interchange or leave out, and text as words are searched and counted."""

import unicodedata
from collections.abc import Callable
from functools import cache

ARABIC: dict[str, str] = {
    **dict.fromkeys([chr(0x640), chr(0x670), *map(chr, range(0x64B, 0x660))], ""),  # tatweel and vowel signs
    **dict.fromkeys("أإآٱ", "ا"),
    "ى": "ي",
    "ة": "ه",
}
"""Character -> its common form: most writers leave out vowel signs, and many the signs on an alef."""

HEBREW = dict.fromkeys(map(chr, [*range(0x591, 0x5BE), 0x5BF, 0x5C1, 0x5C2, 0x5C4, 0x5C5, 0x5C7]), "")
"""Points and accents."""

DEVANAGARI = {
    chr(0x901): chr(0x902),  # chandrabindu, often written as anusvara
    chr(0x93C): "",  # nukta
    chr(0x929): chr(0x928),
    chr(0x931): chr(0x930),
    chr(0x934): chr(0x933),
}
"""Of text in a composed Unicode form."""

_PERSIAN = ARABIC | {"ى": "ی", "ي": "ی", "ك": "ک"}  # keyboards and fonts of Arabic type the letters of the right
_HEH = "\u06c1"  # heh goal, the heh of Urdu

SPELLINGS: dict[tuple[str, ...], dict[str, str]] = {
    ("ar", "ara"): ARABIC | {"ی": "ي", "ک": "ك"},
    ("fa", "fas", "per"): _PERSIAN | {"ۀ": "ه", _HEH: "ه", "\u200c": " "},  # the non-joiner sets parts of words apart
    ("ur", "urd"): _PERSIAN | dict.fromkeys("هةۂۃ", _HEH),
    ("he", "heb"): HEBREW,
    ("ro", "ron", "rum"): {"ş": "ș", "ţ": "ț"},  # the cedillas of older fonts
}
"""ISO 639 codes of a language -> what its writers interchange, lower-case, in the letters that its stemmer knows."""

DOTTED_I = {"İ": "i", "I\u0307": "i", "I": "ı"}
"""Lower case of the two letters of Turkish and Azerbaijani, composed and decomposed; all other letters of theirs have
the lower case of other languages."""

TURKIC = frozenset({"tr", "tur", "az", "aze"})  # codes of these languages


def lowered(text: str, language: str | None = None) -> str:
    """``text`` in lower case, as ``language`` (ISO 639) writes it."""
    if language in TURKIC:
        for upper, lower in DOTTED_I.items():
            text = text.replace(upper, lower)
    return text.lower()


def preparation(language: str) -> Callable[[str], str]:
    """A function that prepares a text for words: NFKC, lower case, ASCII digits, the :data:`SPELLINGS` of ``language``
    (ISO 639), and neither format characters (joiners, soft hyphens, direction marks) nor variation selectors."""
    own = next((spelled for codes, spelled in SPELLINGS.items() if language in codes), {})
    table = _digits_and_signs() | str.maketrans(own)

    def prepare(text: str) -> str:
        if text.isascii():
            return lowered(text, language)
        return lowered(unicodedata.normalize("NFKC", text), language).translate(table)

    return prepare


@cache
def _digits_and_signs() -> dict[int, str]:
    """Characters of the first plane that prepared text does not have -> what it has for them."""
    kinds = {code: unicodedata.category(chr(code)) for code in range(0x10000)}
    signs = [*(code for code, kind in kinds.items() if kind == "Cf"), *range(0xFE00, 0xFE10)]
    digits = {code: str(unicodedata.digit(chr(code))) for code, kind in kinds.items() if kind == "Nd"}
    return dict.fromkeys(signs, "") | digits


FOLDED = {**ARABIC, **HEBREW, **DEVANAGARI}
"""Like Lucene's normalizers of Arabic and Hindi, except that Lucene also drops the length of Hindi's vowels."""
