"""SentencePiece models (Unigram and BPE) as fast tokenizers with the ids that SentencePiece itself gives, except that
combining marks are brought into Unicode's canonical order before."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from vtkit.system.errors import DataError
from vtkit.vocabulary.notation import SENTENCEPIECE

MARK = SENTENCEPIECE.space
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # the types of pieces
UNIGRAM, BPE = 1, 2  # the types of models
PROTECTED = 6  # characters at most that stand aside while texts are brought to a standard form
PROBES = 1000  # pieces whose texts are compared with SentencePiece's own tokens


def read_sentencepiece(path: Path) -> tuple[Tokenizer, dict[str, int]]:
    """The tokenizer of a SentencePiece model, and the id of each of its pieces.

    Raises:
        DataError: the file is damaged, or has a setting with which tokens would differ from SentencePiece's.
    """
    from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's DecodeError, whose home differs between its versions
        raise DataError(f"{path} is not a SentencePiece model: {error}") from error
    if not proto.pieces:
        raise DataError(f"{path} is a SentencePiece model without pieces.")
    ids = {piece.piece: number for number, piece in enumerate(proto.pieces)}
    normalizer = proto.normalizer_spec
    rules, whole = _rules(normalizer.precompiled_charsmap), [e.piece for e in proto.pieces if e.type == USER_DEFINED]
    if problems := list(_problems(proto, rules, whole)):
        raise DataError(f"{path} cannot be read as SentencePiece reads it: {'; '.join(problems)}. Name another model.")
    backend = Tokenizer(_model(proto, ids, whole))
    # Single spaces inside of texts only, unless all stay; a mark in their place, and one before the text.
    single = [normalizers.Replace(Regex(r"\A +| +\z|(?<= ) +"), "")] if normalizer.remove_extra_whitespaces else []
    first = [normalizers.Prepend(MARK)] if normalizer.add_dummy_prefix else []
    backend.normalizer = normalizers.Sequence([*rules, *single, normalizers.Replace(" ", MARK), *first])
    texts = [piece.piece for piece in proto.pieces if piece.type in (NORMAL, USER_DEFINED)]
    # Words are cut one by one where no piece goes on behind one, which is faster; unknown words are one piece together.
    by_word = MARK in texts and not any(MARK in text[1:] for text in texts)
    steps: list[Any] = [pre_tokenizers.Metaspace(MARK, prepend_scheme="never", split=by_word)]
    if whole and proto.trainer_spec.model_type == BPE:
        longest_first = "|".join(re.escape(text) for text in sorted(whole, key=len, reverse=True))
        steps.insert(0, pre_tokenizers.Split(Regex(longest_first), "isolated"))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.Metaspace(MARK, prepend_scheme="always" if first else "never")
    # All pieces, where each that stands alone is taken as it is (`ignore_merges`), whatever merges would make of it.
    probes = [text.replace(MARK, " ") for text in texts[:: 1 if whole else len(texts) // PROBES + 1]]
    own = SentencePieceProcessor(model_proto=proto.SerializeToString()).encode(probes)
    read = [encoding.ids for encoding in backend.encode_batch_fast(probes)]
    if odd := [probe for probe, wanted, ids in zip(probes, own, read, strict=True) if wanted != ids]:
        raise DataError(
            f"{path}: {len(odd)} of {len(probes)} texts, such as {odd[0]!r}, are cut otherwise by SentencePiece."
        )
    specials = [piece.piece for piece in proto.pieces if piece.type in (UNKNOWN, CONTROL)]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    return backend, ids


def _problems(proto: Any, rules: list[Any], whole: list[str]) -> Iterator[str]:
    """Settings that a fast tokenizer cannot follow."""
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    if trainer.model_type not in (UNIGRAM, BPE):
        yield "model_type is word or char, and only unigram and bpe can be read"
    if trainer.treat_whitespace_as_suffix:
        yield "treat_whitespace_as_suffix marks the ends of words, and vtkit compares tokens by their beginnings"
    if not normalizer.escape_whitespaces:
        yield "escape_whitespaces is off, so that pieces do not mark word starts"
    if unused := [piece.piece for piece in proto.pieces if piece.type == UNUSED]:
        yield f"{len(unused)} pieces are of the type UNUSED, such as {unused[0]!r}"
    chain = normalizers.Sequence(rules)
    for text in whole:
        if chain.normalize_str(text.replace(MARK, " ")) != text.replace(MARK, " "):
            yield f"user_defined_symbols has {text!r}, which the normalization rule {normalizer.name} changes"


def _model(proto: Any, ids: dict[str, int], whole: list[str]) -> models.Model:
    from transformers.convert_slow_tokenizer import generate_merges

    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == NORMAL}
    byte_fallback = proto.trainer_spec.byte_fallback
    unknown = next((number for number, piece in enumerate(proto.pieces) if piece.type == UNKNOWN), None)
    if proto.trainer_spec.model_type == BPE:
        merges = generate_merges({piece: ids[piece] for piece in scores}, scores)
        token = None if unknown is None else proto.pieces[unknown].piece
        settings = {"fuse_unk": True, "byte_fallback": byte_fallback, "ignore_merges": bool(whole)}
        return models.BPE(ids, merges, unk_token=token, **settings)
    lowest, highest = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    # SentencePiece prefers user-defined pieces so, and never cuts text into pieces of the other types.
    scores |= {piece: len(piece.encode()) * highest - 0.1 for piece in whole}
    listed = [(each.piece, scores.get(each.piece, lowest)) for each in proto.pieces]
    return models.Unigram(listed, unk_id=unknown, byte_fallback=byte_fallback)


@cache
def _rules(charsmap: bytes) -> list[Any]:
    """The normalizers of a table of replacements.

    The library's ``Precompiled`` looks up whole graphemes by their first character: it drops the marks of characters
    that are replaced, and composes none of over five bytes. So texts are brought to NFKC (and lower case) before, where
    the table agrees on all but a few characters, which stand aside as private ones.
    """
    if not charsmap:
        return []
    table = normalizers.Precompiled(charsmap)
    lower = [normalizers.Lowercase()] if table.normalize_str("A") == "a" else []
    standard = [normalizers.NFKC(), *lower]
    chain = normalizers.Sequence([*standard, table])
    spoilt = [each for each in _changing() if chain.normalize_str(each) != table.normalize_str(each)]
    if len(spoilt) > PROTECTED:
        return [table]
    aside = [(character, chr(0xF0000 + number)) for number, character in enumerate(spoilt)]
    return [
        normalizers.NFC(),
        normalizers.Replace("\r\n", table.normalize_str("\r") + table.normalize_str("\n")),  # one grapheme
        *(normalizers.Replace(character, private) for character, private in aside),
        *standard,
        table,
        *(normalizers.Replace(private, character) for character, private in aside),
    ]


@cache
def _changing() -> list[str]:
    """The characters that NFKC or lower-casing changes."""
    characters = map(chr, (*range(0xD800), *range(0xE000, 0x110000)))
    return [each for each in characters if each.lower() != each or not unicodedata.is_normalized("NFKC", each)]
