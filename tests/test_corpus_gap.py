"""The gap between two corpora: weighted Jaccard similarity, unknown words, typical words, and what is made of them."""

import json
import math
import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from vtkit.data.document_files import read_corpus
from vtkit.data.spelling import preparation
from vtkit.system.errors import DataError
from vtkit.vocabulary.corpus_gap import advice, log_odds, measure_gap, weighted_jaccard
from vtkit.vocabulary.words import words

COUNTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=30).filter(
    lambda pairs: sum(a for a, _ in pairs) > 0 and sum(b for _, b in pairs) > 0
)


def similarity(first: Counter[str], second: Counter[str]) -> float:
    """``J(A, B)`` as the paper writes it, one word after the other."""
    least = most = 0.0
    for word in first.keys() | second.keys():
        a, b = first[word] / first.total(), second[word] / second.total()
        least, most = least + min(a, b), most + max(a, b)
    return least / most


@given(COUNTS)
def test_the_similarity_is_the_sum_of_the_least_shares_over_that_of_the_largest(pairs: list[tuple[int, int]]) -> None:
    first = Counter({str(n): a for n, (a, _) in enumerate(pairs)})
    second = Counter({str(n): b for n, (_, b) in enumerate(pairs)})
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    found = weighted_jaccard(a, b)
    assert found == pytest.approx(similarity(first, second))
    assert 0 <= found <= 1
    assert found == pytest.approx(weighted_jaccard(b, a))
    assert weighted_jaccard(a, a) == pytest.approx(1.0)
    assert weighted_jaccard(a * 7, b) == pytest.approx(found)


def test_log_odds_are_those_of_the_equations() -> None:
    a, b = np.array([30, 5, 65]), np.array([10, 5, 185])
    prior = a + b
    n_a, n_b, p = a.sum(), b.sum(), prior.sum()
    for word, z in enumerate(log_odds(a, b)):
        odds = [
            math.log((counts[word] + prior[word]) / (n + p - counts[word] - prior[word]))
            for counts, n in ((a, n_a), (b, n_b))
        ]
        deviation = math.sqrt(1 / (a[word] + prior[word]) + 1 / (b[word] + prior[word]))
        assert z == pytest.approx((odds[0] - odds[1]) / deviation)


def test_a_case_by_eye() -> None:
    found = measure_gap(["The cat sat.", "the cat"], ["THE dog, the dog!"], top=2)
    # A: the 2/5, cat 2/5, sat 1/5; B: the 1/2, dog 1/2
    assert found.similarity == pytest.approx(0.4 / (0.5 + 0.4 + 0.2 + 0.5))
    assert (found.first.words, found.first.distinct, found.first.unknown_distinct) == (5, 3, 2)
    assert found.first.unknown_share == pytest.approx(3 / 5)
    assert found.second.unknown_share == pytest.approx(1 / 2)
    assert found.first.typical[0].word == "cat"
    assert [(word.word, word.here, word.there) for word in found.second.typical[:1]] == [("dog", 2, 0)]
    turkish = measure_gap(["IŞIK"], ["ışık"], language="tr")
    assert turkish.similarity == 1.0


def test_the_same_corpus_is_no_gap_and_a_sample_of_it_none_either() -> None:
    texts = ["one two three four five six seven"] * 3 + ["one two three", "one two", "one"]
    same = measure_gap(texts, texts)
    assert same.similarity == 1.0
    assert same.first.typical == same.second.typical == []
    assert "no gap" in advice(same)
    assert measure_gap(texts, texts[:2]) == measure_gap(texts, texts[:2])


BEIR_TO_MSMARCO = {  # CAI paper, table 8
    "Natural Questions": 0.523, "Robust04": 0.475, "Touché-2020": 0.410, "FiQA": 0.407, "Quora": 0.395,
    "ArguAna": 0.385, "Climate-FEVER": 0.384, "FEVER": 0.384, "HotpotQA": 0.342, "DBPedia": 0.334, "SCIDOCS": 0.327,
    "BioASK": 0.317, "TREC-COVID": 0.315, "NFCorpus": 0.285, "SciFact": 0.273,
}  # fmt: skip


