"""Stage outputs on disk: their keys, that they appear whole or not at all, and that damage is found."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import python
from hypothesis import given
from hypothesis import strategies as st
from support import refused

from vtkit.data import hub
from vtkit.pipeline.store import CHECKPOINTS, MANIFEST, Dependencies, Store, read_manifest, result_of
from vtkit.system.checksums import VERIFIED, checksum
from vtkit.system.errors import VtkitError
from vtkit.system.outputs import held, publish, remove_half_written, write_atomically
from vtkit.system.results import Result


@dataclass(frozen=True)
class Rows(Result):
    """What the stages of these tests find."""

    rows: int = 0
    found: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowsAndTexts(Rows):
    """The same with a field more, which has no default."""

    texts: int = field(kw_only=True)


BASE = Dependencies(
    stage="adapt",
    version=1,
    settings={"adapt.steps": 10, "adapt.corpus": ["(file)"], "adapt.train": None},
    seed=42,
    inputs={"model": "k1"},
    files={"adapt.corpus[0]": "d1"},
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "artifacts")
    made.prepare()
    return made


def two_files(folder: Path) -> Rows:
    """A stage that writes two files, one of them in a folder."""
    (folder / "model").mkdir()
    (folder / "model" / "weights").write_bytes(b"weights")
    (folder / "table.tsv").write_text("a\tb\n")
    return Rows(1)


def never(folder: Path) -> Rows:
    raise AssertionError(f"{folder} was made again")


def failing(folder: Path) -> Rows:
    two_files(folder)
    raise RuntimeError("on purpose")


# keys

CHANGES: list[dict[str, Any]] = [
    {"stage": "transfer"},
    {"version": 2},
    {"settings": {**BASE.settings, "adapt.steps": 11}},
    {"settings": {**BASE.settings, "adapt.train": False}},
    {"settings": {**BASE.settings, "adapt.new": None}},
    {"settings": {"adapt.steps": 10, "adapt.corpus": ["(file)"]}},
    {"settings": {**BASE.settings, "adapt.steps": "10"}},
    {"seed": 43},
    {"inputs": {"model": "k2"}},
    {"inputs": {"source": "k1"}},
    {"files": {"adapt.corpus[0]": "d2"}},
    {"files": {"adapt.corpus[1]": "d1"}},
    {"files": {}},
]


def test_every_change_of_a_dependency_has_a_key_of_its_own() -> None:
    keys = [BASE.key, *(replace(BASE, **change).key for change in CHANGES)]
    assert len(set(keys)) == len(keys)


def test_the_key_depends_on_nothing_else() -> None:
    shuffled = {name: BASE.settings[name] for name in reversed(BASE.settings)}
    assert replace(BASE, settings=shuffled).key == BASE.key
    assert replace(BASE, settings={**BASE.settings, "adapt.corpus": ("(file)",)}).key == BASE.key
    code = f"from vtkit.pipeline.store import Dependencies\nprint({BASE!r}.key)"
    assert python("-c", code, cwd=Path(__file__).parents[1], PYTHONHASHSEED="7").strip() == BASE.key


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())))
def test_any_settings_of_a_recipe_have_a_key(settings: dict[str, Any]) -> None:
    key = replace(BASE, settings=settings).key
    assert len(key) == 64
    assert key == replace(BASE, settings=dict(sorted(settings.items()))).key


# building


def test_an_output_is_made_once_and_says_what_it_was_made_from(store: Store) -> None:
    folder = store.build(BASE, Rows, two_files, afresh=False)
    assert folder == store.folder(BASE) == store.root / f"adapt-{BASE.key[:20]}"
    assert (folder / "model" / "weights").read_bytes() == b"weights"
    manifest = read_manifest(store.folder(BASE))
    for name in ("stage", "seed", "key"):
        assert manifest[name] == getattr(BASE, name)
    assert (manifest["settings"], manifest["inputs"], manifest["files"]) == (BASE.settings, BASE.inputs, BASE.files)
    assert manifest["result"] == {"rows": 1, "found": []}
    assert result_of(folder, Rows) == Rows(1)
    assert sorted(manifest["outputs"]) == ["model/weights", "table.tsv"]
    assert manifest["versions"]["torch"]
    assert int(manifest["versions"]["threads"]) >= 1
    assert store.damage(BASE, Rows) is None
    assert store.build(BASE, Rows, never, afresh=False) == folder


def test_the_manifest_says_what_revisions_were(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = tmp_path / "hub" / "datasets--a--texts" / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "corpus.jsonl").write_text("{}\n", "utf-8")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    def reading(folder: Path) -> Rows:
        hub.fetch("a/texts", ["*.jsonl"], "dataset", commit)
        return two_files(folder)

    folder = store.build(BASE, Rows, reading, afresh=False)
    assert json.loads((folder / "manifest.json").read_text("utf-8"))["hub"]["a/texts"] == commit


def test_a_stage_that_fails_leaves_what_was_there(store: Store) -> None:
    refused(RuntimeError, "on purpose", store.build, BASE, Rows, failing, afresh=False)
    assert not store.folder(BASE).exists()
    assert read_manifest(store.folder(BASE)) is None
    store.build(BASE, Rows, two_files, afresh=False)  # what the failed try left is gone
    assert store.damage(BASE, Rows) is None
    refused(RuntimeError, "on purpose", store.build, BASE, Rows, failing, afresh=True)
    assert store.damage(BASE, Rows) is None
    assert result_of(store.folder(BASE), Rows) == Rows(1)


def test_an_output_that_is_asked_for_again_replaces_the_old_one_whole(store: Store) -> None:
    store.build(BASE, Rows, two_files, afresh=False)
    folder = store.build(BASE, Rows, lambda out: Rows((out / "other").write_text("other")), afresh=True)
    assert sorted(path.name for path in folder.iterdir()) == [VERIFIED, MANIFEST, "other"]
    assert result_of(folder, Rows) == Rows(5)
    assert list((store.root / ".partial").iterdir()) == []


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    """A damage: ``change`` of the manifest."""

    def damage(folder: Path) -> None:
        manifest = json.loads((folder / MANIFEST).read_text())
        change(manifest)
        (folder / MANIFEST).write_text(json.dumps(manifest))

    return damage


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "byte": (lambda folder: (folder / "model" / "weights").write_bytes(b"weightz"), "model/weights is damaged"),
    "length": (lambda folder: (folder / "table.tsv").write_text("a\tb\nmore\n"), "table.tsv is damaged"),
    "missing": (lambda folder: (folder / "table.tsv").unlink(), "table.tsv is missing"),
    "manifest": (lambda folder: (folder / MANIFEST).unlink(), "manifest is missing"),
    "half": (lambda folder: os.truncate(folder / MANIFEST, 100), "manifest was changed"),
    "other json": (lambda folder: (folder / MANIFEST).write_text("[1]"), "manifest was changed"),
    "result": (edited(lambda manifest: manifest["result"].update(rows=2)), "manifest was changed"),
    "checksum": (edited(lambda manifest: manifest.pop("manifest_sha256")), "manifest was changed"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_found_and_put_right(damage: Callable[[Path], Any], said: str, store: Store) -> None:
    folder = store.build(BASE, Rows, two_files, afresh=False)
    damage(folder)
    assert said in (store.damage(BASE, Rows) or "")
    assert store.build(BASE, Rows, two_files, afresh=False) == folder
    assert store.damage(BASE, Rows) is None


def test_checkpoints_outlive_a_failure_are_dropped_with_afresh_and_are_not_part_of_the_output(store: Store) -> None:
    def trains(folder: Path) -> Rows:
        checkpoints = sorted(path.name for path in (folder / CHECKPOINTS).glob("*"))
        (folder / CHECKPOINTS / f"step-{len(checkpoints)}").mkdir(parents=True)
        (folder / "half").write_text("half")
        if len(checkpoints) < 2:
            raise RuntimeError(f"killed after {checkpoints}")
        return Rows(found=tuple(checkpoints))

    refused(RuntimeError, r"killed after \[\]", store.build, BASE, Rows, trains, afresh=False)
    refused(RuntimeError, r"killed after \['step-0'\]", store.build, BASE, Rows, trains, afresh=False)
    refused(RuntimeError, r"killed after \[\]", store.build, BASE, Rows, trains, afresh=True)
    refused(RuntimeError, r"killed after \['step-0'\]", store.build, BASE, Rows, trains, afresh=False)
    folder = store.build(BASE, Rows, trains, afresh=False)
    assert result_of(folder, Rows).found == ("step-0", "step-1")
    assert sorted(path.name for path in folder.iterdir()) == [VERIFIED, "half", MANIFEST]


def test_an_output_whose_manifest_has_another_form_is_made_anew(store: Store, tmp_path: Path) -> None:
    """A class that changed although nobody raised the stage's version; and one from before results had classes."""
    folder = store.build(BASE, Rows, two_files, afresh=False)
    assert "version" in (store.damage(BASE, RowsAndTexts) or "")
    refused(VtkitError, r"another version of vtkit.* Run the recipe again", result_of, folder, RowsAndTexts)
    store.build(BASE, RowsAndTexts, lambda out: RowsAndTexts(rows=4, texts=5), afresh=False)
    assert result_of(folder, RowsAndTexts) == RowsAndTexts(rows=4, texts=5)
    assert store.damage(BASE, Rows) is None  # a field that is gone is passed over
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["facts"] = manifest.pop("result")
    del manifest["manifest_sha256"]
    (folder / MANIFEST).write_text(json.dumps(manifest | {"manifest_sha256": checksum(manifest)}))
    assert "version" in (store.damage(BASE, Rows) or "")
    store.build(BASE, Rows, two_files, afresh=False)
    assert result_of(folder, Rows) == Rows(1)
    refused(VtkitError, "manifest is missing", result_of, tmp_path, Rows)


