"""Long texts cut before they are tokenized: the first tokens are those of the whole text, whatever the tokenizer."""

import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from vtkit.encoder.encoding import encode
from vtkit.encoder.truncation import GROWTH, first_tokens, share_cut, shortened, shortened_to
from vtkit.vocabulary.existing import load_tokenizer, wrap

REAL = ("bert-base-uncased", "gpt2", "ModernBERT-base", "kobigbird", "focus-ar-xlmr-unigram-30k", "unilm3-cased-spm")
TRAINED = ("wordpiece", "bpe without words", "unigram without words", "digits from the right")

SAID = (
    "the capital of Korea ", "x", "aa", "12345", "サッカー", "北京大学", "ไทย", "é", "é", "ﬁ", " ", "\n", "[MASK]",
    "<|endoftext|>", "==", "한국어", "́", "😀", "--- ", "a" * 150, "\u200b", "가나다라",
)  # fmt: skip
fragments = st.sampled_from(SAID) | st.text(max_size=12)
long_texts = st.lists(st.tuples(fragments, st.integers(1, 2000)), min_size=1, max_size=6).map(
    lambda parts: "".join(part * times for part, times in parts)[:15_000]
)
"""Text of up to 15,000 characters, in which anything may be said any number of times."""


@cache
def trained(name: str) -> PreTrainedTokenizerFast:
    """Small tokenizers of the kinds that depend most on what follows."""
    if name == "wordpiece":
        return tiny.tokenizer()
    corpus = [*tiny.texts(300, seed=1), "サッカーは北京大学で人気のスポーツである", "aaaa aaa aa a", "12345 123 1"] * 3
    specials = list(tiny.ROLES.values())
    if name == "unigram without words":
        backend = Tokenizer(models.Unigram())
        backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" ", "▁")])
        trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=specials, unk_token="[UNK]")
        backend.train_from_iterator(corpus, trainer)
    else:
        backend = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True))
        if name == "digits from the right":
            digits = pre_tokenizers.Split(Regex(r"\d{1,3}(?=(?:\d{3})*(?:\D|$))"), "isolated")
            backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), digits])
        else:
            backend.normalizer = normalizers.Replace(" ", "▁")
        backend.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=300, special_tokens=specials))
    return wrap(backend, tiny.ROLES, "of the test")


def of_the_whole(tokenizer: PreTrainedTokenizerFast, text: str, length: int) -> list[int]:
    ids: list[int] = tokenizer(text, truncation=True, max_length=length)["input_ids"]
    return ids


@pytest.mark.parametrize("name", TRAINED)
@settings(max_examples=25)
@given(text=long_texts, length=st.sampled_from([4, 32]))
def test_the_first_tokens_are_those_of_the_whole_text(name: str, text: str, length: int) -> None:
    tokenizer = trained(name)
    assert first_tokens(tokenizer, [text], length)["input_ids"] == [of_the_whole(tokenizer, text, length)]


@pytest.mark.parametrize("name", REAL)
def test_the_first_tokens_are_those_of_the_whole_text_in_real_vocabularies(shared: Path, name: str) -> None:
    tokenizer = load_tokenizer(str(shared / "vocab" / name), require_roles=False)

    @settings(max_examples=10)
    @given(text=long_texts, length=st.sampled_from([4, 32]))
    def check(text: str, length: int) -> None:
        assert first_tokens(tokenizer, [text], length)["input_ids"] == [of_the_whole(tokenizer, text, length)]

    check()


@pytest.mark.parametrize("name", TRAINED)
@settings(max_examples=10)
@given(text=long_texts, end=st.integers(0, 300))
def test_the_tokens_before_a_character_are_those_of_the_whole_text(name: str, text: str, end: int) -> None:
    tokenizer = trained(name)
    wanted, found = (
        tokenizer(version, add_special_tokens=False, return_offsets_mapping=True)
        for version in (text, *shortened_to(tokenizer, [text], [end]))
    )
    count = sum(start < end for start, _ in wanted["offset_mapping"])
    assert found["input_ids"][:count] == wanted["input_ids"][:count]
    assert found["offset_mapping"][:count] == wanted["offset_mapping"][:count]


def test_texts_are_cut_only_where_a_beginning_has_the_same_tokens() -> None:
    tokenizer = trained("wordpiece")
    sentence = "the river and the mountain "
    short, long, one_word = sentence * 10, sentence * 10_000, "a" * 100_000
    cut = shortened(tokenizer, [short, long, one_word], 16)
    assert cut[0] == short
    assert long.startswith(cut[1])
    assert len(cut[1]) < 2000
    assert cut[2] == one_word, "a word is one [UNK] or not, as its end decides"
    # the first digits of a number are grouped by how many there are in all
    digits = trained("digits from the right")
    number = "123" * 13_000 + "1"
    assert shortened(digits, [number], 8) == [number]
    assert of_the_whole(digits, number[:20_000], 8) != of_the_whole(digits, number, 8)
    keeps_the_end = tiny.tokenizer()
    keeps_the_end.truncation_side = "left"
    assert shortened(keeps_the_end, [long], 16) == [long]


def test_the_share_of_texts_that_are_cut_counts_special_tokens(tmp_path: Path) -> None:
    tokenizer = tiny.encoder(tmp_path).tokenizer
    longer = "the river and the mountain"
    tokens = len(tokenizer(longer)["input_ids"])
    assert share_cut(tokenizer, [longer, "the", longer, "the"], tokens - 1) == 0.5
    assert share_cut(tokenizer, [longer, "the"], tokens) == 0
    assert share_cut(tokenizer, [longer, "the"], tokens, prompt="the ") == 0.5
    assert share_cut(tokenizer, ["the"] * 900 + [longer] * 900, tokens - 1) == 0.5  # of all of them, not the first
    assert share_cut(tokenizer, [], 4) == 0


def test_a_document_of_50_mb_is_encoded_as_its_beginning(tmp_path: Path) -> None:
    encoder = tiny.encoder(tmp_path)
    words = " ".join(tiny.texts(2000, seed=3)) + " "
    document = words * (50_000_000 // len(words))
    started = time.process_time()
    vectors = encode(encoder, [document, words[: GROWTH * 1000]], 32)
    assert time.process_time() - started < 10, "tokenized whole, it takes a minute and more"
    assert np.array_equal(vectors[0].toarray(), vectors[1].toarray())
