"""Trimming: a tokenizer without the tokens that the texts at hand do not need (arXiv:2305.15020).

A text whose tokens are all kept is cut as before: *WordPiece* takes the longest token that fits, *Unigram* the
segmentation of the highest score (a token with the lowest score stays, from which that of unknown characters is
counted), and of *BPE* all merges on the way to a kept token stay, with what they make. Single characters that occur
stay too, and bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vtkit.system.errors import DataError
from vtkit.vocabulary.existing import wrapped_like
from vtkit.vocabulary.forms import Vocabulary, whole_ids
from vtkit.vocabulary.statistics import TrimStats

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

HELD_OUT = 1000  # texts at most that show how many others would be cut differently: every tenth of the first ones


def trim_vocabulary(
    tokenizer: PreTrainedTokenizerFast, texts: Iterable[str], size: int | None = None
) -> tuple[PreTrainedTokenizerFast, TrimStats]:
    """``tokenizer`` with the tokens that occur in ``texts``, or the ``size`` most frequent ones with all that makes
    them; ids keep their order, without gaps."""
    rules = _Rules(tokenizer)
    counts = np.zeros(len(rules.first), dtype=np.int64)
    held_out: list[NDArray[np.int64]] = []
    read = 0
    for ids in map(rules.first.__getitem__, whole_ids(tokenizer, texts, special=True)):
        np.add.at(counts, ids, 1)
        if read % 10 == 9 and len(held_out) < HELD_OUT:
            held_out.append(ids)
        read += 1
    if not read:
        raise DataError("There is no text in corpus to count tokens in. Name text of the language.")
    kept = rules.kept(counts, size)
    changed = lost = 0.0
    if held_out:
        without = counts.copy()
        for ids in held_out:
            np.subtract.at(without, ids, 1)
        gone = ~np.isin(np.arange(len(counts)), rules.kept(without, size))
        changed = float(np.mean([gone[ids].any() for ids in held_out]))
        lost = float(np.mean(np.concatenate([gone[ids] for ids in held_out])))
    trimmed = wrapped_like(Tokenizer.from_str(json.dumps(rules.without_others(kept))), tokenizer)
    trimmed.model_max_length = tokenizer.model_max_length
    return trimmed, TrimStats(len(tokenizer), read, len(held_out), changed, lost)


def kept_ids(tokenizer: PreTrainedTokenizerFast, trimmed: PreTrainedTokenizerFast) -> NDArray[np.int64]:
    """The id that each token of ``trimmed`` has in ``tokenizer``, (trimmed vocabulary,)."""
    old = Vocabulary(tokenizer).ids
    return np.array([old[token] for token in Vocabulary(trimmed).tokens])


class _Rules:
    """A tokenizer file, and which of its tokens cannot do without which others."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        vocabulary = Vocabulary(tokenizer)
        self._layout = json.loads(tokenizer.backend_tokenizer.to_str())
        self._model: dict[str, Any] = self._layout["model"]
        self._notation, self._tokens, self._ids = vocabulary.notation, vocabulary.tokens, vocabulary.ids
        self.first = np.array([self._ids.get(token, number) for number, token in enumerate(self._tokens)])
        """The first id of each id's token."""

        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(self._model.get("merges", ()))}
        self._paths: dict[str, frozenset[tuple[str, str]]] = {}

    def kept(self, counts: NDArray[np.int64], size: int | None) -> NDArray[np.int64]:
        """Ids of the tokens that stay, in order: those that must, and the most frequent ones with what makes them."""
        candidates = np.flatnonzero(counts)
        candidates = candidates[np.argsort(-counts[candidates], kind="stable")]
        kept = self._always()
        for number in candidates:
            for character in set(self._tokens[number]):
                kept |= {self._ids[form] for form in self._notation.variants(character) if form in self._ids}
        if size is not None and len(kept) > size:
            raise DataError(
                f"size = {size:,} is less than the {len(kept):,} special tokens, bytes and single characters of "
                "the corpus, which must stay. Set it higher."
            )
        for number in candidates:
            needed = {int(number)} | {self._ids[part] for pair in self._path(self._tokens[number]) for part in pair}
            if size is None or len(kept | needed) <= size:
                kept |= needed
        return np.array(sorted(kept))

    def without_others(self, kept: NDArray[np.int64]) -> dict[str, Any]:
        """The tokenizer file with the tokens ``kept``, numbered anew."""
        numbers = {self._tokens[old]: new for new, old in enumerate(kept.tolist())}
        layout = dict(self._layout)
        layout["added_tokens"] = [{**token, "id": numbers[token["content"]]} for token in layout["added_tokens"]]
        layout["post_processor"] = _renumbered(layout["post_processor"], numbers)
        model = dict(self._model)
        if model["type"] == "Unigram":
            scores = dict(model["vocab"])  # of a piece that is there again, the last counts
            if model["unk_id"] is not None:
                unknown, lowest = self._tokens[model["unk_id"]], min(score for _, score in model["vocab"])
                if lowest < min(scores.values()):
                    scores[unknown] = lowest
                model["unk_id"] = numbers[unknown]
            model["vocab"] = [[token, scores[token]] for token in numbers if token in scores]
        else:
            model["vocab"] = {token: numbers[token] for token in model["vocab"] if token in numbers}
        if "merges" in model:
            model["merges"] = [
                [left, right]
                for left, right in model["merges"]
                if {left, right, self._notation.joined(left, right)} <= model["vocab"].keys()
            ]
        return layout | {"model": model}

    def _always(self) -> set[int]:
        """Ids of added tokens, of the unknown token, of bytes, and of the lowest score."""
        kept = {self._ids[token["content"]] for token in self._layout["added_tokens"]}
        kept |= {number for token, number in self._ids.items() if self._notation.is_byte(token)}
        if self._model["type"] == "Unigram":
            scores = dict(self._model["vocab"])
            kept.add(self._ids[min(scores, key=scores.__getitem__)])
            if self._model["unk_id"] is not None:
                kept.add(int(self.first[self._model["unk_id"]]))
        elif self._model.get("unk_token") in self._ids:
            kept.add(self._ids[self._model["unk_token"]])
        return kept

    def _path(self, token: str) -> frozenset[tuple[str, str]]:
        """The merges by which ``token`` is made of its characters; none where it is not made by merges."""
        if token not in self._paths:
            parts, used = self._notation.characters(token), []
            while pairs := [(self._ranks.get(pair, len(self._ranks)), pair) for pair in pairwise(parts)]:
                rank, pair = min(pairs)
                if rank == len(self._ranks):
                    break
                place = next(number for number, each in enumerate(pairs) if each[1] == pair)
                parts[place : place + 2] = [self._notation.joined(*pair)]
                used.append(pair)
            self._paths[token] = frozenset(used) if len(parts) == 1 else frozenset()
        return self._paths[token]


def _renumbered(part: Any, numbers: Mapping[str, int]) -> Any:
    """A post-processor of a tokenizer file, or a part of one, with its tokens numbered anew."""
    if isinstance(part, list):
        return [_renumbered(each, numbers) for each in part]
    if not isinstance(part, dict):
        return part
    renumbered = {name: _renumbered(value, numbers) for name, value in part.items()}
    if "tokens" in part:
        renumbered["ids"] = [numbers[token] for token in part["tokens"]]
    return renumbered | {
        name: [part[name][0], numbers[part[name][0]]] for name in ("sep", "cls") if isinstance(part.get(name), list)
    }
