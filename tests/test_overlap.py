"""The overlap rule and its command: by hand on small vocabularies, and the published shares on the real ones."""

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import succeeds
from hypothesis import given
from hypothesis import strategies as st
from tiny import ROLES
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vocabularies import XLM_ROLES, byte_level, sentencepiece, wordpiece

import vtkit
from vtkit.system.errors import DataError
from vtkit.vocabulary.casing import canonical_classes
from vtkit.vocabulary.existing import load_tokenizer, wrap
from vtkit.vocabulary.forms import Vocabulary, tokens
from vtkit.vocabulary.notation import BYTE_LEVEL, FILLER, SENTENCEPIECE, WORDPIECE, Canonical
from vtkit.vocabulary.overlap import KINDS, find_overlap, is_symbol
from vtkit.vocabulary.overlap_report import HEADER, MODES, overlap_report, pair_rows
from vtkit.vocabulary.pair import pair_of
from vtkit.vocabulary.reachability import unreachable
from vtkit.vocabulary.trimmed import trim_vocabulary


def matches(source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast, mode: str = "exact+symbols") -> dict:
    """Target token -> (source token, kind), for the target tokens that overlap."""
    found = pair_of(source, target, mode).overlap
    known, wanted = tokens(source), tokens(target)
    return {wanted[n]: (known[found.target_to_source[n]], KINDS[found.kinds[n]]) for n in found.overlap_ids.tolist()}


def test_the_canonical_form_is_the_same_in_every_family() -> None:
    for start, notation in [("school", WORDPIECE), ("Ġschool", BYTE_LEVEL), ("▁school", SENTENCEPIECE)]:
        assert notation.read(start) == Canonical(True, "school")
    for inside, notation in [("##ing", WORDPIECE), ("ing", BYTE_LEVEL), ("ing", SENTENCEPIECE)]:
        assert notation.read(inside) == Canonical(False, "ing")
    assert BYTE_LEVEL.read("ĠK") == Canonical(True, "K")
    assert BYTE_LEVEL.read("Ã¶") == Canonical(False, "ö")
    assert WORDPIECE.read("##") == Canonical(True, "##")
    assert SENTENCEPIECE.read("▁a▁b") == Canonical(True, "a b")
    assert BYTE_LEVEL.read("Ġ") == SENTENCEPIECE.read("▁") == Canonical(True, "")


@given(st.text(min_size=1))
def test_byte_level_spelling_decodes_to_its_text(text: str) -> None:
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    spelled = "".join(piece for piece, _ in cut)
    starts, surface = BYTE_LEVEL.read(spelled)
    assert (" " if starts else "") + surface == text


def test_bytes_that_are_no_character_match_the_same_bytes_only() -> None:
    # ¢ alone is the byte 0xA2, not the sign; the sign is Â¢.
    assert matches(byte_level("¢"), wordpiece("¢")).keys() == {*ROLES.values()}
    assert matches(byte_level("Â¢"), wordpiece("¢"))["¢"] == ("Â¢", "symbol")
    assert matches(byte_level("¢"), byte_level("¢"))["¢"] == ("¢", "exact")
    assert Vocabulary(byte_level("¢")).surfaces[-1] == ("", False)


def respelled(folder: Path, work: Path, old: str, new: str) -> PreTrainedTokenizerFast:
    """A published tokenizer that has another mark, in its file as well as in its tokens."""
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    vocabulary = content["model"].pop("vocab")
    setting = '"{}": ' + json.dumps(old, ensure_ascii=False)
    written = json.dumps(content, ensure_ascii=False)
    for name in ("continuing_subword_prefix", "prefix", "replacement"):
        written = written.replace(setting.format(name), setting.format(name).replace(old, new))
    content = json.loads(written)

    def named(token: str) -> str:
        return token.replace(old, new) if old == "▁" or (token.startswith(old) and token != old) else token

    if isinstance(vocabulary, list):
        content["model"]["vocab"] = [[named(token), score] for token, score in vocabulary]
    else:
        content["model"]["vocab"] = {named(token): number for token, number in vocabulary.items()}
    work.mkdir()
    shutil.copy(folder / "tokenizer_config.json", work)
    (work / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return load_tokenizer(str(work))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("bert-base-uncased", "##", "@@"), ("bert-base-uncased", "##", "_"), ("focus-ar-xlmr-unigram-30k", "▁", "␣")],
)
def test_a_vocabulary_with_other_marks_is_the_same_vocabulary(
    name: str, old: str, new: str, shared: Path, tmp_path: Path
) -> None:
    source = load_tokenizer(str(shared / "vocab" / name))
    target = respelled(shared / "vocab" / name, tmp_path / "respelled", old, new)
    assert Vocabulary(target).forms == Vocabulary(source).forms
    for pair in (pair_of(source, target), pair_of(target, source)):
        assert pair.overlap.target_to_source.tolist() == list(range(len(source)))
    if new == "@@":
        assert len(unreachable(target, Vocabulary(target).forms)) == 337
        trimmed, _ = trim_vocabulary(target, ["token tokens"])
        assert trimmed.tokenize("nekot") == ["n", "@@e", "@@k", "@@o", "@@t"]
        classes = canonical_classes(target)
        assert classes == canonical_classes(source)


