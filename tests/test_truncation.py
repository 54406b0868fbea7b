"""Long texts cut before they are tokenized: the first tokens are those of the whole text."""

import os
import time
from pathlib import Path

import command_line
import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from vtkit.data.word_counts import LONGEST_PIECE
from vtkit.encoder.documents import document_frequencies
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


# A document of many megabytes among ordinary ones: the same counts, in bounded memory.


MEGABYTES = 450
"""By which a text of 5 MB may raise the peak; tokenized as a whole it takes 900 and more."""

PEAK = """
import resource, sys
from vtkit.vocabulary.fragmentation import measure_fragmentation
from vtkit.encoder.documents import document_frequencies
from vtkit.vocabulary.existing import load_tokenizer

tokenizer = load_tokenizer(sys.argv[1])
measured = {
    "fragmentation": lambda texts: measure_fragmentation(texts, {"own": tokenizer})[0].total.words,
    "idf": lambda texts: document_frequencies(tokenizer, texts, len(tokenizer))[1],
}[sys.argv[2]]
measured(["some words of a text"] * 50)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
measured(["another text", "some words of a text, " * 220_000])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("kind", ["fragmentation", "idf"])
def test_a_text_of_five_megabytes_takes_no_gigabytes(kind: str, shared: Path, tmp_path: Path) -> None:
    tokenizer = str(shared / "vocab" / "bert-base-uncased")
    done = command_line.call(tmp_path, ["-c", PEAK, tokenizer, kind], {**os.environ, "RAYON_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < MEGABYTES


@pytest.mark.parametrize("name", ["bert-base-uncased", "ModernBERT-base", "focus-ar-xlmr-unigram-30k"])
def test_a_long_text_counts_once_for_every_token_that_it_holds(name: str, shared: Path) -> None:
    tokenizer = load_tokenizer(str(shared / "vocab" / name))
    middle = "word, " * (LONGEST_PIECE // 6)
    texts = [f"First {middle} Second {middle} كلمة Third", "Second"]
    found, documents = document_frequencies(tokenizer, texts, len(tokenizer))
    assert documents == 2
    whole = [set(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    assert {int(token): int(found[token]) for token in found.nonzero()[0]} == {
        token: sum(token in held for held in whole) for token in set.union(*whole)
    }
