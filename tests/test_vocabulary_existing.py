"""Reading tokenizers: every form on disk gives the whole vocabulary, its roles, and what AutoTokenizer agrees with."""

import json
import shutil
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import refused
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, BertConfig

from vtkit.data.spelling import lowered
from vtkit.settings.casing import CasingSection
from vtkit.system.errors import DataError
from vtkit.vocabulary.existing import load_tokenizer, lowercase_steps, special_roles, with_casing

TEXTS = ["The Schools of Köln, 1999!", "나는 학교에서 Apple을 먹었다.", "東京のカレー [MASK] x", "", "naïve Ğ İstanbul"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "year", "cafe", "##s", "학교", "##에서", "a"]
ASCII = [word for word in WORDS if word.isascii()]


def vocab_txt(folder: Path, words: list[str], settings: dict[str, object] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["bert-base-uncased/vocab.txt", "bert-base-uncased/tokenizer.json"])
def test_a_file_is_as_good_as_its_folder(shared: Path, name: str) -> None:
    folder = load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))
    file = load_tokenizer(str(shared / "vocab" / name))
    assert file(TEXTS)["input_ids"] == folder(TEXTS)["input_ids"]
    assert special_roles(file) == special_roles(folder)


def test_a_missing_mask_or_pad_token_is_named_with_the_way_out_which_works(shared: Path, tmp_path: Path) -> None:
    gpt2 = str(shared / "vocab" / "gpt2")
    refused(DataError, r'no pad and no mask token.*"pad_token".*"mask_token"', load_tokenizer, gpt2, require_roles=True)
    assert special_roles(load_tokenizer(gpt2)) == dict.fromkeys(("unk", "cls", "sep"), 50256)
    shutil.copy(shared / "vocab" / "unilm3-cased-spm" / "unilm3-cased.model", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "[PAD]", "mask_token": "[MASK]"}')
    tokenizer = load_tokenizer(str(tmp_path))
    assert len(tokenizer) == 64002
    assert special_roles(tokenizer) == {"pad": 64000, "unk": 0, "cls": 1, "sep": 2, "mask": 64001}


@pytest.mark.parametrize(
    ("words", "settings", "text", "pieces"),
    [
        (ASCII, {"do_lower_case": True}, "Cafés", ["cafe", "##s"]),
        (ASCII, {"do_lower_case": True, "strip_accents": False}, "Cafés", ["[UNK]"]),
        (WORDS, {"do_lower_case": True}, "The 학교에서", ["the", "학교", "##에서"]),  # accents never of Hangul
        (WORDS, {"do_lower_case": True, "strip_accents": True}, "The 학교에서", ["the", "학교", "##에서"]),
        (WORDS, None, "The", ["the"]),
        ([*WORDS, "The"], None, "The", ["The"]),  # with capitals, a vocabulary is cased
    ],
)
def test_case_and_accents_are_read_as_the_settings_say(
    tmp_path: Path, words: list[str], settings: dict[str, object] | None, text: str, pieces: list[str]
) -> None:
    assert load_tokenizer(str(vocab_txt(tmp_path / "v", words, settings))).tokenize(text) == pieces


def test_lower_casing_changes_case_and_nothing_else(shared: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(shared / "vocab" / "kobigbird"))
    folded = with_casing(tokenizer, CasingSection(input="lowercase"))
    assert with_casing(tokenizer, CasingSection()) is tokenizer
    assert folded("APPLE Ünder 학교 É")["input_ids"] == tokenizer("apple ünder 학교 é")["input_ids"]
    assert folded("나는 학교에서")["input_ids"] == tokenizer("나는 학교에서")["input_ids"]
    normalized = folded.backend_tokenizer.normalizer.normalize_str("학교 É")
    assert normalized == unicodedata.normalize("NFC", "학교 é")
    assert folded("[MASK]")["input_ids"][1] == special_roles(tokenizer)["mask"]
    folded.save_pretrained(tmp_path)
    BertConfig(vocab_size=len(folded)).save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert again("APPLE 학교")["input_ids"] == folded("APPLE 학교")["input_ids"]
    assert tokenizer.tokenize("APPLE") != folded.tokenize("APPLE")


@given(st.text(st.sampled_from("IİiıI\u0307AÀ Xx")), st.sampled_from(["tr", "aze", "en", "lt", None]))
def test_tokenizers_lower_case_as_bm25_and_counts_of_words_do(text: str, language: str | None) -> None:
    steps = lowercase_steps(CasingSection(input="lowercase", language=language))
    assert normalizers.Sequence(steps).normalize_str(text) == lowered(text, language)
    written = ("izmir", "ığdır", "i") if language in ("tr", "aze") else ("i\u0307zmir", "iğdir", "i\u0307")
    assert tuple(lowered(word, language) for word in ("İzmir", "IĞDIR", "I\u0307")) == written


