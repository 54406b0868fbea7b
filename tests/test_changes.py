"""Collections that change: documents are added, replaced, deleted and merged, and the index equals one built anew."""

import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
import tiny
from command_line import invoke
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import vtkit
from vtkit.data.document_files import write_documents
from vtkit.data.documents import Document
from vtkit.encoder.asymmetric import WholeEncoder
from vtkit.encoder.checkpoint import save_encoder
from vtkit.pipeline.search import open_searcher
from vtkit.search.changes import MOST_SEGMENTS, add_documents, delete, merge
from vtkit.search.drift import Drift
from vtkit.search.fields import ConditionError
from vtkit.search.index_info import RECORD
from vtkit.search.searcher import Searcher
from vtkit.search.segments import Manifest, generation_of
from vtkit.system.checksums import VERIFIED
from vtkit.system.errors import DataError, MachineError, RecipeError

TEXTS = tiny.texts(400, seed=3, words=(3, 25))
QUERIES = [*tiny.texts(12, seed=9, words=(2, 5)), TEXTS[5], "amber"]
KINDS: dict[str, dict[str, Any]] = {
    "units": {"lexical": "bm25"},
    "tokens": {"lexical": "bm25", "own_tokens": True, "document_weighting": "geng", "top_dimensions": 20},
    "plain": {},
    "passages": {"lexical": "bm25", "passages": {"words": 8, "overlap": 3}},
}
"""Kind of an encoder and settings of its index: the rule of units with BM25, documents weighted by the tokens that
they hold, vectors as they are, and passages of documents."""


CONDITIONS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "year >= 2005": lambda fields: fields.get("year", 0) >= 2005,
    "source in ('a', 'b') or version > 1": lambda fields: (
        fields.get("source") in ("a", "b") or fields.get("version", 0) > 1
    ),
    "source is null and not year > 2010": lambda fields: (
        "source" not in fields and "year" in fields and fields["year"] <= 2010
    ),
}
"""Condition on a document's fields, and what it means; a missing field meets no comparison."""


def document(name: str, version: int) -> Document:
    """A version of the document with this id; every fifth has no fields."""
    number = hash_of(name) + 17 * version
    fields: dict[str, Any] = {"year": 1990 + number % 30, "version": version} if hash_of(name) % 5 else {}
    if fields and number % 3:
        fields["source"] = "abc"[number % 7 % 3]
    return Document(name, "", TEXTS[number % len(TEXTS)], fields)


def hash_of(name: str) -> int:
    return sum(map(ord, name))


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("encoders")
    tokens = tiny.encoder(folder / "made")
    units = WholeEncoder(modules=list(tokens), device="cpu")
    names = {f"{unit}: {token}": unit for unit, token in enumerate(tiny.TOKENS)}
    units.output_tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(names, unk_token="0")))
    save_encoder(tokens, folder / "tokens")
    save_encoder(units, folder / "units")
    return {
        "units": folder / "units",
        "tokens": folder / "tokens",
        "plain": folder / "tokens",
        "passages": folder / "units",
    }


def built(folder: Path, model: Path, documents: Sequence[Document], settings: Mapping[str, Any]) -> Path:
    """An index of ``documents``."""
    folder.mkdir(parents=True)
    write_documents(documents, folder / "documents.jsonl")
    of_index, passages = (
        {name: value for name, value in settings.items() if name != "passages"},
        settings.get("passages"),
    )
    vtkit.encode_texts(model, folder / "documents.jsonl", folder / "vectors", max_length=24, passages=passages)
    vtkit.index_vectors(folder / "vectors", folder / "index", language="en", **of_index)
    return folder / "index"


