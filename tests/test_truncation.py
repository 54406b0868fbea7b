"""Long texts cut before they are tokenized: the first tokens are those of the whole text."""

import time
from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from vtkit.encoder.encoding import encode
from vtkit.encoder.truncation import first_tokens, share_cut, shortened
from vtkit.vocabulary.existing import load_tokenizer

VOCABULARIES = (
    "bert-base-uncased", "gpt2", "ModernBERT-base", "kobigbird", "focus-ar-xlmr-unigram-30k", "unilm3-cased-spm"
)  # fmt: skip
WORDS = (
    "the capital of Korea", "x", "aa", "12345", "サッカー", "北京大学", "ไทย", "é", "e\u0301", "ﬁ", "[MASK]",
    "<|endoftext|>", "==", "한국어", "😀", "---", "a" * 50, "가나다라",
)  # fmt: skip
long_texts = st.lists(st.tuples(st.sampled_from(WORDS), st.integers(1, 2000)), min_size=1, max_size=6).map(
    lambda parts: " ".join(" ".join([word] * times) for word, times in parts)[:15_000]
)
"""Text of up to 15,000 characters in many scripts, in which anything may be said any number of times."""


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_first_tokens_are_those_of_the_whole_text(shared: Path, name: str) -> None:
    tokenizer = load_tokenizer(str(shared / "vocab" / name))

    @settings(max_examples=15)
    @given(text=long_texts, length=st.sampled_from([4, 32]))
    def check(text: str, length: int) -> None:
        whole = tokenizer(text, truncation=True, max_length=length)["input_ids"]
        assert first_tokens(tokenizer, [text], length)["input_ids"] == [whole]

    check()


def test_texts_are_cut_unless_their_ends_are_kept() -> None:
    tokenizer = tiny.tokenizer()
    short, long = "the river " * 10, "the river " * 10_000
    assert shortened(tokenizer, [short, long], 16) == [short, long[: 64 * 16 + 1000]]
    tokenizer.truncation_side = "left"
    assert shortened(tokenizer, [long], 16) == [long]


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
    vectors = encode(encoder, [document, words[:4000]], 32)
    assert time.process_time() - started < 10, "tokenized whole, it takes a minute and more"
    assert np.array_equal(vectors[0].toarray(), vectors[1].toarray())
