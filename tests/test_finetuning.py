"""Contrastive fine-tuning: its batches, that it learns, repeats, and ends the same when it is killed on the way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fine_tuning import DATA, judged, section
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling
from tiny import collection, encoder, same, texts, weights

from vtkit.data.rankings import Ranking
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.encoding import encode
from vtkit.search.bm25 import Bm25
from vtkit.settings.finetune import FinetuneSection
from vtkit.system.errors import CollapseError, DataError
from vtkit.training import sparse_trainer
from vtkit.training.finetune import finetune, objective_terms
from vtkit.training.negatives import negative_pools
from vtkit.training.pairs import judged_pairs, relevant_to_others, training_batches
from vtkit.training.resuming import TrainingRun
from vtkit.training.teachers import Asked, GivenScores


def batches_of(data: RetrievalSet, wanted: FinetuneSection, seed: int) -> list[np.ndarray]:
    """The batches of a run whose negatives BM25 finds."""
    found = judged_pairs(data)

    def rankings(depth: int) -> list[Ranking]:
        bm25 = Bm25.build(data.contents, "en")
        return [bm25.search([query.text for query in data.queries], depth)[0].tolist()]

    return list(training_batches(found, wanted, seed, negative_pools(data, found, wanted, rankings)))


# batches


RELEVANT = st.lists(st.sets(st.integers(0, 11), min_size=1, max_size=4), min_size=2, max_size=14)


@settings(max_examples=30)
@given(RELEVANT, st.integers(2, 5), st.integers(1, 12), st.integers(0, 2), st.integers(0, 5))
def test_documents_of_a_batch_that_are_relevant_to_another_query_are_found(
    relevant: list[set[int]], size: int, steps: int, negatives: int, seed: int
) -> None:
    data = judged(relevant, 40)
    data.documents[11] = Document("d11", "", data.documents[0].text)
    wanted = section(batch_size=size, steps=steps, hard_negatives=negatives)
    if sum(map(len, relevant)) < size:
        return
    batches = batches_of(data, wanted, seed)
    assert [batch.shape for batch in batches] == [(size, 2 + negatives)] * steps
    alike = [own | ({0, 11} if own & {0, 11} else set()) for own in relevant]
    for step, batch in enumerate(batches):
        found = relevant_to_others(judged_pairs(data), batches, step)
        documents = [*batch[:, 1], *(number for column in batch[:, 2:].T for number in column)]
        for row, (query, document, *others) in enumerate(batch.tolist()):
            assert document in relevant[query]
            assert len(set(others) - alike[query]) == negatives
            expected = [place != row and number in alike[query] for place, number in enumerate(documents)]
            assert found[row].tolist() == expected


@given(st.integers(2, 30), st.integers(2, 6), st.integers(0, 100))
def test_every_pair_is_used_before_any_is_used_a_second_time(pairs: int, batch_size: int, seed: int) -> None:
    if pairs < batch_size:
        return
    steps = pairs // batch_size
    batches = batches_of(collection(pairs), section(batch_size=batch_size, steps=steps), seed)
    used = np.concatenate(batches)[:, 0]
    assert len(set(used.tolist())) == len(used)


def test_the_steps_follow_from_the_epochs_unless_they_are_given() -> None:
    for changes, steps in (
        ({"steps": None, "epochs": 3.0}, 24),
        ({"steps": None, "epochs": 0.5}, 4),
        ({"steps": None, "epochs": 0.001}, 1),
        ({"steps": 7, "epochs": 3.0}, 7),
    ):
        assert len(batches_of(DATA, section(**changes), 1)) == steps


def test_batches_repeat_with_the_seed_and_differ_with_another() -> None:
    wanted = section(hard_negatives=2)
    first, again, other = (np.stack(batches_of(DATA, wanted, seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_documents_judged_not_relevant_are_no_positives() -> None:
    data = judged([{0}, {1}], 3)
    data.qrels["q0"]["d2"] = 0
    data.qrels["q1"]["d2"] = -1
    batches = batches_of(data, section(batch_size=2, steps=10), 1)
    assert {tuple(row) for batch in batches for row in batch.tolist()} == {(0, 0), (1, 1)}


def test_hard_negatives_come_from_the_best_bm25_results() -> None:
    data = judged([{n} for n in range(8)], 40)
    data.documents[20:22] = [Document("d20", "", data.queries[0].text), Document("d21", "", data.queries[0].text)]
    seen = {
        negative
        for batch in batches_of(data, section(batch_size=4, steps=60, hard_negatives=1, mining={"depth": 3}), 3)
        for row in batch
        if row[0] == 0
        for negative in row[2:].tolist()
    }
    assert {20, 21} <= seen
    assert len(seen) == 3


def test_too_little_data_is_an_error() -> None:
    refused: list[tuple[list[set[int]], dict[str, Any], str]] = [
        ([{0}, {1}], {"batch_size": 3}, "2 relevant pairs in split train, fewer than one batch of 3"),
        ([{0}, {1}], {"batch_size": 2, "hard_negatives": 5}, r"hard_negatives = 5, .* only \d documents"),
        ([{0, 1, 2}], {"batch_size": 2}, "at least two queries"),
    ]
    for relevant, changes, said in refused:
        with pytest.raises(DataError, match=said):
            batches_of(judged(relevant, 4), section(**changes), 1)


def test_a_copy_of_a_relevant_document_is_no_negative_and_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    data = judged([{0}, {1}], 8)
    data.documents[2:4] = [Document("d2", "", data.documents[0].text), Document("d3", "", data.documents[1].text)]
    wanted = section(batch_size=2, steps=30, hard_negatives=2)
    for query, _, *negatives in np.concatenate(batches_of(data, wanted, 1)).tolist():
        assert not {query, query + 2} & set(negatives)
    assert "2 documents have the same text as a relevant one" in capsys.readouterr().err


def test_pairs_without_a_text_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    data = judged([{0}, {1}, {2}, {3}], 4)
    data.documents[1], data.queries[2] = Document("d1", "", " "), Query("q2", "")
    used = set(np.concatenate(batches_of(data, section(batch_size=2), 1))[:, 0].tolist())
    assert used == {0, 3}
    assert "2 pairs with an empty query or document" in capsys.readouterr().err


# training


def trained(folder: Path, seed: int = 5, **changes: Any) -> tuple[SparseEncoder, dict[str, list[float]]]:
    """An encoder fine-tuned with checkpoints in ``folder/checkpoints``, and its curves."""
    ours = encoder(folder)
    return ours, finetune(
        ours, DATA, section(**changes), TrainingRun(seed=seed, folder=folder / "checkpoints", language="en")
    )


@pytest.mark.bf16
def test_the_loss_falls_queries_find_their_documents_and_the_penalties_make_vectors_sparse(tmp_path: Path) -> None:
    before = encoder(tmp_path / "before")
    strong = {"query_lambda": 0.01, "document_lambda": 0.01, "infonce_scale": 0.3}
    ours, found = trained(tmp_path / "after", steps=80, learning_rate=5e-3, **strong)
    assert found["steps"] == [10, 20, 30, 40, 50, 60, 70, 80]
    assert found["infonce"][-1] < 0.5 * found["infonce"][0]
    assert found["document_dimensions"][-1] < 0.8 * found["document_dimensions"][0]
    for total, *parts in zip(*(found[name] for name in ("loss", "infonce", "query_flops", "document_flops")),
                             strict=True):  # fmt: skip
        assert total == pytest.approx(sum(parts), abs=2e-3)

    def found_first(model: SparseEncoder) -> float:
        queries = encode(model, [query.text for query in DATA.queries], 48)
        documents = encode(model, [document.contents for document in DATA.documents], 48)
        return float(np.mean((queries @ documents.T).toarray().argmax(axis=1) == np.arange(48)))

    assert found_first(ours) > max(0.8, found_first(before))


@pytest.mark.bf16
def test_a_second_training_of_an_encoder_is_as_the_first(tmp_path: Path) -> None:
    """From the same weights; it once computed in float32 where the first had bf16."""
    ours = encoder(tmp_path)
    start = weights(ours)
    found = []
    for number, seed in enumerate((5, 5, 6)):
        ours[0].auto_model.load_state_dict(start)
        curves = finetune(
            ours,
            DATA,
            section(steps=3),
            TrainingRun(seed=seed, folder=tmp_path / f"checkpoints-{number}", language="en"),
        )
        found.append((curves, weights(ours)))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])
    assert not same(found[0][1], found[2][1])  # of another seed


def test_after_training_the_encoder_is_the_librarys_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, _ = trained(tmp_path, steps=2, document_length=4)
    assert "every sampled document is longer than the 4 tokens" in capsys.readouterr().err
    assert type(ours[1]) is SpladePooling
    assert not ours.training
    save_encoder(ours, tmp_path / "model")
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu").encode(texts(5), convert_to_sparse_tensor=False)
    np.testing.assert_allclose(plain.numpy(), encode(ours, texts(5), 48).toarray(), atol=1e-5)


def test_a_collapsed_run_is_stopped_by_its_gate(tmp_path: Path) -> None:
    with pytest.raises(CollapseError, match=r"fine-tuning step \d+: (query|document) vectors are dead"):
        trained(tmp_path, steps=200, query_lambda=1e4, document_lambda=1e4, ramp=0.01, learning_rate=0.05)


def test_queries_and_documents_are_cut_at_lengths_of_their_own(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    columns = {"query": ["river " * 60] * 2, "document": ["stone " * 60] * 2, "negative_1": ["river"] * 2}
    batch = sparse_trainer.Collator(ours, columns, (5, 1000))([{"row": 0}, {"row": 1}])
    assert {name: tuple(tensor.shape) for name, tensor in batch.items() if name.endswith("input_ids")} == {
        "query_input_ids": (2, 5),
        "document_input_ids": (2, 48),
        "negative_1_input_ids": (2, 3),
    }


# teachers


@dataclass(frozen=True)
class Overlap:
    """A teacher that counts common words; ``own``: of a query's own documents only, NaN for the others."""

    own: bool = False
    broken: bool = False
    """Gives the second document of the first query no score."""

    scale: float = 1.0

    def scores(self, steps: Sequence[Asked]) -> np.ndarray:
        found = []
        for step in steps:
            words = [[len({*query.split()} & {*text.split()}) for text in step.documents] for query in step.queries]
            scores = np.array(words, dtype=np.float32)
            own = [len({*query.split()}) for query in step.queries]
            assert scores.diagonal().tolist() == own, "a query's own document holds its words"
            place = np.arange(scores.shape[1]) % len(scores)
            scores[self.own & (place != np.arange(len(scores))[:, None])] = np.nan
            if self.broken:
                scores[0, len(scores)] = np.nan
            found.append(scores)
        return np.stack(found)


