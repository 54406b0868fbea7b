"""Tokens that take up rows of the embedding matrix for nothing: never made, or equal once normalised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vtkit.vocabulary.composition import token_script
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
    most = max(hosts.values(), key=len, default=[])
    for probe in range(len(ALONE) + 2 * HOSTS):
        if not wanted:
            break
        tried = sorted(wanted)
        wanted -= _made(tokenizer, (_probe(texts[number], probe, hosts, most) for number in tried))
    return sorted(wanted)


def duplicates(tokenizer: PreTrainedTokenizerFast, forms: Sequence[Canonical | None]) -> list[tuple[int, int]]:
    """Tokens whose normalised text and word-start mark are those of an earlier token: id, and id of the earlier one.
    Special tokens, fillers, parts of characters, and tokens that the normalizer leaves nothing of take no part."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    first: dict[tuple[str, bool], int] = {}
    found = []
    for number, (starts, text) in _texts(forms):
        left = normalizer.normalize_str(text) if normalizer is not None else text
        if text.strip() == text:
            left = left.strip()  # Chinese characters get spaces around them, SentencePiece one in front
        if not left:
            continue
        earlier = first.setdefault((left, starts), number)
        if earlier != number:
            found.append((number, earlier))
    return found


def _texts(forms: Sequence[Canonical | None]) -> list[tuple[int, Canonical]]:
    """Ids that stand for text, with what they stand for."""
    return [
        (number, form) for number, form in enumerate(forms) if form is not None and form.surface and not form.is_bytes
    ]


def _probe(text: str, probe: int, hosts: dict[str, list[str]], most: list[str]) -> str:
    if probe < len(ALONE):
        return ALONE[probe].replace("{}", text)
    words = hosts.get(token_script(text)) or most or ["a"]
    inside, place = divmod(probe - len(ALONE), HOSTS)
    host = words[place % len(words)]
    return host + text + host if inside else host + text


def _made(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> set[int]:
    """Every id that the texts are tokenized into."""
    backend = tokenizer.backend_tokenizer
    listed = list(texts)
    made: set[int] = set()
    for start in range(0, len(listed), BATCH):
        for encoding in backend.encode_batch_fast(listed[start : start + BATCH], add_special_tokens=False):
            made.update(encoding.ids)
    return made


def _hosts(forms: Sequence[Canonical | None]) -> dict[str, list[str]]:
    """For each script its longest words that are one token: nothing longer swallows what comes behind them."""
    words: dict[str, list[str]] = {}
    for _, form in _texts(forms):
        if form.starts_word and form.surface.isalpha():
            words.setdefault(token_script(form.surface), []).append(form.surface)
    return {script: sorted(found, key=lambda word: (-len(word), word))[:HOSTS] for script, found in words.items()}
