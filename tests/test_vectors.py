"""Files of word vectors: every form gives the same words, and what is wrong with a file is said with its place."""

import gzip
import pickle
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtkit.data import vectors as vectors_module
from vtkit.data.vectors import VectorFile, open_vectors, read_vectors, vectors_of
from vtkit.system.errors import DataError

WORDS = {"the": [0.5, -1.0, 2.0], "집": [1.0, 0.25, 0.0], "##s": [-0.125, 3.0, 1.5]}


def write_text(path: Path, words: Mapping[str, Iterable[float]], header: bool = True, end: str = "") -> Path:
    lines = [f"{word} {' '.join(map(repr, map(float, vector)))}{end}" for word, vector in words.items()]
    width = len(list(next(iter(words.values()))))
    text = "".join(f"{line}\n" for line in ([f"{len(words)} {width}"] if header else []) + lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


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
    text = write_text(tmp_path / "word2vec.txt.gz", WORDS)
    glove = write_text(tmp_path / "glove.txt", WORDS, header=False)
    written = [write_text(tmp_path / "word2vec.txt", WORDS), write_text(tmp_path / "fasttext.vec", WORDS, end=" ")]
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
    assert read_all(write_text(folder / "a.txt", words)) == read_all(folder / "a.bin") == words


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
    text = write_text(tmp_path / "a.txt", words)
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
    with pytest.raises(DataError) as error:
        read_all(path)
    assert "\x1b" not in str(error.value)


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
    with pytest.raises(DataError, match=rf"vectors: .*{message}"):
        read_all(path)


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
    for whole in (write_text(tmp_path / "text.vec.gz", words), tmp_path / "raw.bin.gz"):
        content = whole.read_bytes() if whole.exists() else gzip.compress(binary(words))
        whole.write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match="damaged"):
            read_all(whole)
    with pytest.raises(DataError, match="there is no such file"):
        read_all(tmp_path / "nowhere.vec")
