"""Long texts cut in characters before they are tokenized, so that the tokens that count are those of the whole text.

A tokenizer asked for the first 32 tokens of a text tokenizes all of it first: over a minute for a document of 50 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from vtkit.data.text import batches

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase

CHARACTERS_A_TOKEN = 8  # characters tried first for each token wanted: enough for most texts of most vocabularies
GROWTH = 4  # where a beginning does not hold enough tokens, the next one tried is this many times as long

MARGIN = 1000
"""Characters behind the last token that counts, at the least: what a normalizer or a pre-tokenizer may look ahead."""

TEXTS_LOOKED_AT = 500  # texts whose lengths tell how many are cut
OTHER_ENDS = (1, 2)  # a beginning shorter by so many characters must give the same tokens too


def first_tokens(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int, **options: Any
) -> dict[str, list[Any]]:
    """The first ``max_length`` tokens of each of ``texts``, special tokens among them.

    What ``tokenizer(texts, truncation=True, max_length=max_length, **options)`` gives, but long texts are cut first
    (:func:`shortened`), and only so many are tokenized together as fit into memory.

    Returns:
        ``input_ids``, and whatever ``options`` ask for: one list for each text.
    """
    lists: dict[str, list[Any]] = {"input_ids": []}
    for batch in batches(shortened(tokenizer, texts, max_length)):
        for name, values in tokenizer(batch, truncation=True, max_length=max_length, **options).items():
            lists.setdefault(name, []).extend(values)
    return lists


def first_encoding(
    tokenizer: PreTrainedTokenizerBase, text: str, max_length: int, *, add_special_tokens: bool = True
) -> tuple[list[int], list[int]]:
    """The tokens of :func:`first_tokens` for one text, and the character behind each; 0 for special tokens."""
    (ids,) = first_tokens(tokenizer, [text], max_length, add_special_tokens=add_special_tokens)["input_ids"]
    encoding = tokenizer.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens)
    return ids, [stop for _, stop in encoding.offsets[: len(ids)]]


def whole_encodings(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, offsets: bool = False
) -> list[Encoding]:
    """The tokens of whole ``texts``, without special tokens and padding, whatever length the tokenizer was last asked
    to cut texts at; with ``offsets`` where in the text each stands and how it is spelled, which takes longer."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    encode = backend.encode_batch if offsets else backend.encode_batch_fast
    encodings: list[Encoding] = encode(list(texts), add_special_tokens=False)
    return encodings


def share_cut(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int, prompt: str = "") -> float:
    """Share of ``texts`` that have more than ``max_length`` tokens behind ``prompt``, special tokens among them; of up
    to :data:`TEXTS_LOOKED_AT` of them, spread evenly. 0 where there is no text."""
    some = [prompt + text for text in texts[:: -(-len(texts) // TEXTS_LOOKED_AT) or 1]]
    token_ids = first_tokens(tokenizer, some, max_length + 1)["input_ids"]
    return sum(len(tokens) > max_length for tokens in token_ids) / max(1, len(token_ids))


def shortened(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int) -> list[str]:
    """``texts``, the long ones cut where that changes none of the first ``max_length`` tokens, special tokens among
    them.

    A beginning of a text is taken for the whole where the tokens wanted end :data:`MARGIN` characters and one whole
    pre-token before its end, and two shorter beginnings give the same tokens. Where the pre-token goes on to the end
    (Chinese in SentencePiece, a text without spaces), the beginnings that end at each of the last L characters must
    have the same first tokens, L being the length of the longest token: WordPiece, BPE and Unigram all segment a
    beginning that ends on a border of their tokens as they segment it in the whole, and one of these does. Where
    neither holds, a longer beginning is tried, in the end the whole text.
    """
    return _shortened(tokenizer, texts, [max_length * CHARACTERS_A_TOKEN] * len(texts), lambda number, _: max_length)


def shortened_to(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], ends: Sequence[int]) -> list[str]:
    """As :func:`shortened`, but each text keeps the tokens that begin before the character ``ends`` of its own."""

    def wanted(number: int, encoding: Encoding) -> int:
        return sum(start < ends[number] for start, _ in encoding.offsets)

    return _shortened(tokenizer, texts, ends, wanted)


def _shortened(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    firsts: Sequence[int],
    wanted: Callable[[int, Encoding], int],
) -> list[str]:
    """``texts`` with the tokens that ``wanted`` (number of the text, tokens of a beginning) asks for, beginnings of
    about ``firsts`` characters tried first."""
    margin = MARGIN + 4 * _longest_token(tokenizer) if tokenizer.is_fast else 0
    can_cut = tokenizer.is_fast and tokenizer.truncation_side == "right"
    return [
        _beginning(tokenizer, text, first + margin, margin, lambda encoding, number=number: wanted(number, encoding))  # type: ignore[misc]
        if can_cut and len(text) > GROWTH * (first + margin)
        else text
        for number, (text, first) in enumerate(zip(texts, firsts, strict=True))
    ]


def _beginning(
    tokenizer: PreTrainedTokenizerBase, text: str, size: int, margin: int, wanted: Callable[[Encoding], int]
) -> str:
    while GROWTH * size < len(text):
        (encoding,) = _encodings(tokenizer, [text[:size]])
        count = wanted(encoding)
        if 0 < count < len(encoding.ids) and encoding.offsets[count - 1][1] <= size - margin:
            first = encoding.ids[:count]
            others = _ends_to_compare(tokenizer, encoding, count, text[:size])
            if len(others) * size > len(text):
                return text
            if all(other.ids[:count] == first for other in _encodings(tokenizer, [text[:end] for end in others])):
                return text[:size]
        size *= GROWTH
    return text


def _ends_to_compare(tokenizer: PreTrainedTokenizerBase, encoding: Encoding, count: int, beginning: str) -> list[int]:
    """Other places to cut ``beginning``, whose first ``count`` tokens are wanted (see :func:`shortened`)."""
    size, words = len(beginning), encoding.word_ids
    kept, last = words[count - 1], words[-1]
    if kept is not None and last is not None and kept + 1 < last:
        return [size - fewer for fewer in OTHER_ENDS]
    longest = window = _longest_token(tokenizer)
    normalizer = tokenizer.backend_tokenizer.normalizer
    if normalizer is not None:  # which may leave fewer characters than there were
        while window < size and len(normalizer.normalize_str(beginning[size - window :])) < longest:
            window *= 2
    return [size - fewer for fewer in range(1, min(window, size - 1) + 1)]


def _encodings(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[Encoding]:
    encodings: list[Encoding] = tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False).encodings
    return encodings


def _longest_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """Characters of the longest token, added ones included; bytes where tokens are spelled in bytes."""
    return _longest(tokenizer.backend_tokenizer, len(tokenizer))


@lru_cache(maxsize=8)
def _longest(backend: object, size: int) -> int:
    return max(map(len, backend.get_vocab()), default=1)  # type: ignore[attr-defined]
