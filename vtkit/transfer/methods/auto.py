"""``method = "auto"``: each new token's row by the best evidence there is for that token.

1. ``parallel``: its translations, where parallel text is given and the token occurs in it.
2. ``subtoken``: the pieces the source tokenizer cuts it into, where the source reads its script and the first piece is
   a stem: a source word of three letters or more that makes up at least half of it.
3. ``sembridge``: its neighbours by an embedder, where the source does not read its script; within the source's own
   language a neighbour would be another word.

The source *reads* a script if it knows a quarter of the words that the target has in it: English knows 35 to 50 % of an
English domain's, 16 % of German. What is left takes the recipe's ``fallback``. docs/transfer.md compares all this with
every single method, and a probe decides between it and its :func:`alternatives`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vtkit.settings.transfer import AutoTransfer, ParallelTransfer, SembridgeTransfer, TransferSection
from vtkit.transfer.combination import back_off
from vtkit.transfer.methods.baselines import subtoken_mixture
from vtkit.transfer.mixture import Mixture, keep_rows
from vtkit.vocabulary.pair import VocabularyPair
from vtkit.vocabulary.words import script_of_text

SHORTEST_STEM = 3  # letters of a piece that can be a stem
STEM_SHARE = 0.5  # share of a token's characters that its stem must make up
KNOWN_SHARE = 0.25  # share of the target's words in a script that the source must know to read that script


def auto_mixture(pair: VocabularyPair, given: Mapping[str, Mixture]) -> Mixture:
    """Each new token by its best evidence; tokens without any have no weights. ``given`` is what ``parallel`` and
    ``sembridge`` found, where the recipe has what they need."""
    stems, unread = stems_and_unread(pair)
    order = [("parallel", given["parallel"])] if "parallel" in given else []
    order.append(("subtoken", keep_rows(subtoken_mixture(pair), stems)))
    if "sembridge" in given:
        order.append(("sembridge", keep_rows(given["sembridge"], unread)))
    return back_off(order)


def alternatives(section: TransferSection) -> dict[str, TransferSection]:
    """Close alternatives to the rule of ``auto``, by name -> the section that asks for each; empty for other methods.
    With parallel text these are the other estimator and the rule without the embedder; without either, the pieces of
    every token."""
    if section.methods != (AutoTransfer.name,):
        return {}
    parallel, sembridge = section.settings_of(ParallelTransfer), section.settings_of(SembridgeTransfer)
    sections: dict[str, TransferSection] = {}
    if not parallel.missing:
        other = "cooccurrence" if parallel.estimator == "ibm1" else "ibm1"
        sections[f"parallel.estimator = {other}"] = section.model_copy(
            update={"parallel": parallel.model_copy(update={"estimator": other})}
        )
        if not sembridge.missing:
            sections["without the embedder"] = section.model_copy(update={"sembridge": SembridgeTransfer()})
    elif sembridge.missing:
        sections["subtoken"] = section.model_copy(update={"method": "subtoken", "fallback": "reassigned"})
    return sections


def stems_and_unread(pair: VocabularyPair) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The new tokens that begin with a stem the source knows, and those in scripts it does not read; two lists of
    target ids."""
    surfaces, known = pair.target.surfaces, pair.source.surfaces
    read = scripts_read(known, surfaces)
    stems, unread = [], []
    for number in pair.overlap.new_ids.tolist():
        surface, starts_word = surfaces[number]
        script = script_of_text(surface)
        if script == "none":
            continue
        if script not in read:
            unread.append(number)
            continue
        stem, stem_starts = next((known[piece] for piece in pair.pieces.get(number, ())), ("", False))
        long_enough = len(stem) >= max(SHORTEST_STEM, STEM_SHARE * len(surface))
        if starts_word and stem_starts and stem.isalpha() and long_enough:
            stems.append(number)
    return np.array(stems, dtype=np.int64), np.array(unread, dtype=np.int64)


def scripts_read(source: Sequence[tuple[str, bool]], target: Sequence[tuple[str, bool]]) -> set[str]:
    """The scripts in which the source knows :data:`KNOWN_SHARE` of the target's words (both
    :attr:`~vtkit.vocabulary.forms.Vocabulary.surfaces`), upper and lower case alike."""
    words = {surface.lower() for surface, starts_word in source if starts_word}
    number: Counter[str] = Counter()
    known: Counter[str] = Counter()
    for surface, starts_word in target:
        if starts_word and surface.isalpha():
            script = script_of_text(surface)
            number[script] += 1
            known[script] += surface.lower() in words
    return {script for script in number if known[script] >= KNOWN_SHARE * number[script]}
