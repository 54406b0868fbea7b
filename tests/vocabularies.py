"""Small tokenizers of every algorithm, and what is moved from one vocabulary to another."""

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags_array
from tiny import LETTERS, ROLES
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from transformers import PreTrainedTokenizerFast

from vtkit.settings.vocabulary import ExpandedVocabulary
from vtkit.transfer.mixture import Mixture
from vtkit.vocabulary.existing import Role, wrap

XLM_ROLES: dict[Role, str] = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}


def wordpiece(*words: str, normalizer: Normalizer | None = None) -> PreTrainedTokenizerFast:
    listed = [*ROLES.values(), *words]
    backend = Tokenizer(models.WordPiece({word: n for n, word in enumerate(listed)}, unk_token="[UNK]"))
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return wrap(backend, ROLES, "of the test")


def byte_level(*words: str) -> PreTrainedTokenizerFast:
    listed = [*XLM_ROLES.values(), *words]
    backend = Tokenizer(models.BPE({word: n for n, word in enumerate(listed)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return wrap(backend, XLM_ROLES, "of the test")


def sentencepiece(*words: str) -> PreTrainedTokenizerFast:
    listed = [*XLM_ROLES.values(), *words]
    backend = Tokenizer(models.Unigram([(word, 0.0) for word in listed], unk_id=1))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return wrap(backend, XLM_ROLES, "of the test")


def wordpiece_of_letters(*words: str, lowercase: bool = True) -> PreTrainedTokenizerFast:
    listed = dict.fromkeys([*ROLES.values(), *LETTERS, *(f"##{letter}" for letter in LETTERS), *words])
    backend = Tokenizer(models.WordPiece({word: n for n, word in enumerate(listed)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return wrap(backend, ROLES, "of the test")


def merging_bytes(*merges: tuple[str, str], lowercase: bool = True) -> PreTrainedTokenizerFast:
    listed = dict.fromkeys([*ROLES.values(), *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)])
    backend = Tokenizer(models.BPE({token: n for n, token in enumerate(listed)}, list(merges)))
    backend.normalizer = normalizers.Lowercase() if lowercase else None
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return wrap(backend, ROLES, "of the test")


def write_vectors(path: Path, words: Mapping[str, Iterable[float]], header: bool = True, end: str = "") -> Path:
    lines = [f"{word} {' '.join(map(repr, map(float, vector)))}{end}" for word, vector in words.items()]
    width = len(list(next(iter(words.values()))))
    text = "".join(f"{line}\n" for line in ([f"{len(words)} {width}"] if header else []) + lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def with_masked(mixture: Mixture, ids: NDArray[np.integer]) -> Mixture:
    """``mixture`` with the rows of the target tokens ``ids`` masked: made of no source token, and never active."""
    keep = np.ones(len(mixture.methods), dtype=np.float32)
    keep[ids] = 0
    weights = csr_matrix(diags_array(keep) @ mixture.weights)
    weights.eliminate_zeros()
    methods = mixture.methods.copy()
    methods[ids] = "masked"
    return replace(mixture, weights=weights, methods=methods)


def expansion(**given: Any) -> ExpandedVocabulary:
    return ExpandedVocabulary.model_validate(
        {"kind": "expanded", "tokenizer": "the base", "corpus": ("text",), "increment": 20, **given}
    )
