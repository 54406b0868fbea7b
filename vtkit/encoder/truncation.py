"""Long texts cut in characters before they are tokenized, so that the tokens that count are those of the whole text.

A tokenizer asked for the first 32 tokens of a text tokenizes all of it first: over a minute for a document of 50 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vtkit.data.text import batches

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

CHARACTERS_A_TOKEN = 64  # characters read for each token wanted, far more than the tokens of any language have

MARGIN = 1000
"""Characters behind the last token that counts: what a normalizer or a pre-tokenizer may look ahead."""

TEXTS_LOOKED_AT = 500  # texts whose lengths tell how many are cut

TOKENS_A_BATCH = 2048  # padded tokens encoded at once: enough to fill two cores, little enough to stay near the cache


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


def share_cut(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int, prompt: str = "") -> float:
    """Share of ``texts`` that have more than ``max_length`` tokens behind ``prompt``, special tokens among them; of up
    to :data:`TEXTS_LOOKED_AT` of them, spread evenly. 0 where there is no text."""
    some = [prompt + text for text in texts[:: -(-len(texts) // TEXTS_LOOKED_AT) or 1]]
    token_ids = first_tokens(tokenizer, some, max_length + 1)["input_ids"]
    return sum(len(tokens) > max_length for tokens in token_ids) / max(1, len(token_ids))


def shortened(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int) -> list[str]:
    """``texts``, each cut at :data:`CHARACTERS_A_TOKEN` characters for each of the first ``max_length`` tokens and
    :data:`MARGIN` more; whole where ``tokenizer`` keeps the ends of texts. The first ``max_length`` tokens stay, unless
    they are longer than that on average (a run of spaces, a long word that is unknown)."""
    longest = CHARACTERS_A_TOKEN * max_length + MARGIN
    return [text[:longest] for text in texts] if tokenizer.truncation_side == "right" else list(texts)


def padded(
    rows: Iterable[Sequence[int] | NDArray[np.int32]], padding: int, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """``rows`` of token ids filled up on the right, and a mask of what is not padding; (rows, length) both."""
    import torch

    filled = [torch.tensor(row, dtype=torch.long) for row in rows]
    whole = torch.nn.utils.rnn.pad_sequence(filled, batch_first=True, padding_value=padding)
    mask = torch.arange(whole.shape[1]) < torch.tensor(list(map(len, filled)))[:, None]
    return whole.to(device), mask.long().to(device)


def alike_batches(token_ids: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The numbers of texts in batches of similar length, of about :data:`TOKENS_A_BATCH` padded tokens, the longest
    first."""
    order = sorted(range(len(token_ids)), key=lambda number: (-len(token_ids[number]), number))
    start = 0
    while start < len(order):
        batch = order[start : start + max(1, TOKENS_A_BATCH // max(len(token_ids[order[start]]), 1))]
        start += len(batch)
        yield batch
