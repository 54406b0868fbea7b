"""Tokenizers on disk, in the one form that every version of transformers since 4.57 reads alike; transformers 5 itself
writes a class and settings that 4.57 does not know, and no ``special_tokens_map.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers.pre_tokenizers import ByteLevel

from vtkit.vocabulary.tokenizer_file import FILE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SETTINGS, SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and ``special_tokens_map.json`` into ``folder``, without
    truncation and padding. The saved class is ``PreTrainedTokenizerFast``, which takes ``tokenizer.json`` as it stands,
    while classes such as ``BertTokenizer`` build parts of it anew."""
    folder.mkdir(parents=True, exist_ok=True)
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.save(str(folder / FILE))
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": tokenizer.model_max_length,
        "model_input_names": tokenizer.model_input_names,
        "padding_side": tokenizer.padding_side,
        "truncation_side": tokenizer.truncation_side,
        "clean_up_tokenization_spaces": False,
    }
    if isinstance(backend.pre_tokenizer, ByteLevel):  # transformers sets it to what the settings say, or to False
        settings["add_prefix_space"] = backend.pre_tokenizer.add_prefix_space
    special: dict[str, Any] = dict(tokenizer.special_tokens_map)
    if tokenizer.extra_special_tokens:
        special["additional_special_tokens"] = list(tokenizer.extra_special_tokens)
    added = {number: token.__getstate__() for number, token in sorted(backend.get_added_tokens_decoder().items())}
    matched: dict[str, Any] = {}  # by its name alone, or with the ways of its own in which it is matched
    for token in added.values():
        flags = {name: token[name] for name in ("lstrip", "normalized", "rstrip", "single_word")}
        matched[token["content"]] = {"content": token["content"], **flags} if any(flags.values()) else token["content"]
    shown = {
        role: [matched[each] for each in token] if isinstance(token, list) else matched[token]
        for role, token in special.items()
    }
    files = {SETTINGS: settings | special | {"added_tokens_decoder": added}, SPECIAL_TOKENS: shown}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
