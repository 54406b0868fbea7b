"""Which tokenizers, and which texts, may be cut at white space before they are tokenized.

Most tokenizers cut at white space themselves. What they make of a text is then what they make of its chunks (a word
with the white space in front of it), one after the other. Some take chunks apart as well, whatever is around them. Only
layouts that are known to work so are taken for such.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import regex
from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from vtkit.data.unspaced import BEHIND

WHITE_SPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""Every character that ends a chunk."""


def cuts_at_white_space(backend: Tokenizer) -> bool:
    """Whether the layout of a tokenizer is known never to make a token, nor a choice, across white space.

    Such are normalizers that work on single characters, on clusters of a letter with its marks, or on white space,
    with the pre-tokenizers of BERT, of words, of GPT-2's byte-level rule or of SentencePiece's mark, or a split by a
    pattern that can match white space at the beginning of a match only (as vtkit's own vocabularies have).
    """
    steps = _steps(json.loads(state(backend.pre_tokenizer)), "pretokenizers")
    border = next((number for number, step in enumerate(steps) if _splits_at_white_space(step)), None)
    if border is None or getattr(backend.model, "dropout", None):
        return False
    if any(step["type"] not in ("Digits", "Punctuation") and not _sets_apart(step) for step in steps[:border]):
        return False
    return all(_minds_white_space(step) for step in _steps(json.loads(state(backend.normalizer)), "normalizers"))


_PUNCTUATION = r"!-/:-@\[-`{-~"
_BEYOND_ASCII = r"\x80-\U0010ffff"
_BERT_PARTS = re.compile(
    rf"\s+|[{_PUNCTUATION}](?![{_BEYOND_ASCII}])|(?:[^\s{_PUNCTUATION}]+|[{_PUNCTUATION}](?=[{_BEYOND_ASCII}]))+"
)
_BYTE_LEVEL_PARTS = re.compile(
    rf"\s*(?:[A-Za-z]+(?=[^A-Za-z{_BEYOND_ASCII}]|\Z)|[0-9]+(?=[^0-9{_BEYOND_ASCII}]|\Z)|[{_PUNCTUATION}]+(?=\s|\Z)"
    rf"|[{_PUNCTUATION}]*(?!')[{_PUNCTUATION}](?=[A-Za-z0-9])|\S+)"
)


def parts_of_chunks(backend: Tokenizer) -> re.Pattern[str] | None:
    """A pattern of the parts of chunks that a tokenizer cuts up one by one; None where it is not known to do so.

    The pre-tokenizer of BERT parts ASCII punctuation from all that is around it; GPT-2's rule parts ASCII letters,
    digits and punctuation from each other, but for what comes behind an apostrophe (*'s*). Beside characters beyond
    ASCII there is no cut where a normalizer may join them (= and U+0338 to ≠). Parts are alike in every chunk if they
    stand behind white space, their own or other.
    """
    normalizer = _steps(json.loads(state(backend.normalizer)), "normalizers")
    simple = ("BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")
    if any(step["type"] not in simple for step in normalizer):
        return None
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    spaced = [content for content in added if any(map(str.isspace, content))]
    match json.loads(state(backend.pre_tokenizer)):
        case {"type": "BertPreTokenizer"} if not spaced:
            return _BERT_PARTS
        case {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False} if not "".join(spaced).strip(" "):
            return _BYTE_LEVEL_PARTS
        case _:
            return None


def state(part: Normalizer | PreTokenizer | None) -> str:
    """The settings of a part of a tokenizer, in JSON."""
    return "null" if part is None else part.__getstate__().decode()


def odd_texts(backends: Sequence[Tokenizer]) -> Callable[[str], bool]:
    """Tells the texts that must be tokenized whole by tokenizers which otherwise cut at white space.

    Such are texts with white space or control characters that one of the tokenizers does not cut at, with invisible
    characters at the edge of a chunk (a normalizer may leave nothing of the chunk), or with an added token in them
    (which may take the white space beside it).
    """
    closed = "".join({space for backend in backends for space in closed_spaces(backend)})
    ends = rf"|[{re.escape(closed)}]" if closed else ""
    hidden = regex.compile(rf"(?V1)[\p{{Cc}}--[\t\n\r]]|(?<!\S)[\p{{C}}--\s]|[\p{{C}}--\s](?!\S){ends}")
    added = [token for backend in backends for token in backend.get_added_tokens_decoder().values()]
    spelled = {token.content.lower() for token in added if token.content.strip()}
    special = re.compile("|".join(map(re.escape, sorted(spelled)))) if spelled else None

    def is_odd(text: str) -> bool:
        if special is not None and special.search(text.lower()):
            return True
        return not text.isprintable() and hidden.search(text) is not None

    return is_odd


