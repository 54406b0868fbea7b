"""The composition of a vocabulary: the script of each token, and its language as far as the token tells.

The script comes first. Where a script has one candidate among the languages asked for, it decides. Where several
languages share it, lingua is asked, and only about tokens that can carry evidence (:data:`EVIDENCE_LETTERS` letters,
the beginning of a word); what stays open is counted as undecided, with the reason. Unusual: lingua takes all
languages to be equally likely, which makes single words noise (``chat`` is Tswana, most English words are nothing), so
the languages' shares are first estimated from the vocabulary itself.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from lingua import IsoCode639_1, Language, LanguageDetectorBuilder
from numpy.typing import NDArray

from vtkit.data.text import batches
from vtkit.system import console
from vtkit.system.errors import RecipeError
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.notation import Canonical
from vtkit.vocabulary.words import script_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Floats = NDArray[np.float64]
Sort = Literal["language", "undecided", "other", "etc", "scripts"]  # how tokens are counted
Han = Literal["zh", "ja", "ko", "undecided"]

SEMBRIDGE = ("en", "ar", "zh", "hi", "ko", "ru")
"""The languages of the SemBridge paper's figure. No two share a script, so they are told apart by script alone."""

EVIDENCE_LETTERS = 5  # letters a word must have to be asked about: the longest n-grams that lingua counts have five

EVIDENCE_PROBABILITY = 0.8
"""A language is settled from this probability on. On mixtures of words of known languages (98 % English; eight
languages about evenly) half of the words were settled, and 96 and 98 in 100 of these rightly."""

EVIDENCE_AGAINST = 2.0
"""A language is not settled where the word's own evidence is more than so many times stronger for another one: an
English vocabulary makes *giuseppe* no English word."""

ROUNDS = 200  # most rounds in which the languages' shares are estimated
STILL = 1e-5  # the shares are estimated when no one moves by more than this in a round

WORDS_AT_ONCE = 64
"""Words that lingua is asked about together: half a second's work, after which Ctrl-C is heard and progress shown."""

LANGUAGES = {
    language.iso_code_639_1.name.lower(): language.name.capitalize() for language in sorted(Language.all(), key=str)
} | {"nb": "Bokmål"}
"""The languages that lingua knows: ISO 639-1 code and English name."""


LANGUAGES_OF_SCRIPT: dict[str, tuple[str, ...]] = {
    **{
        script: tuple(sorted(language.iso_code_639_1.name.lower() for language in languages()))
        for script in ("Latin", "Arabic", "Cyrillic", "Devanagari")
        for languages in [getattr(Language, f"all_with_{script.lower()}_script")]
    },
    "Han": ("zh", "ja"),
    **dict.fromkeys(("Hiragana", "Katakana", "Japanese"), ("ja",)),
    **dict.fromkeys(("Hangul", "Korean"), ("ko",)),
    "Bopomofo": ("zh",),
    "Armenian": ("hy",),
    "Bengali": ("bn",),
    "Georgian": ("ka",),
    "Greek": ("el",),
    "Gujarati": ("gu",),
    "Gurmukhi": ("pa",),
    "Hebrew": ("he",),
    "Tamil": ("ta",),
    "Telugu": ("te",),
    "Thai": ("th",),
}
"""Which of :data:`LANGUAGES` are written in a script. ``Japanese`` is kana with Han or both kinds of kana, ``Korean``
Hangul with Han. A language is listed under the scripts that lingua knows it in: Serbian in Cyrillic only."""


class Label(NamedTuple):
    """The language, script or kind that a token is counted under."""

    sort: Sort
    name: str  # the language's code; the script of an undecided token or of one in no language asked for; or a kind
    script: str  # script of its letters; empty for `etc`
    reason: str = ""  # why a token is undecided


@dataclass(frozen=True)
class Composition:
    """Tokens by language, or by the reason why they count for none (docs/vocabulary.md#inspect-a-vocabulary). Each
    dictionary lists its most frequent name first."""

    asked_for: list[str]  # codes of the languages that were told apart
    language: dict[str, int]
    undecided: dict[str, int]  # by script: tokens that may belong to several of the languages
    other: dict[str, int]  # by script: tokens that none of the languages is written in
    etc: dict[str, int]  # by kind: tokens without letters
    undecided_because: dict[str, int]
    estimated_shares: dict[str, dict[str, float]]
    """For each script with several languages, how its whole words divide among them, settled or not."""

    han_characters: dict[str, int]  # Han tokens by what their characters say: ``zh`` only, ``ja`` only, ``shared``
    scripts: dict[str, int]  # by the script of their letters


