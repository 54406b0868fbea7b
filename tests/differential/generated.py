"""Texts of many scripts and tokenizer files of every family, drawn by hypothesis, for tests that compare vtkit with the
library that owns a format. ``VTKIT_CASES=100000 pytest tests/differential`` runs so many cases of each test instead of
the few that the suite has time for."""

from __future__ import annotations

import json
import os
import random
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers


class Layout(dict[str, Any]):
    """The content of a tokenizer.json, shown in short where a test fails."""

    def __repr__(self) -> str:
        model = {name: value for name, value in self["model"].items() if name not in ("vocab", "merges")}
        added = [token for token in self["added_tokens"] if token["content"] not in ROLES]
        shown = dict(self) | {"model": model, "added_tokens": added}
        return f"Layout of {len(self['model']['vocab'])} tokens {shown}"


SCRIPTS = """
    The quick schools of Köln naïve Straße ĞIŞIK İstanbul Ångström fiancée Việt
    Ελλάδα σχολείο ΟΔΟΣ ἄνθρωπος
    Школа река ёлка Йод їжак ҚАЗАҚ
    դպրոց Երևան և
    სკოლა ᲗᲑᲘᲚᲘᲡᲘ მთა
    בֵּית שלום ספר
    مدرسة كِتَاب لا أحمد کتاب یک می‌خواهم
    ܫܠܡܐ ܟܬܒܐ
    ސްކޫލް ދިވެހި
    स्कूल हिन्दी क़लम क्ष
    বিদ্যালয় বাংলা ড়
    ਸਕੂਲ ਪੰਜਾਬੀ
    શાળા ગુજરાતી
    ବିଦ୍ୟାଳୟ ଓଡ଼ିଆ
    பள்ளி தமிழ் கொ
    పాఠశాల తెలుగు
    ಶಾಲೆ ಕನ್ನಡ ಕೋ
    സ്കൂൾ മലയാളം
    පාසල සිංහල ශ්‍රී
    โรงเรียน ภาษาไทย น้ำ
    ໂຮງຮຽນ ພາສາລາວ
    སློབ་གྲྭ བོད་ཡིག
    ကျောင်း မြန်မာ
    សាលារៀន ភាសាខ្មែរ
    ትምህርት አማርኛ
    ᏣᎳᎩ ꮳꮃꭹ
    ᠮᠣᠩᠭᠣᠯ ᠰᠤᠷᠭᠠᠭᠤᠯᠢ
    ᐃᓄᒃᑎᑐᑦ ᐃᓕᓐᓂᐊᕐᕕᒃ
    학교 한국어 가각
    がっこう ひらがな
    カレー ｶﾞｯｺｳ ガッコウ
    東京 學校 学校 北京 𠮷野家
"""
WORDS = SCRIPTS.split()
"""Words of thirty-two scripts, some in the decomposed form."""

