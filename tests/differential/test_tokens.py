"""Tokens of every family: what trimming keeps, and what a vocabulary is when another family writes it."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from generated import ODD, WORDS, Layout, cases, layouts, texts
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.notation import Notation
from vtkit.vocabulary.overlap import find_overlap
from vtkit.vocabulary.saved import save_tokenizer
from vtkit.vocabulary.trimmed import kept_ids, trim_vocabulary

REAL = (
    *("ModernBERT-base", "bert-base-cased-unilm", "bert-base-chinese", "bert-base-uncased", "focus-ar-bpe-50k"),
    *("focus-ar-xlmr-unigram-30k", "focus-de-bpe-50k", "gpt2", "kobigbird", "koelectra", "olmo-gpt-neox"),
    "unilm3-cased-spm/unilm3-cased.model",
)
CONVENTIONS = ("@@ continues", "bytes", "bytes by the normalizer", "␣ starts", "ends")


def spelled(vocabulary: Vocabulary, convention: str) -> tuple[PreTrainedTokenizerFast, list[int]]:
    """The vocabulary's forms, last first, written by a convention; and the id of each in ``vocabulary``."""
    empty: dict[str, int] = {}
    match convention:
        case "@@ continues":
            backend = Tokenizer(models.WordPiece(empty, continuing_subword_prefix="@@"))
        case "ends":
            backend = Tokenizer(models.BPE(empty, [], end_of_word_suffix="</w>"))
        case _:
            backend = Tokenizer(models.BPE(empty, []))
    if convention == "␣ starts":
        backend.pre_tokenizer = pre_tokenizers.Metaspace("␣")
    elif convention == "bytes":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel()
    elif convention == "bytes by the normalizer":
        backend.normalizer = normalizers.ByteLevel()
    notation = Notation.of(backend)
    written: dict[str, int] = {}
    for number, form in reversed([*enumerate(vocabulary.forms)]):
        token = notation.write(form) if form is not None else None
        if token is not None:
            written.setdefault(token, number)
    layout = json.loads(backend.to_str())
    layout["model"]["vocab"] = {token: number for number, token in enumerate(written)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(layout))), [*written.values()]


def check_whole(vocabulary: Vocabulary, convention: str) -> int:
    """Check that a vocabulary and its other spelling know each other's tokens; how many it has no spelling for."""
    other, ids = spelled(vocabulary, convention)
    again = Vocabulary(other)
    for number, form in zip(ids, again.forms, strict=True):
        same = vocabulary.forms[number]
        # Where nothing writes a bare space, the token of its byte does.
        assert same is not None
        assert form in (same, same.letter)
    there, back = find_overlap(vocabulary, again), find_overlap(again, vocabulary)
    assert there.share == 1.0 or not len(again)
    assert [vocabulary.forms[number] for number in there.target_to_source] == again.forms
    shown = {form for form in vocabulary.forms if form is not None}
    assert {vocabulary.forms[number] for number in back.overlap_ids} >= set(again.forms)
    return len(shown) - len(set(again.forms))


@cases(60)
@given(layouts(), st.sampled_from(CONVENTIONS))
def test_a_vocabulary_is_the_same_in_the_spelling_of_another_family(layout: Layout, convention: str) -> None:
    vocabulary = Vocabulary(PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(layout))))
    assume(vocabulary.notation.starts != "nothing")
    check_whole(vocabulary, convention)


@pytest.mark.parametrize(("place", "name"), [*enumerate(REAL)], ids=REAL)
def test_a_published_vocabulary_is_the_same_in_the_spelling_of_another_family(
    place: int, name: str, shared: Path
) -> None:
    vocabulary = Vocabulary(load_tokenizer(str(shared / "vocab" / name)))
    lost = check_whole(vocabulary, CONVENTIONS[place % len(CONVENTIONS)])
    # Only BPE over bytes writes several bytes that are no whole character, or an ASCII byte beside its letter.
    assert lost <= 0.02 * len(vocabulary)


@cases(80)
@given(layouts(), texts(), texts(), st.none() | st.integers(500, 700))
def test_trimming_keeps_the_tokens_of_texts(
    layout: Layout, counted: list[str], other: list[str], size: int | None
) -> None:
    with TemporaryDirectory() as work:
        (Path(work) / "tokenizer.json").write_text(json.dumps(layout), encoding="utf-8")
        tokenizer = load_tokenizer(work)
        check_trimmed(tokenizer, [*counted, "a"], other, size, Path(work) / "trimmed")


@pytest.mark.parametrize("name", REAL)
def test_trimming_keeps_the_tokens_of_texts_of_published_tokenizers(name: str, shared: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(shared / "vocab" / name))
    words = [f"{a} {b}{c}" for a, b, c in zip(WORDS, WORDS[1:], ODD * 3, strict=False)]
    check_trimmed(tokenizer, words[::2], words, None, tmp_path)


def check_trimmed(
    tokenizer: PreTrainedTokenizerFast, counted: list[str], other: list[str], size: int | None, folder: Path
) -> None:
    """Check that a trimmed tokenizer, saved and loaded, cuts texts whose tokens it keeps as before."""
    trimmed, _ = trim_vocabulary(tokenizer, counted, size)
    save_tokenizer(trimmed, folder)
    again = load_tokenizer(str(folder))
    assert again.get_vocab() == trimmed.get_vocab()
    assert sorted(again.get_vocab().values()) == list(range(len(again)))
    kept = kept_ids(tokenizer, again)
    vocabulary = Vocabulary(tokenizer)
    first = np.array([vocabulary.ids.get(token, -1) for token in vocabulary.tokens])
    for place, text in enumerate([*counted, *other]):
        before = first[tokenizer.backend_tokenizer.encode(text).ids]
        if set(before.tolist()) <= set(kept.tolist()):
            assert kept[again.backend_tokenizer.encode(text).ids].tolist() == before.tolist()
        else:
            assert size is not None or place >= len(counted)