def parse_languages(text: str) -> tuple[str, ...]:
    """The codes in ``all``, ``sembridge`` or a list such as ``en,ko``."""
    if text.strip() == "all":
        return tuple(sorted(LANGUAGES))
    if text.strip() == "sembridge":
        return SEMBRIDGE
    codes = tuple(dict.fromkeys(code.strip().lower() for code in text.split(",") if code.strip()))
    unknown = [code for code in codes if code not in LANGUAGES]
    if unknown or not codes:
        raise RecipeError(
            f"languages {text}: {', '.join(unknown) or 'nothing'} is not a known language. Give all, sembridge, or "
            f"comma-separated ISO 639-1 codes from {', '.join(sorted(LANGUAGES))}."
        )
    return codes


def compose(tokenizer: PreTrainedTokenizerFast, languages: Sequence[str], han: Han = "zh") -> Composition:
    """Count the tokens by the labels of :func:`label_tokens`."""
    labels, shares, han_characters = label_tokens(Vocabulary(tokenizer), languages, han)
    sorts = ("language", "undecided", "other", "etc")
    return Composition(
        asked_for=list(languages),
        **{sort: _counted(label.name for label in labels if label.sort == sort) for sort in sorts},
        undecided_because=_counted(label.reason for label in labels),
        estimated_shares=shares,
        han_characters=han_characters,
        scripts=_counted(label.script for label in labels),
    )


def label_tokens(
    vocabulary: Vocabulary, languages: Sequence[str], han: Han
) -> tuple[list[Label], dict[str, dict[str, float]], dict[str, int]]:
    """Script and language of every token.

    1. Special tokens, fillers, bytes that are no character, and what has no letters are ``etc``.
    2. A script that one of ``languages`` is written in decides, whatever the token; one that none is written in makes
       the token ``other``; letters of several scripts leave it undecided (kana with Han are Japanese, Hangul with Han
       Korean).
    3. Han, where both Chinese and Japanese are asked for: by the national character sets. A character that JIS X 0208
       has and GB 2312 and Big5 have not makes the token Japanese, the reverse Chinese; what is shared, with the
       hanja of Korean, counts as ``han`` says.
    4. Any other script with several languages: see :func:`settle`. Continuations of words and words shorter than
       :data:`EVIDENCE_LETTERS` are undecided.

    Returns:
        The label of each token, and ``estimated_shares`` and ``han_characters`` of :class:`Composition`.
    """
    forms = vocabulary.forms
    candidates = {script: [code for code in own if code in languages] for script, own in LANGUAGES_OF_SCRIPT.items()}
    labels: list[Label] = []
    asked: dict[str, list[int]] = {}
    han_counts = {"zh": 0, "ja": 0, "shared": 0}
    for number, (token, form) in enumerate(zip(vocabulary.tokens, forms, strict=True)):
        kind = kind_without_letters(form) if form is not None else "special" if token else "no token"
        if kind is not None or form is None:
            labels.append(Label("etc", "unused" if number in vocabulary.fillers else str(kind), ""))
            continue
        script = token_script(form.surface)
        codes = candidates.get(script, [])
        if script == "Han" and len(codes) > 1:
            says = han_language(form.surface)
            han_counts[says or "shared"] += 1
            shared = Label("undecided", script, script, "characters that Chinese and Japanese share")
            label = shared if (says or han) == "undecided" else Label("language", says or han, script)
        elif script == "mixed":
            label = Label("undecided", script, script, "letters of several scripts")
        elif not codes:
            label = Label("other", script, script)
        elif len(codes) == 1:
            label = Label("language", codes[0], script)
        elif not form.starts_word:
            label = Label("undecided", script, script, "continues a word")
        elif not all(character.isalpha() or unicodedata.category(character)[0] == "M" for character in form.surface):
            label = Label("undecided", script, script, "not letters only")
        elif len(form.surface) < EVIDENCE_LETTERS:
            label = Label("undecided", script, script, f"shorter than {EVIDENCE_LETTERS} letters")
        else:
            asked.setdefault(script, []).append(number)
            label = Label("undecided", script, script, "fits several languages")
        labels.append(label)
    estimated: dict[str, dict[str, float]] = {}
    for script, numbers in asked.items():
        codes = candidates[script]
        evidence = _confidences([forms[number].surface for number in numbers], codes)  # type: ignore[union-attr]
        choices, shares = settle(evidence)
        largest_first = np.argsort(-shares, kind="stable").tolist()
        estimated[script] = {codes[n]: round(float(shares[n]), 4) for n in largest_first if shares[n] >= 0.005}
        for number, choice in zip(numbers, choices.tolist(), strict=True):
            if choice >= 0:
                labels[number] = Label("language", codes[choice], script)
    return labels, estimated, han_counts if any(han_counts.values()) else {}