def test_the_advice_follows_the_table_of_the_paper() -> None:
    gap = replace(measure_gap(["a b c"], ["a b d"]), sampled=1.0)
    for name, value in BEIR_TO_MSMARCO.items():
        said = advice(replace(gap, similarity=value))
        adapted_to = name in ("SCIDOCS", "BioASK", "TREC-COVID", "NFCorpus", "SciFact")
        assert ("five BEIR sets" in said) == adapted_to
        assert ("little to add" in said) == (name in ("Natural Questions", "Robust04"))


@pytest.mark.parametrize(
    ("second", "seen"),
    [
        ("물은 수소와 산소로 이루어진 물질이다 1999", "different scripts"),
        ("水は水素と酸素からできている物質である 1999", "different scripts"),
        ("Das Wasser besteht aus zwei Elementen und ist ein Stoff 1999", "share next to no words"),
    ],
)
def test_corpora_of_two_languages_get_no_advice_on_domains(second: str, seen: str) -> None:
    """An answer of 0.000 was read as the widest gap between domains, "expand, and train"."""
    found = measure_gap(["water is made of hydrogen and oxygen, in 1999"] * 5, [second] * 5)
    assert not found.comparable
    assert seen in advice(found)
    assert "says nothing here" in advice(found)
    assert "expand" not in advice(found)


def test_chinese_and_japanese_are_two_languages_in_spite_of_their_characters() -> None:
    found = measure_gap(["水是由氢和氧组成的物质"] * 5, ["水は水素と酸素からできている物質である"] * 5)
    assert found.shared_scripts == 0.0
    assert measure_gap(["水の物質"] * 5, ["酸素の物質は水"] * 5).shared_scripts == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "language"),
    [("한국의 수도는 서울이다", "ko"), ("Café, naïveté et Šķēle", "fr"), ("Ὀδυσσεύς ἀνήρ", "el"), ("Việt Nam", None)],
)
def test_unicode_forms_and_soft_hyphens_make_no_gap(text: str, language: str | None) -> None:
    decomposed, hyphened = unicodedata.normalize("NFD", text), "\u00ad".join(text)
    for other in (decomposed, hyphened):
        assert other != text
        assert measure_gap([text] * 3, [other] * 3, language=language).similarity == 1.0


def test_real_corpora_are_as_far_apart_as_counting_word_by_word_says(shared: Path) -> None:
    english, medical, hindi = (list(read_corpus(shared / "data" / name)) for name in ("xquad-en", "med-en", "xquad-hi"))
    found = measure_gap(english, medical)
    prepare = preparation("en")
    first, second = (Counter(word for text in side for word in words(prepare(text))) for side in (english, medical))
    assert found.similarity == pytest.approx(similarity(first, second))
    assert found.first.unknown_words == sum(count for word, count in first.items() if word not in second)
    assert found.sampled > found.similarity
    assert {"patients", "cells"} <= {word.word for word in found.second.typical}
    assert found.comparable
    assert not measure_gap(english[:60], hindi[:60]).comparable


def test_the_command_prints_the_gap_and_its_meaning(tmp_path: Path) -> None:
    first, second = "the cat sat on the mat", "a dog barked at the cat"
    (tmp_path / "a.txt").write_text(f"{first}\n" * 5)
    (tmp_path / "none.txt").write_text("... !!\n")

    def call(*arguments: str) -> Result:
        return invoke("gap", *arguments, typed=f"{second}\n")

    given = [str(tmp_path / "a.txt"), "-", "--top", "2"]
    printed = call(*given).stdout
    for part in ("weighted Jaccard similarity 0.", "typical of standard input", "dog"):
        assert part in printed
    facts = json.loads(call(*given, "--json").stdout)
    assert (facts["first"]["name"], facts["first"]["texts"], facts["first"]["distinct"]) == ("a.txt", 5, 5)
    assert (facts["second"]["name"], facts["second"]["unknown_share"]) == ("standard input", pytest.approx(4 / 6))
    assert facts["second"]["typical"][0]["there"] == 0
    assert facts["similarity"] == pytest.approx(similarity(Counter(first.split()), Counter(second.split())))
    assert call("-", "-").exit_code != 0
    assert isinstance(call(str(tmp_path / "b.txt"), "-").exception, DataError)
    assert "no words" in str(call("-", str(tmp_path / "none.txt")).exception)
