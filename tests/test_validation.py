"""Early stopping, and what is shown while training goes on: the progress line and curves for other programs."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fine_tuning import DATA, HELD_OUT, TRAINED_ON, section
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sentence_transformers import SparseEncoder
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import (
    add_training_queries,
    collection,
    encoder,
    interrupted_at,
    same,
    scratch_recipe,
    texts,
    tokenizer,
    weights,
    write_collection,
)

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.synthetic_queries import snippet_pairs
from vtkit.encoder.encoding import encode
from vtkit.encoder.kernels.sparse_head import streaming
from vtkit.evaluation.gates.retrieval import reciprocal_ranks
from vtkit.pipeline.run import run
from vtkit.pipeline.steps.finetune_encoder import FinetuneResult
from vtkit.pipeline.store import result_of
from vtkit.recipe.checks import check_names
from vtkit.recipe.load import load_recipe
from vtkit.settings.finetune import FinetuneSection
from vtkit.system.errors import DataError, MissingExtra, RecipeError
from vtkit.training import reporting, sparse_trainer
from vtkit.training import validation as validation_of
from vtkit.training.finetune import finetune
from vtkit.training.query_table import with_query_encoder
from vtkit.training.resuming import TrainingRun
from vtkit.training.target import INTEGRAL, LARGEST_STEP, LEAST, LOSSES, MOST, PROPORTIONAL, START, ActiveTarget
from vtkit.training.validated import Validated
from vtkit.training.validation import Validation, held_out_queries, snippet_validation_set, validation_set


def validated(
    folder: Path, settings: dict[str, int], **changes: Any
) -> tuple[SparseEncoder, dict[str, list[float]], Validated, Validation]:
    """An encoder fine-tuned with validations on held-out queries, and what came of them."""
    judged = validation_set(HELD_OUT, "held-out queries", 1)
    validation = replace(judged, **settings)
    wanted = section(**changes)
    ours = with_query_encoder(encoder(folder), wanted, [document.contents for document in DATA.documents])
    curves = finetune(
        ours,
        TRAINED_ON,
        wanted,
        TrainingRun(seed=5, folder=folder / "checkpoints", language="en", validation=validation),
    )
    (found,) = validation.validated
    return ours, curves, found, validation


# what is judged on


def test_queries_of_one_text_are_held_out_together() -> None:
    queries = [replace(query, text=f"text {number // 3}") for number, query in enumerate(DATA.queries)]
    data = replace(DATA, queries=queries)
    left, held = held_out_queries(data, 0.25, 1)
    assert [len(part.queries) for part in (left, held)] == [36, 12]
    assert not {query.text for query in left.queries} & {query.text for query in held.queries}
    assert left.qrels | held.qrels == data.qrels
    assert held_out_queries(data, 0.25, 1)[1] == held != held_out_queries(data, 0.25, 2)[1]
    with pytest.raises(DataError, match=r"0\.01 of 48 queries leaves none to evaluate with"):
        held_out_queries(data, 0.01, 1)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), min_size=1, max_size=3), max_size=24),
    st.floats(0.05, 0.95), st.integers(0, 5),
)  # fmt: skip
def test_no_held_out_query_asks_for_a_document_that_is_trained_on(
    judged: list[list[tuple[int, int]]], share: float, seed: int
) -> None:
    queries = [Query(f"q{number}", f"text {number % 17}") for number in range(len(judged))]
    grades = {
        query.id: {f"d{document}": grade for document, grade in of} for query, of in zip(queries, judged, strict=True)
    }
    data = RetrievalSet("made", DATA.documents, queries, grades)
    try:
        left, held = held_out_queries(data, share, seed)
    except DataError:  # one group, or none that is small enough
        return
    found = [
        {name for grades in part.qrels.values() for name, grade in grades.items() if grade} for part in (left, held)
    ]
    assert not found[0] & found[1]
    assert not {query.text for query in left.queries} & {query.text for query in held.queries}
    assert 0 < len(held.queries) <= round(share * len(queries))
    assert sorted(query.id for query in left.queries + held.queries) == sorted(query.id for query in queries)


def test_all_judged_documents_are_searched_and_a_sample_of_the_others() -> None:
    data = RetrievalSet("made", DATA.documents, DATA.queries[:4], {
        "q0": {"d7": 2, "d9": 0}, "q1": {"d7": 1}, "q2": {"d3": 0}, "q3": {"d5": 1, "d1": 1},
    })  # fmt: skip
    judged = validation_set(data, "made", 1, most_documents=10)
    assert judged.queries == [data.queries[number].text for number in (0, 1, 3)]  # q2 has no relevant document
    of = [document.contents for document in data.documents]
    assert [{judged.documents[row]: grade for row, grade in grades.items()} for grades in judged.grades] == [
        {of[7]: 2, of[9]: 0}, {of[7]: 1}, {of[5]: 1, of[1]: 1},
    ]  # fmt: skip
    assert len(set(judged.documents)) == 10
    assert len(validation_set(data, "made", 1, most_documents=2).documents) == 4
    assert len(validation_set(data, "made", 1, most_queries=2).queries) == 2


def test_an_encoder_that_tells_no_documents_apart_is_judged_by_chance(tmp_path: Path) -> None:
    """Every score is a tie. By chance a relevant document is among the first ten of 400 for one query in 40."""
    documents = [Document(f"d{number}", "", "maple stone") for number in range(400)]
    queries = [Query(f"q{number}", "maple") for number in range(10)]
    data = RetrievalSet("ties", documents, queries, {query.id: {f"d{n}": 1} for n, query in enumerate(queries)})
    assert validation_set(data, "made", 1).value(encoder(tmp_path), 8, 8) < 0.2


def test_snippets_are_judged_by_the_rank_of_the_text(tmp_path: Path) -> None:
    made, ours = texts(40, seed=3, words=(9, 20)), encoder(tmp_path)
    judged = snippet_validation_set(made, 30, 1)
    assert len(judged.queries) == 30
    ranks = reciprocal_ranks(ours, snippet_pairs(made, 30, 1), 48)  # which counts equal scores as half
    assert judged.value(ours, 48, 48) == pytest.approx(float(ranks.mean()), abs=0.02)
    with pytest.raises(DataError, match=r"only 2 texts of data .* and 20 are needed"):
        snippet_validation_set(made[:2], 30, 1)


def test_a_validation_while_training_leaves_the_training_as_it_is(tmp_path: Path) -> None:
    model = encoder(tmp_path).train()
    features = dict(model.tokenizer(texts(4), padding=True, return_tensors="pt"))

    def vectors() -> torch.Tensor:
        model.train()
        torch.manual_seed(1)
        return model(dict(features))["sentence_embedding"]

    with streaming(model):
        before = vectors()
        encode(model, texts(3), 48)
        assert torch.equal(vectors(), before)
    assert not vectors().is_sparse


# stopping


def test_training_stops_when_it_gets_no_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation_of, "PATIENCE", 2)
    _, curves, found, _ = validated(tmp_path, {"every": 3}, learning_rate=1e-15, ramp=0.2)
    assert found.counted_from == 5
    assert found.steps == (3, 6, 9, 12)
    assert len(set(found.values)) == 1  # nothing is learned, so the first one that counts is the best
    assert (found.best_step, found.stopped_at) == (6, 12)
    assert curves["steps"] == [10]
    assert all(part in found.words() for part in (f"best {found.values[0]:.4f} at step 6", "Stopped at step 12"))


@pytest.mark.parametrize("queries", ["shared", "learned"])
def test_it_ends_with_its_best_weights(queries: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation_of, "PATIENCE", 50)
    # a learning rate at which the encoder first learns, and then breaks
    changes: dict[str, Any] = {"learning_rate": 0.02, "ramp": 0.1, "infonce_scale": 0.3, "query_encoder": queries}
    ours, _, found, validation = validated(tmp_path, {"every": 2}, **changes)
    assert found.steps[-1] == 23
    counted = {step: value for step, value in zip(found.steps, found.values, strict=True) if step >= found.counted_from}
    assert found.best_step == max(counted, key=lambda step: (counted[step], -step))
    assert validation.value(ours, 64, 128) == counted[found.best_step]
    assert found.stopped_at is None


def test_validations_before_the_end_of_the_ramp_do_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation_of, "PATIENCE", 1)
    _, _, found, _ = validated(tmp_path, {"every": 5}, learning_rate=1e-15, ramp=0.99)
    assert found.steps == (5, 10, 15, 20, 23)
    assert (found.best_step, found.stopped_at) == (23, None)
    _, _, found, _ = validated(tmp_path / "later", {"every": 5}, steps=1, ramp=0.99)
    assert found.best_step == 1


def test_an_interrupted_run_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation_of, "PATIENCE", 3)
    settings = {"every": 3}
    changes: dict[str, Any] = {"learning_rate": 0.02, "ramp": 0.1, "checkpoint_every": 6, "steps": 120}
    wanted, curves, found, _ = validated(tmp_path / "undisturbed", settings, **changes)
    with monkeypatch.context() as patched:
        patched.setattr(sparse_trainer, "Progress", interrupted_at(14))
        with pytest.raises(KeyboardInterrupt):
            validated(tmp_path / "again", settings, **changes)
    again, curves_again, found_again, _ = validated(tmp_path / "again", settings, **changes)
    assert found_again == found
    assert curves_again == curves
    assert same(weights(again), weights(wanted))
    assert found.stopped_at is not None

    # killed after it had been stopped, and a checkpoint written: one more step changes nothing
    changes |= {"checkpoint_every": found.stopped_at}
    validated(tmp_path / "stopped", settings, **changes)
    stopped, _, found_stopped, _ = validated(tmp_path / "stopped", settings, **changes)
    assert found_stopped == found
    assert same(weights(stopped), weights(wanted))


# settings


def test_the_settings_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match=r'validation\.queries is "train", which is trained on'):
        section(validation={"queries": "train"})
    with pytest.raises(ValidationError, match=r"the name of judgements or a share between 0 and 1, not 2"):
        section(validation={"queries": 2})
    assert "finetune.validation.queries" in section(validation={}).settings_read


RECIPE = scratch_recipe(
    "validated",
    """