def settle(evidence: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Which language each word is in, as far as that is settled.

    The evidence is a classifier's output under equal shares of all languages. The shares in the vocabulary are
    estimated from the same output by expectation maximisation, π_l ← mean_i q_il with q_il ∝ π_l·p_il (Saerens,
    Latinne and Decaestecker, Neural Computation 14(1), 2002). A word is settled on the most probable language in q
    where that has at least :data:`EVIDENCE_PROBABILITY`, and where p, the word's own evidence, is not more than
    :data:`EVIDENCE_AGAINST` times higher for another.

    Args:
        evidence: p, non-negative, (words, languages); a row of zeros is no evidence.

    Returns:
        Column of each word's language, -1 where it is open, (words,); and the estimated shares π, (languages,).
    """
    words, languages = evidence.shape
    shares = np.full(languages, 1 / languages)
    choices = np.full(words, -1)
    heard = np.flatnonzero(evidence.sum(axis=1) > 0)
    if not heard.size:
        return choices, shares
    own = evidence[heard] / evidence[heard].sum(axis=1, keepdims=True)
    for _ in range(ROUNDS):
        shared = own * shares
        shared /= shared.sum(axis=1, keepdims=True)
        before, shares = shares, shared.mean(axis=0)
        if np.abs(shares - before).max() < STILL:
            break
    best = shared.argmax(axis=1)
    rows = np.arange(heard.size)
    settled = (shared[rows, best] >= EVIDENCE_PROBABILITY) & (EVIDENCE_AGAINST * own[rows, best] >= own.max(axis=1))
    choices[heard[settled]] = best[settled]
    return choices, shares


def token_script(surface: str) -> str:
    """The script of a token's letters: one of ``script_of``, ``Japanese``, ``Korean``, or ``mixed``."""
    scripts = {script for script in map(letter_script, surface) if script}
    if len(scripts) == 1:
        return scripts.pop()
    if scripts <= {"Han", "Hiragana", "Katakana"}:
        return "Japanese"
    return "Korean" if scripts == {"Han", "Hangul"} else "mixed"


@cache
def letter_script(character: str) -> str:
    """Script of a letter or its mark; empty for all else, as mathematical letters and µ, which belong to no script."""
    if character == "ー":
        return "Katakana"  # Unicode leaves it to both kana
    if unicodedata.category(character)[0] not in "LM":
        return ""
    script = script_of(character)
    return "" if script in ("Common", "Inherited") else script


@cache
def han_language(surface: str) -> str:
    """``ja`` or ``zh`` where the characters are in the character sets of one of them only, else nothing."""
    languages = set()
    for character in surface:
        japanese, *chinese = (bool(character.encode(codec, "ignore")) for codec in ("shift_jis", "gb2312", "big5"))
        if letter_script(character) == "Han" and japanese != any(chinese):
            languages.add("ja" if japanese else "zh")
    return languages.pop() if len(languages) == 1 else ""


def kind_without_letters(form: Canonical) -> str | None:
    """``number``, ``punctuation``, ``symbol``, ``space`` or ``part of a character``; None for a token with letters."""
    if form.is_bytes:
        return "part of a character"
    if any(map(letter_script, form.surface)):
        return None
    kinds = {unicodedata.category(character)[0] for character in form.surface} - set("ZC")
    if not kinds:
        return "space"
    return "number" if "N" in kinds else "punctuation" if kinds == {"P"} else "symbol"


def _confidences(words: list[str], codes: Sequence[str]) -> Floats:
    """Confidence of lingua in each of ``codes`` for each word, (words, languages)."""
    wanted = [IsoCode639_1.from_str(code.upper()) for code in codes]
    detector = LanguageDetectorBuilder.from_iso_codes_639_1(*wanted).build()
    column = {code: place for place, code in enumerate(codes)}
    evidence = np.zeros((len(words), len(codes)))
    asked = console.tracked(batches(words, WORDS_AT_ONCE), "words whose language is asked for", len(words), len)
    found = map(detector.compute_language_confidence_values_in_parallel, asked)
    for row, values in enumerate(chain.from_iterable(found)):
        for value in values:
            evidence[row, column[value.language.iso_code_639_1.name.lower()]] = value.value
    return evidence


def _counted(names: Iterable[str]) -> dict[str, int]:
    """How often each name occurs, the most frequent first; empty names do not count."""
    return dict(sorted(Counter(filter(None, names)).items(), key=lambda item: (-item[1], item[0])))
