"""The overlap rule: which tokens of a target vocabulary a source encoder already knows, one rule for all families.

Tokens are compared by their canonical form, the pair of "starts a word" and the plain text they stand for, because
families write the same token differently (``school``, ``Ġschool``, ``▁school`` start a word; ``##ing``, ``ing``
continue one). Plain string equality finds less than a third of the common tokens of two families.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vtkit.errors import DataError
from vtkit.vocabulary.existing import check_ids, roles_by_id, special_roles

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Family = Literal["wordpiece", "byte-level", "sentencepiece"]
OverlapMode = Literal["exact+symbols", "exact", "fuzzy", "raw"]

KINDS = ("new", "exact", "symbol", "special", "fuzzy")
"""How a target token came to its source token; ``Alignment.kinds`` holds indices into this."""

NEW, EXACT, SYMBOL, SPECIAL, FUZZY = range(len(KINDS))

FILLER = re.compile(
    r"\[unused\d+\]|<unused\d+>|<extra_id_\d+>|madeupword\d+|(<\|?|\[)reserved[\w ]*(\|?>|\])|\[[SX]_?SEP\w*\]",
    re.IGNORECASE,
)
"""Tokens that stand for nothing. They fill up a vocabulary, and equal spelling is no equal meaning."""


class Canonical(NamedTuple):
    """What a token stands for, whatever its family."""

    starts_word: bool
    surface: str


@dataclass(frozen=True)
class Alignment:
    """Which source token each target token is."""

    mode: OverlapMode
    target_to_source: NDArray[np.int32]
    """Source id of each target token, -1 where it is new; (target vocabulary,)."""

    kinds: NDArray[np.int8]
    """How it was found, an index into :data:`KINDS`; (target vocabulary,)."""

    source_size: int
    """Tokens of the source vocabulary."""

    @property
    def target_size(self) -> int:
        """Tokens of the target vocabulary."""
        return len(self.target_to_source)

    @property
    def new_ids(self) -> NDArray[np.int64]:
        """Target ids without a source token, ascending."""
        return np.flatnonzero(self.target_to_source < 0)

    @property
    def overlap_ids(self) -> NDArray[np.int64]:
        """Target ids with a source token, ascending."""
        return np.flatnonzero(self.target_to_source >= 0)

    @property
    def share(self) -> float:
        """Share of the target vocabulary that the source knows."""
        return len(self.overlap_ids) / self.target_size

    @property
    def counts(self) -> dict[str, int]:
        """Target tokens of each kind."""
        return {name: int((self.kinds == code).sum()) for code, name in enumerate(KINDS)}


def align(
    source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast, mode: OverlapMode = "exact+symbols"
) -> Alignment:
    """Find the source token of each target token.

    A target token overlaps a source token when

    1. their canonical forms are equal, or
    2. both are made of symbols or digits only and their surfaces are equal, whatever the word-start mark, or
    3. they play the same special role (pad, unk, cls or bos, sep or eos, mask).

    An equal canonical form beats an equal symbol, then the lowest source id wins. Special tokens take part in
    rule 3 only, and fillers such as ``[unused7]`` in none.

    Where the target begins with the whole source vocabulary, id by id (an expanded vocabulary), those tokens are the
    source's own, fillers included, and the rules are for the tokens behind them.

    Args:
        mode: ``exact+symbols`` applies rules 1 to 3, ``exact`` leaves out rule 2, ``fuzzy`` adds tokens equal
            up to case and word-start mark, ``raw`` compares nothing but the strings (to show what the mistake
            costs; fillers match there too).
    """
    source_tokens, target_tokens = tokens(source), tokens(target)
    found = np.full(len(target_tokens), -1, dtype=np.int32)
    kinds = np.zeros(len(target_tokens), dtype=np.int8)
    if mode == "raw":
        known: dict[str, int] = {}
        for number, token in enumerate(source_tokens):
            known.setdefault(token, number)
        for number, token in enumerate(target_tokens):
            if token and token in known:
                found[number], kinds[number] = known[token], EXACT
        return Alignment(mode, found, kinds, len(source_tokens))

    source_forms, target_forms = canonical_forms(source), canonical_forms(target)
    exact: dict[Canonical, int] = {}
    symbols: dict[str, int] = {}
    folded: dict[Canonical, int] = {}
    folded_surface: dict[str, int] = {}
    for number, form in enumerate(source_forms):
        if form is None:
            continue
        exact.setdefault(form, number)
        if is_symbol(form.surface):
            symbols.setdefault(form.surface, number)
        folded.setdefault(_folded(form), number)
        folded_surface.setdefault(form.surface.casefold(), number)
    source_roles = special_roles(source)
    target_roles = roles_by_id(target)
    expanded = target_tokens[: len(source_tokens)] == source_tokens
    for number, form in enumerate(target_forms):
        role = target_roles.get(number)
        if expanded and number < len(source_tokens):
            found[number], kinds[number] = number, EXACT if role is None else SPECIAL
        elif role is not None:
            if role in source_roles:
                found[number], kinds[number] = source_roles[role], SPECIAL
        elif form is None:
            continue
        elif form in exact:
            found[number], kinds[number] = exact[form], EXACT
        elif mode != "exact" and is_symbol(form.surface) and form.surface in symbols:
            found[number], kinds[number] = symbols[form.surface], SYMBOL
        elif mode == "fuzzy":
            match = folded.get(_folded(form), folded_surface.get(form.surface.casefold()))
            if match is not None:
                found[number], kinds[number] = match, FUZZY
    return Alignment(mode, found, kinds, len(source_tokens))


def token_family(tokenizer: PreTrainedTokenizerFast) -> Family:
    """How the tokenizer marks the beginnings of words.

    Raises:
        DataError: a tokenizer that marks word ends (``</w>``) or nothing at all.
    """
    layout = json.loads(tokenizer.backend_tokenizer.to_str())
    model = layout["model"]
    prefix = model.get("continuing_subword_prefix")
    around = json.dumps([layout.get("pre_tokenizer"), layout.get("decoder")])
    if model.get("type") in ("WordPiece", "WordLevel") or prefix == "##":
        return "wordpiece"
    if '"ByteLevel"' in around:
        return "byte-level"
    if '"Metaspace"' in around or "▁" in json.dumps(layout.get("normalizer"), ensure_ascii=False):
        return "sentencepiece"
    raise DataError(
        "The tokenizer marks word starts in none of the known ways (## continues, Ġ starts, ▁ starts), so its tokens "
        "cannot be compared with others. WordPiece, byte-level BPE and SentencePiece tokenizers can be used."
    )


def canonical(token: str, family: Family) -> Canonical:
    """What ``token`` stands for: whether it starts a word, and its text.

    Byte-level tokens are decoded to text; bytes that are no whole character stay lone surrogates, which are equal to
    the same bytes of another byte-level vocabulary and to nothing else. A bare mark is a word start without text.
    """
    match family:
        case "wordpiece":
            if token.startswith("##") and len(token) > 2:
                return Canonical(False, token[2:])
            return Canonical(True, token)
        case "byte-level":
            if all(character in _BYTE_OF for character in token):
                raw = bytes(_BYTE_OF[character] for character in token)
                return _spaced(raw.decode("utf-8", "surrogateescape"))
            return _spaced(token)  # an added token, written as plain text
        case "sentencepiece":
            return _spaced(token.replace("▁", " "))


def canonical_forms(tokenizer: PreTrainedTokenizerFast) -> list[Canonical | None]:
    """The canonical form of each id; None for special tokens, fillers and ids without a token."""
    family = token_family(tokenizer)
    special = set(roles_by_id(tokenizer)) | {
        number for number, added in tokenizer.added_tokens_decoder.items() if added.special
    }
    plain = {number: added.content for number, added in tokenizer.added_tokens_decoder.items()}
    forms: list[Canonical | None] = []
    for number, token in enumerate(tokens(tokenizer)):
        if not token or number in special or FILLER.fullmatch(token):
            forms.append(None)
        elif number in plain and family != "wordpiece":
            forms.append(_spaced(plain[number]))
        else:
            forms.append(canonical(token, family))
    return forms


def surface_and_start(tokenizer: PreTrainedTokenizerFast) -> list[tuple[str, bool]]:
    """The text each id stands for, and whether it starts a word; (target vocabulary,).

    The text is empty for ids that stand for none: special tokens, fillers, ids without a token, and bytes that
    are no whole character.
    """
    pairs = []
    for form in canonical_forms(tokenizer):
        if form is None or any("\ud800" <= character <= "\udfff" for character in form.surface):
            pairs.append(("", False))
        else:
            pairs.append((form.surface, form.starts_word))
    return pairs


def legible(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The token of each id as a person reads it: as the vocabulary writes it, but for byte-level tokens.

    Those are read as text (``ĠWünsche``, which the vocabulary writes ``ĠWÃ¼nsche``), with bytes that are no whole
    character as ``<E0>``.
    """
    parts = (tokenizer.backend_tokenizer.pre_tokenizer, tokenizer.backend_tokenizer.decoder)
    byte_level = any(part is not None and b'"ByteLevel"' in part.__getstate__() for part in parts)
    return [_as_text(token) if byte_level else token for token in tokens(tokenizer)]