TAUGHT: dict[str, Any] = {"teachers": ["theirs"]}


@pytest.mark.bf16
def test_a_teacher_is_learned_from_and_its_scores_are_kept(tmp_path: Path) -> None:
    wanted = section(steps=41, learning_rate=5e-3, loss=["margin_mse", "kl"], hard_negatives=2, **TAUGHT)
    curves = finetune(
        encoder(tmp_path),
        DATA,
        wanted,
        TrainingRun(seed=5, folder=tmp_path / "kept", language="en"),
        teachers=[Overlap(own=True)],
    )
    assert curves["margin_mse"][-1] < 0.9 * curves["margin_mse"][0]
    assert curves["kl"][-1] < curves["kl"][0]
    assert sorted(file.name for file in (tmp_path / "kept" / "teacher-scores").iterdir()) == [
        f"{start:08d}.npy" for start in (0, 20, 40)
    ]


@dataclass
class Cosines:
    """A teacher that is sure of each query's relevant document, in cosines; it counts what it is asked."""

    scale: float
    steps: int = 0

    def scores(self, steps: Sequence[Asked]) -> np.ndarray:
        self.steps += len(steps)
        own = [[0.90] * len(steps[0].queries), *([low] * len(steps[0].queries) for low in (0.78, 0.75, 0.74))]
        return np.tile(np.concatenate(own).astype(np.float32), (len(steps), len(steps[0].queries), 1))


