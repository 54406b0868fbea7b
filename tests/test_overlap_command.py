"""``vtkit overlap``: counts and examples by class, the pairs as a file, and the published shares."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke as call
from hypothesis import given
from hypothesis import strategies as st
from test_overlap import byte_level, wordpiece

from vtkit.system.errors import DataError
from vtkit.vocabulary.overlap_report import HEADER, MODES, overlap_report, pair_rows


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    source = byte_level("Ġthe", "school", "ing", "7", "ĠParis", "e")
    target = wordpiece("the", "school", "##ing", "7", "paris", "[unused1]", "zebra", "a\tb\\c")
    for name, tokenizer in {"source": source, "target": target}.items():
        tokenizer.save_pretrained(tmp_path / name)
    return [str(tmp_path / "source"), str(tmp_path / "target")]


def test_a_small_pair_by_hand() -> None:
    source = byte_level("Ġthe", "school", "ing", "7", "ĠParis")
    target = wordpiece("the", "school", "##ing", "7", "paris", "[unused1]")
    classes = overlap_report(source, target, examples=10)["classes"]
    counts = {"new": 3, "exact": 2, "symbol": 1, "special": 5, "fuzzy": 0}
    assert {kind: facts["count"] for kind, facts in classes.items()} == counts
    assert classes["exact"]["examples"] == [["the", "Ġthe"], ["##ing", "ing"]]
    assert classes["symbol"]["examples"] == [["7", "7"]]
    assert classes["new"]["examples"] == [["school", None], ["paris", None], ["[unused1]", None]]
    fuzzy = overlap_report(source, target, "fuzzy", examples=10)
    assert fuzzy["classes"]["fuzzy"]["examples"] == [["school", "school"], ["paris", "ĠParis"]]


@given(
    st.lists(st.sampled_from(["the", "##a", "B", "b", "1", "##1", "!", "[unused0]"]), unique=True),
    st.lists(st.sampled_from(["Ġthe", "a", "ĠB", "b", "1", "Ġ!", "[unused0]"]), unique=True),
    st.sampled_from(MODES),
)
def test_counts_add_up_in_every_mode(words: list[str], others: list[str], mode: Any) -> None:
    source, target = byte_level(*others), wordpiece(*words)
    report = overlap_report(source, target, mode, examples=3)
    classes = report["classes"]
    assert sum(facts["count"] for facts in classes.values()) == report["target_size"] == len(words) + 5
    assert report["overlap"] == report["target_size"] - classes["new"]["count"] == report["modes"][mode]["count"]
    assert all(len(facts["examples"]) == min(3, facts["count"]) for facts in classes.values())
    assert len(list(pair_rows(source, target, mode))) == report["overlap"]


def test_the_command_says_how_much_is_known(folders: list[str]) -> None:
    result = call("overlap", *folders)
    assert result.exit_code == 0, result.output
    assert "source (11 tokens) knows 8 of the 13 tokens of target: 61.54 %" in result.output
    assert re.search(r"^exact +2 +15\.38 %$", result.output, re.MULTILINE)
    assert "exact: the ← Ġthe, ##ing ← ing" in result.output
    assert call("overlap", *folders).output == result.output
    result = call("overlap", folders[0], f"{folders[1]}/nowhere")
    assert isinstance(result.exception, DataError)
    assert "neither a folder nor a file" in str(result.exception)
    assert call("overlap", *folders, "--mode", "close").exit_code == 2


def test_the_command_lists_all_pairs_and_prints_json(folders: list[str], tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    options = ["--list", str(file), "--json", "--mode", "exact", "--examples", "2"]
    result = call("overlap", folders[1], folders[1], *options)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["mode"], report["overlap"]) == ("exact", 13)  # its own vocabulary: fillers too
    assert len(report["classes"]["exact"]["examples"]) == 2
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    assert tuple(rows[0]) == HEADER
    assert len(rows) == 14
    assert rows[1] == ["0", "[PAD]", "special", "0", "[PAD]"]
    assert rows[-1] == ["12", r"a\tb\\c", "exact", "12", r"a\tb\\c"]