COVID = {
    "content": "covid",
    "lstrip": False,
    "normalized": True,
    "rstrip": False,
    "single_word": False,
    "special": False,
}
ENTITY = {**COVID, "content": "<Ent>", "normalized": False, "special": True}


def added_to(shared: Path, folder: Path, name: str) -> Path:
    """A published vocabulary to which two or three tokens are added, as ``name``'s files say it."""
    bert = name != "gpt2"
    files = {"vocab.txt": ["vocab.txt"], "gpt2": ["vocab.json", "merges.txt"], "tokenizer.json": ["tokenizer.json"]}
    for file in files[name]:
        shutil.copy(shared / "vocab" / ("bert-base-uncased" if bert else "gpt2") / file, folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert" if bert else "gpt2"}))
    texts: dict[str, object] = {}
    if name == "vocab.txt":
        texts = {"added_tokens.json": {"covid": 30522, "<Ent>": 30523, "[X Y]": 30524}}
        texts["tokenizer_config.json"] = {"do_lower_case": True}
    elif name == "gpt2":
        texts = {"added_tokens.json": {"covid": 50257, "[PAD]": 50258, "[MASK]": 50259}}
        texts["special_tokens_map.json"] = {"pad_token": "[PAD]", "mask_token": {"content": "[MASK]", "lstrip": True}}
    else:
        texts["tokenizer_config.json"] = {"added_tokens_decoder": {"30522": COVID, "30523": ENTITY}}
    for file, content in texts.items():
        (folder / file).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(("name", "size"), [("vocab.txt", 30525), ("gpt2", 50260), ("tokenizer.json", 30524)])
def test_tokens_that_are_added_beside_a_vocabulary_are_read_as_by_transformers(
    shared: Path, tmp_path: Path, name: str, size: int
) -> None:
    tokenizer = load_tokenizer(str(added_to(shared, tmp_path, name)))
    owner = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert len(tokenizer) == len(owner) == size
    for text in ["Covid covid <Ent> <ent> COVID19 [x y] [X Y] x [MASK] naïve Köln", "a <Ent>b covid", *TEXTS]:
        assert tokenizer.tokenize(text) == owner.tokenize(text)


def test_added_tokens_that_would_get_other_ids_than_their_file_says_are_refused(shared: Path, tmp_path: Path) -> None:
    folder = added_to(shared, tmp_path, "vocab.txt")
    (folder / "added_tokens.json").write_text('{"covid": 30530}')
    refused(DataError, "'covid' is 30522 for 30530", load_tokenizer, str(folder))


def test_saved_dropout_is_off_and_said(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads((shared / "vocab" / "gpt2" / "tokenizer.json").read_text("utf-8"))
    content["model"]["dropout"] = 0.1
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    tokenizer = load_tokenizer(str(tmp_path))
    owner = load_tokenizer(str(shared / "vocab" / "gpt2"))
    assert "saved with a BPE dropout of 0.1" in capsys.readouterr().err
    text = "the quick schools of Cologne " * 500
    assert tokenizer(text)["input_ids"] == owner(text)["input_ids"]


def test_truncation_and_padding_of_the_file_are_not_taken_over(tmp_path: Path) -> None:
    backend = Tokenizer(models.WordPiece({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.enable_truncation(3)
    backend.enable_padding(length=9)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert len(load_tokenizer(str(tmp_path / "tokenizer.json"))("a a a a a")["input_ids"]) == 7


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n", r"'a' is on line 6 and again on line 8"),
        ("some text\nthat is no vocabulary\n", "not a BERT vocabulary"),
        ("", "not a BERT vocabulary"),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nquux\n", "every word of every probe text is unknown"),
    ],
)
def test_a_damaged_vocabulary_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "vocab.txt").write_text(content)
    refused(DataError, complaint, load_tokenizer, str(tmp_path))


def test_damaged_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    for name, content in (
        ("tokenizer.json", b"{"), ("tokenizer.json", b'{"model": {}}'), ("x.model", b"\xff\xff\xff"),
        ("vocab.txt", b"a\n\xff\n"), ("words.csv", b"a"),
    ):  # fmt: skip
        path = tmp_path / name
        path.write_bytes(content)
        refused(DataError, name, load_tokenizer, str(path))
        path.unlink()
    for name, said in (
        (str(tmp_path), r"should hold a tokenizer\.json"),
        (str(tmp_path / "absent"), "neither a folder nor a file"),
        ("no/such/thing", "no/such/thing"),
    ):
        refused(DataError, said, load_tokenizer, name)
