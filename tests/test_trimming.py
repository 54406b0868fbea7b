"""Trimming: texts whose tokens are kept are cut, and encoded, as before."""

import json
from itertools import islice
from pathlib import Path

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import refused
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from vtkit.data.document_files import read_corpora
from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.query_tables import with_static_queries
from vtkit.pipeline.run import run
from vtkit.recipe.load import load_recipe
from vtkit.system.errors import DataError, RecipeError
from vtkit.transfer.surgery.graft import trim_encoder
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.trimmed import kept_ids, trim_vocabulary

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
WORDS = [*"river stone apple walnut the of and riverbank stones apples naïve café 水 石".split(), "aa", "aaaa"]  # noqa: SIM905


def _trained(kind: str) -> PreTrainedTokenizerFast:
    """A small tokenizer of a kind, its special tokens not all at the beginning."""
    texts = [" ".join(WORDS[place % 7 :: step]) for place in range(40) for step in (1, 2, 3)]
    if kind == "wordpiece":
        backend = Tokenizer(models.WordPiece(unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordPieceTrainer(vocab_size=140, special_tokens=SPECIAL, show_progress=False)
    elif kind == "unigram":
        backend = Tokenizer(models.Unigram())
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    else:
        in_bytes = kind == "bytes"
        backend = Tokenizer(models.BPE(unk_token=None if in_bytes else "<unk>"))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel() if in_bytes else pre_tokenizers.Metaspace()
        alphabet = pre_tokenizers.ByteLevel.alphabet() if in_bytes else []
        trainer = trainers.BpeTrainer(
            vocab_size=360 if in_bytes else 120, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        )
    backend.train_from_iterator(texts, trainer)
    backend.add_special_tokens(["<extra>"])
    first, last = (backend.token_to_id(token) for token in ("<s>", "</s>"))
    backend.post_processor = processors.RobertaProcessing(("</s>", last), ("<s>", first), trim_offsets=False)
    roles = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **roles)


KINDS = ("wordpiece", "unigram", "bytes", "characters")
TOKENIZERS = {kind: _trained(kind) for kind in KINDS}
texts_of_words = st.lists(st.lists(st.sampled_from([*WORDS, "zebra", "北"]), max_size=8).map(" ".join), min_size=1)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(counted=texts_of_words, other=texts_of_words, size=st.one_of(st.none(), st.integers(280, 330)))
def test_a_text_whose_tokens_are_kept_is_cut_as_before(
    kind: str, counted: list[str], other: list[str], size: int | None
) -> None:
    tokenizer = TOKENIZERS[kind]
    trimmed = trim_vocabulary(tokenizer, counted, size)[0]
    kept = kept_ids(tokenizer, trimmed)
    assert sorted(trimmed.get_vocab().values()) == list(range(len(trimmed)))
    assert set(trimmed.all_special_tokens) == set(tokenizer.all_special_tokens)
    for text in [*counted, *other]:
        before, after = tokenizer(text)["input_ids"], trimmed(text)["input_ids"]
        if set(before) <= set(kept.tolist()):
            assert kept[after].tolist() == before
        else:
            assert size is not None or text in other
    assert size is None or len(trimmed) <= size


def test_by_eye() -> None:
    tokenizer = TOKENIZERS["wordpiece"]
    trimmed, stats = trim_vocabulary(tokenizer, ["apples stones", "apples"] * 10)
    kept = [token for token in trimmed.get_vocab() if len(token) > 3 and not token.startswith("##")]
    assert sorted(set(kept) - set(SPECIAL) - {"<extra>"}) == ["apples", "stones"]
    assert (stats.base_size, stats.texts, stats.held_out, stats.changed) == (len(tokenizer), 20, 2, 0.0)
    texts = ["apple"] * 9 + ["walnut"] + ["apple"] * 9 + ["apple walnut"]
    assert trim_vocabulary(tokenizer, texts)[1].changed == 1.0  # both that are held out, alone, have walnut
    texts[0] = "walnut"
    assert trim_vocabulary(tokenizer, texts)[1].changed == 0.0


@pytest.mark.parametrize("model", [models.BPE, models.WordPiece])
def test_bytes_stay_that_the_normalizer_spells(model: type[models.BPE] | type[models.WordPiece]) -> None:
    backend = Tokenizer(model(unk_token="<unk>"))
    backend.normalizer = normalizers.ByteLevel()
    backend.pre_tokenizer = pre_tokenizers.Split("Ġ", "merged_with_next")
    options = {"special_tokens": SPECIAL, "initial_alphabet": sorted(pre_tokenizers.ByteLevel.alphabet())}
    kind = trainers.BpeTrainer if model is models.BPE else trainers.WordPieceTrainer
    backend.train_from_iterator(["Zürich café", "river stone"], kind(vocab_size=500, show_progress=False, **options))
    roles = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **roles)
    trimmed, _ = trim_vocabulary(tokenizer, ["river stone"])
    assert len(trimmed) < len(tokenizer)
    assert "<unk>" not in trimmed.tokenize("Zürich")
    assert "".join(Vocabulary(trimmed).surfaces[number][0] for number in trimmed("rive")["input_ids"]) == "rive"