@pytest.mark.parametrize("loss", ["kl", "margin_mse"])
def test_a_teacher_of_cosines_teaches_at_its_scale_and_is_refused_without_one(loss: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"steps": 60, "loss": loss, "hard_negatives": 3, "learning_rate": 5e-3, **TAUGHT}
    teacher = Cosines(20.0)
    curves = finetune(
        encoder(tmp_path),
        DATA,
        section(**changes),
        TrainingRun(seed=5, folder=tmp_path / "kept", language="en"),
        teachers=[teacher],
    )
    assert curves[loss][-1] < 0.9 * curves[loss][0]
    assert teacher.steps == 60
    for refused, wanted in ((Cosines(1.0), section(**changes)), (Cosines(20.0), section(**changes, teacher_scale=1.0))):
        with pytest.raises(DataError, match=r"nearly alike.*Set teacher_scale to about 31 \(now 1\)"):
            finetune(
                encoder(tmp_path),
                DATA,
                wanted,
                TrainingRun(seed=5, folder=tmp_path / f"{refused.scale}", language="en"),
                teachers=[refused],
            )
        assert refused.steps == 20  # the first sample, and no more


def test_queries_of_equal_words_have_scores_of_their_own() -> None:
    data = judged([{0: 1, 2: 0}, {1: 1, 2: 0}], 3)
    data = replace(data, queries=[Query(query.id, "the same words") for query in data.queries])
    data.scores.update({"q0": {"d0": 9.0, "d2": 1.0}, "q1": {"d1": 4.0, "d2": 2.0}})
    asked = Asked(["the same words"] * 2, ["a", "b", "c", "c"], [0, 1, 2, 2], 2, [0, 1])
    (scores,) = GivenScores(data).scores([asked])
    assert np.array_equal(scores, [[9.0, np.nan, 1.0, 1.0], [np.nan, 4.0, 2.0, 2.0]], equal_nan=True)


