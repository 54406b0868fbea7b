"""Parts of a collection and their executors: the same bytes whoever computes them, and after any death."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from signal import SIGKILL

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from command_line import call, invoke
from part_kinds import KINDS, small_parts
from part_work import BLOCKS, CountLetters, LookAtWeights, Together, computed
from tiny import collection, cross_encoder, dense, encoder, texts, write_collection

import vtkit
from vtkit.data import shards, word_counts
from vtkit.data.executors import executed_by
from vtkit.data.shards import Part, arrays_of
from vtkit.encoder.dense import EmbedTexts, load_dense
from vtkit.encoder.fitted_head import ReadStates
from vtkit.search import bm25
from vtkit.search.analysers import analyser
from vtkit.search.sharded_encoding import EncodeTexts, encode_to_disk
from vtkit.settings.run import RunSection
from vtkit.system.errors import DataError, MachineError
from vtkit.system.runtime import fastest_precision
from vtkit.training.document_expansion.tilde import LikeliestTokens
from vtkit.training.teachers import Asked, KeptScores, load_teacher


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def work(tmp_path: Path) -> CountLetters:
    (tmp_path / "marks").mkdir()
    return CountLetters(tmp_path / "marks")


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    library = pytest.importorskip("ray", reason="needs pip install 'vtkit[ray]'")
    with pytest.MonkeyPatch.context() as patch:  # what its processes import from
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        yield
    library.shutdown()


@pytest.fixture(params=["here", "processes", "ray"])
def executor(request: pytest.FixtureRequest) -> RunSection:
    if request.param == "ray":
        request.getfixturevalue("ray")
    return RunSection(executor=request.param, workers=2)


def test_every_executor_leaves_the_same_bytes_and_asks_once(
    work: CountLetters, executor: RunSection, tmp_path: Path
) -> None:
    expected = computed(work, tmp_path / "expected")
    with executed_by(executor):
        found = computed(work, tmp_path / "found")
        assert [shard.items for shard in found] == [shard.items for shard in expected] == [2] * len(BLOCKS)
        assert found[3].array("letters").tobytes() == b"text 3another 3"
        assert content(tmp_path / "found") == content(tmp_path / "expected")
        assert all(shard.taken_over for shard in computed(work, tmp_path / "found"))
    assert work.asked() == {texts[0]: 2 for texts in BLOCKS}
    processes = {line for place in work.marks.iterdir() for line in place.read_text().splitlines()[1:]}
    assert (str(os.getpid()) in processes) == (executor.executor == "here")


@pytest.mark.parametrize("count", [1, 3, 7, 9])
def test_parts_that_are_joined_are_the_whole(work: CountLetters, count: int, tmp_path: Path) -> None:
    whole = computed(work, tmp_path / "whole")
    for number in range(count, 0, -1):
        own = computed(work, tmp_path / "parts", Part(number, count))
        assert [shard.folder.name for shard in own] == [f"{place:06d}" for place in range(number - 1, 7, count)]
    joined = computed(work, tmp_path / "parts", Part(None, count))
    assert [shard.folder.name for shard in joined] == [shard.folder.name for shard in whole]
    assert content(tmp_path / "parts") == content(tmp_path / "whole")


def test_a_process_that_is_killed_costs_its_shard_only(tmp_path: Path, work: CountLetters) -> None:
    computed(work, tmp_path / "expected")
    (tmp_path / "again").mkdir()
    dying = CountLetters(tmp_path / "again", "text 2", deaths=2)
    with executed_by(RunSection(executor="processes", workers=2)):
        computed(dying, tmp_path / "found")
    assert content(tmp_path / "found") == content(tmp_path / "expected")
    assert dying.asked() == {texts[0]: 3 if texts[0] == "text 2" else 1 for texts in BLOCKS}


def test_a_shard_at_which_every_process_dies_ends_the_job_and_the_others_stay(
    tmp_path: Path, work: CountLetters
) -> None:
    dying = CountLetters(work.marks, "text 3", deaths=99)
    with (
        executed_by(RunSection(executor="processes", workers=2)),
        pytest.raises(MachineError, match=r"signal 9.*4 times.*workers"),
    ):
        computed(dying, tmp_path / "found")
    asked = work.asked()
    with executed_by(RunSection(executor="processes", workers=2)):
        computed(work, tmp_path / "found")
    assert work.asked()["text 3"] == 5
    assert all(work.asked()[name] == asked[name] for name in ("text 0", "text 1", "text 2"))


def test_an_error_of_the_work_is_told_as_it_is_here(tmp_path: Path, work: CountLetters, executor: RunSection) -> None:
    failing = CountLetters(work.marks, "text 1", deaths=-1)
    with executed_by(executor), pytest.raises(DataError, match="text 1 cannot be read"):
        computed(failing, tmp_path / "found")


DRIVER = """
from pathlib import Path
from part_work import CountLetters, computed
from vtkit.data.executors import executed_by
from vtkit.settings.run import RunSection

