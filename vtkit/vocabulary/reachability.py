"""Tokens that take up rows of the embedding matrix for nothing: never made, or equal once normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vtkit.data.text import batches
from vtkit.vocabulary.composition import token_script
from vtkit.vocabulary.forms import whole_encodings
from vtkit.vocabulary.notation import Canonical

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ALONE = ("{}", " {}", "a {}", "1{}1", ".{}.")  # texts in which a token is tried first
HOSTS = 6  # words of each script that it is then tried behind and inside

BATCH = 20_000


def unreachable(tokenizer: PreTrainedTokenizerFast, forms: Sequence[Canonical | None]) -> list[int]:
    """Ids that no probe text is tokenized into, ascending.

    The probes of a token, tried in this order until it comes out of any probe: its own text; its text after a space,
    after a word and a space, and before and after a digit and a full stop; its text behind each of :data:`HOSTS`
    words of its script (the longest words that are one token; the first script's where its own has none), and
    between two of them. Special tokens, fillers and parts of characters are not tried.
    """
    texts = {number: form.surface for number, form in _texts(forms)}
    wanted = set(texts)
    hosts = _hosts(forms)
    most = max(hosts.values(), key=len, default=["a"])
    for probe in range(len(ALONE) + 2 * HOSTS):
        tried = []
        for number in sorted(wanted):
            if probe < len(ALONE):
                tried.append(ALONE[probe].replace("{}", texts[number]))
                continue
            words = hosts.get(token_script(texts[number]), most)
            inside, place = divmod(probe - len(ALONE), HOSTS)
            host = words[place % len(words)]
            tried.append(host + texts[number] + (host if inside else ""))
        for some in batches(tried, BATCH):
            for encoding in whole_encodings(tokenizer, some):
                wanted.difference_update(encoding.ids)
    return sorted(wanted)


def duplicates(tokenizer: PreTrainedTokenizerFast, forms: Sequence[Canonical | None]) -> list[tuple[int, int]]:
    """Tokens whose normalised text and word-start mark are those of an earlier token: id, and id of the earlier one.
    Special tokens, fillers, parts of characters, and tokens that the normalizer leaves nothing of take no part."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    first: dict[tuple[str, bool], int] = {}
    pairs = []
    for number, (starts, text) in _texts(forms):
        left = normalizer.normalize_str(text) if normalizer is not None else text
        if text.strip() == text:
            left = left.strip()  # Chinese characters get spaces around them, SentencePiece one in front
        if not left:
            continue
        earlier = first.setdefault((left, starts), number)
        if earlier != number:
            pairs.append((number, earlier))
    return pairs


def _texts(forms: Sequence[Canonical | None]) -> list[tuple[int, Canonical]]:
    """Ids that stand for text, with what they stand for."""
    return [(n, form) for n, form in enumerate(forms) if form is not None and form.surface and not form.is_bytes]


def _hosts(forms: Sequence[Canonical | None]) -> dict[str, list[str]]:
    """For each script its longest words that are one token: nothing longer swallows what comes behind them."""
    words: dict[str, list[str]] = {}
    for _, form in _texts(forms):
        if form.starts_word and form.surface.isalpha():
            words.setdefault(token_script(form.surface), []).append(form.surface)
    return {script: sorted(texts, key=lambda word: (-len(word), word))[:HOSTS] for script, texts in words.items()}
