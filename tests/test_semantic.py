"""Semantic initialisation: equal to the dense formula, and every kind of table that a target vocabulary may have."""

import gzip
import json
import pickle
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from entmax import entmax_bisect, sparsemax
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from support import refused
from transformers import PreTrainedTokenizerFast
from vocabularies import byte_level, wordpiece, write_vectors

from vtkit.data import vectors as vectors_module
from vtkit.data.vectors import VectorFile, open_vectors, read_vectors, vectors_of
from vtkit.system.errors import DataError
from vtkit.transfer.methods.semantic import load_table, table_mixture
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import Vocabulary, tokens
from vtkit.vocabulary.pair import pair_of

SOURCE = wordpiece("river", "apple", "stone", "the", ".")
TARGET = wordpiece("brook", "apple", "river", "##s", ".", "stone", "[unused3]", "pebble")
PAIR = pair_of(SOURCE, TARGET)


def vectors(tokenizer: PreTrainedTokenizerFast, width: int = 6, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(len(tokenizer), width)).astype(np.float32)


def save_static(folder: Path, tokenizer: PreTrainedTokenizerFast, tensors: dict[str, torch.Tensor]) -> str:
    folder.mkdir()
    tokenizer.save_pretrained(str(folder))
    save_file(tensors, folder / "model.safetensors")
    return str(folder)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 4.0])
def test_rows_are_those_of_the_dense_formula(alpha: float) -> None:
    table = vectors(TARGET)
    pair = pair_of(SOURCE, TARGET, source_rows=len(SOURCE) + 3)
    mixture = table_mixture(pair, (Vocabulary(TARGET), table), alpha)
    known, wanted = tokens(SOURCE), tokens(TARGET)
    new = [wanted.index(token) for token in ("brook", "##s", "pebble")]
    anchors = [wanted.index(token) for token in ("apple", "river", ".", "stone")]  # shared, and no special tokens
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    scores = torch.from_numpy((unit[new] @ unit[anchors].T).astype(np.float64))
    expected = scores.softmax(1) if alpha == 1 else entmax_bisect(scores, alpha, dim=1, n_iter=100)
    if alpha == 2:
        assert torch.allclose(expected, sparsemax(scores, dim=1))
    embeddings = np.random.default_rng(2).normal(size=(len(SOURCE) + 3, 4)).astype(np.float32)
    sources = [known.index(wanted[number]) for number in anchors]
    assert mixture.rows(embeddings)[new] == pytest.approx(expected.numpy() @ embeddings[sources], abs=1e-5)
    assert mixture.counts() == {"overlap": 9, "semantic": 3, "mean": 1}


def test_two_shared_tokens_that_are_one_source_token_add_up() -> None:
    target = wordpiece("##.", ".", "brook")  # both are the source's "." by the rule of symbols
    table = vectors(target)
    table[-3:] = table[-1]
    mixture = table_mixture(pair_of(SOURCE, target), (Vocabulary(target), table), 4.0)
    assert mixture.sources(len(target) - 1) == [(tokens(SOURCE).index("."), 1.0)]


def test_a_table_over_part_of_the_vocabulary_is_evidence_for_that_part(capsys: pytest.CaptureFixture[str]) -> None:
    part = wordpiece("pebble", "river", "apple", "brook", "else")
    table = vectors(part)
    table[tokens(part).index("brook")] = 0  # a row of zeros says nothing
    mixture = table_mixture(PAIR, (Vocabulary(part), table), 4.0, "part")
    assert mixture.counts() == {"overlap": 9, "semantic": 1, "mean": 3}
    assert mixture.methods[tokens(TARGET).index("pebble")] == "semantic"
    sources = {tokens(SOURCE)[number] for number, _ in mixture.sources(tokens(TARGET).index("pebble"))}
    assert sources <= {"river", "apple"}
    assert "part have no vector for 2 of the 3 new tokens" in " ".join(capsys.readouterr().err.split())


def test_a_table_of_another_family_is_matched_by_what_tokens_stand_for() -> None:
    other = byte_level("Ġbrook", "Ġriver", "s", "Ġstone")
    mixture = table_mixture(PAIR, (Vocabulary(other), vectors(other)), 4.0)
    names = dict(zip(tokens(TARGET), mixture.methods, strict=True))
    assert names["brook"] == names["##s"] == "semantic"
    assert names["pebble"] == "mean"


