"""A tokenizer read from its ``tokenizer.json`` alone, without transformers, whose import takes over a second."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer

from vtkit.system.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FILE = "tokenizer.json"

NO_LIMIT = 10**30  # `model_max_length` where nothing says otherwise, as in transformers


MOST_GROWTH, MOST_PIECES, MOST_PADDING = 1000, 64, 2**20
"""Bounds on a tokenizer's parts, far above any that is in use: how much longer replacements make a text, the pieces
that stand around it, and the tokens that it is padded to. The library would fill the memory."""


def beyond_bounds(parts: Mapping[str, Any]) -> str:
    """The part of a ``tokenizer.json``, read as JSON, that is beyond bounds, in words; empty if none is."""
    growth, open_parts = 1.0, [parts.get("normalizer"), parts.get("pre_tokenizer")]
    while open_parts:
        part = open_parts.pop()
        open_parts += [*_listed(part, "normalizers"), *_listed(part, "pretokenizers")]
        if isinstance(part, dict) and part.get("type") == "Replace":
            growth *= max(1, len(str(part.get("content", ""))))
    if growth > MOST_GROWTH:
        return f"its replacements make a text {growth:,.0f} times as long"
    padding, after = parts.get("padding"), parts.get("post_processor")
    if isinstance(padding, dict):
        strategy = padding.get("strategy")
        lengths = (strategy.get("Fixed") if isinstance(strategy, dict) else 0, padding.get("pad_to_multiple_of"))
        if any(isinstance(length, int) and length > MOST_PADDING for length in lengths):
            return "it pads texts to more than a million tokens"
    processors = [after, *_listed(after, "processors")]
    if any(len(_listed(each, side)) > MOST_PIECES for each in processors for side in ("single", "pair")):
        return f"it puts more than {MOST_PIECES} pieces around a text"
    return ""


def _listed(part: Any, name: str) -> list[Any]:
    """The list under ``name``; an empty one for anything else, which the library refuses."""
    found = part.get(name) if isinstance(part, dict) else None
    return found if isinstance(found, list) else []


@dataclass(frozen=True)
class TokenizerFile:
    """The part of a ``PreTrainedTokenizerFast`` that encoding queries and naming dimensions needs, under the same
    names."""

    backend_tokenizer: Tokenizer
    settings: Mapping[str, Any]  # `tokenizer_config.json`
    is_fast = True

    @classmethod
    def load(cls, folder: Path, settings: Mapping[str, Any]) -> TokenizerFile:
        """The one in ``folder``; transformers reads more than this file, so its tokens may differ
        (:func:`tokenizer_digest` tells)."""
        if wrong := beyond_bounds(json.loads((folder / FILE).read_text("utf-8"))):
            raise DataError(f"{folder / FILE}: {wrong}, which is no tokenizer for texts. Name another model.")
        return cls(Tokenizer.from_file(str(folder / FILE)), settings)

    def __getattr__(self, name: str) -> str | None:
        """Special tokens by their role, such as ``cls_token``; None where there is none."""
        if not name.endswith("_token"):
            raise AttributeError(name)
        token = self.settings.get(name)
        return token["content"] if isinstance(token, dict) else token

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size()

    @property
    def truncation_side(self) -> str:
        """The side at which long texts are cut."""
        return str(self.settings.get("truncation_side", "right"))

    @property
    def model_max_length(self) -> int:
        """Tokens that the model reads of a text."""
        return int(self.settings.get("model_max_length") or NO_LIMIT)

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Added tokens, special ones among them, by their ids."""
        return dict(self.backend_tokenizer.get_added_tokens_decoder())

    def get_vocab(self) -> dict[str, int]:
        """The id of each token, added ones included."""
        return dict(self.backend_tokenizer.get_vocab())

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """The id of a token."""
        return self.backend_tokenizer.token_to_id(token)

    def __call__(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool = True,
        truncation: bool = False,
        max_length: int = NO_LIMIT,
        verbose: bool = True,
    ) -> dict[str, list[list[int]]]:
        """``input_ids`` of ``texts``, the first ``max_length`` where ``truncation`` is asked for."""
        backend = self.backend_tokenizer
        backend.no_padding()
        if truncation and max_length < NO_LIMIT:
            backend.enable_truncation(max_length, direction=self.truncation_side)
        else:
            backend.no_truncation()
        encodings = backend.encode_batch(list(texts), add_special_tokens=add_special_tokens)
        return {"input_ids": [encoding.ids for encoding in encodings]}


def tokenizer_digest(tokenizer: PreTrainedTokenizerFast | TokenizerFile) -> str:
    """SHA-256 of what makes the tokens: vocabulary, normalizer and rules, not how long texts are cut or padded."""
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    made_by = {name: value for name, value in parts.items() if name not in ("truncation", "padding", "version")}
    return hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()
