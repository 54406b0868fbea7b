"""Scripts without spaces: a word of a document, taken verbatim as a query, has the tokens of the document, in
vocabularies of every algorithm; and the saved tokenizer needs no dictionary for that."""

from __future__ import annotations

import gzip
import math
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import python
from hypothesis import given
from hypothesis import strategies as st

from vtkit.data.unspaced import begins_unspaced, count_unspaced, cut_run, cut_runs
from vtkit.settings.vocabulary import TrainedVocabulary
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.trained import LONGEST_RUN, LONGEST_WORD, train
from vtkit.vocabulary.words import words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ALGORITHMS = ("wordpiece", "bpe", "unigram")
DOCUMENTS = {
    "th": [
        "คะแนนของนักเรียนคนนี้ดีมาก", "ครูให้คะแนนนักเรียนทุกคน", "นักเรียนอ่านหนังสือที่โรงเรียน",
        "หนังสือเล่มนี้ดีมาก ครูอ่านแล้ว", "โรงเรียนของครูอยู่ในเมือง คะแนนดี", "คนในเมืองอ่านหนังสือทุกวัน",
    ],
    "lo": [
        "ພາສາລາວເປັນພາສາທີ່ດີ", "ນັກຮຽນອ່ານປຶ້ມຢູ່ໂຮງຮຽນ", "ປຶ້ມນີ້ດີຫຼາຍ ຄູອ່ານພາສາລາວ",
        "ໂຮງຮຽນຂອງຄູຢູ່ໃນເມືອງ", "ຄົນໃນເມືອງອ່ານປຶ້ມທຸກມື້", "ຄູຂອງນັກຮຽນຢູ່ໂຮງຮຽນ",
    ],
    "km": [
        "ភាសាខ្មែរជាភាសាផ្លូវការ", "សិស្សអានសៀវភៅនៅសាលារៀន", "សៀវភៅនេះល្អណាស់ គ្រូអានភាសាខ្មែរ",
        "សាលារៀនរបស់គ្រូនៅក្នុងទីក្រុង", "មនុស្សក្នុងទីក្រុងអានសៀវភៅ", "គ្រូរបស់សិស្សនៅសាលារៀន",
    ],
    "my": [
        "မြန်မာစကားသည်လှသည်", "ကျောင်းသားသည်စာအုပ်ဖတ်သည်", "စာအုပ်သည်ကောင်းသည် ဆရာသည်စာအုပ်ဖတ်သည်",
        "ဆရာသည်မြို့တွင်နေသည်", "မြို့တွင်ကျောင်းသားနေသည်", "ဆရာသည်မြန်မာစကားဖတ်သည်",
    ],
    "zh": [
        "学生们在学校里看书。", "老师给学生打分数,分数很高。", "这本书很好,老师看过了。",
        "学校在城市里,城市很大。", "我们使用Python编程,学生很多。", "用Python的老师在城市里看书。",
    ],
    "ja": [
        "学生は学校で本を読む。", "先生は学生に点数をつけた。", "この本はとても良い、先生が読んだ。",
        "学校は都市にある。都市は大きい。", "私たちはPythonを使う学生だ。", "Pythonの先生は都市で本を読む。",
    ],
    "de": [
        "Die Schüler lesen Bücher in der Schule.", "Der Lehrer gibt den Schülern Noten.",
        "Dieses Buch ist gut, der Lehrer las es.", "Die Schule liegt in der Stadt.",
        "In der Stadt lesen viele Leute Bücher.", "Gute Noten gibt der Lehrer selten.",
    ],
}  # fmt: skip
"""Sentences of which the words stand at the beginning of a phrase in one, and inside in another."""


def section(algorithm: str, size: int, **others: object) -> TrainedVocabulary:
    return TrainedVocabulary.model_validate(
        {"kind": "trained", "corpus": ("x",), "size": size, "algorithm": algorithm, **others}
    )


def trained(language: str, algorithm: str, **others: object) -> PreTrainedTokenizerFast:
    texts = DOCUMENTS[language] * 3
    smallest = max(100, len(set("".join(texts))) + 20)  # Unigram: hardly more than the characters
    size = {"unigram": smallest, "bpe": 700}.get(algorithm, 400)
    return train(texts, section(algorithm, size, **others))[0]


