"""Changes that a normalizer makes to the characters of a corpus beyond their case, by script.

A vocabulary without a script is seen at once by its unknown tokens. A normalizer that takes marks off Hindi letters or
Korean syllables apart is not: every word still has tokens, of other words.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tokenizers import Tokenizer

from vtkit.vocabulary.notation import Notation
from vtkit.vocabulary.words import script_of

LOSSES = ("dropped", "stripped", "decomposed", "replaced")
"""Changes of a character beyond its case: the normalizer leaves nothing; takes marks off a letter (é becomes e);
takes it apart into parts that are canonically equal (a Hangul syllable becomes jamo); or puts another in its place."""


class ScriptLoss(NamedTuple):
    """Losses of the characters of one script in a normalizer, in occurrences (see :data:`LOSSES`)."""

    script: str
    characters: int  # occurrences of characters of this script in the corpus
    counts: dict[str, int]  # occurrences by kind of loss
    examples: list[tuple[str, str]]  # the most frequent of the characters, before and after


def normalizer_losses(backend: Tokenizer, character_counts: Mapping[str, int]) -> list[ScriptLoss]:
    """Losses of the characters of a corpus in the normalizer, by script, the largest first. Each character is
    normalized alone."""
    if backend.normalizer is None:
        return []
    normalize, notation = backend.normalizer.normalize_str, Notation.of(backend)
    characters: Counter[str] = Counter()
    lost: dict[str, list[tuple[int, str, str, str]]] = {}
    for character, count in sorted(character_counts.items()):
        if character.isspace():
            continue
        script = script_of(character)
        characters[script] += count
        after = character if character == notation.space else notation.normalized(normalize(character)).strip(" ")
        kind = _loss(character, after)
        if kind:
            lost.setdefault(script, []).append((-count, character, after, kind))
    losses = []
    for script, entries in lost.items():
        counts = {kind: sum(-count for count, _, _, each in entries if each == kind) for kind in LOSSES}
        examples = [(before, after) for _, before, after, _ in sorted(entries)[:5]]
        losses.append(ScriptLoss(script, characters[script], {kind: n for kind, n in counts.items() if n}, examples))
    return sorted(losses, key=lambda loss: (-sum(loss.counts.values()), loss.script))


def _loss(before: str, after: str) -> str | None:
    """The kind of loss, one of :data:`LOSSES`, between a character and its normalized form; None for case."""
    if not after:
        return "dropped"
    if after.casefold() == before.casefold():
        return None
    if _nfc(after) == _nfc(before):
        return "decomposed"
    letters = "".join(c for c in unicodedata.normalize("NFD", before) if not unicodedata.category(c).startswith("M"))
    return "stripped" if letters and _nfc(letters) == _nfc(after) else "replaced"


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text.casefold())