def test_each_loss_has_its_weight(tmp_path: Path) -> None:
    wanted = section(loss=["infonce", "listwise"], loss_weights=[0.5, 3.0])
    terms = objective_terms(wanted, 10, encoder(tmp_path), SimpleNamespace(scale=1.0))[:2]
    assert {term.name: term.weight(7) for term in terms} == {"infonce": 0.5, "listwise": 3.0}


def test_useless_scores_are_an_error(tmp_path: Path) -> None:
    refused: list[tuple[dict[str, Any], Overlap, str]] = [
        ({"loss": "kl", "hard_negatives": 1}, Overlap(broken=True), "3 of 18 queries.*query 1 of step 0"),
        ({"loss": "listwise"}, Overlap(own=True), "Set hard_negatives to 1 or more"),
    ]
    for changes, teacher, said in refused:
        wanted = section(steps=3, **changes, **TAUGHT)
        with pytest.raises(DataError, match=said):
            finetune(
                encoder(tmp_path),
                DATA,
                wanted,
                TrainingRun(seed=5, folder=tmp_path / "kept", language="en"),
                teachers=[teacher],
            )


def test_what_cannot_be_learned_is_an_error_of_the_recipe() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"loss": ["kl", "margin_mse"]}, r"kl \+ margin_mse .*finetune\.hard_negatives"),
        ({"loss": ["infonce", "infonce"]}, "loss lists something twice"),
        ({"hard_negatives": 1, "mining": {"rankings": []}}, "no source of hard negatives"),
        ({"loss_weights": [1.0, 2.0]}, "loss_weights has 2 numbers for 1"),
        ({"document_penalty": ["flops", "l1"], "document_lambda": 1.0}, "document_lambda has 1 numbers for 2"),
        ({"document_penalty": ["l1", "l1"]}, "document_penalty lists something twice"),
    ]
    for changes, message in refused:
        with pytest.raises(ValidationError, match=message):
            section(**changes)


def test_settings_of_what_is_not_used_have_no_effect() -> None:
    read = section(query_penalty="l1", document_penalty="masked_flops").settings_read
    assert {"finetune.infonce_scale", "finetune.query_lambda", "finetune.document_lambda"} <= read
    assert not {"finetune.teacher_scale", "finetune.flops_definition"} & read
    of_teachers = {"finetune.teachers", "finetune.scores"}
    assert not of_teachers & read
    assert of_teachers <= section(loss="listwise").settings_read
    assert not any(name.startswith("finetune.mining.") for name in read)
    assert "finetune.mining.rankings" in section(hard_negatives=1).settings_read