def assert_equals_an_index_built_anew(
    index: Path, anew: Path, model: Path, documents: Sequence[Document], settings: Mapping[str, Any]
) -> None:
    """The same documents, types of fields, ranking and scores, with the same weight of encoder and BM25, whose
    impacts keep the scale that they had when the index was made."""
    fresh = built(anew, model, documents, settings)
    ours, theirs = map(Manifest.load, (index, fresh))
    assert kinds_of(ours) == kinds_of(theirs)
    scales = np.ones(1, dtype=np.float32)
    if theirs.lexical is not None:
        assert ours.lexical is not None
        assert ours.lexical.terms == theirs.lexical.terms
        scale = theirs.lexical.document_scale / ours.lexical.document_scale
        scales = np.repeat([1, scale], [theirs.vocabulary, theirs.lexical.terms])
        of_ours = replace(
            theirs.lexical,
            encoder_factor=ours.lexical.encoder_factor,
            term_factor=ours.lexical.term_factor / scale,
        )
        replace(theirs, lexical=of_ours).save(fresh)
    one, other = (open_searcher(folder, model=None, collection=None) for folder in (index, fresh))
    assert one.names == other.names
    assert [one.documents[number] for number in range(len(one.documents))] == list(documents)
    np.testing.assert_allclose(
        one.index.postings.by_document().toarray() * scales,
        other.index.postings.by_document().toarray(),
        rtol=1e-5,
        atol=3e-4,  # a step of 15-bit codes: the last digit of a vector chooses between two of them
    )
    for where in (None, *(CONDITIONS if {"year", "version", "source"} <= kinds_of(ours).keys() else ())):
        asked = QUERIES if where is None else QUERIES[-5:]
        found, wanted = (list(searcher.search(asked, 10, where=where)) for searcher in (one, other))
        for mine, right in zip(found, wanted, strict=True):
            assert [result.score for result in mine.results] == pytest.approx(
                [r.score for r in right.results], rel=1e-5
            )
            pairs = zip(mine.results, right.results, strict=True)
            assert all(a.id == b.id or a.score == pytest.approx(b.score, rel=1e-5) for a, b in pairs)


def kinds_of(manifest: Manifest) -> Mapping[str, str]:
    return manifest.fields or {}


@pytest.mark.parametrize("kind", KINDS)
def test_additions_replacements_and_deletions_equal_an_index_built_anew(
    kind: str, encoders: Mapping[str, Path], tmp_path: Path
) -> None:
    model, settings = encoders[kind], KINDS[kind]
    first = [document(f"d{number}", 0) for number in range(60)]
    index = built(tmp_path / "one", model, first, settings)
    assert_equals_an_index_built_anew(index, tmp_path / "same", model, first, settings)
    changed = add_documents(index, [document("d3", 1), document("d60", 0), document("d61", 0)])
    assert (changed.added, changed.replaced, changed.documents, changed.segments) == (2, 1, 62, 2)
    assert delete(index, ["d7", "d60", "nothing"]).deleted == 2
    left = [each for each in first if each.id not in ("d3", "d7")] + [document("d3", 1), document("d61", 0)]
    assert_equals_an_index_built_anew(index, tmp_path / "anew", model, left, settings)
    before = sorted(path.name for path in (index / "segments").iterdir())
    assert merge(index).segments == 1
    assert Manifest.load(index).segments[0].deleted == ()
    assert before != sorted(path.name for path in (index / "segments").iterdir())
    assert_equals_an_index_built_anew(index, tmp_path / "merged", model, left, settings)