with executed_by(RunSection(executor="processes", workers=2)):
    computed(CountLetters(Path("marks"), seconds=0.3), Path("found"))
"""


def test_a_driver_that_is_killed_takes_its_processes_along_and_the_next_one_goes_on(
    tmp_path: Path, work: CountLetters
) -> None:
    computed(CountLetters(tmp_path), tmp_path / "expected")
    path = os.pathsep.join(filter(None, sys.path))
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path})
    while not (tmp_path / "found" / "000001").exists():
        assert driver.poll() is None
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    processes = {int(line) for place in work.marks.iterdir() for line in place.read_text().splitlines()}
    while any(Path(f"/proc/{process}/stat").exists() for process in processes) and sys.platform == "linux":
        time.sleep(0.02)
    whole = [path.name for path in (tmp_path / "found").iterdir() if not path.name.startswith(".")]
    asked = work.asked()
    computed(work, tmp_path / "found")
    assert content(tmp_path / "found") == content(tmp_path / "expected")
    again = {name for name, count in work.asked().items() if count > asked.get(name, 0)}
    assert again == {texts[0] for number, texts in enumerate(BLOCKS) if f"{number:06d}" not in whole}


@pytest.mark.parametrize("executor", ["here", "ray"], indirect=True)  # processes: after kills, below
def test_vectors_and_indexes_have_the_same_bytes_by_every_executor(
    executor: RunSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "ITEMS_A_SHARD", 6)  # 7 shards
    vtkit.save_encoder(encoder(tmp_path), tmp_path / "model")
    texts = write_collection(tmp_path / "texts", collection(40))
    options = ["--executor", executor.executor, "--workers", "2", "--cpus", "1"]
    done = invoke("encode", tmp_path / "model", texts, "--out", tmp_path / "found", *options)
    assert done.exit_code == 0, done.output
    vtkit.encode_texts(tmp_path / "model", texts, tmp_path / "expected")
    assert content(tmp_path / "found" / "vectors") == content(tmp_path / "expected" / "vectors")
    assert not (tmp_path / ".found.parts").exists()
    bm25, more = (
        ["--set", "lexical=bm25", "--language", "en"],
        write_collection(tmp_path / "more", collection(8, seed=1)),
    )
    for arguments in (
        ["index", tmp_path / "found", "--out", tmp_path / "index", *bm25],
        ["add", tmp_path / "index", more],
    ):
        done = invoke(*arguments, *options)
        assert done.exit_code == 0, done.output
    vtkit.index_vectors(tmp_path / "expected", tmp_path / "other", language="en", lexical="bm25")
    vtkit.add_documents(tmp_path / "other", str(more))
    for part in ("generations", "segments"):
        assert content(tmp_path / "index" / part) == content(tmp_path / "other" / part)


def test_every_work_of_a_model_leaves_the_same_bytes_by_every_executor(
    executor: RunSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "ITEMS_A_SHARD", 6)
    documents, sparse = texts(20), encoder(tmp_path / "sparse")
    embedder = load_dense(str(dense(tmp_path / "dense")), "embedder")
    work = Together((EmbedTexts(embedder, "document"), ReadStates(sparse), LikeliestTokens(sparse, 5, 16)))
    expected = arrays_of(work, documents, "here")
    with executed_by(executor):
        kept = arrays_of(work, documents, "kept", tmp_path / "kept")
    assert kept.keys() == expected.keys()
    for name, array in expected.items():
        assert kept[name].tobytes() == array.tobytes()
        assert kept[name].shape == array.shape
    assert not (tmp_path / "kept.parts").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.usefixtures("ray")
def test_processes_of_ray_share_the_weights_of_a_model() -> None:
    large = torch.arange(250_000.0).reshape(500, 500)
    work = LookAtWeights([torch.nn.Parameter(each) for each in (large, large.T, large.bfloat16(), torch.tensor(2.0))])
    with executed_by(RunSection(executor="ray", workers=2)):
        found = arrays_of(work, ["text"], "by Ray")
    expected = work(["text"], None)
    assert not expected["shared"].any()
    assert found["shared"].all()
    assert all(found[name].tobytes() == expected[name].tobytes() for name in ("kinds", "content"))


def steps_of(known: list[str]) -> list[Asked]:
    """Three files of steps of two queries and four documents."""
    of_steps = [[number % len(known) for number in range(start, start + 4)] for start in range(45)]
    return [Asked([known[n[0] % 9], known[n[1] % 7]], [known[m] for m in n], n, 2) for n in of_steps]


def test_a_cross_encoder_gives_the_same_scores_by_every_executor(executor: RunSection, tmp_path: Path) -> None:
    teacher = load_teacher(str(cross_encoder(tmp_path / "model")), (16, 24), "teacher")
    steps = steps_of(texts(40))
    assert len(list(KeptScores(teacher, steps, tmp_path / "expected"))) == 45
    with executed_by(executor):
        assert len(list(KeptScores(teacher, steps, tmp_path / "found"))) == 45
    assert content(tmp_path / "found") == content(tmp_path / "expected")


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_a_teacher_with_vectors_reads_each_document_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "ITEMS_A_SHARD", 6)
    if kind == "sparse":
        vtkit.save_encoder(encoder(tmp_path), tmp_path / "model")
    else:
        dense(tmp_path / "model")
    teacher = load_teacher(str(tmp_path / "model"), (16, 24), "teacher")
    steps = steps_of(texts(40))
    for step, scores in zip(steps, KeptScores(teacher, steps, tmp_path), strict=True):
        np.testing.assert_allclose(scores, teacher.scores([step])[0], atol=1e-4)
    (rows,) = (tmp_path / "teacher-scores" / "vectors").glob("indptr.npy" if kind == "sparse" else "vectors.npy")
    assert len(np.load(rows)) == 40 + (kind == "sparse")


def test_kept_arrays_go_on_where_they_were_interrupted(
    work: CountLetters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "ITEMS_A_SHARD", 2)
    items, folder = list(chain(*BLOCKS)), tmp_path / "kept"
    with pytest.raises(DataError):
        arrays_of(CountLetters(work.marks, "text 3", deaths=-1), items, "letters", folder)
    assert not folder.exists()
    for _ in range(2):
        assert arrays_of(work, items, "letters", folder)["letters"].tobytes() == "".join(items).encode()
    assert work.asked() == {block[0]: 2 if block[0] == "text 3" else 1 for block in BLOCKS}


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each kind of work, done in seven parts by this process."""
    made = tmp_path_factory.mktemp("made")
    vtkit.save_encoder(encoder(made), made / "model")
    write_collection(made / "texts", collection(40))
    folders = {}
    for kind, work in KINDS.items():
        folder = folders[kind] = prepared(tmp_path_factory.mktemp(kind), made)
        with small_parts(folder / "marks"):
            work(folder)
        assert {each.partition("-")[2] for each in asked(folder)} == set("0123456")
        assert set(asked(folder).values()) == {1}
        if kind == "encode":
            (made / "encoded").symlink_to(folder / "out")
    return folders