def first_rank(word: str, documents: list[str], tokenizer: PreTrainedTokenizerFast) -> int:
    """The first rank of a document with ``word``, by the sum of the IDF of shared tokens."""
    held = [set(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in documents]
    frequency = Counter(token for tokens in held for token in tokens)
    query = tokenizer(word, add_special_tokens=False)["input_ids"]
    assert query
    assert tokenizer.unk_token_id not in query
    scores = [sum(math.log(1 + len(held) / frequency[token]) for token in query if token in tokens) for tokens in held]
    ranked = sorted(range(len(held)), key=lambda number: -scores[number])
    return next(rank for rank, number in enumerate(ranked, 1) if word in words(documents[number], "cut"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("language", DOCUMENTS)
def test_a_word_of_a_document_taken_verbatim_finds_the_document(language: str, algorithm: str) -> None:
    tokenizer = trained(language, algorithm)
    documents = DOCUMENTS[language]
    asked = sorted({word for text in documents for word in words(text, "cut")})
    assert len(asked) >= 12
    ranks = {word: first_rank(word, documents, tokenizer) for word in asked}
    assert {word: rank for word, rank in ranks.items() if rank > 2} == {}
    assert sum(rank == 1 for rank in ranks.values()) >= 0.85 * len(ranks)  # merges may join the ends of two words


def test_words_of_real_thai_sentences_have_the_tokens_of_their_sentence(shared: Path) -> None:
    with gzip.open(shared / "data" / "parallel" / "en-th.pud.tsv.gz", "rt", encoding="utf-8") as file:
        texts = [line.rstrip("\n").split("\t")[1] for line in file]
    tokenizer, _ = train(texts, section("wordpiece", 6000))
    held = [set(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    found = sorted({(word, number) for number, text in enumerate(texts) for word in words(text, "cut")})
    sample = random.Random(0).sample(found, 500)
    known = [held[number].issuperset(tokenizer(word, add_special_tokens=False)["input_ids"]) for word, number in sample]
    assert sum(known) >= 0.9 * len(known)  # 0.09 where beginnings have a form of their own


def test_a_run_is_cut_into_the_words_of_its_language() -> None:
    assert cut_run("คะแนนของฉัน") == ["คะแนน", "ของ", "ฉัน"]
    assert cut_run("ພາສາລາວເປັນ") == ["ພາສາ", "ລາວ", "ເປັນ"]
    assert cut_run("ភាសាខ្មែរជាភាសា") == ["ភាសាខ្មែរ", "ជា", "ភាសា"]
    assert cut_run("စကားသည်") == ["စကား", "သည်"]
    assert cut_run("学生很多") == ["学生", "很多"]
    assert cut_run("東京都に") == ["東京", "都", "に"]
    assert cut_runs("a ไม่ดี b") == ["a ไม่", "ดี b"]
    assert cut_runs("plain words") == ["plain words"]
    assert [begins_unspaced(text) for text in ("ไทย", "ー", "한", "a", "๑", "។", "。", "")] == [True] * 2 + [False] * 6
    assert count_unspaced("a ไม่ดี b 漢字") == 7


@given(st.text("ไม่ดีครู漢字かなカー한a1. ๑々", max_size=20), st.text("ab1 .한", max_size=4))
def test_cutting_loses_nothing_and_does_not_look_beyond_a_run(text: str, around: str) -> None:
    assert "".join(cut_runs(text)) == text
    alone, inside = words(text, "cut"), words(f"{around} {text} {around}", "cut")
    assert inside == [*words(around, "cut"), *alone, *words(around, "cut")]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_a_script_without_spaces_has_one_form(algorithm: str) -> None:
    tokenizer = trained("th", algorithm)
    assert Vocabulary(tokenizer).notation.family == ("byte-level" if algorithm == "bpe" else "sentencepiece")
    thai = [form for form in Vocabulary(tokenizer).forms if form is not None and begins_unspaced(form.surface)]
    assert {form.starts_word for form in thai} == {False}
    assert len({form.surface for form in thai}) == len(thai)
    if algorithm != "unigram":
        assert "คะแนน" in {form.surface for form in thai}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("split", ["words", "scripts", "bert", "whitespace"])
def test_a_word_with_spaces_begins_behind_one_without(algorithm: str, split: str) -> None:
    tokenizer = trained("zh", algorithm, split=split)
    word = tokenizer("Python", add_special_tokens=False)["input_ids"]
    for text in ("使用Python编程", "Python编程", "学生 Python"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert any(ids[start : start + len(word)] == word for start in range(len(ids))), text


def test_an_unknown_character_or_a_sentence_without_end_spoils_no_words() -> None:
    tokenizer = trained("th", "wordpiece")
    assert tokenizer.tokenize("คะแนนฬดีมาก") == ["คะแนน", "[UNK]", "ดี", "มาก"]
    assert "[UNK]" not in tokenizer.tokenize("คะแนน" * LONGEST_WORD)
    longest = trained("th", "wordpiece").backend_tokenizer.pre_tokenizer.pre_tokenize_str("ก" * (LONGEST_RUN + 1))
    assert [len(piece) for piece, _ in longest] == [LONGEST_RUN, 1]


def test_wordpiece_keeps_its_continuations_where_few_characters_are_unspaced() -> None:
    mixed = [*DOCUMENTS["de"] * 20, "Er heißt 漢字."]
    assert Vocabulary(train(mixed, section("wordpiece", 400))[0]).notation.family == "wordpiece"
    tokenizer, _ = train([*mixed, *DOCUMENTS["th"] * 4], section("wordpiece", 400))
    assert Vocabulary(tokenizer).notation.family == "sentencepiece"


READ = """
import sys
from tokenizers import Tokenizer
print(Tokenizer.from_file(sys.argv[1]).encode("คะแนนของครูดีมาก", add_special_tokens=False).tokens)
assert not any(name.startswith(("vtkit", "icu")) for name in sys.modules)
"""


def test_the_saved_tokenizer_needs_neither_vtkit_nor_a_dictionary(tmp_path: Path) -> None:
    tokenizer = trained("th", "wordpiece")
    tokenizer.save_pretrained(tmp_path)
    printed = python("-c", READ, tmp_path / "tokenizer.json", cwd=tmp_path)
    assert printed.strip() == str(tokenizer.tokenize("คะแนนของครูดีมาก")) == "['คะแนน', 'ของ', 'ครู', 'ดี', 'มาก']"
