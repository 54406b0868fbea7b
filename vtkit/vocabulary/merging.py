"""Byte-pair merging over counted words with the BPE trainer of ``tokenizers``, whose WordPiece trainer differs between
runs: for WordPiece, characters that continue a word are private-use code points meanwhile, so that ``b`` and the ``b``
inside a word differ."""

import json
import os
from collections.abc import Iterable
from unittest.mock import patch

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from vtkit.data.word_counts import repeated

LEAST_OCCURRENCES = 2  # a token occurs at least this often in the corpus

Counted = Iterable[tuple[str, int]]  # words with their counts

_PRIVATE = range(0xF0000, 0x10FFFE)
_SEPARATOR = chr(0x10FFFF)


def merge(
    words: Counted, size: int, alphabet: list[str], *, only: bool = False, spaced: bool = False
) -> tuple[list[str], list[tuple[str, str]]]:
    """Merge the most frequent pair of neighbours until there are ``size`` tokens; ties go to the lower characters.

    Args:
        alphabet: characters that are tokens whether they occur or not; with ``only``, no others are.
        spaced: whether words may hold white space.

    Returns:
        The tokens in the order in which they were learned, characters first, and the merges in order.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Split(_SEPARATOR, "removed") if spaced else pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=LEAST_OCCURRENCES, initial_alphabet=alphabet, show_progress=False
    )
    if only:
        trainer.limit_alphabet = len(alphabet)
    # Merging is one short step after the other, and handing each to a pool of threads takes longer than the step: up to
    # ten times as long in all, where other processes want the same cores.
    with patch.dict(os.environ, {"TOKENIZERS_PARALLELISM": "false"}):
        backend.train_from_iterator(repeated(words, _SEPARATOR if spaced else " "), trainer)
    learned = backend.get_vocab()
    merges = json.loads(backend.to_str())["model"]["merges"]
    return sorted(learned, key=learned.__getitem__), [(left, right) for left, right in merges]


def merge_wordpiece(
    words: Counted, size: int, alphabet: list[str], inside: list[str], prefix: str, *, given: bool
) -> tuple[list[str], int]:
    """The tokens of WordPiece in the order in which they were learned, those that continue a word with ``prefix``, and
    how many of them, the first ones, are characters.

    Args:
        alphabet: the characters of the words; ``inside`` lists those that may continue one.
        given: whether all of these are tokens, and no others, even if they do not occur there.
    """
    known = set(alphabet)
    continuing = dict(zip(inside, (code for code in map(chr, _PRIVATE) if code not in known), strict=False))
    plain = {private: character for character, private in continuing.items()}
    table = str.maketrans(continuing)
    mapped = ((word[0] + word[1:].translate(table), count) for word, count in words)
    learned, _ = merge(mapped, size, [*alphabet, *plain] if given else [], only=given, spaced=not given)
    texts = ("".join(plain.get(character, character) for character in token) for token in learned)
    written = [f"{prefix}{text}" if token[0] in plain else text for token, text in zip(learned, texts, strict=True)]
    return written, sum(len(token) == 1 for token in learned)