def test_byte_tokens_are_the_same_bytes_in_every_family() -> None:
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    both = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    source, target = byte_level(*letters, "Ġa"), sentencepiece(*names, "▁", "a", "▁a", "é")
    found = matches(source, target)
    assert len(found.keys() & {*names[128:]}) == 128
    assert found["<0xC3>"] == (both.pre_tokenize_str("é")[0][0][0], "exact")
    # The byte of a character is the character, unless the vocabulary has a token for that.
    assert found["<0x0A>"] == ("Ċ", "exact")
    assert found["<0x41>"] == ("A", "exact")
    assert found["a"] == ("a", "exact")
    assert "<0x61>" not in found
    assert matches(target, source)["a"] == ("a", "exact")
    assert matches(target, sentencepiece("a", *names))["<0x61>"] == ("<0x61>", "exact")
    assert Vocabulary(target).surfaces[5 + ord("a")] == ("", False)


def test_letters_that_no_token_stands_for_are_unread() -> None:
    """Unknown, dropped by the normalizer, or cut into bytes; and not letters with a token, or what is no letter."""
    pieces = {token: number for number, token in enumerate(["[UNK]", "river", "##s", "é"])}
    words = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.normalizer = normalizers.Sequence([normalizers.Replace("ß", ""), normalizers.Lowercase()])
    by_bytes = Tokenizer(
        models.BPE({letter: number for number, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}, [])
    )
    by_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for backend, unread in ((words, "ßрекаriverx"), (by_bytes, "éßрека")):
        found = Vocabulary(
            PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]" if backend is words else None)
        )
        assert "".join(found.unread("Rivers é ß ☕! река riverx")) == unread