def test_bpe_with_prefixes_and_suffixes_is_trimmed() -> None:
    vocabulary = ["<unk>", *"abc", *(f"##{letter}" for letter in "abc"), "##b</w>", "##c</w>", "ab", "##bc</w>"]
    vocabulary += ["abc</w>", "##ab", "a</w>"]
    merges = [("a", "##b"), ("##b", "##c</w>"), ("ab", "##c</w>"), ("##a", "##b")]
    ids = {token: number for number, token in enumerate(vocabulary)}
    model = models.BPE(ids, merges, unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>")
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    assert tokenizer.tokenize("abc cab") == ["abc</w>", "c", "##a", "##b</w>"]
    trimmed, _ = trim_vocabulary(tokenizer, ["abc"])
    assert trimmed.tokenize("abc cab") == ["abc</w>", "c", "##a", "##b</w>"]
    assert {"ab", "##c</w>"} < trimmed.get_vocab().keys()
    assert not {"##ab", "##bc</w>"} & trimmed.get_vocab().keys()


def test_a_piece_that_is_listed_twice_is_trimmed_to_the_one_that_texts_get(tmp_path: Path) -> None:
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("<unk>", -100.0), ("<mask>", 0.0)]
    words = sorted({f"▁{word}" for word in WORDS} | set("".join(WORDS)) | {"▁"})
    scored = [(word, -float(place + 2)) for place, word in enumerate(words)]
    roles = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))

    def french(listed: list[tuple[str, float]]) -> PreTrainedTokenizerFast:
        backend = Tokenizer(models.Unigram([*listed, *scored], unk_id=3))
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        backend.add_special_tokens(SPECIAL)
        folder = tmp_path / str(len(listed))
        folder.mkdir()
        backend.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(roles))
        return load_tokenizer(str(folder))

    twice, once = french(pieces), french(pieces[:4] + pieces[5:])
    assert len(twice) == len(once) + 1
    texts = ["river stone", "the walnut 北", "apples of 石"]
    trimmed, _ = trim_vocabulary(twice, texts)
    again, _ = trim_vocabulary(once, texts)
    assert trimmed.get_vocab() == again.get_vocab()
    kept = kept_ids(twice, trimmed)
    assert kept[trimmed.unk_token_id] == 3
    rows = (*tiny.ROLES.values(), *(f"w{number}" for number in range(len(twice) - len(tiny.ROLES))))
    source = as_sparse_encoder(tiny.model(tokens=rows), twice, tmp_path / "source")
    encoder = trim_encoder(source, trimmed, tmp_path / "work")
    before, after = (each.encode_document(texts).to_dense() for each in (source, encoder))
    assert torch.equal(before[:, torch.from_numpy(kept)], after)
    assert int((twice(texts[1])["input_ids"]).count(3)) == 1  # unknown text has the first id, the name the second


def test_what_cannot_be_trimmed_is_refused_in_words() -> None:
    refused(DataError, "no text in corpus", trim_vocabulary, TOKENIZERS["bytes"], [])
    with pytest.raises(DataError, match="single characters of the corpus, which must stay"):
        trim_vocabulary(TOKENIZERS["bytes"], ["apple"], size=100)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert", "distilbert"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_encoder_computes_what_it_computed(tmp_path: Path, architecture: str, tied: bool) -> None:
    source = tiny.encoder(tmp_path / "source", architecture, tied=tied)
    source = with_static_queries(source, "idf", tiny.texts(30))
    texts = tiny.texts(12, seed=3)
    tokenizer = trim_vocabulary(source.tokenizer, texts)[0]
    trimmed = trim_encoder(source, tokenizer, tmp_path / "work")
    save_encoder(trimmed, tmp_path / "model")
    trimmed = load_encoder(str(tmp_path / "model"))
    kept = torch.from_numpy(kept_ids(source.tokenizer, tokenizer))
    assert len(kept) < len(source.tokenizer)
    for encode in ("encode_document", "encode_query"):
        before, after = (getattr(encoder, encode)(texts).to_dense() for encoder in (source, trimmed))
        assert torch.equal(before[:, kept], after)


RECIPE = """\
[recipe]
name = "trimmed"
[source]
model = "./model"
[vocabulary]
kind = "trimmed"
[index]
lexical = "bm25"
[evaluate]
sets = ["./collection"]
measures = ["nDCG@10"]
"""


def test_its_recipe_runs_to_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trimmed.toml").write_text(RECIPE)
    save_encoder(tiny.encoder(tmp_path / "work", tied=True), tmp_path / "model")
    tiny.write_collection(tmp_path / "collection", tiny.collection(12))
    made = run(tmp_path / "trimmed.toml", runs=tmp_path / "runs")
    shown = capsys.readouterr().err
    assert "million parameters are kept" in shown
    assert "gate trimmed after vocabulary" in shown
    assert "tokens are kept" in (made / "report.md").read_text("utf-8")
    (tmp_path / "trimmed.toml").write_text(RECIPE[: RECIPE.index("[evaluate]")])
    refused(RecipeError, r"vocabulary\.corpus is missing", load_recipe, tmp_path / "trimmed.toml")


@pytest.mark.parametrize(
    ("name", "corpus"),
    [
        ("bert-base-uncased", "scifact-en"),
        ("ModernBERT-base", "scifact-en"),
        ("unilm3-cased-spm", "med-en"),
        ("focus-ar-xlmr-unigram-30k", "arcdr-ar"),
        ("bert-base-chinese", "xquad-zh"),
    ],
)
@pytest.mark.parametrize("size", [None, 6_500])
def test_published_tokenizers_cut_real_texts_as_before(name: str, corpus: str, size: int | None, shared: Path) -> None:
    tokenizer = load_tokenizer(str(shared / "vocab" / name))
    texts = [text[:60] for text in islice(read_corpora([str(shared / "data" / corpus)]), 400)]
    trimmed = trim_vocabulary(tokenizer, texts, size)[0]
    kept = kept_ids(tokenizer, trimmed)
    same = 0
    for text in texts:
        before = tokenizer.backend_tokenizer.encode(text).ids
        after = trimmed.backend_tokenizer.encode(text).ids
        if set(before) <= set(kept.tolist()):
            same += 1
            assert kept[after].tolist() == before
    assert same > 0