def closed_spaces(backend: Tokenizer) -> str:
    """White space at which a tokenizer does not begin a new piece."""
    return "".join(space for space in WHITE_SPACE if not _breaks_at(space, backend))


def _breaks_at(space: str, backend: Tokenizer) -> bool:
    """Whether a tokenizer begins a new piece with white space that begins with, or holds, the character ``space``."""
    for before in ("a", "7", ".", "中", "한"):
        for gap in (space, f"{space} ", f" {space}", space * 2):
            for behind in ("b", "."):
                encoding = backend.encode(f"{before}{gap}{behind}", add_special_tokens=False)
                found = list(zip(encoding.word_ids, encoding.offsets, strict=True))
                left = {word for word, (start, end) in found if start < 1 and end > start}
                right = {word for word, (start, end) in found if end > 1 + len(gap)}
                if left & right or any(end > 1 for word, (_, end) in found if word in left):
                    return False
    return True


def _steps(part: dict[str, Any] | None, inside: str) -> list[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer, sequences taken apart."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [step for inner in part[inside] for step in _steps(inner, inside)]
    return [part]


def _splits_at_white_space(step: dict[str, Any]) -> bool:
    """Whether a pre-tokenizer leaves no piece that has white space behind other characters."""
    match step["type"]:
        case "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit":
            return True
        case "ByteLevel":
            return bool(step["use_regex"])
        case "Metaspace":
            return bool(step.get("split", True))
        case "Split":
            pattern = step["pattern"].get("Regex")
            if pattern is None or not _spaces_only_first(pattern):
                return False
            if step["invert"]:
                return str(step["behavior"]) == "Removed"
            return str(step["behavior"]) == "Isolated" and _matches_everything(pattern)
        case _:
            return False


def _sets_apart(step: dict[str, Any]) -> bool:
    """Whether a pre-tokenizer only puts single characters, none of them white space, on their own."""
    if step["type"] != "Split" or step["invert"] or str(step["behavior"]) != "Isolated":
        return False
    pattern = _NARROWED.sub("", step["pattern"].get("Regex") or "")
    return _CLASS.fullmatch(pattern) is not None and _spaces_only_first(pattern)


def _minds_white_space(step: dict[str, Any]) -> bool:
    """Whether what a normalizer does to a chunk does not depend on the chunks beside it."""
    match step["type"]:
        case "Replace":
            pattern = step["pattern"].get("Regex")
            if pattern is None:
                literal = str(step["pattern"]["String"])
                return literal == " " or not any(map(str.isspace, literal))
            return pattern in (r"\s", r"\s+", " +", " {2,}", BEHIND) or _spaces_only_first(pattern)
        case kind:
            simple = ("BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend")
            return kind in (*simple, "Nmt", "Precompiled")


_NARROWED = re.compile(r"&&\[\^[^\]]*\]")
"""Characters that a class leaves out."""

_CLASS = re.compile(r"\[(?:\\.|[^\]\\])*\]")
_PROPERTY = re.compile(r"\\p\{(\w+)\}")
_SPACED_PROPERTIES = (
    "C",
    "Cc",
    "Cn",
    "Z",
    "Zs",
    "Zl",
    "Zp",
    "Common",
    "Zyyy",
    "Any",
    "Assigned",
    "Space",
    "White_Space",
)


def _spaces_only_first(pattern: str) -> bool:
    """Whether no match of a pattern can hold white space but one space as its first character; False where unsure."""

    def without_space(part: str) -> bool:
        rest = _PROPERTY.sub("", part).replace(r"\x{300}-\x{36F}", "")
        spaced = any(name in _SPACED_PROPERTIES for name in _PROPERTY.findall(part))
        return not spaced and re.search(r"\s|\\(?![-\[\](){}|^$.*+?/])", rest) is None

    pattern = _NARROWED.sub("", pattern)
    for part in _CLASS.findall(pattern):
        if not part.startswith(r"[^\s") and (part.startswith("[^") or not without_space(part[1:-1])):
            return False
    for alternative in _CLASS.sub("", pattern).split("|"):
        rest = re.sub(r"\(\?!\\s\)\\p\{\w+\}|\\S", "", alternative.removeprefix(" ?"))
        if "." in rest or "(" in rest or not without_space(rest):
            return False
    return True


@cache
def _matches_everything(pattern: str) -> bool:
    """Whether every character that is not white space is matched, with a space before it."""
    everything = (chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000)
    text = "".join(f"  {character}" for character in everything if not character.isspace())
    pieces = pre_tokenizers.Split(Regex(pattern), behavior="isolated").pre_tokenize_str(text)
    return all(len(piece) <= 2 for piece, _ in pieces)
