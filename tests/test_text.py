"""Text files: lines, forms of corpora, parallel text, digests, and what is said about damaged files."""

import gzip
import hashlib
import json
import os
import re
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from support import put, refused

from vtkit.data.document_files import read_corpora, read_corpus
from vtkit.data.parallel import read_pairs
from vtkit.data.sampling import draw
from vtkit.data.text import CHARACTERS_AT_ONCE, LONGEST_TEXT, batches, digest, read_jsonl, read_lines
from vtkit.data.word_counts import count_chunks, make_room, text_pieces
from vtkit.pipeline.stage import Corpus
from vtkit.pipeline.steps.texts import bias_corpus, calibration_corpus, read_texts
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import DataError


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]))))
def test_lines_come_back_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    folder = tmp_path_factory.mktemp("lines")
    lines = [line.removeprefix("\ufeff") for line in lines]
    for name in ("t.txt", "t.txt.gz"):
        assert list(read_lines(put(folder / name, "".join(f"{line}\n" for line in lines)))) == lines


def test_line_ends_of_windows_and_a_byte_order_mark_are_dropped_and_other_separators_kept(tmp_path: Path) -> None:
    path = put(tmp_path / "t.txt", "\ufeffeins\r\nzw\u2028ei\x85\r\ndrei")
    assert list(read_lines(path)) == ["eins", "zw\u2028ei\x85", "drei"]