def _as_text(token: str) -> str:
    form = canonical(token, "byte-level")
    surface = "".join(f"<{ord(c) - 0xDC00:02X}>" if 0xDC80 <= ord(c) < 0xDD00 else c for c in form.surface)
    return f"Ġ{surface}" if form.starts_word else surface


def tokens(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The token of each id as the vocabulary writes it; the empty string for ids without one.

    Raises:
        DataError: an id that no model has a row for, as a damaged file has them.
    """
    vocabulary = tokenizer.get_vocab()
    check_ids(vocabulary)
    listed = [""] * (max(vocabulary.values()) + 1)
    for token, number in vocabulary.items():
        listed[number] = token
    return listed


def is_symbol(surface: str) -> bool:
    """Whether a surface is made of nothing but digits and of the symbols and punctuation of Latin text (Latin-1).

    The typography of other scripts is left to rule 1. The border is that of the published counts: with the symbols
    of all scripts ModernBERT would overlap bert-base-uncased by 56.50 %, against 56.4 % in the paper.
    """
    return surface != "" and all(
        character.isdecimal() or (character <= "\xff" and unicodedata.category(character)[0] in "NPS")
        for character in surface
    )


def _spaced(text: str) -> Canonical:
    return Canonical(True, text[1:]) if text.startswith(" ") else Canonical(False, text)


def _folded(form: Canonical) -> Canonical:
    return Canonical(form.starts_word, form.surface.casefold())


def _byte_alphabet() -> Iterable[tuple[str, int]]:
    """The characters by which byte-level vocabularies write bytes (GPT-2): printable ones as themselves, the others
    as the characters from U+0100 on, in order."""
    moved = 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            yield chr(byte), byte
        else:
            yield chr(256 + moved), byte
            moved += 1


_BYTE_OF = dict(_byte_alphabet())
