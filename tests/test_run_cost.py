"""What a run will take in time and memory: the work against counting it, and the truth beside the estimate."""

from pathlib import Path

import pytest
import tiny
from command_line import invoke
from test_disk import RECIPE

from vtkit.pipeline import cost, sizes
from vtkit.pipeline.disk import made_by, source_of
from vtkit.pipeline.plan import Plan, Step
from vtkit.pipeline.store import Store
from vtkit.recipe.load import load_recipe


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tiny.encoder(tmp_path / "work").save_pretrained(str(tmp_path / "source"))
    tiny.tokenizer(tiny.shuffled(3)).save_pretrained(str(tmp_path / "target"))
    tiny.write_collection(tmp_path / "judged", tiny.collection(60))
    (tmp_path / "recipe.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def steps(folder: Path, *overrides: str) -> dict[str, Step]:
    return Plan(load_recipe(folder / "recipe.toml", overrides).recipe, Store(folder / "runs" / "artifacts")).steps


def work(step: Step) -> cost.Work:
    found = cost.work_of(step)
    assert found is not None
    return found


def test_encoding_is_every_token_through_the_transformer_and_its_head(folder: Path) -> None:
    step = steps(folder)["encode:adapt"]
    encoder, counts = made_by(step.recipe), sizes.counts_of(step.recipe.evaluate.sets[0])
    assert counts.documents == 60
    tokens = counts.bytes / sizes.CHARACTERS_A_TOKEN
    whole, half = work(step), work(steps(folder, "index.precision=bf16")["encode:adapt"])
    assert whole.encoded == pytest.approx(tokens * encoder.other)
    assert whole.screened == pytest.approx(tokens * encoder.vocabulary * encoder.width)
    assert (half.encoded, half.halved) == (0, whole.encoded)  # precision moves the transformer and nothing else
    assert (half.screened, half.programs) == (whole.screened, whole.programs)


def test_a_head_of_units_is_as_wide_as_there_are_units(folder: Path) -> None:
    fitted = ("transfer=none", "adapt=none", "vocabulary.kind=source", "evaluate.models=['transfer']")
    few, many = (
        steps(folder, *fitted, "vocabulary.tokenizer=none", f"source.units.size={size}", "source.units.active=4")
        for size in (16, 32)
    )
    recipe = few["encode:transfer"].recipe
    encoder = made_by(recipe)
    ratio = work(few["encode:transfer"]).screened / work(few["encode:transfer"]).encoded
    assert ratio == pytest.approx(16 * encoder.width / encoder.other)
    assert work(many["encode:transfer"]).screened == pytest.approx(2 * work(few["encode:transfer"]).screened)
    assert work(many["transfer"]).products == pytest.approx(2 * work(few["transfer"]).products)


def test_the_work_of_training_grows_with_steps_and_batches_and_less_of_it_with_frozen_weights(folder: Path) -> None:
    plain, twice = steps(folder), steps(folder, "adapt.steps=60", "adapt.batch_size=64")
    for kind in ("trained", "screened"):
        assert getattr(work(twice["adapt"]), kind) == pytest.approx(4 * getattr(work(plain["adapt"]), kind))
    every, some = (
        work(steps(folder, "adapt.objective=mlm", f"adapt.train={what}", *more)["adapt"])
        for what, more in (("all", ()), ("embeddings", ("adapt.mask_rate=0.15",)))
    )
    assert some.trained == pytest.approx(every.trained * 2 / 3)  # no gradient of what is frozen
    assert some.screened == pytest.approx(every.screened / 2)  # only masked tokens are predicted


def test_gates_that_are_off_encode_nothing(folder: Path) -> None:
    every, none = (
        work(steps(folder, f"gates.{level}=['retrieval', 'activation', 'dimensions', 'ties']")["check:transfer"])
        for level in ("warn", "off")
    )
    assert every.encoded > 0
    assert every.halved > 0
    assert (none.encoded, none.halved, none.screened) == (0, 0, 0)


def test_queries_are_counted_by_their_judgements(folder: Path) -> None:
    lines = [f"q{number}\td{other}\t1" for number in range(7) for other in range(3)]
    (folder / "judged" / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    counts = sizes.counts_of(str(folder / "judged"))
    assert (counts.queries, counts.training) == (7, 0)
    (folder / "judged" / "qrels" / "train.tsv").write_text("q7\td0\t1\n")
    counts = sizes.counts_of(str(folder / "judged"))
    queries = len((folder / "judged" / "queries.jsonl").read_text().splitlines())
    assert (counts.queries, counts.training) == (7, queries - 7)


def test_weights_are_counted_whatever_their_precision(folder: Path) -> None:
    from sentence_transformers import SparseEncoder

    recipe = load_recipe(folder / "recipe.toml").recipe
    whole = source_of(recipe)
    model = SparseEncoder(str(folder / "source"), device="cpu")
    model.half().save_pretrained(str(folder / "source"))
    assert source_of(recipe) == whole
    assert whole.other > 0


def test_memory_never_falls_and_a_vocabulary_needs_no_model(folder: Path) -> None:
    memory = [each.memory for each in cost.estimated(steps(folder)).values()]
    assert memory == sorted(memory)
    assert memory[0] < cost.PLAIN_BYTES + cost.LOADED_BYTES["models"] < memory[-1]


def test_a_faster_machine_takes_less_and_this_one_can_be_measured() -> None:
    one = cost.Work(encoded=0.45 * 8e9, trained=0.22 * 3.2e10, products=8e9, screened=1.6e10, programs=2)
    assert one.seconds(cost.Speed(8e9, 1.6e10)) == pytest.approx(1 + 2 + 1 + 1 + 2)
    assert one.seconds(cost.Speed(1.6e10, 3.2e10, 2)) == pytest.approx(3.5)
    speed = cost.measured()
    assert all(1e7 < operations < 1e15 for operations in (speed.float32, speed.bf16))
    assert 0.001 < speed.programs < 1000


def test_a_dry_run_says_what_each_step_takes_and_the_log_what_it_took(folder: Path) -> None:
    planned = invoke("run", "recipe.toml", "--dry-run")
    assert "time: about" in planned.stderr
    lines = [line.split("  about ")[0].strip() for line in planned.stderr.splitlines() if "  about " in line]
    assert lines == list(steps(folder))
    assert invoke("run", "recipe.toml", "--until", "vocabulary").exit_code == 0
    log = (folder / "runs" / "tiny" / "run.log").read_text("utf-8")
    assert "of processor time), estimated" in log
    again = invoke("run", "recipe.toml", "--dry-run")
    assert "vocabulary  about" not in again.stderr
