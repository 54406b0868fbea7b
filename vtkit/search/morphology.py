"""Morphemes of Korean and Japanese, by analysers that are packages with their models (the extra ``morphology``)."""

from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from typing import Any

from vtkit.settings.analysers import missing_packages
from vtkit.system.errors import MissingExtra

_NAMES = {"ko": ("Kiwi", "kiwipiepy"), "ja": ("Sudachi", "sudachidict_core")}
"""Each language's analyser, and the package whose version determines its results."""

LONGEST = 100  # characters that are analysed at once: no word is longer, and time grows faster than length

_KOREAN_CONTENT = ("N", "VV", "VA", "M", "IC", "XP", "XR", "XSN", "SL", "SH", "SN")
"""Beginnings of Kiwi's tags of content morphemes: nouns, verbs and adjectives, adverbs, prefixes, roots and the
suffixes of nouns, foreign words, Chinese characters and numbers. The rest are particles, endings, auxiliary and
copular verbs, verb-making suffixes, and signs."""

_JAPANESE_FUNCTION = {"助詞", "助動詞", "補助記号", "空白", "記号"}
"""Sudachi's parts of speech without content: particles, auxiliary verbs, signs."""


def morphemes(language: str) -> Callable[[str], list[str]]:
    """A function from a run of ``language``, ``ko`` or ``ja``, to the dictionary forms of its content morphemes:
    먹었습니다 → 먹, and 高かった → 高い, in Sudachi's shortest units."""
    missing = missing_packages("morphemes", language)
    if missing:
        raise MissingExtra(f"The morphological analysis of {language!r}", " and ".join(missing), "morphology")

    def tokens(run: str) -> Iterator[Any]:
        for start in range(0, len(run), LONGEST):
            yield from _tokenizer(language).tokenize(run[start : start + LONGEST])

    if language == "ko":
        return lambda run: [token.form for token in tokens(run) if token.tag.startswith(_KOREAN_CONTENT)]
    return lambda run: [
        token.dictionary_form() for token in tokens(run) if token.part_of_speech()[0] not in _JAPANESE_FUNCTION
    ]


def morphology_name(language: str) -> str:
    """The analyser of ``language`` with the version of its package or dictionary: Kiwi 0.24.1."""
    name, package = _NAMES[language]
    return f"{name} {version(package)}"


@cache
def _tokenizer(language: str) -> Any:
    if language == "ko":
        from kiwipiepy import Kiwi

        return Kiwi(num_workers=1)
    from sudachipy import Dictionary, SplitMode

    return Dictionary(dict="core").tokenizer(SplitMode.A, {"pos", "dictionary_form"})
