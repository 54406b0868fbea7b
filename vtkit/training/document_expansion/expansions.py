"""Document expansion: the words that a text is expanded by, and how it is read with them behind it. A text keeps at
least half of the tokens that are read of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerFast

from vtkit.data.retrieval import Document, RetrievalSet
from vtkit.data.shards import arrays_of
from vtkit.data.text import batches
from vtkit.data.unspaced import begins_unspaced
from vtkit.encoder.documents import document_frequencies
from vtkit.encoder.masked import masked_dimensions
from vtkit.encoder.truncation import shortened
from vtkit.search.analysers import STOP_WORDS
from vtkit.settings.expand_documents import ExpandDocumentsSection
from vtkit.training.document_expansion.tilde import DOCUMENT_LENGTH, LikeliestTokens
from vtkit.vocabulary.forms import Vocabulary, whole_encodings

EXPANSIONS = "expansions.jsonl"  # file of the words that each text is expanded by

COMMON = 0.1
"""In languages without a list of stop words, tokens that more than this share of the documents have are not added."""

LIKELIEST = 200  # tokens of a document to choose from, as in the paper of TILDE-AUG


def expansion_words(
    encoder: SparseEncoder, texts: Sequence[str], section: ExpandDocumentsSection, language: str, folder: Path
) -> list[list[str]]:
    """The words that each of ``texts`` is expanded by, the likeliest first.

    Of the :data:`LIKELIEST` likeliest tokens those are left out that the text has, that are not :func:`addable_words`,
    that are stop words of ``language`` or, if there is no list of these, that more than :data:`COMMON` of ``texts``
    have.

    Args:
        encoder: trained by :func:`vtkit.training.document_expansion.tilde.train_tilde`.
        texts: whole documents; of each, :data:`DOCUMENT_LENGTH` tokens are read.
        folder: of the likeliest tokens meanwhile.
    """
    tokenizer = encoder.tokenizer
    unwanted = listed_stop_words(tokenizer, language)
    if language not in STOP_WORDS:
        frequencies, count = document_frequencies(tokenizer, texts, len(tokenizer))
        unwanted = frequencies > COMMON * count
    masked = masked_dimensions(encoder[0].auto_model).cpu().numpy()
    addable = addable_words(tokenizer, masked, unwanted)
    if not texts:
        return []
    work = LikeliestTokens(encoder, LIKELIEST, DOCUMENT_LENGTH)
    likeliest = iter(arrays_of(work, texts, "expanding documents", folder / "tokens")["tokens"])
    words: list[list[str]] = []
    for batch in batches(texts):
        for row, encoding in zip(islice(likeliest, len(batch)), whole_encodings(tokenizer, batch), strict=True):
            held = set(encoding.ids)
            new = [addable[token] for token in row.tolist() if token in addable and token not in held]
            words.append(new[: section.keep])
    return words


def listed_stop_words(tokenizer: PreTrainedTokenizerFast, language: str) -> NDArray[np.bool_]:
    """Which tokens are stop words of ``language``, where there is a list of these, (vocabulary,)."""
    words, surfaces = STOP_WORDS.get(language, frozenset()), Vocabulary(tokenizer).surfaces
    return np.array([starts and text.strip().lower() in words for text, starts in surfaces], dtype=np.bool_)


def addable_words(
    tokenizer: PreTrainedTokenizerFast, masked: NDArray[np.bool_], unwanted: NDArray[np.bool_]
) -> dict[int, str]:
    """The tokens that may be added to a text -> how each is written: they start a word, hold a letter or digit, and are
    the one token that their text becomes behind another word.

    Args:
        masked: dimensions that are never active, (rows of the encoder,).
        unwanted: stop words and the like, (vocabulary,).
    """
    vocabulary = Vocabulary(tokenizer)
    words = vocabulary.texts
    candidates = [
        number
        for number, (_, starts_word) in enumerate(vocabulary.surfaces)
        if (starts_word or begins_unspaced(words[number])) and number not in vocabulary.special
        and any(map(str.isalnum, words[number])) and not masked[number] and not unwanted[number]
    ]  # fmt: skip
    twice = [f"{words[number]} {words[number]}" for number in candidates]
    addable = {}
    for number, encoding in zip(candidates, whole_encodings(tokenizer, twice, offsets=True), strict=True):
        spans = zip(encoding.ids, encoding.offsets, strict=True)
        behind = [token for token, (start, stop) in spans if start >= len(words[number]) and stop > start]
        if behind == [number]:
            addable[number] = words[number]
    return addable


Expansions = Mapping[bytes, Sequence[str]]
"""Digest of a text -> the words that it is expanded by, the likeliest first."""


def load_expansions(folder: Path) -> Expansions:
    """Read the expansions that :func:`write_expansions` wrote."""
    with (folder / EXPANSIONS).open(encoding="utf-8") as file:
        return {bytes.fromhex(entry["text"]): tuple(entry["words"]) for entry in map(json.loads, file)}


def expanded_set(
    collection: RetrievalSet,
    expansions: Expansions,
    tokenizer: PreTrainedTokenizerFast,
    max_length: int,
    prompt: str = "",
) -> RetrievalSet:
    """``collection`` with its documents as :func:`with_words` gives them, titles within their texts."""
    contents = [document.contents for document in collection.documents]
    words = [expansions[digest(text)] for text in contents]
    texts = with_words(contents, words, tokenizer, max_length, prompt)
    documents = [Document(old.id, "", text, old.fields) for old, text in zip(collection.documents, texts, strict=True)]
    return replace(collection, documents=documents)


def write_expansions(folder: Path, texts: Sequence[str], words: Sequence[Sequence[str]]) -> None:
    """Keep the words of each of ``texts``."""
    with (folder / EXPANSIONS).open("w", encoding="utf-8") as file:
        for text, added in zip(texts, words, strict=True):
            file.write(json.dumps({"text": digest(text).hex(), "words": list(added)}, ensure_ascii=False) + "\n")


def digest(text: str) -> bytes:
    """The digest that identifies a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def with_words(
    texts: Sequence[str],
    words: Sequence[Sequence[str]],
    tokenizer: PreTrainedTokenizerFast,
    max_length: int,
    prompt: str = "",
) -> list[str]:
    """Each of ``texts`` with its ``words`` behind it, cut so that all are read within ``max_length`` tokens, special
    tokens and the ``prompt`` before each text among them, but not below half of the tokens."""
    room = max(max_length - len(tokenizer(prompt)["input_ids"]), 0)
    expanded: list[str] = []
    for batch in batches(zip(texts, words, strict=True)):
        beginnings = shortened(tokenizer, [text for text, _ in batch], room + 1)
        for (text, added), encoding in zip(batch, whole_encodings(tokenizer, beginnings, offsets=True), strict=True):
            kept = added[: room // 2]
            left = room - len(kept)
            if kept and len(encoding.ids) > left:
                text = text[: encoding.offsets[left - 1][1]] if left else ""
            expanded.append(" ".join([text, *kept]).strip() if kept else text)
    return expanded
