"""Tokenizers in every form on disk: vtkit's tokens are those of the library that owns the form."""

import json
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from generated import ADDED, ROLES, Layout, cases, layouts, texts, tokenizer_of
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer, Tokenizer
from transformers import AutoTokenizer, BertConfig

from vtkit.vocabulary.existing import load_tokenizer, special_roles
from vtkit.vocabulary.saved import SETTINGS, save_tokenizer
from vtkit.vocabulary.tokenizer_file import TokenizerFile


@cases(100)
@given(layouts(), texts(*ADDED))
def test_a_tokenizer_json_is_read_as_tokenizers_reads_it_and_again_once_saved(layout: Layout, some: list[str]) -> None:
    owner = tokenizer_of(layout)
    with TemporaryDirectory() as work:
        (Path(work) / "tokenizer.json").write_text(json.dumps(layout), encoding="utf-8")
        tokenizer = load_tokenizer(work)
        save_tokenizer(tokenizer, Path(work) / "saved")
        again = AutoTokenizer.from_pretrained(f"{work}/saved", local_files_only=True)
        alone = TokenizerFile.load(Path(work) / "saved", json.loads((Path(work) / "saved" / SETTINGS).read_text()))
    assert tokenizer.get_vocab() == again.get_vocab() == alone.get_vocab() == owner.get_vocab()
    for text in some:
        wanted = owner.encode(text, add_special_tokens=False).ids
        roles = [owner.token_to_id(token) for token in ("[CLS]", "[SEP]")]
        for read in (tokenizer, again, alone):
            assert read([text], add_special_tokens=False)["input_ids"] == [wanted]
            assert read([text])["input_ids"] == [[roles[0], *wanted, roles[1]]]


ROLE_NAMES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), ROLES, strict=True))


def _files(
    folder: Path, files: dict[str, str], settings: dict[str, Any], added: list[dict[str, Any]], older: bool
) -> None:
    """``files`` of a vocabulary with tokens that are ``added`` to it, as older files say it or newer ones."""
    content = settings | ROLE_NAMES
    flags = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    if older and added:
        files = files | {"added_tokens.json": json.dumps({token["content"]: token["id"] for token in added})}
    elif added:
        content |= {
            "added_tokens_decoder": {str(token["id"]): {name: token[name] for name in flags} for token in added}
        }
    for name, text in (files | {"tokenizer_config.json": json.dumps(content)}).items():
        (folder / name).write_text(text, encoding="utf-8")


def _same_as_transformers(folder: str, some: list[str]) -> None:
    tokenizer = load_tokenizer(folder)
    owner = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert tokenizer.get_vocab() == owner.get_vocab()
    for text in some:
        assert (
            tokenizer(text, add_special_tokens=False)["input_ids"] == owner(text, add_special_tokens=False)["input_ids"]
        )


def _added(layout: Layout, size: int) -> list[dict[str, Any]]:
    """The added tokens of a layout that are not in its model, numbered on from ``size``."""
    tokens = [token for token in layout["added_tokens"] if token["content"] not in layout["model"]["vocab"]]
    return [{**token, "id": size + number} for number, token in enumerate(tokens)]


@cases(60)
@given(
    layouts(("wordpiece",), holes=False),
    st.sampled_from([(False, None), (False, False), (True, False), (True, None)]),
    st.booleans(),
    st.booleans(),
    texts(*ADDED),
)
def test_a_list_of_tokens_is_read_as_transformers_reads_it(
    layout: Layout, lower: tuple[bool, bool | None], chinese: bool, older: bool, some: list[str]
) -> None:
    tokens = [token for token in layout["model"]["vocab"] if token and not any(map(str.isspace, token))]
    if lower == (True, None):  # where tokens with accents would be lost by it, vtkit does not strip accents
        plain = {token for token in tokens if unicodedata.is_normalized("NFD", token)}
        tokens = [token for token in tokens if token in plain and "Mn" not in map(unicodedata.category, token)]
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lower[0], "strip_accents": lower[1]}
    with TemporaryDirectory() as work:
        files = {"vocab.txt": "".join(f"{token}\n" for token in tokens)}
        settings |= {"tokenize_chinese_chars": chinese}
        _files(Path(work), files, settings, _added(layout, len(tokens)), older)
        _same_as_transformers(work, some)


@cases(60)
@given(layouts(("byte-level",), holes=False), st.booleans(), st.booleans(), texts(*ADDED))
def test_a_vocabulary_with_merges_is_read_as_transformers_reads_it(
    layout: Layout, prefix_space: bool, older: bool, some: list[str]
) -> None:
    model = layout["model"]
    files = {
        "vocab.json": json.dumps(model["vocab"]),
        "merges.txt": "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in model["merges"]),
    }
    with TemporaryDirectory() as work:
        settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": prefix_space}
        settings |= {"bos_token": "[CLS]", "eos_token": "[SEP]"}
        _files(Path(work), files, settings, _added(layout, len(model["vocab"])), older)
        _same_as_transformers(work, some)


@pytest.mark.parametrize(
    ("name", "size", "mask", "case"),
    [
        ("bert-base-uncased", 30522, 103, None), ("ModernBERT-base", 50368, 50284, None), ("gpt2", 50257, None, None),
        ("olmo-gpt-neox", 50280, None, None), ("focus-de-bpe-50k", 50000, 4, None),
        ("focus-ar-bpe-50k", 50000, 4, None), ("focus-ar-xlmr-unigram-30k", 30000, 4, None),
        ("kobigbird", 32500, 4, {"lowercase": False}),
        ("koelectra", 32200, 4, {"lowercase": False}), ("bert-base-cased-unilm", 28996, 103, {"lowercase": False}),
        ("bert-base-chinese", 21128, 103, {"lowercase": True, "strip_accents": True}),
    ],
)  # fmt: skip
def test_a_published_tokenizer_cuts_texts_as_its_library_does_and_again_once_saved(
    shared: Path, tmp_path: Path, name: str, size: int, mask: int | None, case: dict[str, bool] | None
) -> None:
    folder = shared / "vocab" / name
    tokenizer = load_tokenizer(str(folder), require_roles=mask is not None)
    if case is None:
        owner = Tokenizer.from_file(str(folder / "tokenizer.json"))
    else:
        owner = BertWordPieceTokenizer.from_file(str(folder / "vocab.txt"), **case)
    save_tokenizer(tokenizer, tmp_path)
    # As it will lie beside a model: the configuration must not make AutoTokenizer rebuild it as another class.
    BertConfig(vocab_size=size).save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    roles = special_roles(tokenizer)
    assert len(tokenizer) == size
    assert (roles.get("mask"), special_roles(again)) == (mask, roles)
    assert set(again("a")) == {"input_ids", "attention_mask"}

    @cases(25)
    @given(texts(*ADDED))
    def cuts_alike(some: list[str]) -> None:
        for text in some:
            wanted = owner.encode(text, add_special_tokens=False).ids
            assert tokenizer(text)["input_ids"] == again(text)["input_ids"] == [roles["cls"], *wanted, roles["sep"]]

    cuts_alike()