@pytest.fixture(scope="module")
def unchanged(encoders: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of 30 documents with BM25, of units."""
    first = [document(f"d{number}", 0) for number in range(30)]
    return built(tmp_path_factory.mktemp("unchanged") / "made", encoders["units"], first, KINDS["units"])


@pytest.fixture
def index(unchanged: Path, tmp_path: Path) -> Path:
    """The same, to be changed: a copy in which files that are linked to each other still are."""
    subprocess.run(["cp", "-a", unchanged, tmp_path / "index"], check=True)
    return tmp_path / "index"


def ids(index: Path) -> list[str]:
    searcher = open_searcher(index, model=None, collection=None)
    return [searcher.documents[number].id for number in range(len(searcher.documents))]


def test_on_the_command_line_documents_are_added_deleted_and_merged(index: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    new.write_text("id,text,year\nd3,amber river stone,2001\nx1,copper mirror Ωμέγα,soon\n", "utf-8")
    added = invoke("add", index, new)
    assert added.exception is None, (added.output, added.exception)
    assert "1 added, 1 replaced: 31 documents in 2 segments" in added.output
    assert "tokens each" in added.output
    assert "the field year was integer and is text now" in added.output
    assert ids(index)[-2:] == ["d3", "x1"]
    found = json.loads(invoke("search", index, "amber river stone", "--json").stdout)["results"]
    assert (found[0]["id"], found[0]["fields"]) == ("d3", {"year": "2001"})
    (tmp_path / "ids.txt").write_text("d4\n\nd5\n")
    deleted = json.loads(invoke("delete", index, "x1", "--ids", tmp_path / "ids.txt", "--json").stdout)
    assert (deleted["deleted"], deleted["documents"]) == (3, 28)
    assert not {"x1", "d4", "d5"} & set(ids(index))
    assert "1 of 2 ids are not in" in invoke("delete", index, "d6", "x1").output
    assert invoke("delete", index, "--where", "version = 0 and year = '2001'").exit_code == 1
    assert "merged: 27 documents in 1 segment" in invoke("merge", index).output
    assert len(list((index / "segments").iterdir())) == 1
    assert len(list((index / "generations").iterdir())) == 2  # searchers may still read the one before


def test_a_deletion_loads_no_model(index: Path) -> None:
    delete_one = "delete(Path(sys.argv[1]), ['d3']); print('torch' in sys.modules)"
    imports = "import sys; from pathlib import Path; from vtkit.search.changes import delete"
    assert command_line.python("-c", f"{imports}; {delete_one}", index).strip() == "False"


def test_a_merge_mends_what_a_search_reads(index: Path) -> None:
    wanted = open_searcher(index, model=None, collection=None).index.postings.by_document()
    generation = generation_of(index)
    for damaged in [file for file in generation.rglob("*") if file.is_file() and file.name != RECORD]:
        damaged.unlink()
        damaged.write_bytes(b"?")  # links to files of segments stay as they are
    with pytest.raises(DataError, match="vtkit merge"):
        delete(index, ["d3"])
    assert merge(index).documents == 30
    assert (open_searcher(index, model=None, collection=None).index.postings.by_document() != wanted).nnz == 0
    assert ids(index) == [f"d{number}" for number in range(30)]


def test_what_cannot_be_changed_is_refused_with_what_to_do(
    index: Path, encoders: Mapping[str, Path], tmp_path: Path
) -> None:
    files = (path for path in index.rglob("*") if path.is_file() and path.name != VERIFIED)
    before = {path: path.stat().st_mtime_ns for path in files}
    for arguments, kind, words in (
        (("delete", index, "nothing"), DataError, "has no such document"),
        (("delete", index, *ids(index)), DataError, "an index needs one"),
        (("delete", index), RecipeError, "either the ids of documents"),
        (("delete", index, "d3", "--where", "year = 1"), RecipeError, "either the ids of documents"),
        (("delete", index, "--where", "yaer = 1"), RecipeError, "Did you mean year"),
        (("add", index, tmp_path / "nothing"), DataError, "there is no such file"),
        (("add", encoders["units"], index / "generations" / "1" / "documents.jsonl"), RecipeError, "vtkit index"),
    ):
        refused = invoke(*arguments)
        assert isinstance(refused.exception, kind), (arguments, refused.exception)
        assert words in str(refused.exception)
    assert {path: path.stat().st_mtime_ns for path in index.rglob("*") if path in before} == before
    (index / RECORD).unlink()  # as in an index that an older version made
    for command in (("add", index, index / "generations" / "1" / "documents.jsonl"), ("search", index, "amber river")):
        assert re.search(r"index\.json is missing\. Make the index again", str(invoke(*command).exception))


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([Document("a", "", "one"), Document("b", "", "two"), Document("a", "", "three")],
         r"number 3: id 'a' occurs twice \(first as number 1\)"),
        ([Document("a b", "", "one")], "number 1: the id 'a b' contains white space"),
        ([Document("", "", "one")], "number 1: the id is empty"),
        ([Document("a", "", None), {"_id": "b"}], "(?s)2 problems.*number 1 is no vtkit.Document.*number 2 is no"),  # type: ignore[arg-type]
        ([], "no documents to add"),
    ],
)  # fmt: skip
def test_documents_that_no_file_could_hold_are_not_added(documents: list[Any], said: str, index: Path) -> None:
    before = (index / RECORD).read_bytes()
    with pytest.raises(DataError, match=said):
        vtkit.add_documents(index, documents)
    assert (index / RECORD).read_bytes() == before


def test_more_results_than_documents_take_no_memory_and_none_is_refused(index: Path) -> None:
    """A billion results a query would take eight gigabytes, and a hundred queries two hundred times what there is."""
    every = vtkit.search_run(index, QUERIES, top=1000)
    assert vtkit.search_run(index, QUERIES, top=10**12) == every
    searcher = open_searcher(index, model=None, collection=None)
    assert len(searcher.texts_of(searcher.names[7], 10**12).results) == len(
        searcher.texts_of(searcher.names[7], 1000).results
    )
    with pytest.raises(RecipeError, match="top must be at least 1, not 0"):
        vtkit.search_run(index, QUERIES, top=0)
    for name in ("depth", "rerank_depth", "max_queries"):
        with pytest.raises(RecipeError, match=f"{name}: must be greater than or equal to 1"):
            vtkit.evaluate("bm25", index, **{name: 0})  # type: ignore[arg-type]


def test_drift_is_told_with_the_reasons_to_build_again(index: Path) -> None:
    same = vtkit.add_documents(index, [Document("a", "", TEXTS[0])])
    assert same.drift is not None
    assert (same.drift.other_scripts, same.drift.unread, same.drift.lost, same.reasons) == (0, 0, None, ())
    other = vtkit.add_documents(index, [Document("b", "", "река и камень amber")])
    assert other.drift is not None
    assert other.drift.other_scripts == other.drift.unread == pytest.approx(11 / 16)
    assert len(other.reasons) == 2
    many = vtkit.add_documents(index, [Document(f"c{number}", "", TEXTS[number]) for number in range(31)])
    assert "33 documents are newer than the index, which has 63" in many.reasons[-1]
    whole = tiny.tokenizer()
    lacking = tiny.tokenizer(tuple(token for token in tiny.TOKENS if token not in ("amber", "river")))
    whole.backend_tokenizer.save(str(index / "untrimmed.json"))
    drift = Drift.between(["amber stone"], ["amber river", "stone stone"], lacking, index / "untrimmed.json")
    assert drift.lost == 0.5
    assert "lacks 50.0% of the tokens" in next(drift.reasons)
    for usual, reasons in ((0.49, 0), (0.47, 1)):  # what texts of the same source lose is no reason
        (index / "built.json").write_text(json.dumps({"lost_tokens": usual}))
        drift = Drift.between(["amber stone"], ["amber river", "stone stone"], lacking, index / "untrimmed.json")
        assert (drift.usual, len([*drift.reasons])) == (usual, reasons)


def test_segments_are_merged_where_they_are_many_or_mostly_deleted(index: Path) -> None:
    for number in range(MOST_SEGMENTS - 1):
        assert vtkit.add_documents(index, [document(f"n{number}", 0)]).segments == number + 2
    assert vtkit.add_documents(index, [document("more", 0)]).segments == 2
    assert ids(index) == [*(f"d{n}" for n in range(30)), *(f"n{n}" for n in range(MOST_SEGMENTS - 1)), "more"]
    assert vtkit.delete_documents(index, [f"d{number}" for number in range(13)]).segments == 2
    assert vtkit.delete_documents(index, ["n0"]).segments == 1
    assert Manifest.load(index).segments[0].deleted == ()


@pytest.mark.parametrize("limit", [300, 3_000, 8_000])
def test_a_change_that_finds_no_room_leaves_the_index_as_it_was(index: Path, limit: int) -> None:
    before, state = ids(index), (index / RECORD).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(MachineError):
            add_documents(index, [document(f"n{number}", 0) for number in range(40)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (ids(index), (index / RECORD).read_bytes()) == (before, state)
    assert add_documents(index, [document("new", 0)]).documents == 31
    assert sorted(path.name for path in (index / "segments").iterdir()) == ["1", "2"]


def test_files_are_on_disk_before_the_switch_to_them_and_the_switch_at_the_end(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may lose whatever was not flushed, in any order."""
    flushed: list[tuple[int, int]] = []  # generation of the index at the time, and number of the file or folder
    fsync = os.fsync

    def recording(descriptor: int) -> None:
        flushed.append((Manifest.load(index).generation, os.fstat(descriptor).st_ino))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    add_documents(index, [document("new", 0), document("d3", 1)])
    before, after = ({number for generation, number in flushed if generation == each} for each in (1, 2))
    for part in (index / "segments" / "2", index / "generations" / "2"):
        parts = [part.parent, part, *part.rglob("*")]
        assert len(parts) > 5
        assert {path.name for path in parts if path.stat().st_ino not in before} <= {".verified.json", "README.md"}
    assert index.stat().st_ino in after


def test_a_second_writer_waits_and_says_for_whom(index: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor(3) as pool:
        changes = [pool.submit(add_documents, index, [document(f"n{number}", 0)]) for number in range(3)]
        assert sorted(change.result().documents for change in changes) == [31, 32, 33]
    assert "waiting for process" in capfd.readouterr().err
    assert set(ids(index)) >= {"n0", "n1", "n2"}


def test_a_killed_change_leaves_the_old_state_or_the_new_one(index: Path, tmp_path: Path) -> None:
    """At moments spread over the whole change."""
    write_documents([document("new", 0), document("d3", 1)], tmp_path / "new.jsonl")
    arguments = ["add", str(index), str(tmp_path / "new.jsonl")]
    old = ids(index)
    new = [name for name in old if name != "d3"] + ["new", "d3"]
    begun = time.monotonic()
    copy = tmp_path / "copy"
    shutil.copytree(index, copy)
    assert command_line.call(tmp_path, ["add", str(copy), arguments[2]], os.environ).returncode == 0
    seconds = time.monotonic() - begun
    for moment in range(1, 6):
        process = command_line.start(tmp_path, arguments, os.environ, tmp_path)
        process.join(seconds * moment / 6)
        process.kill()
        process.join()
        assert ids(index) in (old, new)
    assert command_line.call(tmp_path, arguments, os.environ).returncode == 0
    assert ids(index) == new
    assert not list((index / "segments").glob(".*"))


class Changing(RuleBasedStateMachine):
    """Any sequence of additions, replacements, deletions, merges, openings and searches with conditions, with the
    documents that should be there."""

    encoders: Mapping[str, Path]
    folder: Path

    @initialize(kind=st.sampled_from(sorted(KINDS)))
    def build(self, kind: str) -> None:
        self.kind, self.place = kind, Path(tempfile.mkdtemp(dir=self.folder))
        self.documents = {f"d{number}": document(f"d{number}", 0) for number in range(12)}
        self.versions = 0
        first = list(self.documents.values())
        self.index = built(self.place / "index", self.encoders[kind], first, KINDS[kind])
        self.keep_open()

    @rule(numbers=st.sets(st.integers(0, 25), min_size=1, max_size=5))
    def add(self, numbers: set[int]) -> None:
        self.versions += 1
        new = [document(f"d{number}", self.versions) for number in sorted(numbers)]
        changed = add_documents(self.index, new)
        assert changed.replaced == len(self.documents.keys() & {each.id for each in new})
        for each in new:
            self.documents.pop(each.id, None)
            self.documents[each.id] = each

    @precondition(lambda self: len(self.documents) > 6)
    @rule(choice=st.sets(st.integers(0, 100), min_size=1, max_size=4))
    def delete(self, choice: set[int]) -> None:
        names = list(self.documents)
        self.removed({names[number % len(names)] for number in choice})

    @rule(where=st.sampled_from(sorted(CONDITIONS)))
    def delete_where(self, where: str) -> None:
        names = {each.id for each in self.documents.values() if CONDITIONS[where](each.fields)}
        if 0 < len(names) < len(self.documents) and self.has_all_fields():
            self.removed(names, where)

    def removed(self, names: set[str], where: str | None = None) -> None:
        """Delete these documents, by their ids or by a condition."""
        assert delete(self.index, () if where else names, where).deleted == len(names)
        for name in names:
            del self.documents[name]

    @rule()
    def merge(self) -> None:
        assert merge(self.index).segments == 1

    @rule()
    def keep_open(self) -> None:
        """The searcher that is kept open has this state from here on, whatever is changed."""
        self.kept, self.then = open_searcher(self.index, model=None, collection=None), dict(self.documents)
        self.answers = [self.ranking(self.kept, None), self.ranking(self.kept, "year >= 2005")]

    @rule(where=st.sampled_from(sorted(CONDITIONS)), renewed=st.booleans())
    def search(self, where: str, renewed: bool) -> None:
        """With a new searcher, or with the one that is kept open and renewed as a server does it: the results are those
        of the whole ranking that meet the condition."""
        searcher = self.kept.renewed() if renewed else open_searcher(self.index, model=None, collection=None)
        whole, filtered = self.ranking(searcher, None), self.ranking(searcher, where)
        if self.has_all_fields():
            assert filtered == [
                [(name, score) for name, score in results if CONDITIONS[where](self.documents[name].fields)]
                for results in whole
            ]

    def has_all_fields(self) -> bool:
        return {"year", "source"} <= {name for each in self.documents.values() for name in each.fields}

    @staticmethod
    def ranking(searcher: Searcher, where: str | None) -> list[list[tuple[str, float]]] | None:
        """The ids and scores of all results of some queries; None if the condition names fields that there are not."""
        try:
            answers = list(searcher.search(QUERIES[-5:], len(searcher.documents), where=where))
        except ConditionError:
            return None
        return [[(result.id, result.score) for result in found.results] for found in answers]

    @invariant()
    def the_documents_are_there(self) -> None:
        assert ids(self.index) == list(self.documents)

    @invariant()
    def the_searcher_that_is_kept_open_has_the_old_state(self) -> None:
        kept = self.kept
        assert [kept.documents[number] for number in range(len(kept.documents))] == list(self.then.values())
        assert [self.ranking(kept, None), self.ranking(kept, "year >= 2005")] == self.answers

    def teardown(self) -> None:
        if hasattr(self, "index"):
            documents, model = list(self.documents.values()), self.encoders[self.kind]
            assert_equals_an_index_built_anew(self.index, self.place / "anew", model, documents, KINDS[self.kind])


def test_any_sequence_of_changes_equals_an_index_built_anew(encoders: Mapping[str, Path], tmp_path: Path) -> None:
    Changing.encoders, Changing.folder = encoders, tmp_path
    run_state_machine_as_test(Changing, settings=settings(max_examples=4, stateful_step_count=9, deadline=None))
