"""What is wrong inside the files a recipe names is told before anything is computed, all of it at once."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
import torch
from support import put, refused

from vtkit.commands.recipe import check_recipe
from vtkit.pipeline.run import run
from vtkit.pipeline.steps.finetune_encoder import FINETUNE
from vtkit.pipeline.steps.texts import EVALUATED, evaluated_in_training, unevaluated
from vtkit.pipeline.store import Store
from vtkit.recipe.checks import check_data
from vtkit.recipe.load import load_recipe
from vtkit.system.errors import CollapseError, DataError, RecipeError

RECIPE = """\
[recipe]
name = "small"
[source]
model = "./model"
[vocabulary]
kind = "trained"
corpus = ["text.txt"]
size = 400
[transfer]
method = "parallel"
parallel.files = ["pairs.tsv"]
[finetune]
data = "./collection"
[evaluate]
sets = ["./collection"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recipe and sound data for it."""
    put(tmp_path / "small.toml", RECIPE)
    put(tmp_path / "model" / "config.json", "{}")
    put(tmp_path / "text.txt", " ".join(f"word{number}" for number in range(100)))
    put(tmp_path / "pairs.tsv", "one\teins\ntwo\tzwei\n")
    collection = tmp_path / "collection"
    documents = [{"_id": f"d{number}", "title": "", "text": f"text {number}"} for number in range(5)]
    put(collection / "corpus.jsonl", documents)
    put(collection / "queries.jsonl", '{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n')
    put(collection / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n")
    put(collection / "qrels" / "train.tsv", "q1\td1\t1\n")
    return tmp_path


def complaint(folder: Path) -> str:
    said = refused(DataError, "", check_recipe, folder / "small.toml", data=True)
    return said.replace(f"{folder}/", "")


@pytest.fixture
def sound(folder: Path) -> Path:
    """The same with a model that can be opened, and a vocabulary that reads the collection."""
    tiny.bare(folder / "model")
    put(folder / "text.txt", " ".join(f"word{number} text{number}" for number in range(100)))
    return folder


def test_sound_data_pass(sound: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_recipe(sound / "small.toml", data=True)
    assert "is fine" in capsys.readouterr().out


def test_findings_of_the_first_stage_are_told_before_the_run(sound: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(sound / "text.txt", "слово дело слова дела " * 20)
    put(sound / "collection" / "corpus.jsonl", "".join(f'{{"_id": "d{n}", "text": "слово"}}\n' for n in range(5)))
    before = sorted(sound.rglob("*"))
    check_recipe(sound / "small.toml", ["transfer.method=subtoken"], data=True)
    shown = " ".join(capsys.readouterr().err.split())
    assert "a vocabulary of" in shown
    assert "warning: gate overlap after vocabulary: warn;" in shown
    assert "without a bridge between the languages" in shown
    assert sorted(sound.rglob("*")) == before


def test_what_the_first_stage_would_refuse_is_refused_by_the_check(sound: Path) -> None:
    put(sound / "text.txt", "a b c")
    refused(DataError, "too small to learn a vocabulary from", check_recipe, sound / "small.toml", data=True)
    put(sound / "vocab.txt", "\n".join(tiny.TOKENS))
    put(sound / "collection" / "corpus.jsonl", "".join(f'{{"_id": "d{n}", "text": "слово"}}\n' for n in range(5)))
    with pytest.raises(CollapseError, match="gate unicode after vocabulary"):
        check_recipe(
            sound / "small.toml", ["vocabulary.kind=existing", f"vocabulary.tokenizer={sound}/vocab.txt"], data=True
        )


CORPUS, QUERIES, TEST = "collection/corpus.jsonl", "collection/queries.jsonl", "collection/qrels/test.tsv"
Damage = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        (TEST, lambda raw: raw + b"q1\tabsent\t1\n", "document 'absent' (query 'q1') is not in corpus.jsonl"),
        (TEST, lambda raw: raw + b"q9\td1\t1\n", "query 'q9' is not in queries.jsonl"),
        (TEST, lambda raw: raw + b"q1\td1\tmuch\n", "line 4: the grade 'much' is not a whole number"),
        (TEST, lambda raw: raw + b"q1\td1\n", "line 4: has 2 columns"),
        (TEST, lambda raw: raw + b"q1\td1\t0\n", "line 4: 'q1' and 'd1' were judged 1 before"),
        (TEST, lambda raw: raw + b"q1\td2\t100001\n", "line 4: the grade '100001' is not between -1 and 100,000"),
        (TEST, lambda raw: raw + b"q1\td2\t-2\n", "line 4: the grade '-2' is not between -1 and 100,000"),
        (TEST, lambda raw: b"", "holds no judgements"),
        (TEST, lambda raw: raw.replace(b"\t1\n", b"\t0\n"), "judges no document relevant"),
        (TEST, lambda raw: raw + b"q1\td\xff\t1\n", "line 4 is not UTF-8: byte 0xff"),
        (CORPUS, lambda raw: raw + raw[: raw.index(b"\n") + 1], "line 6: id 'd0' occurs twice (first on line 1)"),
        (CORPUS, lambda raw: raw.replace(b'"d3"', b'"d 3"'), "line 4: the id 'd 3' contains white space"),
        (CORPUS, lambda raw: raw.replace(b'"d3"', b'"d\\u00a03"'), "run files cannot hold: write %20 for a space"),
        (CORPUS, lambda raw: raw.replace(b'"d3"', b'"d\\u00003"'), "contains control characters"),
        (CORPUS, lambda raw: raw.replace(b"text 3", b"text \0"), "line 4: is not JSON"),
        (CORPUS, lambda raw: raw.replace(b'"text 3"', b"[3]"), "line 4: text missing or not a string"),
        (CORPUS, lambda raw: b"", "holds no documents"),
        (CORPUS, lambda raw: b"\x1f\x8b" + raw, "The file is damaged or incomplete"),
        (QUERIES, lambda raw: raw.replace(b'"two"', b'" "'), "line 2: query 'q2' has no text"),
        (QUERIES, lambda raw: raw.replace(b'"q2"', b'""'), "line 2: the id is empty"),
        (QUERIES, lambda raw: b"", "holds no queries"),
        (QUERIES, lambda raw: raw.replace(b'"_id": "q2"', b'"name": "q2"'), "line 2: _id missing or not a string"),
        ("pairs.tsv", lambda raw: raw + b"three\n", "line 3 has 1 columns, not 2"),
        ("pairs.tsv", lambda raw: raw + b"\tdrei\n", "line 3 has an empty column"),
        ("text.txt", lambda raw: raw + b"\n\xff\xfe", "line 2 is not UTF-8"),
        ("text.txt", lambda raw: raw + b"\0", "holds NUL bytes"),
        ("text.txt", lambda raw: b"\n \n", "holds no text"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(folder: Path, name: str, damage: Damage, said: str) -> None:
    path = folder / name
    path.write_bytes(damage(path.read_bytes()))
    message = complaint(folder)
    assert said in message
    assert name in message
    refused(DataError, "names data that cannot be used", run, folder / "small.toml", runs=folder / "runs")
    assert not list((folder / "runs" / "artifacts").glob("vocabulary-*"))


def test_a_damaged_model_that_a_later_stage_opens_is_named_before_anything_runs(folder: Path) -> None:
    put(folder / "prior" / "config.json", '{"model_type": "bert"}')
    torch.save({"weight": torch.zeros(1)}, folder / "prior" / "pytorch_model.bin")
    recipe = folder / "small.toml"
    overrides = (f"transfer.bias.model={folder / 'prior'}",)
    with pytest.raises(DataError, match=r"names data that cannot be used:\n.*transfer\.bias\.model: .*no tokenizer"):
        run(recipe, overrides, runs=folder / "runs")
    with pytest.raises(DataError, match=r"transfer\.bias\.model: .*holds no tokenizer"):
        check_recipe(recipe, list(overrides), data=True)
    assert not list((folder / "runs" / "artifacts").glob("vocabulary*"))


def test_the_judgements_that_training_is_validated_on_are_read_too(folder: Path) -> None:
    (folder / "small.toml").write_text(f'{RECIPE}[finetune.validation]\nqueries = "dev"\n')
    put(folder / "collection" / "qrels" / "dev.tsv", "q1\tabsent\t1\n")
    assert "qrels/dev.tsv: document 'absent'" in complaint(folder)


def test_a_problem_of_a_file_that_several_settings_read_is_said_once(folder: Path) -> None:
    put(folder / CORPUS, (folder / CORPUS).read_bytes() + b"no object\n")
    assert complaint(folder).count("is not JSON") == 1


def test_byte_order_marks_and_windows_line_ends_do_no_harm(sound: Path) -> None:
    for name in (CORPUS, QUERIES, TEST, "pairs.tsv", "text.txt"):
        path = sound / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    check_recipe(sound / "small.toml", data=True)


def test_all_problems_of_all_files_are_told_at_once(folder: Path) -> None:
    corpus = folder / CORPUS
    corpus.with_name("corpus.jsonl.gz").write_bytes(gzip.compress(corpus.read_bytes() * 3)[:-20])
    corpus.unlink()
    put(folder / QUERIES, "no json\n" * 9)
    put(folder / TEST, "q1\td1\t1\nq1\td1\tx\n")
    put(folder / "pairs.tsv", "one\ntwo\tzwei\tdos\n")
    put(folder / "text.txt", "")
    message = re.sub(" +", " ", complaint(folder))
    for said in (
        "corpus.jsonl.gz: ",
        "damaged or incomplete",
        "queries.jsonl: line 1 and 8 more: is not JSON",
        "test.tsv: line 2: the grade",
        "line 11 transfer.parallel.files: pairs.tsv: 2 problems",
        "line 2 has 3 columns",
        "line 7 vocabulary.corpus: ",
        "line 13 finetune.data: ",
        "line 15 evaluate.sets: ",
    ):
        assert said in message


def test_only_what_was_found_sound_and_did_not_change_is_not_read_again(folder: Path) -> None:
    loaded = load_recipe(folder / "small.toml")
    root = folder / "store"
    root.mkdir()

    def check() -> tuple[int, int]:
        """The files that were read, and those that were not."""
        store = Store(root)
        return check_data(loaded.recipe, path=folder / "small.toml", digest=store.digest, memory=root / "checked.json")

    assert check() == (4, 0)
    assert check() == (0, 4)
    put(folder / "pairs.tsv", "one\teins\ntwo\tzwei\nthree\tdrei\n")
    assert check() == (1, 3)
    put(folder / TEST, "q1\tabsent\t1\n")
    for _ in range(2):
        refused(DataError, "absent", check)
    put(root / "checked.json", "damaged")
    put(folder / TEST, "q2\td2\t1\n")
    assert check() == (4, 0)


def queried(folder: Path, evaluated: list[str], trained: list[str]) -> None:
    """The collection with these evaluated queries, and a file of training pairs of others."""
    lines = [f'{{"_id": "q{n}", "text": "{text}"}}\n' for n, text in enumerate(evaluated)]
    put(folder / "collection" / "queries.jsonl", "".join(lines))
    put(folder / TEST, "".join(f"q{n}\td{n % 5}\t1\n" for n in range(len(evaluated))))
    (folder / "collection" / "qrels" / "train.tsv").unlink(missing_ok=True)
    put(folder / "trained.tsv", "".join(f"{text}\ttext {n % 5}\n" for n, text in enumerate(trained)))
    put(folder / "small.toml", RECIPE.replace('data = "./collection"', 'data = "./trained.tsv"'))


@pytest.mark.parametrize(
    ("shared", "said"),
    [
        (20, "20 of 20 evaluated queries of collection are among 20 training queries: a model that has learned them"),
        (18, "18 of 20 evaluated queries of collection are among 20 training queries: a model that has learned them"),
        (3, "3 of 20 evaluated queries of collection are among 20 training queries. A run leaves them out"),
        (0, "0 of 20 evaluated queries of collection are among 20 training queries"),
    ],
)
def test_evaluated_queries_that_are_trained_on_are_counted_and_refused_if_they_are_most(
    shared: int, said: str, sound: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case, punctuation and spaces do not make another query."""
    evaluated = [f"Where does river {n} end?" for n in range(20)]
    trained = [f"where  does RIVER {n} end" if n < shared else f"who swims in {n}" for n in range(20)]
    queried(sound, evaluated, trained)
    if shared > 10:
        assert f"finetune.data: {said}" in complaint(sound)
    else:
        check_recipe(sound / "small.toml", data=True)
        assert said in " ".join(capsys.readouterr().err.split())


def test_queries_that_are_evaluated_are_left_out_of_training_and_only_then_in_its_key(sound: Path) -> None:
    evaluated = [f"river {n}" for n in range(20)]
    seen = {}
    for shared in (0, 3):
        queried(sound, evaluated, [*evaluated[:shared], *(f"lake {n}" for n in range(shared, 20))])
        recipe = load_recipe(sound / "small.toml").recipe
        seen[shared] = unevaluated(FINETUNE.view(recipe), "train", "train")
        assert bool(evaluated_in_training(recipe)) == bool(shared)
        assert any(EVALUATED in entry for entry in FINETUNE.files(recipe, str)) == bool(shared)
    assert [len(data.queries) for data in seen.values()] == [20, 17]
    assert all(query.text.startswith("lake") for query in seen[3].queries)
    assert seen[3].qrels.keys() == {query.id for query in seen[3].queries}


def test_judgements_that_are_evaluated_are_not_trained_on(folder: Path) -> None:
    put(folder / "small.toml", RECIPE.replace('data = "./collection"', 'data = "./collection"\nsplit = "test"'))
    with pytest.raises(RecipeError, match=r'finetune\.split: .* is evaluated on "test".* must not be trained on'):
        check_recipe(folder / "small.toml")
