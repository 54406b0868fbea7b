"""Trimming: a tokenizer without the tokens that the texts at hand do not need (arXiv:2305.15020).

A text whose tokens are all kept is cut as before: *WordPiece* takes the longest token that fits, *Unigram* the
segmentation of the highest score (a token with the lowest score stays, from which that of unknown characters is
counted), and of *BPE* all merges on the way to a kept token stay, with what they make. Single characters that occur
stay too, and bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from vtkit.data.text import batches
from vtkit.data.word_counts import pieces
from vtkit.system.errors import DataError
from vtkit.vocabulary.existing import wrapped_like
from vtkit.vocabulary.statistics import TrimStats

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

HELD_OUT = 1000  # texts at most that show how many others would be cut differently: every tenth of the first ones


class Trimmed(NamedTuple):
    """A trimmed tokenizer."""

    tokenizer: PreTrainedTokenizerFast
    stats: TrimStats


def trim_vocabulary(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str], size: int | None = None) -> Trimmed:
    """``tokenizer`` with the tokens that occur in ``texts``, or the ``size`` most frequent ones with all that makes
    them; ids keep their order."""
    layout = json.loads(tokenizer.backend_tokenizer.to_str())
    rules = _Rules(layout)
    counts = np.zeros(max(tokenizer.get_vocab().values()) + 1, dtype=np.int64)
    held_out: list[NDArray[np.int64]] = []
    read = 0
    for ids in _ids_of(tokenizer.backend_tokenizer, texts):
        np.add.at(counts, ids, 1)
        if read % 10 == 9 and len(held_out) < HELD_OUT:
            held_out.append(ids)
        read += 1
    if not read:
        raise DataError("There is no text in {corpus} to count tokens in. Name text of the language.", "corpus")
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
    return Trimmed(trimmed, TrimStats(len(tokenizer), read, len(held_out), changed, lost))


def kept_ids(tokenizer: PreTrainedTokenizerFast, trimmed: PreTrainedTokenizerFast) -> NDArray[np.int64]:
    """The id that each token of ``trimmed`` has in ``tokenizer``, (trimmed vocabulary,)."""
    old = tokenizer.get_vocab()
    return np.array([old[token] for token, _ in sorted(trimmed.get_vocab().items(), key=lambda entry: entry[1])])


class _Rules:
    """A tokenizer file, and which of its tokens cannot do without which others."""

    def __init__(self, layout: dict[str, Any]) -> None:
        model = layout["model"]
        listed = {"WordPiece": list, "BPE": list, "Unigram": lambda vocab: [token for token, _ in vocab]}
        affixed = [name for name in ("continuing_subword_prefix", "end_of_word_suffix") if model.get(name)]
        if model["type"] not in listed or (model["type"] == "BPE" and affixed):
            what = f"{model['type']} with {affixed[0]}" if affixed else f"of the kind {model['type']}"
            raise DataError(
                f"A tokenizer {what} cannot be trimmed, only WordPiece, Unigram and BPE over bytes or characters. Keep "
                'the whole vocabulary with vocabulary.kind "source"'
            )
        self._layout, self._model = layout, model
        vocabulary = model["vocab"]
        self._ids = (
            {token: number for number, (token, _) in enumerate(vocabulary)}
            if model["type"] == "Unigram"
            else dict(vocabulary)
        )
        self._added = {token["content"]: int(token["id"]) for token in layout["added_tokens"]}
        self._tokens = {number: token for token, number in (self._ids | self._added).items()}
        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(model.get("merges", ()))}
        self._paths: dict[str, frozenset[tuple[str, str]]] = {}

    def kept(self, counts: NDArray[np.int64], size: int | None) -> NDArray[np.int64]:
        """Ids of the tokens that stay, in order: those that must, and the most frequent ones with what makes them."""
        candidates = np.flatnonzero(counts)
        candidates = candidates[np.argsort(-counts[candidates], kind="stable")]
        kept = self._always()
        for number in candidates:
            for character in set(self._tokens[number]):
                kept |= {self._ids[form] for form in (character, f"##{character}") if form in self._ids}
        if size is not None and len(kept) > size:
            raise DataError(
                f"{{size}} = {size:,} is less than the {len(kept):,} special tokens, bytes and single characters of "
                "the corpus, which must stay. Set it higher.",
                "size",
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
            model["vocab"] = [[token, score] for token, score in model["vocab"] if token in numbers]
            if model["unk_id"] is not None:
                model["unk_id"] = numbers[self._tokens[model["unk_id"]]]
        else:
            model["vocab"] = {token: numbers[token] for token in model["vocab"] if token in numbers}
        if "merges" in model:
            model["merges"] = [
                [left, right] for left, right in model["merges"] if {left, right, left + right} <= model["vocab"].keys()
            ]
        layout["model"] = model
        return layout

    def _always(self) -> set[int]:
        """Ids of added tokens, of the unknown token, of bytes, and of the lowest score."""
        model = self._model
        kept = set(self._added.values())
        kept |= {self._ids[byte] for byte in (f"<0x{value:02X}>" for value in range(256)) if byte in self._ids}
        if model["type"] == "BPE" and "ByteLevel" in json.dumps(self._layout["pre_tokenizer"]):
            kept |= {self._ids[byte] for byte in ByteLevel.alphabet() if byte in self._ids}
        if model["type"] == "Unigram":
            kept.add(min(range(len(model["vocab"])), key=lambda number: model["vocab"][number][1]))
            kept |= {model["unk_id"]} - {None}
        elif model.get("unk_token") in self._ids:
            kept.add(self._ids[model["unk_token"]])
        return kept

    def _path(self, token: str) -> frozenset[tuple[str, str]]:
        """The merges by which ``token`` is made of its characters; none where it is not made by merges."""
        if token not in self._paths:
            parts, used = list(token), []
            while pairs := [(self._ranks.get(pair, len(self._ranks)), pair) for pair in pairwise(parts)]:
                rank, pair = min(pairs)
                if rank == len(self._ranks):
                    break
                place = next(number for number, each in enumerate(pairs) if each[1] == pair)
                parts[place : place + 2] = ["".join(pair)]
                used.append(pair)
            self._paths[token] = frozenset(used) if len(parts) == 1 else frozenset()
        return self._paths[token]


def _renumbered(processor: Any, numbers: Mapping[str, int]) -> Any:
    """A post-processor of a tokenizer file with its tokens numbered anew."""
    if processor is None:
        return None
    kind = processor["type"]
    if kind == "Sequence":
        return {**processor, "processors": [_renumbered(each, numbers) for each in processor["processors"]]}
    if kind == "TemplateProcessing":
        special = {
            name: {**token, "ids": [numbers[each] for each in token["tokens"]]}
            for name, token in processor["special_tokens"].items()
        }
        return {**processor, "special_tokens": special}
    return {
        name: [value[0], numbers[value[0]]] if name in ("sep", "cls") else value for name, value in processor.items()
    }


def _ids_of(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[NDArray[np.int64]]:
    """Ids of the tokens of each text as a whole."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for batch in batches(texts):
        parts = [list(pieces(text)) for text in batch]  # 60 megabytes as one text would take gigabytes
        encodings = chain.from_iterable(
            tokenizer.encode_batch_fast(some) for some in batches(chain.from_iterable(parts))
        )
        for parts_of_text in parts:
            yield np.fromiter(
                chain.from_iterable(encoding.ids for encoding in islice(encodings, len(parts_of_text))), dtype=np.int64
            )
