"""The languages of a collection: found in its texts, told apart text by text, and whether a declared language fits.

Scripts decide where they can. Lingua is asked about a text only if several languages share its script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import regex
from lingua import IsoCode639_1, Language, LanguageDetectorBuilder

from vtkit.data.sampling import spread
from vtkit.system import console
from vtkit.vocabulary.composition import LANGUAGES, LANGUAGES_OF_SCRIPT, parse_languages, settle
from vtkit.vocabulary.words import script_of_text

LOOKED_AT = 200  # texts, spread evenly over a collection, in which its languages are looked for
EVIDENCE = 100  # characters that lingua needs to be sure of a language; shorter texts of a script are joined
OPENING = 300  # characters of a text that lingua reads
READ = 1000  # characters of a text that its script is read from
NOT_LATIN = 0.2  # share of letters of another script from which on a text with Latin letters is in that script
LEAST = 0.05  # share of the texts from which on a language counts as one of the collection's
FEW = 20  # of them, if the language is declared
CLEAR = 0.8  # share of the texts that must be in languages that count


_LATIN = regex.compile(r"\p{Latin}+")


def language_of_text(languages: str) -> Callable[[str], str]:
    """A function that tells which of ``languages`` (ISO 639-1 codes, separated by commas) a text is in: the only one
    of them written in its script, else the one that lingua takes it for, else the first. Its script is that of most of
    its letters; not Latin if :data:`NOT_LATIN` of them are others, since names in Latin letters stand in all languages.

    Raises:
        RecipeError: lingua does not know one of ``languages``.
    """
    codes = parse_languages(languages)
    candidates = {
        script: [code for code in codes if code in own and (script != "Han" or code == "zh" or "zh" not in codes)]
        for script, own in LANGUAGES_OF_SCRIPT.items()
    }
    of_lingua = (IsoCode639_1.from_str(code.upper()) for code in codes)
    detector = LanguageDetectorBuilder.from_iso_codes_639_1(*of_lingua).build()

    def language(text: str) -> str:
        others = "" if text.isascii() else _LATIN.sub("", text[:READ])
        mixed = sum(map(str.isalpha, others)) >= NOT_LATIN * sum(map(str.isalpha, text[:READ]))
        own = (mixed and candidates.get(script_of_text(others))) or candidates.get(script_of_text(text)) or codes
        detected = detector.detect_language_of(text[:OPENING]) if len(own) > 1 else None
        code = "" if detected is None else detected.iso_code_639_1.name.lower()
        return code if code in own else own[0]

    return language


def languages_of(texts: Sequence[str]) -> str | None:
    """The ISO 639-1 codes of the languages of a collection, the most frequent first, separated by commas: those of at
    least :data:`LEAST` of the texts. None if lingua is not sure. Their estimated shares are said.

    The shares are estimated from lingua's confidence in each language (:func:`vtkit.vocabulary.composition.settle`):
    single short texts are often taken for a relative of their language, or for Yoruba.
    """
    shares = _shares(spread(texts, LOOKED_AT))
    codes = [code for code, share in shares.most_common() if share >= LEAST]
    listed = ", ".join(f"{code} {shares[code]:.0%}" for code in codes) or "none is certain"
    console.once(console.say, f"detected language: {listed} of {min(len(texts), LOOKED_AT)} texts (--language sets it)")
    return ",".join(codes) if sum(shares[code] for code in codes) >= CLEAR else None


def misfit(texts: Sequence[str], language: str) -> str | None:
    """Why ``language``, declared as the only one of a collection, does not fit its texts; None if it may fit, and for
    a code that lingua does not know."""
    if language not in LANGUAGES:
        return None
    looked_at = spread(texts, LOOKED_AT)
    scripts = Counter(script for script in map(script_of_text, looked_at) if script != "none")  # else without letters
    others = {script: n for script, n in scripts.most_common() if language not in LANGUAGES_OF_SCRIPT.get(script, ())}
    share = sum(others.values()) / max(len(looked_at), 1)
    if share >= LEAST:
        scripts_of = f"in scripts that {language!r} is not written in ({', '.join(others)})"
        return f"about {share:.0%} of the texts are {scripts_of}"
    code, share = _shares(looked_at[:: len(looked_at) // FEW or 1]).most_common(1)[0]
    fits = code == language or share < CLEAR
    return None if fits else f"about {share:.0%} of the texts are in {code!r}, not {language!r}"


def _shares(texts: Sequence[str]) -> Counter[str]:
    """Estimated share of each language among ``texts``."""
    import numpy as np

    samples, opened = list[list[str]](), dict[str, list[str]]()  # each sample of one text, or of several short ones
    for text in texts:
        script = script_of_text(text)
        opened.setdefault(script, []).append(text)
        if sum(map(len, opened[script])) >= EVIDENCE:
            samples.append(opened.pop(script))
    samples = samples or [*opened.values()]
    languages = sorted(Language.all_spoken_ones(), key=str)
    detector = LanguageDetectorBuilder.from_languages(*languages).with_low_accuracy_mode().build()
    found = detector.compute_language_confidence_values_in_parallel([" ".join(each)[:OPENING] for each in samples])
    rows = [[each.value for each in sorted(values, key=lambda each: str(each.language))] for values in found]
    evidence = np.repeat(np.reshape(rows, (-1, len(languages))), [len(sample) for sample in samples], axis=0)
    shares = settle(evidence)[1] if evidence.any() else np.zeros(len(languages))
    codes = [language.iso_code_639_1.name.lower() for language in languages]
    return Counter({code: float(share) for code, share in zip(codes, shares, strict=True)})
