"""Contrastive fine-tuning: its batches, that it learns, repeats, and ends the same when it is killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling
from tiny import collection, encoder, interrupted_at, leave_half_a_checkpoint, same, texts, weights

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.encoding import encode
from vtkit.errors import CollapseError, DataError
from vtkit.recipe.sections import FinetuneSection
from vtkit.training import negatives, sparse_trainer
from vtkit.training.finetune import finetune
from vtkit.training.pairs import Example, training_batches

DATA = collection(48, seed=4)


def section(**changes: Any) -> FinetuneSection:
    wanted = {"data": "unused", "steps": 23, "batch_size": 6, "learning_rate": 2e-3, "checkpoint_every": 10}
    return FinetuneSection(**{**wanted, **changes})


def judged(relevant: list[set[int]], documents: int) -> RetrievalSet:
    """A collection with these relevant documents for each query."""
    return RetrievalSet(
        "judged",
        [Document(f"d{n}", "", text) for n, text in enumerate(texts(documents, seed=8))],
        [Query(f"q{n}", text) for n, text in enumerate(texts(len(relevant), seed=9, words=(1, 4)))],
        {f"q{n}": {f"d{document}": 1 for document in wanted} for n, wanted in enumerate(relevant)},
    )


# batches


RELEVANT = st.lists(st.sets(st.integers(0, 11), min_size=1, max_size=4), min_size=2, max_size=14)


@settings(max_examples=60)
@given(RELEVANT, st.integers(2, 5), st.integers(1, 12), st.integers(0, 2), st.integers(0, 5))
def test_no_document_of_a_batch_is_relevant_to_a_query_it_is_a_negative_of(
    relevant: list[set[int]], batch_size: int, steps: int, hard_negatives: int, seed: int
) -> None:
    data = judged(relevant, 40)
    wanted = section(batch_size=batch_size, steps=steps, hard_negatives=hard_negatives)
    try:
        batches = training_batches(data, wanted, "en", seed)
    except DataError:  # these queries fill no batch
        return
    assert [len(batch) for batch in batches] == [batch_size] * steps
    for batch in batches:
        for row in batch:
            assert row.positive in relevant[row.query]
            assert len(set(row.negatives)) == hard_negatives
            for other in batch:
                theirs = {*other.negatives} if other is row else {other.positive, *other.negatives}
                assert not theirs & relevant[row.query]


@given(st.integers(2, 30), st.integers(2, 6), st.integers(0, 100))
def test_every_pair_is_used_before_any_is_used_a_second_time(pairs: int, batch_size: int, seed: int) -> None:
    if pairs < batch_size:
        return
    steps = pairs // batch_size
    batches = training_batches(collection(pairs), section(batch_size=batch_size, steps=steps), "en", seed)
    used = [row.query for batch in batches for row in batch]
    assert len(set(used)) == len(used)


def test_the_steps_follow_from_the_epochs_unless_they_are_given() -> None:
    for changes, steps in (
        ({"steps": None, "epochs": 3.0}, 24),
        ({"steps": None, "epochs": 0.5}, 4),
        ({"steps": None, "epochs": 0.001}, 1),
        ({"steps": 7, "epochs": 3.0}, 7),
    ):
        assert len(training_batches(DATA, section(**changes), "en", 1)) == steps


def test_batches_repeat_with_the_seed_and_differ_with_another() -> None:
    wanted = section(hard_negatives=2)
    assert training_batches(DATA, wanted, "en", 1) == training_batches(DATA, wanted, "en", 1)
    assert training_batches(DATA, wanted, "en", 1) != training_batches(DATA, wanted, "en", 2)


def test_documents_judged_not_relevant_are_no_positives() -> None:
    data = judged([{0}, {1}], 3)
    data.qrels["q0"]["d2"] = 0
    data.qrels["q1"]["d2"] = -1
    batches = training_batches(data, section(batch_size=2, steps=10), "en", 1)
    assert {(row.query, row.positive) for batch in batches for row in batch} == {(0, 0), (1, 1)}


def test_hard_negatives_come_from_the_best_bm25_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(negatives, "HARD_NEGATIVES_FROM", 3)
    data = judged([{n} for n in range(8)], 40)
    data.documents[20:22] = [Document("d20", "", data.queries[0].text), Document("d21", "", data.queries[0].text)]
    seen = {
        negative
        for batch in training_batches(data, section(batch_size=4, steps=60, hard_negatives=1), "en", 3)
        for row in batch
        if row.query == 0
        for negative in row.negatives
    }
    assert {20, 21} <= seen
    assert len(seen) == 3


def test_a_query_that_fits_beside_no_other_does_not_hold_up_the_rest() -> None:
    # query 3 knows every document, so no batch of two can have it
    batches = training_batches(judged([{0}, {1}, {2}, {0, 1, 2}], 5), section(batch_size=2, steps=40), "en", 1)
    assert len(batches) == 40
    assert {row.query for batch in batches for row in batch} == {0, 1, 2}


def test_a_query_with_most_of_the_documents_does_not_hold_up_the_rest_either() -> None:
    data = judged([set(range(300)), {300}], 301)
    batches = training_batches(data, section(batch_size=2, steps=None, epochs=2.0), "en", 1)
    assert len(batches) == 301
    assert all({row.query for row in batch} == {0, 1} for batch in batches)


def test_too_little_data_is_an_error() -> None:
    with pytest.raises(DataError, match=r"has 2 relevant pairs in split train, fewer than one batch of 3"):
        training_batches(judged([{0}, {1}], 3), section(batch_size=3), "en", 1)
    with pytest.raises(DataError, match=r"no 3 queries have documents of their own\. Lower finetune\.batch_size"):
        training_batches(judged([{0, 1}, {0, 1}, {1, 2}], 3), section(batch_size=3), "en", 1)
    with pytest.raises(DataError, match=r"hard_negatives is 5, but BM25 finds only"):
        training_batches(judged([{0}, {1}], 4), section(batch_size=2, hard_negatives=5), "en", 1)


def test_one_batch_by_eye() -> None:
    (batch,) = training_batches(judged([{0}, {1}], 2), section(batch_size=2, steps=1), "en", 1)
    assert sorted(batch, key=lambda row: row.query) == [Example(0, 0, ()), Example(1, 1, ())]


# training


def trained(folder: Path, seed: int = 5, **changes: Any) -> tuple[SparseEncoder, dict[str, list[float]]]:
    """An encoder fine-tuned with checkpoints in ``folder/checkpoints``, and its curves."""
    ours = encoder(folder)
    return ours, finetune(ours, DATA, section(**changes), "en", seed, folder / "checkpoints")


def test_the_loss_falls_queries_find_their_documents_and_the_penalties_make_vectors_sparse(tmp_path: Path) -> None:
    before = encoder(tmp_path / "before")
    strong = {"query_flops": 0.01, "document_flops": 0.01}
    ours, found = trained(tmp_path / "after", steps=80, learning_rate=5e-3, scale=0.3, **strong)
    assert found["steps"] == [10, 20, 30, 40, 50, 60, 70, 80]
    assert found["contrastive"][-1] < 0.5 * found["contrastive"][0]
    assert found["document_dimensions"][-1] < 0.8 * found["document_dimensions"][0]
    for total, *parts in zip(*(found[name] for name in ("loss", "contrastive", "query_flops", "document_flops")),
                             strict=True):  # fmt: skip
        assert total == pytest.approx(sum(parts), abs=2e-3)

    def found_first(model: SparseEncoder) -> float:
        queries = encode(model, [query.text for query in DATA.queries], 48)
        documents = encode(model, [document.contents for document in DATA.documents], 48)
        return float(np.mean((queries @ documents.T).toarray().argmax(axis=1) == np.arange(48)))

    assert found_first(ours) > max(0.8, found_first(before))


def test_after_training_the_encoder_is_the_librarys_own_again(tmp_path: Path) -> None:
    ours, _ = trained(tmp_path, steps=2)
    assert type(ours[1]) is SpladePooling
    assert not ours.training
    save_encoder(ours, tmp_path / "model")
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu")
    sentences = texts(5)
    np.testing.assert_allclose(
        plain.encode(sentences, convert_to_sparse_tensor=False).numpy(),
        encode(ours, sentences, 48).toarray(),
        atol=1e-5,
    )


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    first, first_curve = trained(tmp_path / "a", steps=6)
    second, second_curve = trained(tmp_path / "b", steps=6)
    other, _ = trained(tmp_path / "c", steps=6, seed=6)
    assert same(weights(first), weights(second))
    assert first_curve == second_curve
    assert not same(weights(first), weights(other))


def test_an_interrupted_run_ends_in_the_weights_and_the_curves_of_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, wanted_curve = trained(tmp_path / "undisturbed", hard_negatives=1)
    for step in (17, 22):
        monkeypatch.setattr(sparse_trainer, "Progress", interrupted_at(step))
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "again", hard_negatives=1)
        leave_half_a_checkpoint(tmp_path / "again" / "checkpoints", step)
    monkeypatch.undo()
    found, found_curve = trained(tmp_path / "again", hard_negatives=1)
    assert found_curve == wanted_curve
    assert same(weights(found), weights(wanted))


def test_a_run_interrupted_after_its_last_step_is_not_trained_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, wanted_curve = trained(tmp_path)
    monkeypatch.setattr(sparse_trainer, "Progress", interrupted_at(24))  # no step is made
    found, found_curve = trained(tmp_path)
    assert found_curve == wanted_curve
    assert same(weights(found), weights(wanted))


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from vtkit.training.resuming import Progress
at_the_end_of_a_step = Progress.on_step_end
def killed(self, args, state, control, **rest):
    at_the_end_of_a_step(self, args, state, control, **rest)
    if state.global_step == 17:
        os.kill(os.getpid(), signal.SIGKILL)
Progress.on_step_end = killed
from test_finetuning import trained
trained(Path(sys.argv[1]))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_run_ends_in_the_weights_and_the_curves_of_an_undisturbed_one(tmp_path: Path) -> None:
    wanted, wanted_curve = trained(tmp_path / "undisturbed")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "killed"), str(Path(__file__).parent)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert [path.name for path in (tmp_path / "killed" / "checkpoints").iterdir()] == ["checkpoint-10"]
    found, found_curve = trained(tmp_path / "killed")
    assert found_curve == wanted_curve
    assert same(weights(found), weights(wanted))


def test_a_collapsed_run_is_stopped_by_its_gate(tmp_path: Path) -> None:
    with pytest.raises(CollapseError, match=r"fine-tuning step \d+: (query|document) vectors are dead"):
        trained(tmp_path, steps=200, query_flops=1e4, document_flops=1e4, ramp=0.01, learning_rate=0.05)


def test_queries_and_documents_are_cut_at_lengths_of_their_own(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    rows = [{"query": "river " * 60, "document": "stone " * 60, "negative_1": "river"}] * 2
    batch = sparse_trainer.Collator(ours, {"query": 5, "document": 1000, "negative_1": 1000})(rows)
    assert {name: tuple(tensor.shape) for name, tensor in batch.items() if name.endswith("input_ids")} == {
        "query_input_ids": (2, 5),
        "document_input_ids": (2, 48),
        "negative_1_input_ids": (2, 3),
    }
