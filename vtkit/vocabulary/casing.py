"""Casing of a vocabulary: which tokens are cased, and what can be done about it without retraining. Upper case is
whatever lower-casing changes, character by character as the ``Lowercase`` normalizer of tokenizers does it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vtkit.data import spelling
from vtkit.system.errors import DataError
from vtkit.vocabulary.existing import wrapped_like
from vtkit.vocabulary.forms import Vocabulary, tokens
from vtkit.vocabulary.notation import Canonical, Notation

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class CasingCounts:
    """Counts of a vocabulary's tokens by their case."""

    tokens: int
    special: int  # special tokens, fillers and ids without a token, which are never cased
    cased: int  # tokens with an upper-case character
    with_lower_case: int  # cased tokens whose lower-cased form is a token too
    cased_only: int  # cased tokens whose lower-cased form is no token
    free_names: int  # cased-only tokens that map_cased renames
    classes: int  # canonical classes of two tokens or more
    variants: int  # tokens in these classes
    folded: int  # ids left when every class shares one


def lowered(text: str, language: str | None = None) -> str:
    """``text`` in the lower case of ``language``, each character on its own."""
    if "Σ" not in text:  # the one letter whose lower case depends on what stands around it
        return spelling.lowered(text, language)
    return "".join(character.lower() for character in text)


