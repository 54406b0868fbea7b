"""What a run will need of the disk: the estimate against what is really written, and what follows from it."""

import gzip
from pathlib import Path

import pytest
import tiny
from hub_server import serving
from sentence_transformers import SparseEncoder
from support import refused

from vtkit.data import hub
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.encoder.checkpoint import as_sparse_encoder, save_encoder
from vtkit.encoder.scratch import scratch_model
from vtkit.pipeline import disk
from vtkit.pipeline.disk import show_earlier_times
from vtkit.pipeline.plan import Plan
from vtkit.pipeline.run import run
from vtkit.pipeline.store import MANIFEST, Store
from vtkit.recipe.load import load_recipe
from vtkit.settings.source import Scratch
from vtkit.system.checksums import write_record
from vtkit.system.errors import VtkitError

RECIPE = """
[recipe]
name = "tiny"
[source]
model = "source"
[vocabulary]
kind = "existing"
tokenizer = "target"
[transfer]
method = "mean"
bias.method = "mixture"
[adapt]
corpus = ["judged/corpus.jsonl"]
steps = 30
checkpoint_every = 20
[evaluate]
sets = ["judged"]
models = ["adapt"]
measures = ["nDCG@10"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_encoder(tiny.encoder(tmp_path), tmp_path / "source")
    tiny.tokenizer((*tiny.TOKENS, "more", "words")).save_pretrained(str(tmp_path / "target"))
    documents = [Document(f"d{n}", "", text) for n, text in enumerate(tiny.texts(400))]
    queries = [Query(f"q{n}", text) for n, text in enumerate(tiny.texts(20))]
    judged = tiny.write_collection(tmp_path / "judged", RetrievalSet("judged", documents, queries, {}))
    (judged / "qrels" / "test.tsv").write_text("q0\td0\t1\n")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def needed(folder: Path, *overrides: str) -> disk.Estimate:
    store = Store(folder / "runs" / "artifacts")
    return disk.estimate(list(Plan(load_recipe(folder / "recipe.toml", overrides).recipe, store).steps.values()))


def weights_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.safetensors"))


def model_of(text: str) -> int:
    return disk.model_bytes(load_recipe(Path.cwd() / "s.toml", text=text).recipe)


def test_a_model_counts_as_its_source_and_the_rows_that_come(folder: Path) -> None:
    assert model_of(RECIPE) == weights_in(folder / "source")
    vocabulary = 'kind = "trained"\ncorpus = ["c.txt"]\nsize = 5000'
    trained = RECIPE.replace('kind = "existing"\ntokenizer = "target"', vocabulary)
    more = 4 * 32 * (5000 - len(tiny.TOKENS))
    assert model_of(trained) == weights_in(folder / "source") + more
    section = Scratch(layers=2, hidden=64, heads=2, feed_forward=128, max_length=32)
    model = scratch_model(section, tiny.tokenizer())
    save_encoder(as_sparse_encoder(model, tiny.tokenizer(), folder / "work"), folder / "scratch")
    text = '[recipe]\nname = "s"\n[source.scratch]\nlayers = 2\nhidden = 64\nheads = 2\nfeed_forward = 128\n'
    text += f'max_length = 32\n[vocabulary]\nkind = "trained"\ncorpus = ["c.txt"]\nsize = {len(tiny.TOKENS)}\n'
    assert model_of(text) == pytest.approx(weights_in(folder / "scratch"), rel=0.15)


def test_the_parts_of_an_estimate_by_hand(folder: Path) -> None:
    found = needed(folder)
    model = model_of(RECIPE)
    assert found.models == 2 * model  # transfer and adapt
    assert found.checkpoints == 9 * model
    text = (folder / "judged" / "corpus.jsonl").stat().st_size
    assert found.indexes == 2 * (text + 400 * 256 * 8)  # vectors, and the index
    passages = needed(folder, "index.passages={words=5, overlap=1}").indexes
    assert passages == 2 * (text + text // (4 * 6) * 256 * 8) > 2 * found.indexes  # of four new words of six bytes
    one_index = needed(folder, "index.lexical='bm25'", "recipe.language='en'").indexes
    assert one_index == 3 * (text + 400 * 256 * 8)
    assert found.bytes == found.models + found.checkpoints + found.indexes
    assert needed(folder, "adapt=none", "evaluate.models=['transfer']").checkpoints == 0


def test_a_source_in_half_precision_counts_as_it_is_saved(folder: Path) -> None:
    whole = model_of(RECIPE)
    model = SparseEncoder(str(folder / "source"), device="cpu")
    model.half().save_pretrained(str(folder / "source"))
    assert model_of(RECIPE) == pytest.approx(whole, rel=0.1)


def test_a_dry_run_says_how_long_the_stages_last_took(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(folder / "recipe.toml", runs=folder / "runs", dry_run=True)
    assert "time:" not in capsys.readouterr().err
    run(folder / "recipe.toml", runs=folder / "runs", until="vocabulary")
    assert "of processor time), memory " in (folder / "runs" / "tiny" / "run.log").read_text("utf-8")
    run(folder / "recipe.toml", runs=folder / "runs", force=("vocabulary",), dry_run=True)
    said = capsys.readouterr().err
    assert "time: these stages last took" in said
    assert "never run by this recipe: transfer" in said
    other = folder / "other.toml"
    other.write_text((folder / "recipe.toml").read_text("utf-8").replace('name = "tiny"', 'name = "other"'), "utf-8")
    run(other, runs=folder / "runs", force=("vocabulary",), dry_run=True)
    assert "time:" not in capsys.readouterr().err  # these are another recipe's


def test_a_stage_is_not_listed_both_with_its_time_and_as_never_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(folder / "runs" / "artifacts")
    steps = {step.name: step for step in Plan(load_recipe(folder / "recipe.toml").recipe, store).steps.values()}
    names = [name for name in steps if name.startswith("evaluate:")]
    (store.root / "made").mkdir(parents=True)
    write_record(store.root / "made" / MANIFEST, {"seconds": 7.0}, [])
    show_earlier_times(steps.values(), store, {names[0]: "made"})
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("time: ")]
    timed, _, never = line.partition("; never run by this recipe: ")
    assert "(evaluate 7.0 s)" in timed or "(evaluate 7 s)" in timed
    assert "evaluate" not in never.split(", ")
    assert set(names[1:]) <= set(never.split(", "))


FINETUNED = ('finetune.data="./judged"', 'finetune.split="test"', "finetune.steps=10")


def test_large_training_data_and_bm25_over_them_are_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = *FINETUNED, "finetune.hard_negatives=1"
    assert needed(folder, *settings).training_data == 0
    monkeypatch.setattr(disk, "LARGE", 1)
    text = (folder / "judged" / "corpus.jsonl").stat().st_size
    found = needed(folder, *settings)
    assert found.training_data == (1 + disk.BM25_SHARE) * text

    assert "finetune.mining.files" in found.words(10**9)
    refused(VtkitError, "training data", disk.refuse_full_disk, found, found.models, folder)
    assert not needed(folder, *settings, "finetune.mining.rankings=['encoder']").indexed


def test_a_compressed_collection_counts_as_what_is_in_it(folder: Path) -> None:
    plain = needed(folder)
    corpus = folder / "judged" / "corpus.jsonl"
    raw = corpus.read_bytes()
    corpus.unlink()
    (folder / "judged" / "corpus.jsonl.gz").write_bytes(gzip.compress(raw))
    assert needed(folder, "adapt.corpus=['judged']").indexes == pytest.approx(plain.indexes, rel=0.02)
    (folder / "judged" / "corpus.jsonl.gz").write_bytes(gzip.compress(raw)[:-20])
    needed(folder, "adapt.corpus=['judged']")  # damage is for those who read it


def test_what_is_not_here_is_named_and_not_counted(folder: Path) -> None:
    found = needed(folder, "source.model=nobody/nothing-like-it", "evaluate.sets=['miracl:ko']")
    assert list(found.unknown) == ["the models of tiny", "miracl:ko"]
    assert found.models == found.indexes == 0
    assert found.words(10**9).endswith("the models of tiny, miracl:ko")


def test_what_will_be_downloaded_is_counted_if_the_hub_says_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights in one of their two forms, configuration and tokenizer of a model that is not in the cache."""
    files = {"model.safetensors": b"w" * 9000, "pytorch_model.bin": b"w" * 9000, "config.json": b"{}" * 50}
    with serving() as server:
        server.repositories["a/model"] = {"1" * 40: files | {"vocab.txt": b"x" * 400, "photo.png": b"p" * 5000}}
        server.repositories["a/pickled"] = {"1" * 40: {"pytorch_model.bin": b"w" * 7000}}
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        assert needed(folder, "source.model=a/model").downloads == 0, "without --download nothing is asked"
        assert server.asked == []
        monkeypatch.setenv(hub.DOWNLOAD_VARIABLE, "1")
        assert needed(folder, "source.model=a/model").downloads == 9000 + 100 + 400
        assert needed(folder, "source.model=a/pickled").downloads == 7000
        assert "downloads 9.5 kB" in needed(folder, "source.model=a/model").words(10**9)
        assert "a/nothing" in needed(folder, "source.model=a/nothing").unknown


