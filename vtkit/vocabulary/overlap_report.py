"""The overlap of two vocabularies by class, with counts and examples, by ``find_overlap``."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from vtkit.settings.transfer import OverlapMode
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.overlap import KINDS, find_overlap

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MODES: tuple[OverlapMode, ...] = get_args(OverlapMode)

HEADER = ("target_id", "target", "kind", "source_id", "source")  # columns of pair_rows


def overlap_report(
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    mode: OverlapMode = "exact+symbols",
    examples: int = 8,
) -> dict[str, Any]:
    """Counts, shares and examples of every class of overlap, by ``mode`` and beside the other modes.

    Returns:
        Plain data: ``mode``, ``source_size``, ``target_size``, ``overlap``, ``share`` (of the target), ``classes``
        (kind -> ``count``, ``share``, ``examples`` as [target token, source token or nothing]) and ``modes`` (mode ->
        ``count``, ``share``).
    """
    first, second = Vocabulary(source), Vocabulary(target)
    overlaps = {name: find_overlap(first, second, name) for name in MODES}
    chosen = overlaps[mode]
    matches = chosen.target_to_source.tolist()
    classes = {}
    for code, kind in enumerate(KINDS):
        members = np.flatnonzero(chosen.kinds == code).tolist()
        # with a seed, so that two calls show the same ones
        sampled = sorted(random.Random(0).sample(members, min(examples, len(members))))
        shown = [[second.legible[n], first.legible[matches[n]] if matches[n] >= 0 else None] for n in sampled]
        classes[kind] = {"count": len(members), "share": len(members) / chosen.target_size, "examples": shown}
    return {
        "mode": mode,
        "source_size": chosen.source_size,
        "target_size": chosen.target_size,
        "overlap": len(chosen.overlap_ids),
        "share": chosen.share,
        "classes": classes,
        "modes": {name: {"count": len(each.overlap_ids), "share": each.share} for name, each in overlaps.items()},
    }


def pair_rows(
    source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast, mode: OverlapMode = "exact+symbols"
) -> Iterator[tuple[str, str, str, str, str]]:
    """Each target token that overlaps, with its source token: the columns of :data:`HEADER`, ids ascending. Tokens are
    written as their vocabularies write them, backslashes and control characters as in Python."""
    first, second = Vocabulary(source), Vocabulary(target)
    overlap = find_overlap(first, second, mode)
    for number in overlap.overlap_ids.tolist():
        match, kind = int(overlap.target_to_source[number]), KINDS[overlap.kinds[number]]
        yield str(number), _written(second.tokens[number]), kind, str(match), _written(first.tokens[match])


def _written(token: str) -> str:
    plain = token.replace("\\", "\\\\")
    return "".join(
        letter if letter.isprintable() or letter == " " else letter.encode("unicode_escape").decode("ascii")
        for letter in plain
    )
