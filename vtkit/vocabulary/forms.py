"""Each token of a vocabulary: a role, a filler, or a canonical form, read by the tokenizer's own notation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vtkit.data.text import batches
from vtkit.data.word_counts import text_pieces
from vtkit.vocabulary.existing import Role, check_ids, roles_by_id
from vtkit.vocabulary.notation import FILLER, Canonical, Notation

if TYPE_CHECKING:
    from tokenizers import AddedToken, Encoding
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

    from vtkit.vocabulary.tokenizer_file import TokenizerFile


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The vocabulary of a tokenizer, which must not change; the meaning of its tokens is worked out once."""

    tokenizer: PreTrainedTokenizerFast

    @classmethod
    def of(cls, vocabulary: Vocabulary | PreTrainedTokenizerFast) -> Vocabulary:
        """That of a tokenizer; a vocabulary stays itself."""
        return vocabulary if isinstance(vocabulary, Vocabulary) else cls(vocabulary)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def notation(self) -> Notation:
        """How the vocabulary writes its tokens."""
        return Notation.of(self.tokenizer.backend_tokenizer)

    @cached_property
    def tokens(self) -> list[str]:
        """The token of each id as the vocabulary writes it (:func:`tokens`)."""
        return tokens(self.tokenizer)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token. Of the ids of a piece that a Unigram vocabulary lists again, only the last has a token,
        and for the unknown piece also the id that the tokenizer gives to unknown text, which is the one that counts."""
        return {token: number for number, token in reversed([*enumerate(self.tokens)]) if token}

    @cached_property
    def roles(self) -> dict[int, Role]:
        """The role of each special token that has one, by id (:func:`vtkit.vocabulary.existing.roles_by_id`)."""
        return roles_by_id(self.tokenizer)

    @cached_property
    def fillers(self) -> set[int]:
        """The ids of tokens that stand for nothing, by their spelling (:data:`vtkit.vocabulary.notation.FILLER`)."""
        return {number for number, token in enumerate(self.tokens) if FILLER.fullmatch(token)}

    @cached_property
    def special(self) -> set[int]:
        """The ids of special tokens and of fillers, which stand for no word."""
        special = {number for number, added in self._added.items() if added.special}
        return special | self.roles.keys() | self.fillers

    @cached_property
    def forms(self) -> list[Canonical | None]:
        """The canonical form of each id; None for special tokens, fillers and ids without a token. The token of an
        ASCII byte is the character, unless the vocabulary has that as a token too. A DataError if the tokenizer does
        not mark words."""
        _ = self.notation.family
        forms = list(map(self._form, range(len(self))))
        written = set(forms)
        for number, form in enumerate(forms):
            if form is not None and form.letter is not None and form.letter not in written:
                forms[number] = form.letter
        return forms

    @cached_property
    def surfaces(self) -> list[tuple[str, bool]]:
        """The text each id stands for, and whether it starts a word; empty for special tokens, fillers, ids without a
        token, and bytes that are no whole character."""
        return [
            ("", False) if form is None or form.is_bytes else (form.surface, form.starts_word) for form in self.forms
        ]

    @cached_property
    def texts(self) -> list[str]:
        """The text of each id without surrounding space; empty for ids that stand for none."""
        return [surface.strip() for surface, _ in self.surfaces]

    @cached_property
    def text(self) -> Callable[[int], str]:
        """Gives the text of an id, and keeps it; empty for special tokens, fillers and bytes. For a few ids faster than
        :attr:`texts`."""
        return cache(lambda number: "" if not (form := self._form(number)) or form.is_bytes else form.surface.strip())

    def unread(self, text: str) -> list[str]:
        """The letters and digits of ``text`` that no token stands for: they are unknown, dropped, or cut into bytes."""
        (encoding,) = whole_encodings(self.tokenizer, [text], offsets=True)
        read: set[int] = set()
        for number, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            if self.text(number):
                read.update(range(start, stop))
        return [letter for place, letter in enumerate(text) if letter.isalnum() and place not in read]

    def _form(self, number: int) -> Canonical | None:
        if not self.tokens[number] or number in self.special:
            return None
        if number in self._added:  # plain text
            return replace(self.notation, space="", byte_level=False).read(self._added[number].content)
        return self.notation.read(self.tokens[number])

    @cached_property
    def _added(self) -> dict[int, AddedToken]:
        return dict(self.tokenizer.added_tokens_decoder)

    @cached_property
    def legible(self) -> list[str]:
        """The token of each id as a person reads it (:meth:`vtkit.vocabulary.notation.Notation.legible`)."""
        return [self.notation.legible(token) for token in self.tokens]


def tokens(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The token of each id as the vocabulary writes it; the empty string for ids without one."""
    vocabulary = tokenizer.get_vocab()
    check_ids(vocabulary)
    listed = [""] * (max(vocabulary.values()) + 1)
    for token, number in vocabulary.items():
        listed[number] = token
    for number in roles_by_id(tokenizer):
        listed[number] = listed[number] or tokenizer.backend_tokenizer.id_to_token(number)
    return listed


def whole_encodings(
    tokenizer: PreTrainedTokenizerBase | TokenizerFile,
    texts: Sequence[str],
    *,
    offsets: bool = False,
    special: bool = False,
) -> list[Encoding]:
    """Cut each of ``texts`` into tokens as a whole, even if the tokenizer was last asked to truncate or to pad.

    Args:
        offsets: find where in the text each token stands and how it is spelled, which takes longer.
        special: add special tokens.
    """
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    encode = backend.encode_batch if offsets else backend.encode_batch_fast
    return list(encode(list(texts), add_special_tokens=special))


def whole_ids(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], *, special: bool = False
) -> Iterator[NDArray[np.int64]]:
    """The ids of the tokens of each text as a whole, however long; ``special``: with special tokens around each of its
    pieces."""
    for batch in batches(texts):
        parts = [list(text_pieces(text)) for text in batch]  # 60 megabytes as one text would take gigabytes
        encodings = chain.from_iterable(
            whole_encodings(tokenizer, some, special=special) for some in batches(chain.from_iterable(parts))
        )
        for parts_of_text in parts:
            ids = chain.from_iterable(encoding.ids for encoding in islice(encodings, len(parts_of_text)))
            yield np.fromiter(ids, dtype=np.int64)