def test_of_a_piece_that_is_listed_twice_the_id_that_texts_get_counts() -> None:
    pieces = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>", -100.0), ("▁le", -2)]
    backend = Tokenizer(models.Unigram([*pieces, ("<s>", 0.0), ("</s>", 0.0), ("<mask>", 0.0)], unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.add_special_tokens(["<unk>"])
    french = Vocabulary(wrap(backend, XLM_ROLES, "of the test"))
    assert french.tokenizer("le x")["input_ids"] == [6, 5, 3, 7]
    assert (french.tokens[3], french.ids["<unk>"], french.roles[3], french.roles[4]) == ("<unk>", 3, "unk", "unk")
    assert find_overlap(french, Vocabulary(wordpiece("le"))).target_to_source.tolist() == [1, 3, 6, 7, 8, 5]
    assert french.fillers == {0, 2}
    assert find_overlap(french, french).share == 1.0


def test_one_file_alone_knows_the_marks_of_tokens() -> None:
    """Strings, other than docstrings, with a mark of a family in them."""
    package = Path(vtkit.__file__).parent
    marks = re.compile(r"##(?![# ])|▁|Ġ|<0x|</w>")
    found = set()
    for path in sorted(package.rglob("*.py")):
        if not marks.search(content := path.read_text("utf-8")):
            continue
        tree = ast.parse(content)
        said = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        if any(marks.search(node.value) and id(node) not in said for node in strings):
            found.add(str(path.relative_to(package)))
    scripts = {path.name for path in package.rglob("*.js") if marks.search(path.read_text("utf-8"))}
    assert found | scripts == {"vocabulary/notation.py"}


def test_word_starts_and_continuations_are_told_apart() -> None:
    found = matches(byte_level("school", "Ġthe", "ing"), wordpiece("school", "##school", "the", "##ing", "ing"))
    assert found.keys() - ROLES.values() == {"##school", "the", "##ing"}


def test_symbols_match_whatever_their_mark_but_an_exact_match_wins() -> None:
    source = byte_level("!", "Ġ!", "2024", "Ġ12", "12")
    found = matches(source, wordpiece("!", "##!", "2024", "##12", "x2"))
    assert found["!"] == ("Ġ!", "exact")
    assert found["##!"] == ("!", "exact")
    assert found["2024"] == ("2024", "symbol")
    assert found["##12"] == ("12", "exact")
    assert "x2" not in found
    assert "2024" not in matches(source, wordpiece("2024"), "exact")


def test_fuzzy_ignores_case_and_mark_where_nothing_better_is_there_and_the_lowest_source_id_wins() -> None:
    source = byte_level("ĠSchool", "Ġschool", "bell", "StraÃŁe")
    found = matches(source, wordpiece("School", "BELL", "STRASSE"), "fuzzy")
    expected = {"School": ("ĠSchool", "exact"), "BELL": ("bell", "fuzzy"), "STRASSE": ("StraÃŁe", "fuzzy")}
    assert {token: found[token] for token in expected} == expected
    assert matches(wordpiece("##7", "b", "7"), byte_level("7", "Ġ7"))["7"] == ("##7", "exact")
    assert matches(wordpiece("Cafe", "CAFE"), wordpiece("cafe"), "fuzzy")["cafe"] == ("Cafe", "fuzzy")


def test_special_tokens_match_by_role_and_never_by_spelling() -> None:
    found = matches(wordpiece("<s>", "[PAD]x"), sentencepiece("[CLS]"))
    assert found == {XLM_ROLES[role]: (ROLES[role], "special") for role in ROLES}


def test_fillers_never_match() -> None:
    fillers = ("[unused1]", "<extra_id_0>", "madeupword0001")
    source, target = wordpiece(*fillers, "unused"), wordpiece("unused", *fillers)
    for mode in ("exact+symbols", "exact", "fuzzy"):
        assert matches(source, target, mode).keys() == {*ROLES.values(), "unused"}
    assert not FILLER.fullmatch("reserved")
    assert FILLER.fullmatch("<|reserved_special_token_12|>")


def test_byte_level_tokens_are_legible_and_others_stay_as_they_are_written() -> None:
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(" Wünsche")[0][0]
    assert spelled == "ĠWÃ¼nsche"
    surfaces = Vocabulary(wordpiece("the", "##s", "[unused3]")).surfaces
    assert surfaces == [("", False)] * 5 + [("the", True), ("s", False), ("", False)]
    tokenizer = byte_level(spelled, spelled[1:], "Ã", "Ġ")
    assert Vocabulary(tokenizer).legible[len(XLM_ROLES) :] == ["ĠWünsche", "Wünsche", "<C3>", "Ġ"]
    assert Vocabulary(wordpiece("##Ã", "Ġa")).legible == tokens(wordpiece("##Ã", "Ġa"))
    assert Vocabulary(sentencepiece("▁Ã")).legible == tokens(sentencepiece("▁Ã"))


def test_a_source_with_fewer_rows_than_tokens_is_refused() -> None:
    source, target = wordpiece("school"), byte_level("Ġschool")
    assert pair_of(source, target, source_rows=9).shape == (len(target), 9)
    with pytest.raises(DataError, match="do not belong together"):
        pair_of(source, target, source_rows=5)


def test_a_tokenizer_that_marks_no_words_is_refused() -> None:
    backend = Tokenizer(models.BPE({"a": 0, "<pad>": 1}, []))
    with pytest.raises(DataError, match="does not mark word starts in any known way"):
        _ = Vocabulary(PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>")).forms


def test_digits_and_latin_symbols_are_symbols() -> None:
    assert all(is_symbol(text) for text in ["!", "...", "2024", "²", "¢", "٣", "$5"])
    assert not any(is_symbol(text) for text in ["", "a", "2nd", "é", "ª", "。", " "])


@given(st.lists(st.sampled_from(["a", "##a", "B", "##1", "1", "!", "zz", "[unused0]"]), unique=True))
def test_a_vocabulary_overlaps_itself_in_any_order_but_for_its_fillers(words: list[str]) -> None:
    same, tokenizer = wordpiece(*words), wordpiece(*words, "last")
    assert pair_of(same, tokenizer).overlap.target_to_source.tolist() == [*range(len(same)), -1]
    found = pair_of(wordpiece("last", *words), tokenizer).overlap
    names = tokens(wordpiece("last", *words))
    for number, token in enumerate(tokens(tokenizer)):
        assert found.target_to_source[number] == (-1 if token == "[unused0]" else names.index(token))
    assert sum(found.counts.values()) == found.target_size
    assert np.array_equal(np.sort(np.concatenate([found.new_ids, found.overlap_ids])), np.arange(len(tokenizer)))
    assert found.share == len(found.overlap_ids) / len(tokenizer)


def test_the_shares_of_the_vocabulary_transfer_paper_come_out(shared: Path) -> None:
    target = load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))

    modernbert = load_tokenizer(str(shared / "vocab" / "ModernBERT-base"))
    found = pair_of(modernbert, target).overlap
    assert found.counts == {"new": 13306, "exact": 17182, "symbol": 29, "special": 5, "fuzzy": 0}
    assert 100 * found.share == pytest.approx(56.40, abs=0.01)
    fuzzy, exact = (pair_of(modernbert, target, mode).overlap.share for mode in ("fuzzy", "exact"))
    assert fuzzy > found.share > exact

    # RoBERTa's vocabulary is GPT-2's; here with GPT-2's special tokens, of which three roles are played.
    found = pair_of(load_tokenizer(str(shared / "vocab" / "gpt2")), target).overlap
    assert found.counts == {"new": 12337, "exact": 18161, "symbol": 21, "special": 3, "fuzzy": 0}
    assert 100 * found.share == pytest.approx(59.58, abs=0.005)

    # The paper counts the [unusedN] that two WordPiece vocabularies spell alike; by the rule they are new.
    source = load_tokenizer(str(shared / "vocab" / "bert-base-cased-unilm"))
    found = pair_of(source, target).overlap
    fillers = {token for token in tokens(source) if FILLER.fullmatch(token)} & set(tokens(target))
    assert len(fillers) == 83
    assert 100 * (len(found.overlap_ids) + len(fillers)) / found.target_size == pytest.approx(60.89, abs=0.005)


def test_an_expanded_vocabulary_keeps_every_token_of_its_base_fillers_too() -> None:
    source = wordpiece("school", "[unused0]", "##s", "[unused1]", "School")
    target = wordpiece("school", "[unused0]", "##s", "[unused1]", "School", "receptor", "[unused7]")
    found = pair_of(source, target).overlap
    assert found.target_to_source.tolist() == [*range(len(source)), -1, -1]
    assert [tokens(target)[number] for number in found.new_ids] == ["receptor", "[unused7]"]
    # another order is another vocabulary, whose fillers stand for nothing
    other = wordpiece("[unused0]", "school", "##s", "[unused1]", "School", "receptor")
    found = pair_of(source, other).overlap
    assert {tokens(other)[number] for number in found.new_ids} == {"[unused0]", "[unused1]", "receptor"}


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


def test_the_command_lists_all_pairs_and_prints_json(tmp_path: Path) -> None:
    words = ("the", "school", "##ing", "7", "paris", "[unused1]", "zebra", "a\tb\\c")
    target, file = tmp_path / "target", tmp_path / "pairs.tsv"
    wordpiece(*words).save_pretrained(target)
    options = ["--list", str(file), "--json", "--mode", "exact", "--examples", "2"]
    report = json.loads(succeeds("overlap", target, target, *options).stdout)
    assert (report["mode"], report["overlap"]) == ("exact", 13)  # its own vocabulary: fillers too
    assert len(report["classes"]["exact"]["examples"]) == 2
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    assert tuple(rows[0]) == HEADER
    assert len(rows) == 14
    assert rows[1] == ["0", "[PAD]", "special", "0", "[PAD]"]
    assert rows[-1] == ["12", r"a\tb\\c", "exact", "12", r"a\tb\\c"]