# digests of the user's files


def test_a_changed_file_has_another_digest_and_an_unchanged_one_is_not_read_again(store: Store, tmp_path: Path) -> None:
    file, folder = tmp_path / "corpus.txt", tmp_path / "set"
    file.write_text("one\n")
    (folder / "qrels").mkdir(parents=True)
    (folder / "qrels" / "test.tsv").write_text("q\td\t1\n")
    first = {path: store.digest(str(path)) for path in (file, folder)}
    assert {path: Store(store.root).digest(str(path)) for path in first} == first

    # remembered: the digest in the book is believed while names, sizes and times stay
    book = store.root / "digests.json"
    entries = json.loads(book.read_text())
    book.write_text(json.dumps({name: [stamp, "remembered"] for name, (stamp, _) in entries.items()}))
    assert Store(store.root).digest(str(file)) == "remembered"
    assert Store(store.root).digest(str(folder)) == "remembered"

    # same length, later time
    file.write_text("two\n")
    (folder / "qrels" / "test.tsv").write_text("q\td\t0\n")
    for path in (file, folder / "qrels" / "test.tsv"):
        os.utime(path, ns=(time.time_ns(), time.time_ns() + 10**9))
    for path, before in first.items():
        assert Store(store.root).digest(str(path)) not in (before, "remembered")

    # back to the old contents, back to the old digest: contents count, not times
    file.write_text("one\n")
    assert Store(store.root).digest(str(file)) == first[file]
    (folder / "new").touch()
    assert Store(store.root).digest(str(folder)) != first[folder]


