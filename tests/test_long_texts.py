"""A document of many megabytes among ordinary ones: the same counts, in bounded memory."""

import os
from pathlib import Path

import command_line
import pytest

from vtkit.data.word_counts import LONGEST_PIECE
from vtkit.encoder.documents import document_frequencies
from vtkit.vocabulary.existing import load_tokenizer

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