def _language(tokenizer: PreTrainedTokenizerFast) -> str | None:
    """Turkish, if the normalizer of ``tokenizer`` makes a dotless i of I, as it does after ``casing.input``."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    return "tr" if normalizer is not None and "ı" in normalizer.normalize_str("I") else None


def cased_ids(vocabulary: Vocabulary | PreTrainedTokenizerFast) -> NDArray[np.int64]:
    """Ids of the tokens with an upper-case character, ascending; special tokens and fillers are never among them."""
    forms = enumerate(Vocabulary.of(vocabulary).forms)
    return np.array([number for number, form in forms if form is not None and is_cased(form)], np.int64)


def cased_only(vocabulary: Vocabulary | PreTrainedTokenizerFast) -> dict[int, Canonical]:
    """Cased tokens whose lower-cased form, same word-start mark, is no token: id -> that form, by id."""
    vocabulary = Vocabulary.of(vocabulary)
    forms, language = vocabulary.forms, _language(vocabulary.tokenizer)
    known = set(forms)
    cased = ((number, form) for number, form in enumerate(forms) if form is not None and is_cased(form))
    lower = {number: Canonical(form.starts_word, lowered(form.surface, language)) for number, form in cased}
    return {number: form for number, form in lower.items() if form not in known}


def lower_case_names(vocabulary: Vocabulary | PreTrainedTokenizerFast) -> dict[int, tuple[str, str]]:
    """The names that cased-only tokens can take: id -> its name and the lower-cased one, by id. ``Paris`` can be
    ``paris`` where that string is free; of several tokens with one lower-cased form the lowest id gets it."""
    vocabulary = Vocabulary.of(vocabulary)
    listed = vocabulary.tokens
    taken = set(listed)
    names: dict[int, tuple[str, str]] = {}
    for number, form in cased_only(vocabulary).items():
        name = None if form.is_bytes else vocabulary.notation.write(form)
        if name is not None and name not in taken:
            taken.add(name)
            names[number] = (listed[number], name)
    return names


def canonical_classes(vocabulary: Vocabulary | PreTrainedTokenizerFast) -> list[tuple[int, ...]]:
    """Tokens equal up to case and word-start mark (``The``, ``##the``, ``the``) in classes of two ids or more, by their
    representatives, which come first: lower-case before cased, starting a word before inside one, lowest id."""
    vocabulary = Vocabulary.of(vocabulary)
    forms, language = vocabulary.forms, _language(vocabulary.tokenizer)
    members: dict[str, list[tuple[bool, bool, int]]] = {}
    for number, form in enumerate(forms):
        if form is not None and form.surface.strip():  # a bare word-start mark stands for nothing
            preference = (is_cased(form), not form.starts_word, number)
            members.setdefault(lowered(form.surface, language), []).append(preference)
    classes = (sorted(preferences) for preferences in members.values() if len(preferences) > 1)
    return sorted(tuple(number for _, _, number in ordered) for ordered in classes)


@lru_cache(maxsize=4)
def fold_map(tokenizer: PreTrainedTokenizerFast, size: int | None = None) -> NDArray[np.int64]:
    """The id of the representative of each token's canonical class, the token itself where it has no variant; (size,),
    read only, with ``size`` rows of the model, where they are more than the tokenizer's tokens."""
    count = len(tokens(tokenizer))
    folded_to = np.arange(count if size is None else size, dtype=np.int64)
    if len(folded_to) < count:
        raise DataError(
            f"the tokenizer has {count} tokens and the model {len(folded_to)} dimensions: they cannot be folded."
        )
    for first, *others in canonical_classes(tokenizer):
        folded_to[others] = first
    folded_to.setflags(write=False)
    return folded_to


def map_cased(
    tokenizer: PreTrainedTokenizerFast,
) -> tuple[PreTrainedTokenizerFast, Mapping[int, tuple[str, str]], tuple[int, ...]]:
    """A copy of ``tokenizer`` in which tokens that exist in cased form only bear their :func:`lower_case_names` (Lionis
    et al., To Case or Not to Case, ECIR 2026). Ids do not move.

    A BPE vocabulary reaches tokens by merges, and those of ``Paris`` start from ``P``: they are taken out, a whole word
    that is a token is then taken as it is (``ignore_merges``), and where the present merges cut a new name in two,
    their merge is added, last.

    Returns:
        The copy; id -> its name before and now, of the renamed tokens; and the ids of these that lower-cased text does
        not lead to: a BPE vocabulary lacks the pieces in between, or a Unigram vocabulary finds other pieces more
        probable. They can still be active in vectors.
    """
    renamed = lower_case_names(tokenizer)
    if not renamed:
        return tokenizer, {}, ()
    layout = json.loads(tokenizer.backend_tokenizer.to_str())
    new_names = dict(renamed.values())
    for added in layout.get("added_tokens") or ():
        added["content"] = new_names.get(added["content"], added["content"])
    model = layout["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = [[new_names.get(token, token), score] for token, score in model["vocab"]]
    else:
        model["vocab"] = {new_names.get(token, token): number for token, number in model["vocab"].items()}
    if model.get("type") == "BPE":
        gone = set(new_names)
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        model["merges"] = [[a, b] for a, b in pairs if not {a, b, a + b} & gone]
        model["ignore_merges"] = False
        pieces_of = Tokenizer.from_str(json.dumps(layout)).model.tokenize
        for name in new_names.values():
            pieces = [piece.value for piece in pieces_of(name)]
            if len(pieces) == 2 and "".join(pieces) == name:
                model["merges"].append(pieces)
        model["ignore_merges"] = True
    backend = Tokenizer.from_str(json.dumps(layout))
    notation = Notation.of(backend)
    # Tokens that continue a word with a prefix are found behind other pieces only, and there always.
    alone = {n: name for n, (_, name) in renamed.items() if not notation.prefix or notation.read(name).starts_word}
    unreached = (n for n, name in alone.items() if [piece.id for piece in backend.model.tokenize(name)] != [n])
    return wrapped_like(backend, tokenizer), renamed, tuple(unreached)


def count_casing(tokenizer: PreTrainedTokenizerFast | Vocabulary) -> CasingCounts:
    """The numbers of cased tokens and of variants."""
    vocabulary = Vocabulary.of(tokenizer)
    forms, classes = vocabulary.forms, canonical_classes(vocabulary)
    cased, only = len(cased_ids(vocabulary)), len(cased_only(vocabulary))
    variants = sum(map(len, classes))
    return CasingCounts(
        tokens=len(forms),
        special=sum(form is None for form in forms),
        cased=cased,
        with_lower_case=cased - only,
        cased_only=only,
        free_names=len(lower_case_names(vocabulary)),
        classes=len(classes),
        variants=variants,
        folded=len(forms) - variants + len(classes),
    )


def is_cased(form: Canonical) -> bool:
    """Whether lower-casing changes a token."""
    return lowered(form.surface) != form.surface