ODD = (
    *("\u0301", "\u0303", "\u0323", "\u0302", "\u0307", "\u0483", "\u093c", "\u0e31", "\u05b0", "\u0651", "\u3099"),
    *("\u20dd", "\u200d", "\u200c", "\u00ad", "\u200b", "\ufeff", "\u2060", "\u200e", "\u200f", "\u202e", "\u061c"),
    *("\ufe0f", "\ufe0e", "👩\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "👍🏽", "🇰🇷", "☺\ufe0f", "1\ufe0f\u20e3", "😀"),
    *("ＡＢＣ", "ｆ", "１２３", "！", "～", "\u3000", "㈱", "①", "²", "ﬁ", "㍿", "Ⅷ", "½", "℃", "…", "ﷺ"),
    *("\x01", "\x07", "\x1f", "\x7f", "\x85", "\ufffd", "\ue000", "\U000e0041", "\U0010fffd", "\u0378"),
    *("\t", "\n", "\r\n", "\f", "\u00a0", "\u2003", "\u2028", "\u202f", "  ", "   "),
    *("ß", "ẞ", "ς", "Σ", "İ", "ı", "ŉ", "ǅ", "\u212a", "ſ", "Ⴀ", "\u212b", "ﬀ", "ΐ"),
    *(
        "'s",
        "can't",
        "3.14",
        "$5",
        "C++",
        "e-mail",
        "a_b",
        "@x",
        "#1",
        "<b>",
        "[x]",
        "http://a.b/c?d=1",
        "—",
        "«»",
        "。",
    ),
)
"""Marks, joiners, marks of direction, emoji, forms of width, control characters, white space, letters of odd case."""

_MARKED = [
    f"{letter}{mark}" for letter in "aeonAEMзиはカｅ" for mark in ("\u0301", "\u0303", "\u0323", "\u0308", "\u3099")
]


def cases(standard: int) -> settings:
    """Settings of a test of ``standard`` examples in the suite."""
    return settings(max_examples=int(os.environ.get("VTKIT_CASES", standard)))


def texts(*more: str) -> st.SearchStrategy[list[str]]:
    """A few short texts of words, odd characters and ``more`` pieces, joined by spaces or by nothing."""
    word = st.sampled_from(WORDS)
    piece = word | word | word.map(str.upper) | st.sampled_from([*ODD, *_MARKED, *more]) | st.characters(codec="utf-8")
    space = st.sampled_from(["", " ", " ", " ", "  "])
    text = st.lists(st.tuples(piece, space), max_size=10).map(lambda pairs: "".join(a + b for a, b in pairs))
    return st.lists(text, min_size=2, max_size=4)


def comparable(text: str) -> bool:
    """Whether SentencePiece's table and Unicode agree: marks are in canonical order, compose with the character before
    them entirely or not at all, and none follows a character that is replaced."""
    for base, *marks in filter(None, _clusters(text)):
        parts = "".join(unicodedata.normalize("NFD", character) for character in (base, *marks))
        orders = list(filter(None, map(unicodedata.combining, parts)))
        whole = unicodedata.normalize("NFC", "".join([base, *marks]))
        if orders != sorted(orders) or len(whole) not in (1, 1 + len(marks)):
            return False
        if marks and (
            not unicodedata.is_normalized("NFKC", base) or base.casefold() != base.lower() or base == "\ufffd"
        ):
            return False
    dropped = all(unicodedata.category(character) == "Cc" for character in text)  # where spaces stay, a mark remains
    return "▁" not in text and not dropped


def _clusters(text: str) -> Iterator[str]:
    start = 0
    for number in range(1, len(text) + 1):
        if number == len(text) or not unicodedata.combining(text[number]):
            yield text[start:number]
            start = number


ROLES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
KNOWN = ("the", "year", "test", "a", "in")  # so that no probe text is unknown throughout
ADDED = ("covid", "New York", "<ent>", "Ünder", "학교에", "[X]", "c++")
"""Tokens that files add to a vocabulary, not all of them special."""


def pieces_of(draw: random.Random, words: int = 50) -> list[str]:
    """Different strings of one to five characters, beginnings and insides of words, single characters first."""
    chosen = [*KNOWN, *draw.sample(WORDS, words), *draw.sample(ODD, 6)]
    characters = list(dict.fromkeys("".join(chosen)))
    parts = []
    for word in chosen:
        for _ in range(3):
            start = draw.randrange(len(word))
            parts.append(word[start : start + draw.randint(2, 5)])
    return list(dict.fromkeys([*characters, *KNOWN, *parts]))


def _numbered(draw: random.Random, tokens: list[str], place: str, holes: bool, padded: bool) -> dict[str, int]:
    """``tokens`` with ids: roles before, inside or behind them, every few an id left out, filled up to 64."""
    tokens = [token for token in dict.fromkeys(tokens) if token not in ROLES]
    where = {"before": 0, "inside": len(tokens) // 2, "behind": len(tokens)}[place]
    tokens[where:where] = ROLES
    if padded:
        tokens += [f"[unused{number}]" for number in range(-len(tokens) % 64)]
    step = draw.randint(7, 20) if holes else len(tokens) + 1
    return {token: number + number // step for number, token in enumerate(tokens)}


def _merges(draw: random.Random, spelled: list[list[str]]) -> list[tuple[str, str]]:
    """Merges that make parts of ``spelled`` words, lists of symbols, in an order in which each has its parts."""
    merges: dict[tuple[str, str], None] = {}
    for symbols in spelled:
        symbols = list(symbols)
        for _ in range(draw.randint(1, 6)):
            if len(symbols) < 2:
                break
            at = draw.randrange(len(symbols) - 1)
            merges.setdefault((symbols[at], symbols[at + 1]))
            symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return list(merges)


_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
_BERT: dict[str, Any] = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
NORMALIZERS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "bert": {**_BERT, "strip_accents": None, "lowercase": True},
    "bert cased": {**_BERT, "strip_accents": None, "lowercase": False},
    "bert accents": {**_BERT, "strip_accents": False, "lowercase": True, "clean_text": False},
    "nfkc": {"type": "NFKC"},
    "lower": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
    "strip": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]},
}
FAMILIES = ("wordpiece", "byte-level", "characters", "sentencepiece", "unigram", "wordlevel")
"""WordPiece, BPE over bytes, BPE over characters with a mark at the end of words, BPE as of SentencePiece with bytes
for unknown characters, Unigram, and whole words."""


