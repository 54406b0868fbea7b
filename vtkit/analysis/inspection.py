"""All that can be said of a vocabulary without a model: its tokenizer, its make-up, what is wasted, what it shares.

The result is plain data (what ``vtkit inspect-vocab --json`` prints); every number is a count of tokens unless its
name says otherwise.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vtkit.analysis.composition import Composition, Han, compose
from vtkit.analysis.reachability import duplicates, unreachable
from vtkit.data.text import batches
from vtkit.vocabulary.casing import lowered
from vtkit.vocabulary.existing import special_roles
from vtkit.vocabulary.forms import Vocabulary, legible, tokens
from vtkit.vocabulary.overlap import OverlapMode, find_overlap

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Facts = dict[str, Any]

EXAMPLES = 8
"""Tokens shown of a group."""


def inspect_vocabulary(
    tokenizer: PreTrainedTokenizerFast, name: str, languages: Sequence[str], han: Han = "zh"
) -> Facts:
    """What the vocabulary of ``tokenizer`` is made of.

    Args:
        name: what the vocabulary is called in reports.
        languages: codes of the languages to tell apart (:func:`vtkit.analysis.composition.parse_languages`).
        han: what Han characters that Chinese, Japanese and Korean share count as.

    Returns:
        Plain data: ``size``, ``algorithm``, ``normalizer`` (steps in words), ``special`` (role: token and id),
        ``composition``, ``casing``, ``continuations``, ``characters``, ``digits``, ``punctuation``, ``unused``,
        ``duplicates`` and ``unreachable`` (count and examples).
    """
    listed = legible(tokenizer)
    composition = compose(tokenizer, languages, han)
    again, never = duplicates(tokenizer, composition.forms), unreachable(tokenizer, composition.forms)
    etc = composition.counts("etc")
    surfaces = [form.surface for form in composition.forms if form is not None]
    return {
        "name": name,
        "size": len(listed),
        "algorithm": algorithm(tokenizer),
        "normalizer": normalizer_steps(tokenizer),
        "special": {role: {"token": listed[number], "id": number} for role, number in special_roles(tokenizer).items()},
        "other_special": _other_special(tokenizer),
        "composition": _composition_facts(composition),
        "casing": _casing(composition),
        "continuations": _continuations(composition),
        "characters": _characters(surfaces),
        "digits": sum(any(map(str.isdigit, surface)) for surface in surfaces),
        "punctuation": etc.get("punctuation", 0),
        "unused": etc.get("unused", 0),
        "duplicates": {
            "count": len(again),
            "examples": [[listed[number], listed[earlier]] for number, earlier in _spread(again)],
        },
        "unreachable": {"count": len(never), "examples": [listed[number] for number in _spread(never)]},
    }


def corpus_use(tokenizers: Sequence[PreTrainedTokenizerFast], texts: Iterable[str]) -> list[Facts]:
    """How much of each vocabulary the texts need: tokens that occur, their share, and all occurrences.

    ``nine_tenths`` is the number of most frequent tokens that make up 90 % of the occurrences.
    """
    backends = [tokenizer.backend_tokenizer for tokenizer in tokenizers]
    counts = [np.zeros(len(tokens(tokenizer)), dtype=np.int64) for tokenizer in tokenizers]
    read = 0
    for batch in batches(texts):
        read += len(batch)
        for backend, count in zip(backends, counts, strict=True):
            for encoding in backend.encode_batch_fast(batch, add_special_tokens=False):
                count += np.bincount(encoding.ids, minlength=len(count))
    facts = []
    for count in counts:
        occurrences = int(count.sum())
        running = np.cumsum(np.sort(count)[::-1])
        facts.append(
            {
                "texts": read,
                "occurrences": occurrences,
                "used": int((count > 0).sum()),
                "share": float((count > 0).mean()),
                "nine_tenths": int(np.searchsorted(running, 0.9 * occurrences)) + 1 if occurrences else 0,
            }
        )
    return facts


def overlap_matrix(
    tokenizers: Sequence[PreTrainedTokenizerFast], mode: OverlapMode = "exact+symbols"
) -> list[list[dict[str, float]]]:
    """Overlap of every vocabulary (row, the source) with every other (column, the target): count, and share of the
    target, by the overlap rule (docs/overlap.md)."""
    vocabularies = [Vocabulary(tokenizer) for tokenizer in tokenizers]
    return [
        [
            {"count": len(found.overlap_ids), "share": found.share}
            for found in (find_overlap(source, target, mode) for target in vocabularies)
        ]
        for source in vocabularies
    ]


def algorithm(tokenizer: PreTrainedTokenizerFast) -> str:
    """How the tokenizer cuts words into tokens, in words."""
    layout = json.loads(tokenizer.backend_tokenizer.to_str())
    model = layout["model"]
    around = json.dumps([layout.get("pre_tokenizer"), layout.get("decoder")])
    name = {"WordPiece": "WordPiece", "WordLevel": "whole words", "Unigram": "Unigram", "BPE": "BPE"}[model["type"]]
    if model["type"] == "BPE":
        if '"ByteLevel"' in around:
            name = "byte-level BPE"
        elif model.get("continuing_subword_prefix") == "##":
            name = "BPE with ## continuations"
    return f"{name}, byte fallback" if model.get("byte_fallback") else name


def normalizer_steps(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """What the tokenizer does to text before it cuts it, step by step, in words; empty for a tokenizer without one."""
    layout = json.loads(tokenizer.backend_tokenizer.to_str())
    return list(_steps(layout.get("normalizer")))


def _steps(step: Mapping[str, Any] | None) -> Iterator[str]:
    match step and step["type"]:
        case None:
            return
        case "Sequence":
            for inner in step["normalizers"]:  # type: ignore[index]
                yield from _steps(inner)
        case "BertNormalizer":
            yield from _bert_steps(step)  # type: ignore[arg-type]
        case "NFC" | "NFD" | "NFKC" | "NFKD" as form:
            yield f"Unicode {form}"
        case "Lowercase":
            yield "lower case"
        case "StripAccents":
            yield "accents stripped"
        case "Strip":
            yield "white space at the ends stripped"
        case "Prepend":
            yield f"{_shown(step['prepend'])} put in front"  # type: ignore[index]
        case "Replace":
            pattern = step["pattern"].get("Regex") or step["pattern"].get("String")  # type: ignore[index]
            content = step["content"]  # type: ignore[index]
            yield f"{_shown(pattern)} {f'replaced by {_shown(content)}' if content else 'removed'}"
        case "Precompiled":
            yield "SentencePiece character map (compatibility forms)"
        case "Nmt":
            yield "control characters removed (NMT)"
        case "ByteLevel":
            yield "bytes spelled as characters"
        case other:
            yield str(other)


def _bert_steps(step: Mapping[str, Any]) -> Iterator[str]:
    if step["clean_text"]:
        yield "BERT cleaning"
    if step["handle_chinese_chars"]:
        yield "Chinese characters spaced"
    # Left open, accents go with lower-casing.
    if step["strip_accents"] or (step["strip_accents"] is None and step["lowercase"]):
        yield "accents stripped"
    if step["lowercase"]:
        yield "lower case"


def _shown(text: str) -> str:
    return {" ": "a space"}.get(text, f"“{text}”")


def _other_special(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    playing = set(special_roles(tokenizer).values())
    added = sorted(tokenizer.added_tokens_decoder.items())
    return [token.content for number, token in added if token.special and number not in playing]


def _composition_facts(composition: Composition) -> Facts:
    return {
        "asked_for": list(composition.languages),
        **{sort: composition.counts(sort) for sort in ("language", "undecided", "other", "etc")},
        "undecided_because": composition.reasons,
        "estimated_shares": {
            script: {code: round(share, 4) for code, share in shares.items() if share >= 0.005}
            for script, shares in composition.estimated.items()
        },
        "han_characters": composition.han,
        "scripts": composition.scripts,
    }


def _casing(composition: Composition) -> dict[str, int]:
    """Tokens with letters by case: with an upper-case letter; with cased letters, all lower; scripts without case."""
    counts = {"cased": 0, "lower case": 0, "script without case": 0}
    for surface, _ in _with_letters(composition):
        has_case = any(letter.lower() != letter.upper() for letter in surface)
        kind = "cased" if lowered(surface) != surface else "lower case" if has_case else "script without case"
        counts[kind] += 1
    return counts


def _continuations(composition: Composition) -> Facts:
    """Tokens with letters that continue a word."""
    starts = [starts_word for _, starts_word in _with_letters(composition)]
    count = len(starts) - sum(starts)
    return {"count": count, "of": len(starts), "share": count / len(starts) if starts else 0.0}


def _with_letters(composition: Composition) -> list[tuple[str, bool]]:
    """Text of each token with letters, and whether it starts a word."""
    both = zip(composition.labels, composition.forms, strict=True)
    return [(form.surface, form.starts_word) for label, form in both if label.script and form is not None]


def _characters(surfaces: Sequence[str]) -> Facts:
    """Length of the tokens' text without their word-start marks, in characters."""
    lengths = [len(surface) for surface in surfaces if surface]
    if not lengths:
        return {"mean": 0.0, "median": 0, "longest": 0, "histogram": {}}
    return {
        "mean": round(statistics.fmean(lengths), 3),
        "median": int(statistics.median_low(lengths)),
        "longest": max(lengths),
        "histogram": {str(length): count for length, count in sorted(Counter(lengths).items())},
    }


def _spread(items: Sequence[Any]) -> list[Any]:
    """At most :data:`EXAMPLES` of ``items``, from all over."""
    return [items[len(items) * place // EXAMPLES] for place in range(EXAMPLES)] if len(items) > EXAMPLES else [*items]