def test_a_table_over_another_vocabulary_or_with_nan_is_refused() -> None:
    foreign = wordpiece("강", "사과", "돌", "의")
    with pytest.raises(DataError, match=r"\(9 tokens\).* vectors for 0 of the 7 .* none of the new tokens"):
        table_mixture(PAIR, (Vocabulary(foreign), vectors(foreign)))
    nothing_shared = wordpiece("brook", "pebble")
    with pytest.raises(DataError, match="none of the tokens that both vocabularies share"):
        table_mixture(PAIR, (Vocabulary(nothing_shared), vectors(nothing_shared)))
    table = vectors(TARGET)
    table[2, 3] = np.nan
    with pytest.raises(DataError, match=r"1 of 13 vectors are not finite"):
        table_mixture(PAIR, (Vocabulary(TARGET), table))
    mixture = table_mixture(pair_of(SOURCE, SOURCE), (Vocabulary(SOURCE), vectors(SOURCE)))
    assert mixture.counts() == {"overlap": len(SOURCE)}  # without new tokens none is needed


def test_the_input_embeddings_of_any_model_are_a_table(tmp_path: Path) -> None:
    masked = tiny.model(seed=5)
    for name, model in (("masked", masked), ("plain", masked.base_model)):
        model.save_pretrained(tmp_path / name)
        tiny.tokenizer().save_pretrained(str(tmp_path / name))
    sentence = SentenceTransformer(modules=[Transformer(str(tmp_path / "plain")), Pooling(32)], device="cpu")
    sentence.save(str(tmp_path / "sentence"))
    tiny.encoder(tmp_path, seed=5).save(str(tmp_path / "sparse"))
    expected = masked.get_input_embeddings().weight.detach().numpy()
    for name in ("masked", "plain", "sentence", "sparse"):
        vocabulary, table = load_table(str(tmp_path / name))
        assert np.array_equal(table, expected)
        assert tokens(vocabulary.tokenizer) == list(tiny.TOKENS)


def test_static_tables_are_read(tmp_path: Path) -> None:
    tokenizer = tiny.tokenizer()
    table = torch.from_numpy(vectors(tokenizer, 8))
    static = StaticEmbedding(tokenizer, embedding_weights=table)
    SentenceTransformer(modules=[static], device="cpu").save(str(tmp_path / "static"))
    assert np.array_equal(load_table(str(tmp_path / "static"))[1], table.numpy())
    # model2vec: rows that tokens share, and half precision
    mapping = torch.arange(len(tokenizer)) // 2
    half = save_static(tmp_path / "model2vec", tokenizer, {"embeddings": table.half(), "mapping": mapping})
    (Path(half) / "config.json").write_text('{"model_type": "model2vec"}')
    assert np.array_equal(load_table(half)[1], table.half().float().numpy()[mapping.numpy()])
    alone = save_static(tmp_path / "alone", tokenizer, {"table": table})
    assert np.array_equal(load_table(alone)[1], table.numpy())
    mixture = table_mixture(pair_of(SOURCE, tokenizer), load_table(alone), 2.0)
    assert mixture.counts()["semantic"] == len(tokenizer) - mixture.counts()["overlap"]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    tokenizer = tiny.tokenizer()
    size = len(tokenizer)
    short, flat, matrix = torch.zeros(size - 3, 4), torch.zeros(size), torch.zeros(size, 4)
    wrong = {
        "short": ({"embeddings": short}, rf"has {size} tokens and the table the shape \({size - 3}, 4\)"),
        "flat": ({"embeddings": flat}, rf"the shape \({size},\)"),
        "two": ({"a": matrix, "b": matrix.clone()}, r"should hold one matrix .* holds a \("),
        "mapped": ({"embeddings": torch.zeros(5, 4), "mapping": torch.arange(size)}, "maps tokens to rows"),
    }
    for name, (tensors, message) in wrong.items():
        with pytest.raises(DataError, match=message):
            load_table(save_static(tmp_path / name, tokenizer, tensors))
    file = tmp_path / "short" / "model.safetensors"
    file.write_bytes(b"half")
    refused(DataError, "cannot be read as safetensors", load_table, str(tmp_path / "short"))
    file.unlink()
    for name, said in (
        (str(tmp_path / "short"), "holds neither a transformers model"),
        (str(tmp_path / "nowhere"), "there is no such folder"),
        ("nobody/no-such-model", "Run again with --download"),
    ):
        refused(DataError, said, load_table, name)