@pytest.mark.parametrize("broken", ["", "{", "[]", '"text"'])
def test_a_damaged_book_of_digests_is_written_anew(broken: str, store: Store, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("one\n")
    wanted = store.digest(str(tmp_path / "corpus.txt"))
    (store.root / "digests.json").write_text(broken)
    assert Store(store.root).digest(str(tmp_path / "corpus.txt")) == wanted
    assert Store(store.root).digest(str(tmp_path / "corpus.txt")) == wanted


# locks

HOLDER = """
import sys, time
from pathlib import Path
from vtkit.system.outputs import held
with held(Path(sys.argv[1]), "adapt"):
    print("held", flush=True)
    sys.stdin.read()
"""


PIPES: Any = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": Path(__file__).parents[1]}


def hold(lock: Path) -> subprocess.Popen[str]:
    """Another process that holds ``lock`` until its input is closed."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, **PIPES)
    assert process.stdout.readline() == "held\n"
    return process


WAITER = """
import sys
from pathlib import Path
from vtkit.pipeline.store import Dependencies, Store
from vtkit.system.results import Result
store = Store(Path(sys.argv[1]))
def make(folder):
    (folder / "by").write_text("the one who waited")
    return Result()
store.build(Dependencies("adapt", 1, {}, 1, {}), Result, make, afresh=False)
print((store.folder(Dependencies("adapt", 1, {}, 1, {})) / "by").read_text())
"""


def test_a_second_process_says_who_holds_the_output_waits_and_uses_its_work(store: Store) -> None:
    waiting: list[Any] = []

    def slow(folder: Path) -> Result:
        waiter = subprocess.Popen([sys.executable, "-c", WAITER, str(store.root)], **PIPES)
        waiting.extend((waiter, waiter.stderr.readline()))  # it says so as soon as it finds the lock taken
        assert waiter.poll() is None
        (folder / "by").write_text("the one who was first")
        return Result()

    store.build(Dependencies("adapt", 1, {}, 1, {}), Result, slow, afresh=False)
    waiter, said = waiting
    assert waiter.communicate(timeout=60)[0].strip() == "the one who was first"
    assert f"process {os.getpid()} " in said
    assert "adapt" in said


def test_a_lock_is_let_go_when_its_holder_fails_or_is_killed(tmp_path: Path, capfd: Any) -> None:
    lock = tmp_path / "x.lock"
    for _ in range(2):
        with pytest.raises(RuntimeError, match="on purpose"), held(lock, "adapt"):
            raise RuntimeError("on purpose")
    process = hold(lock)
    process.kill()
    process.communicate()
    with held(lock, "adapt"):
        assert capfd.readouterr().err == ""


# single files and folders


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    write_atomically(path, "old")
    write_atomically(path, "neu ß")
    assert path.read_text("utf-8") == "neu ß"
    refused(UnicodeEncodeError, "surrogates not allowed", write_atomically, path, "\ud800")
    assert path.read_text("utf-8") == "neu ß"
    assert read_manifest(tmp_path) is None


def test_publishing_replaces_what_stood_there(tmp_path: Path) -> None:
    source = tmp_path / "output"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "file").write_text("new")
    (source / "table").write_text("table")
    target = tmp_path / "run" / "model"
    target.mkdir(parents=True)
    (target / "left over").touch()
    for _ in range(2):
        publish(source, target)
        assert sorted(str(path.relative_to(target)) for path in target.rglob("*")) == ["inner", "inner/file", "table"]
    publish(source / "table", tmp_path / "run" / "report.md")
    publish(source / "inner" / "file", tmp_path / "run" / "report.md")
    assert (tmp_path / "run" / "report.md").read_text() == "new"
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["model", "report.md"]


def test_publishing_leaves_nothing_beside_what_it_publishes(tmp_path: Path) -> None:
    """Not where both names are links to one file already; what a killed process left goes when the run goes on."""
    source, run = tmp_path / "output", tmp_path / "run"
    for folder in (source, run, run / ".model.old-1", run / ".model.new-est"):  # the last is not one of vtkit's
        folder.mkdir()
    for path in (source / "report.md", run / ".report.md.new-1", run / ".run.json.new-12"):
        path.write_text("text")
    remove_half_written(run)
    for _ in range(3):
        publish(source / "report.md", run / "report.md")
        publish(source, run / "model")
    assert sorted(path.name for path in run.iterdir()) == [".model.new-est", "model", "report.md"]
    assert (run / "report.md").samefile(source / "report.md")


def test_publishing_over_a_link_or_another_kind_leaves_what_was_linked(tmp_path: Path) -> None:
    folder, file, elsewhere = (tmp_path / name for name in ("folder", "file", "elsewhere"))
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "inside").write_text("inside")
    file.write_text("file")
    target = tmp_path / "target"
    target.symlink_to(elsewhere)
    for _ in range(2):
        publish(folder, target)
        assert not target.is_symlink()
        assert (target / "inside").read_text() == "inside"
        assert list(elsewhere.iterdir()) == []
        publish(file, target)
        assert target.read_text() == "file"


def test_a_published_file_that_is_replaced_leaves_the_output_as_it_was(store: Store, tmp_path: Path) -> None:
    folder = store.build(BASE, Rows, two_files, afresh=False)
    publish(folder / "model", tmp_path / "model")
    write_atomically(tmp_path / "model" / "weights", "other")
    assert store.damage(BASE, Rows) is None
