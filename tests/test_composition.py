"""Languages, scripts and waste of vocabularies: by hand on small ones, and against lingua and the real ones."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import succeeds
from hypothesis import given
from hypothesis import strategies as st
from tiny import ROLES
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast
from vocabularies import byte_level, wordpiece

from vtkit.report.plots import stacked_bars, svg
from vtkit.report.vocabulary_page import sections
from vtkit.system.console import table_lines
from vtkit.system.errors import RecipeError
from vtkit.vocabulary.composition import (
    EVIDENCE_PROBABILITY,
    LANGUAGES,
    LANGUAGES_OF_SCRIPT,
    SEMBRIDGE,
    Han,
    compose,
    han_language,
    label_tokens,
    parse_languages,
    settle,
)
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import Vocabulary, tokens
from vtkit.vocabulary.inspection import Inspection, corpus_use, inspect_vocabulary
from vtkit.vocabulary.pair import pair_of
from vtkit.vocabulary.reachability import duplicates, unreachable


def labels(tokenizer: PreTrainedTokenizerFast, languages: str = "all", han: Han = "zh") -> dict[str, tuple[str, str]]:
    """Token -> sort and name of its label."""
    found, _, _ = label_tokens(Vocabulary(tokenizer), parse_languages(languages), han)
    return {token: (label.sort, label.name) for token, label in zip(tokens(tokenizer), found, strict=True)}


def test_the_script_decides_where_one_language_is_written_in_it() -> None:
    found = labels(wordpiece("한국", "##어", "ひらがな", "ー", "ไทย", "ελ", "漢字かな", "漢한"))
    assert found["한국"] == found["##어"] == found["漢한"] == ("language", "ko")
    assert found["ひらがな"] == found["ー"] == found["漢字かな"] == ("language", "ja")
    assert (found["ไทย"], found["ελ"]) == (("language", "th"), ("language", "el"))


def test_pieces_and_short_words_of_shared_scripts_are_undecided() -> None:
    found = labels(wordpiece("the", "##ing", "chat", "##school", "к", "ab1cdef", "Aβ"))
    for token in ("the", "##ing", "chat", "##school", "ab1cdef"):
        assert found[token] == ("undecided", "Latin")
    assert found["к"] == ("undecided", "Cyrillic")
    assert found["Aβ"] == ("undecided", "mixed")
    assert labels(byte_level("Ġthe", "ing"))["Ġthe"] == ("undecided", "Latin")


def test_with_one_language_a_script_it_is_a_test_of_scripts() -> None:
    found = labels(wordpiece("the", "##ing", "schön", "к", "ї", "پ", "ひ", "漢"), "en,ar,zh,hi,ko,ru")
    assert found["the"] == found["##ing"] == found["schön"] == ("language", "en")
    assert (found["к"], found["ї"], found["پ"]) == (("language", "ru"), ("language", "ru"), ("language", "ar"))
    assert found["漢"] == ("language", "zh")
    assert found["ひ"] == ("other", "Hiragana")


def test_what_has_no_letters_is_etc_by_kind() -> None:
    found = labels(wordpiece("2024", "Ⅷ", "1.5", "...", "+", "😀", "µ", "[unused3]", "##!", "़"))
    for kind, listed in {
        "special": ROLES.values(),
        "number": ["2024", "Ⅷ", "1.5"],
        "punctuation": ["...", "##!"],
        "symbol": ["+", "😀", "µ"],
        "unused": ["[unused3]"],
    }.items():
        assert {found[token] for token in listed} == {("etc", kind)}
    parts = labels(byte_level("Ġ", "Ċ", "¢", "Ã¶"))
    assert parts["Ġ"] == parts["Ċ"] == ("etc", "space")
    assert parts["¢"] == ("etc", "part of a character")
    assert parts["Ã¶"] == ("undecided", "Latin")


def test_han_is_told_by_national_character_sets_and_else_by_the_setting() -> None:
    for text, language in {"込": "ja", "们": "zh", "山": "", "込山": "ja", "们山": "zh", "込们": ""}.items():
        assert han_language(text) == language
    tokenizer = wordpiece("込", "们", "山")
    for han in ("zh", "ja", "ko"):
        found = labels(tokenizer, han=han)
        assert [found[token][1] for token in ("込", "们", "山")] == ["ja", "zh", han]
    assert labels(tokenizer, han="undecided")["山"] == ("undecided", "Han")
    assert labels(tokenizer, "en,ja")["们"] == ("language", "ja")


def test_whole_words_are_told_by_lingua_and_the_vocabulary() -> None:
    german = ["Freundschaft", "Wirtschaft", "zwischen", "schließlich", "gewöhnlich", "Bundesrepublik", "Entwicklung"]
    finnish = ["yhteiskunta", "kirjoittaa", "hyvinvointi", "ystävyys", "tärkeää", "kuitenkin", "työskennellä"]
    found = labels(wordpiece(*german, *finnish), "de,en,fi,fr,es")
    assert sum(found[word] == ("language", "de") for word in german) >= 6
    assert sum(found[word] == ("language", "fi") for word in finnish) >= 6


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=30))
def test_a_word_is_settled_only_on_strong_evidence_that_its_own_does_not_contradict(rows: list[list[float]]) -> None:
    evidence = np.array(rows)
    choices, shares = settle(evidence)
    assert shares.sum() == pytest.approx(1)
    for row, choice in zip(evidence, choices, strict=True):
        if row.sum() == 0:
            assert choice == -1
        elif choice >= 0:
            assert 2 * row[choice] >= row.max() * (1 - 1e-9)
    even = settle(np.full((4, 3), 1 / 3))
    assert even[0].tolist() == [-1] * 4
    assert np.allclose(even[1], 1 / 3)


def test_the_shares_of_the_languages_are_estimated_from_weak_evidence() -> None:
    # Nine words lean to the first language, none of them by itself enough; together they settle each other.
    evidence = np.array([[0.6, 0.3, 0.1]] * 9 + [[0.01, 0.98, 0.01]])
    choices, shares = settle(evidence)
    assert evidence.max(axis=1)[0] < EVIDENCE_PROBABILITY
    assert choices.tolist() == [0] * 9 + [1]
    assert 0.8 < shares[0] < 1
    assert shares[2] < 0.01


def test_the_tables_of_languages_and_scripts_are_lingua_s() -> None:
    from lingua import Language

    def codes(languages: Any) -> set[str]:
        return {language.iso_code_639_1.name.lower() for language in languages}

    assert set(LANGUAGES) == codes(Language.all())
    for script in ("Latin", "Cyrillic", "Arabic", "Devanagari"):
        assert set(LANGUAGES_OF_SCRIPT[script]) == codes(getattr(Language, f"all_with_{script.lower()}_script")())


def test_unknown_languages_are_refused() -> None:
    assert parse_languages("sembridge") == SEMBRIDGE
    assert parse_languages("EN, ko,en") == ("en", "ko")
    assert len(parse_languages("all")) == 75
    for wrong in ("xx", "en,klingon", ","):
        with pytest.raises(RecipeError, match="not a known language"):
            parse_languages(wrong)


def test_tokens_that_no_text_leads_to_are_found() -> None:
    bert = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)
    tokenizer = wordpiece("the", "##ing", "school", "The", "é", "中", "##中", "...", "a", "##b", normalizer=bert)
    forms = Vocabulary(tokenizer).forms
    assert [tokens(tokenizer)[n] for n in unreachable(tokenizer, forms)] == ["The", "é", "##中", "..."]


def test_tokens_that_are_equal_once_normalised_are_duplicates() -> None:
    tokenizer = wordpiece("the", "The", "##the", "##THE", "é", "e", "x", normalizer=normalizers.BertNormalizer())
    listed = tokens(tokenizer)
    found = {(listed[again], listed[first]) for again, first in duplicates(tokenizer, Vocabulary(tokenizer).forms)}
    assert found == {("The", "the"), ("##THE", "##the"), ("e", "é")}
    assert duplicates(wordpiece("the", "The"), Vocabulary(wordpiece("the", "The")).forms) == []


@given(st.lists(st.sampled_from(["the", "##ing", "한", "山", "42", "...", "[unused0]", "к", "ひ", "é"]), unique=True))
def test_every_token_is_counted_once(words: list[str]) -> None:
    composition = compose(wordpiece(*words), parse_languages("all"))
    counted = [sum(getattr(composition, sort).values()) for sort in ("language", "undecided", "other", "etc")]
    assert sum(counted) == len(words) + 5
    assert sum(composition.scripts.values()) == sum(counted[:3])
    assert sum(composition.undecided_because.values()) == counted[1]


def test_the_tokens_that_a_corpus_uses_are_those_of_tokenizing_its_lines() -> None:
    tokenizer = wordpiece("the", "##s", "cat", "dog", "bird")
    texts = ["the cats", "the cat the", "zebra"] * 700
    used = {n for text in texts for n in tokenizer(text, add_special_tokens=False)["input_ids"]}
    use = corpus_use([tokenizer], iter(texts))[0]
    assert use["used"] == len(used) == 4  # the, cat, ##s, [UNK]
    assert use["texts"] == 2100
    assert use["occurrences"] == 700 * 7
    assert use["nine_tenths"] == 4


def test_the_real_vocabularies_are_what_their_names_say(shared: Path) -> None:
    main = {
        "bert-base-uncased": ("en", 0.87, 0.89),
        "kobigbird": ("ko", 0.83, 0.84),
        "focus-ar-bpe-50k": ("ar", 0.93, 0.95),
        "bert-base-chinese": ("zh", 0.69, 0.70),
        "ModernBERT-base": ("en", 0.86, 0.88),
    }
    for name, (language, low, high) in main.items():
        tokenizer = load_tokenizer(str(shared / "vocab" / name))
        counts = compose(tokenizer, SEMBRIDGE).language
        assert low < counts[language] / len(tokenizer) < high, name
    tokenizer = load_tokenizer(str(shared / "vocab" / "bert-base-chinese"))
    never, written = unreachable(tokenizer, Vocabulary(tokenizer).forms), tokens(tokenizer)
    # Chinese characters are spaced, so that none ever continues a word.
    assert sum(written[number].startswith("##") for number in never) > 7300


def test_every_table_accounts_for_every_token() -> None:
    words = ("the", "##ing", "school", "한", "ひ", "42", "...", "Aβ", "[unused0]")
    found = inspect_vocabulary(wordpiece(*words), "small", parse_languages("en,de,ko"))
    made = {each.title: {row[0]: row[1] for row in each.blocks[0].rows} for each in sections(Inspection([found]))[1:]}

    def counts(cells: dict[str, str]) -> dict[str, int]:
        return {label.removeprefix("· "): int(cell.split()[0]) for label, cell in cells.items() if cell != "–"}

    languages = made["Languages"]
    assert languages["Korean"] == "1 (7.14 %)"
    outer = counts({label: cell for label, cell in languages.items() if not label.startswith("· ")})
    assert outer == {"Korean": 1, "English": 1, "undecided": 3, "other scripts": 1, "ETC (no letters)": 8}
    inner = counts({label: cell for label, cell in languages.items() if label.startswith("· ")})
    kinds = {"special": 5, "unused": 1, "number": 1, "punctuation": 1}
    assert inner == {"Latin": 2, "several scripts": 1, "Hiragana": 1, **kinds}
    # 한 ひ; 42 Aβ; the ing ...; school
    lengths = made["Characters of a token"]
    shown = [lengths[label].split()[0] for label in ("1", "2", "3", "4", "5–6", "7–9")]
    assert shown == ["2", "2", "3", "–", "1", "–"]


def test_a_table_too_wide_for_the_terminal_is_broken_between_its_columns() -> None:
    columns, rows = ["name", "one", "two"], [["한국", "1", "2,000"], ["b", "10", "3"]]
    whole = ["name  one    two", "한국    1  2,000", "b      10      3"]
    assert list(table_lines(columns, rows, None)) == list(table_lines(columns, rows, 16)) == whole
    parts = ["name  one", "한국    1", "b      10", "", "name    two", "한국  2,000", "b         3"]
    assert list(table_lines(columns, rows, 15)) == list(table_lines(columns, rows, 3)) == parts


def test_every_part_of_a_bar_is_as_long_as_its_share() -> None:
    drawn = svg(stacked_bars("Tokens", ["a", "b"], {"English": [1, 7], "other": [3, 0]}, 1))
    corners = [re.findall(r"[ML] ([\d.]+) [\d.]+", path) for path in re.findall(r' d="(M[^"]*z)\s*" clip-path', drawn)]
    widths = [max(map(float, xs)) - min(map(float, xs)) for xs in corners]
    bars_drawn = sorted(width / max(widths) for width in widths if width > max(widths) / 5)
    assert bars_drawn == pytest.approx([0.25, 0.75, 1.0], abs=1e-3)


def test_the_command_writes_json_html_and_png(tmp_path: Path) -> None:
    first = wordpiece("the", "##ing", "school", "<b>bad</b>", "\u202eevil", "42", "한", "山")
    second = byte_level("Ġthe", "ing", "Ġ", "e")
    for name, tokenizer in {"first": first, "second": second}.items():
        tokenizer.save_pretrained(tmp_path / name)
    folders = [str(tmp_path / name) for name in ("first", "second")]
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the school\nthe\n", encoding="utf-8")
    page, picture = tmp_path / "page.html", tmp_path / "picture.png"
    result = succeeds(
        "inspect-vocab", *folders, "--languages", "sembridge", "--json", "--corpus", str(corpus),
        "--html", str(page), "--png", str(picture),
    )  # fmt: skip
    report = json.loads(result.stdout)
    first, second = (load_tokenizer(folder) for folder in folders)
    assert [one["name"] for one in report["vocabularies"]] == ["first", "second"]
    assert report["overlap"]["matrix"][0][1]["count"] == len(pair_of(first, second).overlap.overlap_ids)
    assert report["corpus"][0]["used"] == 2
    html = page.read_text(encoding="utf-8")
    assert "<script" not in html
    assert "<b>bad" not in html
    assert "\u202e" not in html
    assert html.count("<img ") == 3
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert "http://" not in html
    assert picture.read_bytes().startswith(b"\x89PNG")