def prepared(folder: Path, like: Path) -> Path:
    """``folder`` with what :mod:`part_kinds` needs."""
    (folder / "marks").mkdir()
    for name in ("model", "texts", "encoded"):
        (folder / name).symlink_to((like / name).resolve())
    return folder


def asked(folder: Path) -> Counter[str]:
    """The times that each part was begun."""
    places = [place for place in (folder / "marks").iterdir() if not place.name.startswith(".")]
    return Counter({place.name: len(place.read_text().splitlines()) for place in places})


@pytest.mark.parametrize("count", [1, 3, 7])
def test_vectors_their_index_and_negatives_have_the_same_bytes_in_any_number_of_parts(
    wholes: dict[str, Path], count: int, tmp_path: Path
) -> None:
    folder = prepared(tmp_path, wholes["encode"])
    documents, model = collection(40).contents, (folder / "model").resolve()
    encoder = vtkit.load_encoder(model)
    with small_parts(folder / "marks"):
        for number in range(count, 0, -1):
            vtkit.encode_texts(model, folder / "texts", folder / "vectors", part=f"{number}/{count}")
            encode_to_disk(
                EncodeTexts(encoder, side="document", max_length=24, precision=fastest_precision()),
                documents,
                tmp_path,
                folder / "out" / "model-1.vectors.parts",
                made_from={},
                part=Part(number, count),
            )
        vtkit.encode_texts(model, folder / "texts", folder / "vectors", join=count)
        KINDS["mine"](folder)
    assert sum(asked(folder).values()) == 14  # seven shards of each
    assert content(folder / "vectors") == content(wholes["encode"] / "out")
    assert content(folder / "out") == content(wholes["mine"] / "out")
    vtkit.index_vectors(folder / "vectors", folder / "index", lexical="bm25", language="en")
    for part in ("generations", "segments"):
        assert content(folder / "index" / part) == content(wholes["index"] / "out" / part)


