"""A tokenizer read from its ``tokenizer.json`` alone, without transformers, whose import takes over a second."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizers import AddedToken, Encoding, Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FILE = "tokenizer.json"

NO_LIMIT = 10**30  # `model_max_length` where nothing says otherwise, as in transformers


class Tokenized(NamedTuple):
    """The result of a call: as much of a ``BatchEncoding`` as encoding needs."""

    encodings: list[Encoding]

    def items(self) -> list[tuple[str, list[list[int]]]]:
        """The name of each output with its lists, one for each text."""
        return [("input_ids", [encoding.ids for encoding in self.encodings])]


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
        added: dict[int, AddedToken] = self.backend_tokenizer.get_added_tokens_decoder()
        return added

    def get_vocab(self) -> dict[str, int]:
        """The id of each token, added ones included."""
        vocabulary: dict[str, int] = self.backend_tokenizer.get_vocab()
        return vocabulary

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
    ) -> Tokenized:
        """Tokens of ``texts``, the first ``max_length`` where ``truncation`` is asked for."""
        backend = self.backend_tokenizer
        backend.no_padding()
        if truncation and max_length < NO_LIMIT:
            backend.enable_truncation(max_length, direction=self.truncation_side)
        else:
            backend.no_truncation()
        return Tokenized(backend.encode_batch(list(texts), add_special_tokens=add_special_tokens))


def tokenizer_digest(tokenizer: PreTrainedTokenizerFast | TokenizerFile) -> str:
    """SHA-256 of what makes the tokens: vocabulary, normalizer and rules, not how long texts are cut or padded."""
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    made_by = {name: value for name, value in parts.items() if name not in ("truncation", "padding", "version")}
    return hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()