def _metaspace(mark: str, scheme: str, split: bool) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme, "split": split}


def _model(
    family: str, draw: random.Random, number: Callable[[list[str]], dict[str, int]], mark: str
) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any] | None, dict[str, Any]]:
    """Model, pre-tokenizer, decoder, and settings of the normalizer that a family needs, in a tokenizer.json."""
    parts = pieces_of(draw)
    words = [word for word in parts if len(word) > 1]
    match family:
        case "wordpiece":
            prefix = draw.choice(("##", "##", "@@", "_", ""))
            vocabulary = number(parts + [f"{prefix}{part}" for part in parts])
            model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": prefix}
            model |= {"max_input_chars_per_word": draw.choice((100, 100, 6)), "vocab": vocabulary}
            return model, {"type": "BertPreTokenizer"}, {"type": "WordPiece", "prefix": prefix, "cleanup": False}, {}
        case "wordlevel":
            model = {"type": "WordLevel", "unk_token": "[UNK]", "vocab": number([*parts, *WORDS])}
            return model, {"type": draw.choice(("Whitespace", "WhitespaceSplit"))}, None, {}
        case "unigram":
            listed = sorted(number([mark, *parts, *(f"{mark}{word}" for word in words)]))
            listed = [*ROLES, *(token for token in listed if token not in ROLES)]
            scored = [[token, 0.0 if token in ROLES else round(-draw.uniform(2, 12), 4)] for token in listed]
            metaspace = _metaspace(mark, draw.choice(("always", "first", "never")), draw.random() < 0.8)
            model = {"type": "Unigram", "unk_id": 1, "vocab": scored, "byte_fallback": False}
            if draw.random() < 0.4:
                model |= {"vocab": scored + [[f"<0x{n:02X}>", 0.0] for n in range(256)], "byte_fallback": True}
            return model, metaspace, metaspace, {}
    suffix, prefix_space = "</w>" if family == "characters" else None, draw.random() < 0.5
    if family == "byte-level":
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        spelled = [list(level.pre_tokenize_str(space + word)[0][0]) for word in words for space in ("", " ")]
        alphabet = _BYTES
    elif family == "characters":
        spelled = [[*word[:-1], word[-1] + "</w>"] for word in words]
        alphabet = [form for character in dict.fromkeys("".join(parts)) for form in (character, f"{character}</w>")]
    else:
        spelled = [[*space, *word] for word in words for space in ("", mark)]
        alphabet = [mark, *dict.fromkeys("".join(parts)), *(f"<0x{n:02X}>" for n in range(256))]
    merges = _merges(draw, spelled)
    model = {
        "type": "BPE",
        "dropout": draw.choice((None, 0.5)),
        "unk_token": None if family == "byte-level" else "[UNK]",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": suffix,
        "fuse_unk": family == "sentencepiece",
        "byte_fallback": family == "sentencepiece",
        "ignore_merges": draw.random() < 0.2,
        "vocab": number([*alphabet, *(left + right for left, right in merges)]),
        "merges": [list(pair) for pair in merges],
    }
    if family == "byte-level":
        level = {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True, "use_regex": True}
        return model, level, level, {}
    if family == "characters":
        return model, {"type": "WhitespaceSplit"}, {"type": "BPEDecoder", "suffix": suffix}, {}
    if draw.random() < 0.3:  # as Llama's files: the mark is the normalizer's work
        steps = [{"type": "Prepend", "prepend": mark}, {"type": "Replace", "pattern": {"String": " "}, "content": mark}]
        return model, None, _metaspace(mark, "always", False), {"more": steps}
    metaspace = _metaspace(mark, draw.choice(("always", "first", "never")), draw.random() < 0.8)
    return model, metaspace, metaspace, {}