@pytest.mark.parametrize("name", ["t.txt", "t.txt.gz"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_byte_that_is_not_utf8_is_named_with_its_place(tmp_path: Path, name: str, mark: bytes) -> None:
    path = put(tmp_path / name, mark + b"good\nbad \xe9t\xe9\n")
    said = refused(DataError, "", read_lines, path)
    place = 5 + len(mark) + 5
    for part in (str(path), "line 2", "0xe9", "position 5 of the line", f"byte {place} of the text", "iconv"):
        assert part in said


def test_compressed_files_are_read_whatever_their_name_and_frames_and_damage_is_told(tmp_path: Path) -> None:
    text = "".join(f"line {number} é\n" for number in range(5000))
    raw = text.encode()
    zipped = gzip.compress(os.urandom(50_000).hex().encode() + b"\n")
    frames = zstandard.compress(raw[:20_001]) + zstandard.compress(raw[20_001:])
    for name, content in (("t.txt.zst", frames), ("c.jsonl", gzip.compress(raw)), ("d.jsonl", frames)):
        (tmp_path / name).write_bytes(content)
        assert list(read_lines(tmp_path / name)) == text.splitlines()
    for name, damaged in (
        ("cut.txt.gz", zipped[: len(zipped) // 2]), ("other.txt.gz", b"plain text"), ("cut.txt.zst", frames[:-9]),
        ("other.txt.zst", b"x" + frames),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(damaged)
        refused(DataError, "damaged", read_lines, tmp_path / name)


def test_a_byte_order_mark_inside_a_file_is_named_and_surrogate_pairs_are_characters(tmp_path: Path) -> None:
    entries = [entry for _, entry in read_jsonl(put(tmp_path / "c.jsonl", "\ufeff{}\n\ufeff{}\n"))]
    assert entries[0] == {}
    assert "Unexpected UTF-8 BOM" in str(entries[1])
    assert list(read_corpus(put(tmp_path / "c.jsonl", '{"text": "\\ud83d\\ude00"}\n'))) == ["😀"]


def test_a_file_that_is_missing_or_compressed_otherwise_says_what_to_do(tmp_path: Path) -> None:
    refused(DataError, "no such file", read_lines, tmp_path / "absent.txt")
    refused(DataError, "only gzip and zstandard are supported", read_lines, put(tmp_path / "t.txt.bz2", "x"))
    refused(DataError, "cannot be opened", read_lines, tmp_path)


def test_bytes_that_are_not_utf8_are_counted_and_replaced_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(tmp_path / "t.txt", b"fine\nM\xfcnchen\nK\xf6ln \xe2\x82 \xef\xbf\xbd\n")
    message = refused(DataError, "", read_corpus, path)
    said = "line 2 is not UTF-8: byte 0xfc at position 2 of the line (byte 7 of the text)"
    assert f"{said}, the first of 3 such places" in message
    assert list(read_corpus(path, "replace")) == ["fine", "M\ufffdnchen", "K\ufffdln \ufffd \ufffd"]
    assert f"{said}. 3 such places were replaced by U+FFFD." in " ".join(capsys.readouterr().err.split())


def test_a_file_of_one_line_is_read_in_pieces(tmp_path: Path) -> None:
    word = "Straßenbahnhaltestelle "
    path = put(tmp_path / "t.txt", word * (3 * LONGEST_TEXT // len(word)))
    texts = list(read_corpus(path))
    assert all(len(text) <= LONGEST_TEXT for text in texts)
    assert set(" ".join(texts).split(" ")) == {word.strip()}
    assert sum(text.count(word.strip()) for text in texts) == 3 * LONGEST_TEXT // len(word)
    unspaced = "日本語、" * (LONGEST_TEXT // 8)
    assert "".join(read_corpus(put(tmp_path / "t.txt", unspaced))) == unspaced
    with pytest.raises(DataError, match="without white space or punctuation"):
        list(read_corpus(put(tmp_path / "t.txt", "x" * (LONGEST_TEXT + 2))))


def test_a_record_longer_than_any_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "')
        for _ in range(65):
            file.write(b"long text " * (2**20 // 10))
        file.write(b'"}\n')
    refused(DataError, "line 1 is longer than 64 MiB", read_corpus, path)


def test_a_column_of_a_dataset_is_a_corpus(tmp_path: Path) -> None:
    import datasets

    rows = {"id": [1, 2, 3], "abstract": ["first", None, "third é"]}
    datasets.Dataset.from_dict(rows).save_to_disk(str(tmp_path / "saved"))
    (tmp_path / "files").mkdir()
    datasets.Dataset.from_dict(rows).to_parquet(str(tmp_path / "files" / "part.parquet"))
    for name in ("saved", "files"):
        spec = f"datasets:{tmp_path / name}:::abstract"
        assert list(read_corpus(spec)) == ["first", "third é"]
        refused(DataError, r"no column .text.\. There are id, abstract", read_corpus, f"datasets:{tmp_path / name}")
        with pytest.raises(DataError, match="row 1 has int instead of text in the column 'id'"):
            list(read_corpus(f"datasets:{tmp_path / name}:::id"))
    with pytest.raises(DataError, match="cannot be read with the datasets library"):
        list(read_corpus(f"datasets:{tmp_path / 'files'}::dev:abstract"))
    refused(DataError, "there is no folder", read_corpus, f"datasets:{tmp_path / 'absent'}")
    refused(DataError, "write a dataset as", read_corpus, "datasets:a:b:c:d:e")


def test_every_form_of_corpus_gives_its_texts(tmp_path: Path) -> None:
    documents: list[dict[str, str | None]] = [{"_id": "1", "title": "Seoul", "text": " A city. "}]
    documents += [{"_id": "2", "title": "", "text": "No title."}, {"_id": "3", "title": None, "text": "한국어"}]
    documents += [{"_id": "4", "text": " "}]
    wanted = ["Seoul A city.", "No title.", "한국어"]
    for name in ("c.jsonl", "c.jsonl.gz", "beir/corpus.jsonl", "beir-gz/corpus.jsonl.gz", "miracl/docs-0.jsonl.gz"):
        path = put(tmp_path / name, documents)
        assert list(read_corpus(path.parent if "/" in name else path)) == wanted
    assert list(read_corpus(str(put(tmp_path / "c.txt", "one\n\n  two \n")))) == ["one", "two"]
    assert list(read_corpora([tmp_path / "c.txt", tmp_path / "c.jsonl.gz"])) == ["one", "two", *wanted]


@pytest.mark.parametrize("name", ["en ko.tsv", "en ko.tsv.gz"])
def test_parallel_text_named_as_a_corpus_is_refused_with_a_command_that_makes_one(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, "dog\t개\ncat\t고양이\n")
    said = refused(DataError, "has columns, but a corpus has one text per line", read_corpus, path)
    (command,) = re.findall(r"\(the second: (.*)\)", said)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert list(read_corpus(tmp_path / "en ko.txt")) == ["개", "고양이"]


def test_the_parts_of_a_sharded_corpus_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in range(12):
        document = {"docid": str(number), "title": "", "text": f"t{number}"}
        put(tmp_path / f"docs-{number}.jsonl.gz", json.dumps(document))
    assert list(read_corpus(tmp_path)) == [f"t{number}" for number in range(12)]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("c.txt", "\n \n", "holds no text"),
        ("c.csv", "a,b\n1,2\n", "text missing or not a string. Its columns are a, b: name --text COLUMN"),
        ("c.xml", "a,b\n", "unknown format"),
        ("c.jsonl", '{"text": "fine"}\n{"text": \n', "line 2: is not JSON"),
        ("c.jsonl", "[1]\n", "line 1: is not a JSON object but a list"),
        ("c.jsonl", '{"title": "only"}\n', "line 1: text missing or not a string"),
        ("c.jsonl", '{"text": "\\ud800 alone"}\n', "line 1: holds half of a surrogate pair"),
        ("folder/other.xml", "x\n", "holds no text"),
    ],
)
def test_a_corpus_that_cannot_be_read_says_why(tmp_path: Path, name: str, content: str, complaint: str) -> None:
    path = put(tmp_path / name, content)
    refused(DataError, complaint, read_corpus, path.parent if "/" in name else path)
    refused(DataError, "no such file or folder", read_corpus, tmp_path / "absent")


def test_pairs_have_two_columns_and_nothing_else(tmp_path: Path) -> None:
    path = put(tmp_path / "p.tsv", "dog\t 개\n\n the cat \t고양이\r\n")
    assert list(read_pairs(path)) == [("dog", "개"), ("the cat", "고양이")]
    for content, complaint in (
        ("dog\t개\ncat\n", "line 2 has 1 columns, not 2"),
        ("dog\t개\t犬\n", "line 1 has 3 columns, not 2"),
        ("dog\t \n", "line 1 has an empty column"),
        ("\t개\n", "line 1 has an empty column"),
        ("\n", "holds no pairs"),
    ):
        refused(DataError, complaint, read_pairs, put(tmp_path / "bad.tsv", content))


def test_all_bad_lines_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    def said(name: str, content: bytes) -> list[str]:
        path = put(tmp_path / name, content)
        texts = (target for _, target in read_pairs(path)) if name == "p.tsv" else read_corpus(path)
        assert next(texts) == "first"
        with pytest.raises(DataError) as error:
            next(texts)  # nothing more is given
        return str(error.value).replace(f"{tmp_path}/", "").splitlines()

    others = b"".join(b"x" + b"\ty" * number + b"\n" for number in range(3, 7))
    head, *problems, more, _ = said("p.tsv", b"a\tfirst\nb\n\nc\td\te\n\tf\n" + b"one\n" * 10 + others)
    assert (head, more.strip()) == ("p.tsv: 17 problems", "... and 2 more")
    assert [line.split()[1] for line in problems] == ["2", "4", "5", "16", "17"]
    assert problems[0].strip() == "line 2 and 10 more has 1 columns, not 2"
    found = said("t.txt", b"first\nb\0\nc\0\0\nd\xff\n")
    assert found[0] == "t.txt: 2 problems"
    assert found[1].startswith("  line 2 holds NUL bytes")
    assert found[2].startswith("  line 4 is not UTF-8: byte 0xff at position 2 of the line")
    found = said("c.jsonl", b'{"text": "first"}\n{}\n{"text": "second"}\nno\n\xff\n')
    assert [re.findall(r"^  line (\d+)", line) for line in found[1:]] == [[number] for number in "245"]


def test_the_digest_of_a_folder_follows_names_and_contents_only(tmp_path: Path) -> None:
    def folder(name: str, files: dict[str, str]) -> str:
        for file, content in files.items():
            put(tmp_path / name / file, content)
        return digest(tmp_path / name)

    first = folder("a", {"x": "1", "sub/y": "2"})
    os.utime(tmp_path / "a" / "x", (0, 0))
    assert digest(put(tmp_path / "t.txt", "abc")) == hashlib.sha256(b"abc").hexdigest()
    assert digest(tmp_path / "a") == first == folder("b", {"sub/y": "2", "x": "1", ".cache/z": "3"})
    others = [folder("c", {"x": "2", "sub/y": "1"}), folder("d", {"x": "1", "y": "2"}), folder("e", {"x": "12"})]
    assert len({first, *others}) == 4
    refused(DataError, "no such file or folder", digest, tmp_path / "absent")


@given(st.lists(st.integers(0, 3_000_000).map(lambda length: "x" * length), max_size=8), st.integers(1, 4))
def test_batches_are_the_texts_back_off_and_bounded(texts: list[str], size: int) -> None:
    found = list(batches(texts, size))
    assert [text for batch in found for text in batch] == texts
    assert all(1 <= len(batch) <= size for batch in found)
    assert all(sum(map(len, batch[:-1])) < CHARACTERS_AT_ONCE for batch in found)
    pairs = list(batches([(text, text) for text in texts]))
    assert [pair[0] for batch in pairs for pair in batch] == texts
    assert all(sum(len(side) for pair in batch[:-1] for side in pair) < CHARACTERS_AT_ONCE for batch in pairs)


# Which texts a stage reads, drawing some of them, and counts of their words in bounded memory.


@given(st.lists(st.text()), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_what_is_drawn_is_there_in_the_order_it_came(texts: list[str], most: int, seed: int) -> None:
    numbered = [f"{n} {text}" for n, text in enumerate(texts)]
    drawn = draw(iter(numbered), most, seed)
    assert len(drawn) == min(most, len(texts))
    assert drawn == [text for text in numbered if text in set(drawn)]
    assert drawn == draw(numbered, most, seed)


def test_each_text_is_equally_likely() -> None:
    texts = [str(n) for n in range(12)]
    counts = Counter(text for seed in range(6000) for text in draw(texts, 4, seed))
    assert counts.total() == 24_000
    # 2000 expected for each, standard deviation 37
    assert max(abs(counts[text] - 2000) for text in texts) < 4 * 37
    assert draw(texts, 4, 1) != draw(texts, 4, 2)
    assert draw(["same"] * 5, 3, 0) == ["same"] * 3  # equal texts are drawn as often as they occur


def recipe(**sections: object) -> Recipe:
    return Recipe.model_validate(
        {
            "recipe": {"name": "r"},
            "source": {"model": "/m"},
            "vocabulary": {"kind": "existing", "tokenizer": "/t"},
            "transfer": {"method": "mean"},
            **sections,
        }
    )


def plain(*names: str) -> tuple[Corpus, ...]:
    return tuple(Corpus(name) for name in names)


def test_texts_come_from_the_first_section_that_names_some() -> None:
    adapt, finetune = {"corpus": ("/adapt",)}, {"data": "/finetune"}
    evaluate = {"sets": ("/evaluate",)}
    prior = {"method": "mean", "bias": {"corpus": ("/prior",)}}
    named = recipe(adapt=adapt, finetune=finetune, calibrate={"corpus": ("/probe",)}, transfer=prior)
    assert (calibration_corpus(named), bias_corpus(named)) == (plain("/probe"), plain("/prior"))
    from_adapt = recipe(adapt=adapt, finetune=finetune, calibrate={})
    assert calibration_corpus(from_adapt) == bias_corpus(from_adapt) == plain("/adapt")
    from_finetune = recipe(finetune=finetune, calibrate={}, evaluate=evaluate)
    assert calibration_corpus(from_finetune) == bias_corpus(from_finetune) == plain("/finetune")
    assert bias_corpus(recipe(evaluate=evaluate)) == plain("/evaluate")
    assert bias_corpus(recipe(transfer={"method": "mean", "bias": {"method": "mixture"}})) == ()


def test_corpora_are_read_one_after_the_other(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n\nlast of {name}\n", "utf-8")
    names = [str(tmp_path / f"{name}.txt") for name in "ba"]
    assert list(read_texts(plain(*names))) == ["b", "last of b", "a", "last of a"]


LETTERS = st.text(st.sampled_from(' \t\n\x1c\x85\u00a0\u2028\u3000ab\\"é한\U0001f600\ud800'), max_size=30)


def naive(texts: list[str]) -> Counter[str]:
    """Chunks begin where white space does, but for control characters that some normalizers drop."""
    spaces = [" ", "\t", "\n", "\u00a0", "\u2028", "\u3000"]
    chunks: Counter[str] = Counter()
    for text in texts:
        starts = [n for n in range(1, len(text)) if text[n] in spaces and text[n - 1] not in spaces]
        chunks.update(text[start:end] for start, end in pairwise([0, *starts, len(text)]) if start < end)
    return chunks


@given(st.lists(LETTERS))
@example([" ", " a", "a ", " a b", "a b", "a  b", "a\x1cb", "\x1ca"])
def test_counts_equal_those_of_a_dictionary(texts: list[str]) -> None:
    counted, reference = count_chunks(iter(texts)), naive(texts)
    words: Counter[str] = Counter()
    for chunk, count in reference.items():
        words[chunk.lstrip(" \t\n\u00a0\u2028\u3000")] += count
    assert (counted.counts, counted.words()) == (reference, words - Counter({"": words[""]}))
    assert (counted.texts, counted.characters) == (len(texts), sum(map(len, texts)))


@given(st.lists(LETTERS, max_size=4), st.integers(1, 20))
def test_a_long_text_is_cut_in_front_of_white_space_only(parts: list[str], longest: int) -> None:
    text = "".join(parts)
    cut = list(text_pieces(text, longest))
    assert "".join(cut) == text
    assert naive(cut) == naive([text])


def test_beyond_twice_the_bound_the_rarest_are_dropped_whatever_the_order() -> None:
    counts = Counter("eeddddcba")
    make_room(counts, 3)
    assert counts == {"a": 1, "b": 1, "c": 1, "d": 4, "e": 2}
    counts.update("fg")
    make_room(counts, 3)
    assert counts == {"a": 1, "d": 4, "e": 2}