def test_a_disk_that_is_clearly_too_small_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    found = disk.Estimate(models=4 * 10**9, checkpoints=3 * 10**9, indexes=10**9)
    disk.refuse_full_disk(found, 5 * 10**9, tmp_path)
    refused(VtkitError, r"4\.9 GB free, .* 5\.0 GB", disk.refuse_full_disk, found, 49 * 10**8, tmp_path)
    for part in ("8.0 GB", "models 4.0 GB", "checkpoints 3.0 GB", "indexes 1.0 GB", "4.9 GB free"):
        assert part in found.words(49 * 10**8)
    assert [disk.size(count) for count in (1, 999_000, 1_500_000)] == ["1 B", "999.0 kB", "1.5 MB"]


def test_the_plan_says_it_and_stops_a_run_that_has_no_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder / "recipe.toml", runs=folder / "runs", dry_run=True)
    assert "disk: about " in capsys.readouterr().err
    monkeypatch.setattr("vtkit.pipeline.disk.free_bytes", lambda runs: 1000)
    run(folder / "recipe.toml", runs=folder / "runs", dry_run=True)
    assert "warning: disk: about " in capsys.readouterr().err
    refused(VtkitError, r"Free some space", run, folder / "recipe.toml", runs=folder / "runs")
    assert not list((folder / "runs" / "artifacts").glob("*-*"))


def test_without_the_hub_a_dry_run_shows_the_plan_and_says_what_is_not_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("VTKIT_DOWNLOAD", raising=False)
    overrides = ("source.model=nobody/nothing-like-it", "evaluate.sets=['miracl:ko']")
    run(folder / "recipe.toml", overrides, runs=folder / "runs", dry_run=True)
    said = capsys.readouterr().err
    assert "plan: 16 of 16 steps to run" in said
    assert "nobody/nothing-like-it is neither a folder nor in the Hugging Face cache" in said
    assert "Add --download" in said
    assert not (folder / "runs").exists()
    refused(VtkitError, r"Add --download", run, folder / "recipe.toml", overrides, runs=folder / "runs")
    with pytest.raises(VtkitError, match="nowhere does not exist"):  # what is missing here has no digest
        run(folder / "recipe.toml", (*overrides, "adapt.corpus=['nowhere']"), runs=folder / "runs", dry_run=True)