def test_a_real_table_finds_words_of_like_meaning(shared: Path) -> None:
    source = load_tokenizer(str(shared / "vocab" / "ModernBERT-base"))
    target = load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))
    pair = pair_of(source, target)
    table = str(shared / "models" / "all-MiniLM-L6-v2")  # over the vocabulary of bert-base-uncased
    mixture = table_mixture(pair, load_table(table))
    assert mixture.counts() == {"overlap": 17_216, "semantic": 12_312, "mean": 994}  # 994 are [unusedN]
    known = tokens(source)
    found = {known[number].strip("Ġ").lower() for number, _ in mixture.sources(tokens(target).index("encyclopedia"))}
    assert len(found) == 3
    assert "dictionary" in found or "wikipedia" in found


# Files of word vectors: every form gives the same words, and what is wrong with a file is said with its place.


WORDS = {"the": [0.5, -1.0, 2.0], "집": [1.0, 0.25, 0.0], "##s": [-0.125, 3.0, 1.5]}


def binary(words: Mapping[str, Iterable[float]], line_ends: bool = True) -> bytes:
    width = len(list(next(iter(words.values()))))
    parts = [
        word.encode() + b" " + struct.pack(f"<{width}f", *vector) + (b"\n" if line_ends else b"")
        for word, vector in words.items()
    ]
    return f"{len(words)} {width}\n".encode() + b"".join(parts)


def read_all(path: Path) -> dict[str, list[float]]:
    return {
        word: vector.tolist() for words, block in read_vectors(path) for word, vector in zip(words, block, strict=True)
    }


def test_every_form_gives_the_same_words(tmp_path: Path) -> None:
    text = write_vectors(tmp_path / "word2vec.txt.gz", WORDS)
    glove = write_vectors(tmp_path / "glove.txt", WORDS, header=False)
    written = [
        write_vectors(tmp_path / "word2vec.txt", WORDS),
        write_vectors(tmp_path / "fasttext.vec", WORDS, end=" "),
    ]
    raw = {"word2vec.bin": binary(WORDS), "word2vec.bin.gz": gzip.compress(binary(WORDS))}
    for name, content in {**raw, "gensim.bin": binary(WORDS, line_ends=False)}.items():
        (tmp_path / name).write_bytes(content)
        written.append(tmp_path / name)
    for path in (text, glove, *written):
        assert read_all(path) == WORDS, path.name
    assert open_vectors(text) == VectorFile(text, 3, 3, False)
    assert open_vectors(glove) == VectorFile(glove, 3, None, False)
    assert open_vectors(tmp_path / "word2vec.bin").binary


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=8),
        st.lists(st.floats(-8, 8, width=32).filter(bool), min_size=5, max_size=5), min_size=1, max_size=12,
    )
)  # fmt: skip
def test_binary_and_text_agree(tmp_path_factory: pytest.TempPathFactory, words: dict[str, list[float]]) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "a.bin").write_bytes(binary(words))
    assert read_all(write_vectors(folder / "a.txt", words)) == read_all(folder / "a.bin") == words


def test_gensim_reads_and_writes_the_same(tmp_path: Path) -> None:
    from gensim.models import KeyedVectors

    model = KeyedVectors(20)
    words = [f"word{n}" for n in range(300)]
    model.add_vectors(words, np.random.default_rng(1).normal(size=(300, 20)).astype(np.float32))
    for binary_form in (False, True):
        path = tmp_path / f"vectors{binary_form}"
        model.save_word2vec_format(str(path), binary=binary_form)
        assert open_vectors(path).binary is binary_form
        found = read_all(path)
        assert list(found) == words
        assert np.allclose(list(found.values()), model.vectors, rtol=1e-6)


def test_blocks_follow_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_module, "WORDS_AT_ONCE", 4)
    monkeypatch.setattr(vectors_module, "BYTES_AT_ONCE", 50)
    words = {f"w{n}": [float(n), 1.0, -1.0] for n in range(10)}
    text = write_vectors(tmp_path / "a.txt", words)
    raw = tmp_path / "a.bin"
    raw.write_bytes(binary(words))
    for path in (text, raw):
        assert [len(block) for block, _ in read_vectors(path)] == [4, 4, 2]
        assert read_all(path) == words