@st.composite
def layouts(
    draw: st.DrawFn,
    families: tuple[str, ...] = FAMILIES,
    marks: tuple[str, ...] = ("▁", "▁", "_", "Ġ"),
    holes: bool = True,
) -> Layout:
    """A tokenizer.json of one of ``families``; with ``holes`` some have ids without a token."""
    family = draw(st.sampled_from(families))
    place = draw(st.sampled_from(("before", "inside", "behind")))
    with_holes, padded = holes and draw(st.integers(0, 3)) == 0, draw(st.booleans())
    normalizer = NORMALIZERS[draw(st.sampled_from(sorted(NORMALIZERS)))]
    template, added = draw(st.booleans()), draw(st.integers(0, 3))
    drawn = random.Random(draw(st.integers(0, 2**32)))
    # The library gives an added token that its model lacks the number of tokens as its id, so holes come without.
    inside = ADDED if with_holes or drawn.random() < 0.5 else ()
    model, pre_tokenizer, decoder, more = _model(
        family,
        drawn,
        lambda tokens: _numbered(drawn, [*tokens, *inside], place, with_holes, padded),
        drawn.choice(marks),
    )
    if more:
        normalizer = {"type": "Sequence", "normalizers": [*([normalizer] if normalizer else []), *more["more"]]}
    ids = model["vocab"]
    if isinstance(ids, list):
        ids = {token: number for number, (token, _) in enumerate(ids)}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    listed = [{"id": ids[token], "content": token, **plain} for token in ROLES]
    behind = max(ids.values()) + 1
    for token in drawn.sample(ADDED, added):
        flags = {name: drawn.random() < 0.3 for name in plain}
        if flags["normalized"]:
            flags["special"] = False
        listed.append({"id": ids.get(token, behind), "content": token, **flags})
        behind += token not in ids
    processor = None
    if template:
        around = [{"SpecialToken": {"id": token, "type_id": 0}} for token in ("[CLS]", "[SEP]")]
        single = [around[0], {"Sequence": {"id": "A", "type_id": 0}}, around[1]]
        processor = {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}, around[1]],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")},
        }
    return Layout(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": sorted(listed, key=lambda token: token["id"]),
            "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": processor,
            "decoder": decoder,
            "model": model,
        }
    )


def tokenizer_of(layout: Layout) -> Tokenizer:
    """The library's tokenizer of a tokenizer.json, without dropout."""
    model = {name: value for name, value in layout["model"].items() if name != "dropout"}
    return Tokenizer.from_str(json.dumps(layout | {"model": model}))