[adapt]
objective = "crop"
corpus = ["./long.txt"]
steps = 4
batch_size = 4
[finetune]
data = "./collection"
steps = 4
batch_size = 6
ramp = 0.5
[finetune.validation]
every = 2
{where}
[evaluate]
sets = ["./collection"]
models = ["finetune"]
bm25 = false
""",
)


def test_a_recipe_is_validated_and_never_on_what_it_is_judged_on(tmp_path: Path) -> None:
    tokenizer().save_pretrained(str(tmp_path / "target"))
    data = collection(48, seed=4)
    add_training_queries(write_collection(tmp_path / "collection", data), data)
    (tmp_path / "long.txt").write_text("\n".join(texts(400, seed=5, words=(9, 20))), "utf-8")
    qrels = tmp_path / "collection" / "qrels"
    (qrels / "dev.tsv").write_text((qrels / "train.tsv").read_text("utf-8"), "utf-8")
    recipe = tmp_path / "validated.toml"

    def refused(where: str) -> str:
        recipe.write_text(RECIPE.replace("{where}", where), "utf-8")
        with pytest.raises(RecipeError) as caught:
            check_names(load_recipe(recipe).recipe, path=recipe)
        return str(caught.value)

    assert 'is evaluated on "test" ([evaluate]), so it must not choose the model too' in refused('queries = "test"')
    assert 'has no judgements "validation", but "dev" and "test" and "train"' in refused('queries = "validation"')

    recipe.write_text(RECIPE.replace("{where}", 'queries = "dev"'), "utf-8")
    folder = run(recipe, runs=tmp_path / "runs", threads=1)
    (tuned,) = (tmp_path / "runs" / "artifacts").glob("finetune-*")
    (found,) = result_of(tuned, FinetuneResult).validated
    assert (found.queries, found.documents, found.steps) == (48, 48, (2, 4))
    page = (folder / "report.md").read_text("utf-8")
    assert "nDCG@10 on 48 queries of split dev over 48 documents" in page


def test_curves_are_written_for_tensorboard(tmp_path: Path) -> None:
    curves = finetune(
        encoder(tmp_path),
        DATA,
        section(),
        TrainingRun(seed=5, folder=tmp_path / "checkpoints", language="en", report_to=["tensorboard"]),
    )
    read = EventAccumulator(str(tmp_path / "checkpoints" / "curves" / "tensorboard"))
    read.Reload()
    tags = read.Tags()["scalars"]
    assert {"train/loss", "train/infonce", "train/query_dimensions", "train/tokens_per_second"} <= {*tags}
    written = [(point.step, point.value) for point in read.Scalars("train/infonce")]
    assert [step for step, _ in written] == curves["steps"]
    assert [value for _, value in written] == pytest.approx(curves["infonce"], rel=1e-5)


SHOWN = scratch_recipe(
    "shown",
    '[finetune]\ndata = "./collection"\nbatch_size = 6\nsteps = 3\n[report]\ntraining = ["tensorboard"]\n',
)


def test_a_run_keeps_them_and_other_programs_change_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer().save_pretrained(str(tmp_path / "target"))
    add_training_queries(write_collection(tmp_path / "collection", DATA), DATA)
    recipe = tmp_path / "shown.toml"
    recipe.write_text(SHOWN, "utf-8")
    monkeypatch.setattr(reporting, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'report\.training = \["tensorboard"\] needs tensorboard, which is not '):
        run(recipe, runs=tmp_path / "runs", threads=1, dry_run=True)
    monkeypatch.undo()
    folder = run(recipe, runs=tmp_path / "runs", threads=1, until="finetune")
    assert list((folder / "curves" / "finetune" / "tensorboard").glob("events.out.*"))
    made = [path.name for path in (tmp_path / "runs" / "artifacts").glob("finetune-*")]
    run(recipe, ("report.training=[]",), runs=tmp_path / "runs", threads=1, until="finetune")
    assert [path.name for path in (tmp_path / "runs" / "artifacts").glob("finetune-*")] == made


# λ found while training: its law by hand, its bounds, and that an encoder ends with the dimensions asked for.


def target(aim: float = 20.0, ramp_steps: int = 4, steps: int = 400) -> ActiveTarget:
    return ActiveTarget("document", aim, ramp_steps, steps)


def test_the_law_by_hand() -> None:
    aimed = target(25.0, ramp_steps=4)
    assert aimed(0) == 0.0
    aimed.see(0, active=100.0, loss=2.0, penalty=2.0)
    assert aimed(1) == pytest.approx(START)  # the aim of the first step is where the run starts
    aimed.see(2, active=100.0, loss=2.0, penalty=2.0)  # halfway of the ramp the aim is 50, and the mean still 100
    assert aimed(3) == pytest.approx(START * math.exp(LARGEST_STEP))  # P · ln 2 would be more
    before = aimed(3)
    aimed.see(3, active=100.0, loss=2.0, penalty=2.0)  # the aim is 100^(1/4) · 25^(3/4)
    error = math.log(4) * 3 / 4
    assert PROPORTIONAL * math.log(4) / 4 + INTEGRAL / 400 * error > LARGEST_STEP
    assert aimed(4) == pytest.approx(before * math.exp(LARGEST_STEP))
    aimed.see(4, active=100.0, loss=2.0, penalty=2.0)  # from here on the error is bounded to 1
    before = aimed(5)
    aimed.see(5, active=100.0, loss=2.0, penalty=2.0)
    assert aimed(6) == pytest.approx(before * math.exp(INTEGRAL / 400))


def test_the_strength_follows_the_root_of_the_mean_loss() -> None:
    aimed = target(20.0, ramp_steps=1)
    for step in range(200):
        aimed.see(step, 20.0, 1.0, 1.0)
    assert aimed(200) == pytest.approx(START)
    aimed.see(200, 20.0, 0.5, 1.0)
    assert aimed(201) == pytest.approx(START * math.sqrt(1 - 0.5 / LOSSES))
    for step in range(201, 600):
        aimed.see(step, 20.0, 0.5, 1.0)
    assert aimed(600) == pytest.approx(START / math.sqrt(2), rel=1e-3)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=60), st.floats(2, 1e4), st.integers(1, 50))
def test_the_strength_moves_by_bounded_steps(counts: list[float], aim: float, ramp: int) -> None:
    """And never further down or up than where the penalty has a share of the loss that is too small or too large."""
    aimed, last = target(aim, ramp), None
    for step, count in enumerate(counts):
        aimed.see(step, count, 1.0, 3.0)
        now = math.log(aimed(step))
        assert math.log(LEAST) - LARGEST_STEP <= now + math.log(3.0) <= math.log(MOST) + LARGEST_STEP
        assert last is None or abs(now - last) <= LARGEST_STEP + 1e-9
        last = now


def test_a_penalty_without_effect_is_not_made_weaker_still() -> None:
    """So that it is back at once when it is needed."""
    aimed = target(20.0, ramp_steps=1, steps=100)
    for step in range(200):
        aimed.see(step, 5.0, 1.0, 1.0)
    lowest = aimed(200)
    assert lowest == pytest.approx(LEAST, rel=math.exp(LARGEST_STEP) - 1)
    aimed.see(200, 5.0, 0.9, 1.0)
    assert aimed(201) == lowest
    for step in range(201, 211):
        aimed.see(step, 40.0, 1.0, 1.0)
    assert aimed(211) > 2 * lowest


def test_a_run_that_ends_beside_its_aim_says_so() -> None:
    aimed = target(20.0, ramp_steps=1)
    before = 0
    for steps, active, said in (
        (20, 12.0, ("12 active dimensions", "target_active.document is 20", "still falling. Train longer")),
        (600, 12.0, ("Even with almost no penalty", "Calibrate")),
        (150, 40.0, ("40 active dimensions", "still rising. Train longer")),
        (150, 21.0, ()),
    ):
        strength = aimed(before)
        for step in range(steps):
            aimed.see(step, active, 1.0, 1.0)
        assert active == 21.0 or not strength or (aimed(steps) > strength) == (active > 20)  # too many raise λ
        assert all(part in str(aimed.missed()) for part in said)
        assert (aimed.missed() is None) == (not said)
        before = steps


def test_an_encoder_ends_with_the_active_dimensions_asked_for(tmp_path: Path) -> None:
    data, ours = collection(48, seed=4), encoder(tmp_path)
    aims = {"query": 18.0, "document": 35.0}
    section = FinetuneSection(
        data="unused", steps=150, batch_size=12, learning_rate=1e-3, target_active=aims, infonce_scale=0.3
    )
    curves = finetune(ours, data, section, TrainingRun(seed=5, folder=tmp_path / "checkpoints", language="en"))
    assert min(curves["query_lambda"] + curves["document_lambda"]) > 0
    for side, each in (("query", data.queries), ("document", data.documents)):
        contents = [text.text for text in each]
        found = float(np.diff(encode(ours, contents, 48).indptr).mean())
        assert found == pytest.approx(aims[side], rel=0.5), side  # without aims about twice as many


def test_an_aim_takes_the_place_of_the_strength_and_one_that_no_penalty_reaches_is_an_error() -> None:
    aimed: dict[str, Any] = {"target_active": {"query": 20}}
    read = FinetuneSection(data="unused", **aimed).settings_read
    assert {"finetune.target_active.query", "finetune.document_lambda"} <= read
    assert "finetune.query_lambda" not in read
    for penalty, said in (
        ([], "target_active.query is reached by the first penalty of finetune.query_penalty"),
        ("cased", "but cased concerns only some dimensions"),
        ("masked_flops", "30 active dimensions or fewer, but target_active.query is 20"),
    ):
        with pytest.raises(ValidationError, match=said):
            FinetuneSection(data="unused", query_penalty=penalty, **aimed)