def command_line(process: str) -> bytes:
    """Of a process; nothing of one that has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


SOON = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
"""What Ray does not find again for so long it takes to be dead; a minute is the default."""

COMMAND = """
import os
from pathlib import Path
from part_kinds import KINDS, small_parts
from vtkit.data.executors import executed_by
from vtkit.settings.run import RunSection

executor, kind, victim = {words}
with small_parts(Path("marks"), victim, os.getpid()), executed_by(RunSection(executor=executor, workers=2, cpus=1)):
    KINDS[kind](Path.cwd())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("kind", "executor", "victim"),
    [
        ("encode", "processes", "worker"),
        ("mine", "processes", "driver"),
        ("index", "processes", "worker"),
        ("index", "processes", "driver"),
        ("mine", "ray", "worker"),
        ("encode", "ray", "driver"),
        ("index", "ray", "head"),
    ],
)
def test_after_a_kill_the_same_command_ends_in_the_same_bytes_and_repeats_no_part(
    kind: str, executor: str, victim: str, wholes: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder, once = prepared(tmp_path, wholes[kind]), asked(wholes[kind])
    if executor == "ray":
        request.getfixturevalue("ray")
    if victim == "worker":
        run = RunSection(executor=executor, workers=2, cpus=1)  # type: ignore[arg-type]
        with small_parts(folder / "marks", victim), executed_by(run):
            KINDS[kind](folder)
        assert asked(folder) == once + Counter([(folder / "marks" / ".killed").read_text()])
    else:
        path = os.pathsep.join(filter(None, sys.path))
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "2", **SOON}
        done = call(folder, ["-c", COMMAND.format(words=(executor, kind, victim))], environment)
        workers = (folder / "marks" / ".workers").read_text().splitlines()
        assert len(workers) >= 2, done.stderr
        assert done.returncode == -SIGKILL or victim == "head"
        while done.returncode != 0 and any(map(command_line, workers)):
            time.sleep(0.02)
        before = asked(folder)
        if done.returncode != 0:
            kept = {f"0-{int(place.name)}" for place in folder.glob("**/*.parts/[0-9]*")}
            assert bool(kept) == (kind != "index")  # counts of words are not kept
            with small_parts(folder / "marks"):
                KINDS[kind](folder)
            assert asked(folder) - before == Counter(once.keys() - kept)
        else:
            assert before == once
    assert content(folder / "out") == content(wholes[kind] / "out")


def test_an_address_without_ray_is_refused() -> None:
    with pytest.raises(ValueError, match='set executor to "ray"'):
        RunSection(address="auto")


def test_counts_are_the_same_by_every_executor(executor: RunSection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_counts, "CHARACTERS_A_BLOCK", 300)
    monkeypatch.setattr(bm25, "TEXTS_A_BLOCK", 7)
    documents = [f"{text} number {number}\n" for number, text in enumerate(texts(40))]
    cut = analyser("en,de")
    chunks, terms = word_counts.count_chunks(documents), bm25.Counted.in_texts(documents, cut)
    counts = sp.vstack(list(terms.rows()), format="csr")
    assert chunks.counts == Counter(chain.from_iterable(map(word_counts.CHUNK.findall, documents)))
    for row, document in enumerate(documents):
        assert dict(zip(counts[row].indices, counts[row].data, strict=True)) == Counter(
            map(list(terms.terms).index, cut(document))
        )
    with executed_by(executor):
        found, counted = word_counts.count_chunks(documents), bm25.Counted.in_texts(documents, cut)
    assert (found.texts, found.characters) == (40, sum(map(len, documents)))
    assert list(found.counts.items()) == list(chunks.counts.items())
    assert counted.terms == terms.terms
    again = sp.vstack(list(counted.rows()), format="csr")
    for name in ("data", "indices", "indptr"):
        assert getattr(again, name).tobytes() == getattr(counts, name).tobytes()