def test_the_first_of_equal_words_counts_words_may_have_spaces_and_only_wanted_ones_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("4 2\na 1 2\nb 3 4\na 5 6\nzero 0 0\n")
    assert read_all(path) == {"a": [1, 2], "b": [3, 4]}
    assert "1 words occur more than once" in capsys.readouterr().err
    assert {word: vector.tolist() for word, vector in vectors_of(path, {"b", "nothing"}).items()} == {"b": [3, 4]}
    path.write_text("the 1 2\n. . 3 4\nat name@domain.com 5 6\n")
    assert read_all(path) == {"the": [1, 2], ". .": [3, 4], "at name@domain.com": [5, 6]}
    path.write_text("1 1\nbad\x1b[31mword nan\n" + "x" * 5000)
    assert "\x1b" not in refused(DataError, "", read_all, path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"), (b"2 2\na 1 2\nb 1 nan\n", "the vector of 'b' holds a value that is not a finite number"),
        (b"1 2\na 1 1e99\n", "the vector of 'a' holds a value that is not a finite number"),
        (b"2 2\na 1 2\nb 1\n", "line 3 has 1 numbers, but the first line says 2 for each word"),
        (b"2 2\na 1 2\nb 1 2 3\n", "line 3 has 3 numbers, but the first line says 2"),
        (b"a 1 2\n5 3\nb 3 4\n", "line 2 has 1 numbers"), (b"1 2\na 1 two\n", "line 2: 'two' is not a number"),
        (b"3 2\na 1 2\nb 1 2\n", "the first line says 3 words, but there are 2"),
        (b"1 2\na 1 2\nb 1 2\n", "the first line says 1 words, but there are 2"), (b"0 300\n", "the file is empty"),
        (b"2 2\n\xff 1 2\nb 1 2\n", "line 2 is not UTF-8"),
        (b"just a text\nabout words\n", "line 1 is neither a header"),
        (binary(WORDS)[:-8], "the file ends in word 3"), (binary(WORDS) + b"more", "holds more than the 3 words"),
        (b"1 3\n\xff\xfe " + struct.pack("<3f", 1e-30, 2, 3), "word 1 is not UTF-8"),
        (b"1 2\na " + struct.pack("<2f", float("nan"), 1), "the vector of 'a' holds a value"),
        (b"1 2\n" + b"\x01" * 70_000, "word 1 does not end"),
        (b"\xba\x16\x4f\x2f" + bytes(100), r"is a fastText model \(\.bin\); vtkit needs its word vectors \(\.vec\)"),
        (pickle.dumps(WORDS), "is a pickle or an archive"),
        (bytes(range(256)), "is neither text nor the binary form"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused_with_the_place(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(content)
    refused(DataError, rf"vectors: .*{message}", read_all, path)


def test_the_first_bad_line_ends_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_module, "WORDS_AT_ONCE", 2)
    path = tmp_path / "vectors"
    for line, said in (("c 1", "line 4 has 1 numbers"), ("d nan 1", "'d' holds"), ("e one 2", "line 4: 'one'")):
        path.write_text(f"3 2\na 1 2\nb 3 4\n{line}\n")
        blocks = read_vectors(path)
        assert next(blocks)[0] == ["a", "b"]
        with pytest.raises(DataError, match=said):
            next(blocks)


def test_a_compressed_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    words = {f"w{n}": draw.normal(size=30).tolist() for n in range(4000)}
    for whole in (write_vectors(tmp_path / "text.vec.gz", words), tmp_path / "raw.bin.gz"):
        content = whole.read_bytes() if whole.exists() else gzip.compress(binary(words))
        whole.write_bytes(content[: len(content) // 2])
        refused(DataError, "damaged", read_all, whole)
    refused(DataError, "there is no such file", read_all, tmp_path / "nowhere.vec")


def test_a_model_without_its_embeddings_is_refused(tmp_path: Path) -> None:
    folder = tiny.bare(tmp_path / "model")
    file, config = folder / "model.safetensors", folder / "config.json"
    lacking = {name: tensor for name, tensor in load_file(file).items() if "word_embeddings" not in name}
    save_file(lacking, file, {"format": "pt"})
    refused(DataError, r"its weights lack 1 of the tensors .*word_embeddings", load_table, str(folder))
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "no-such-type"}))
    refused(DataError, "which the installed transformers does not have", load_table, str(folder))
