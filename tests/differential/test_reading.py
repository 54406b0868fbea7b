"""Tokenizers in every form on disk: vtkit's tokens are those of the library that owns the form."""

import io
import json
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sentencepiece
import transformers
from generated import ADDED, ROLES, Layout, cases, comparable, layouts, texts, tokenizer_of
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer, Tokenizer
from transformers import AutoTokenizer, BertConfig
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from vtkit.system.errors import DataError
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


# Folders of a lone vocabulary file, which transformers reads by the class that they name.

PLAIN = ["the", "year", "test", "in", "a", "school", "apple", "river", "koln", "cafe", "stone"]
FAIRSEQ: dict[str, Any] = {}
MARKED = {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"], "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
DEBERTA = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
DEBERTA |= {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
BARTHEZ = {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3}
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


def sentencepiece_model(**settings: Any) -> bytes:
    """A model of :data:`PLAIN` words and a few of other scripts, its pieces laid out as ``settings`` say."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join([*PLAIN[n:], "東京 학교 школа", *PLAIN[:n]]) for n in range(len(PLAIN))] * 9),
        model_writer=written, minloglevel=2, num_threads=1, vocab_size=80, hard_vocab_limit=False, **settings,
    )  # fmt: skip
    return written.getvalue()


def lone(folder: Path, name: str, content: bytes, kind: str, **settings: object) -> Path:
    """A folder of one vocabulary file and a configuration that names the class ``kind``."""
    folder.mkdir()
    (folder / name).write_bytes(content)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, **settings}))
    return folder


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        ("XLMRobertaTokenizer", FAIRSEQ), ("XLMRobertaTokenizerFast", FAIRSEQ), ("CamembertTokenizer", FAIRSEQ),
        ("MBartTokenizer", FAIRSEQ), ("DebertaV2Tokenizer", DEBERTA), ("BarthezTokenizer", BARTHEZ),
        ("T5Tokenizer", T5), ("BigBirdTokenizer", FAIRSEQ), ("PegasusTokenizer", T5),
    ],
)  # fmt: skip
def test_a_lone_sentencepiece_model_has_the_ids_of_its_class_and_the_pieces_of_sentencepiece(
    tmp_path: Path, kind: str, layout: dict[str, Any]
) -> None:
    content = sentencepiece_model(**layout)
    name = getattr(transformers, kind.removesuffix("Fast")).vocab_files_names["vocab_file"]
    folder = lone(tmp_path / "lone", name, content, kind)
    owner = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=content)
    tokenizer, ids = load_tokenizer(folder), owner.get_vocab()
    assert tokenizer.get_vocab() == ids
    assert special_roles(tokenizer) == special_roles(owner)

    @cases(15)
    @given(texts(*PLAIN, "ＡＢＣ"))
    def cuts_alike(some: list[str]) -> None:
        for text in filter(comparable, some):
            wanted = [ids.get(piece, owner.unk_token_id) for piece in pieces.encode(text, out_type=str)]
            assert tokenizer(text, add_special_tokens=False)["input_ids"] == wanted, text

    cuts_alike()


def test_a_model_type_names_the_class_where_the_tokenizer_names_none(tmp_path: Path) -> None:
    folder = lone(tmp_path / "lone", "sentencepiece.bpe.model", sentencepiece_model(), "XLMRobertaTokenizer")
    wanted = load_tokenizer(folder)
    (folder / "tokenizer_config.json").unlink()
    (folder / "config.json").write_text('{"model_type": "xlm-roberta"}')
    assert load_tokenizer(folder)("the year")["input_ids"] == wanted("the year")["input_ids"]
    assert load_tokenizer(folder / "sentencepiece.bpe.model").get_vocab() != wanted.get_vocab()  # a file has no class


def test_albert_folds_case_and_accents_as_transformers_does(tmp_path: Path) -> None:
    folder = lone(tmp_path / "lone", "spiece.model", sentencepiece_model(**MARKED), "AlbertTokenizer")
    owner, tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True), load_tokenizer(folder)
    assert tokenizer.tokenize("The Kóln Café") == ["▁the", "▁koln", "▁cafe"]
    for text in ("The Kóln Café", "``Stone'' RIVER", "東京 School"):
        assert tokenizer(text)["input_ids"] == owner(text)["input_ids"]


SPECIAL = (*ROLES, "<s>", "</s>", "<pad>", "<unk>", "<mask>")


def vocabulary_files(name: str) -> dict[str, bytes]:
    """A small vocabulary of the kind that a file of this name holds, with what belongs beside it."""
    if name.endswith(".model"):
        return {name: sentencepiece_model()}
    if name == "vocab.txt":
        tokens = [*SPECIAL, *PLAIN, *"bcdefghijklmnopqrstuvwxyz", "東", "京", "##京", "東京"]
        return {name: "".join(f"{token}\n" for token in tokens).encode()}
    letters = [*SPECIAL, "<|endoftext|>", "Ġ", *"abcdefghijklmnopqrstuvwxyz"]
    merges = [f"{left} {right}" for left, right in (("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"))]
    ids = {token: number for number, token in enumerate([*letters, *(merge.replace(" ", "") for merge in merges)])}
    return {name: json.dumps(ids).encode(), "merges.txt": "\n".join(["#version: 0.2", *merges]).encode()}


KINDS = sorted({kind for kind in TOKENIZER_MAPPING_NAMES.values() if kind} - {"TokenizersBackend"})  # which is no class


@pytest.mark.parametrize("ending", [".model", ".txt", ".json"])
def test_whatever_class_reads_a_lone_file_vtkit_reads_it_alike_or_refuses(tmp_path: Path, ending: str) -> None:
    read = refused = 0
    for kind in KINDS:
        name = getattr(getattr(transformers, kind), "vocab_files_names", {}).get("vocab_file", "")
        if not name.endswith(ending):
            continue
        folder = tmp_path / kind
        folder.mkdir()
        for file, content in vocabulary_files(name).items():
            (folder / file).write_bytes(content)
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, "do_lower_case": True}))
        try:
            tokenizer = load_tokenizer(folder)
        except DataError:
            refused += 1
            continue
        backend = AutoTokenizer.from_pretrained(folder, local_files_only=True).backend_tokenizer
        backend.no_padding()
        for text in ("the year in a test", "The SCHOOL the", "東京 in the"):
            wanted = backend.encode(text, add_special_tokens=False).ids
            assert tokenizer(text, add_special_tokens=False)["input_ids"] == wanted, (kind, text)
        read += 1
    assert min(read, refused) >= 2


@pytest.mark.parametrize("kind", ["BertJapaneseTokenizer", "PhobertTokenizer", "SomebodysTokenizer"])
def test_a_class_without_a_fast_tokenizer_is_refused_with_the_way_out(tmp_path: Path, kind: str) -> None:
    (content,) = vocabulary_files("vocab.txt").values()
    folder = lone(tmp_path / "lone", "vocab.txt", content, kind)
    with pytest.raises(DataError, match=rf"class {kind}, .* cannot read it.*Name a folder with a tokenizer\.json"):
        load_tokenizer(folder)
    assert load_tokenizer(folder / "vocab.txt").tokenize("東京 the") == ["東", "京", "the"]  # as a file of BERT's kind
