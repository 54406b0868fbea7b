"""What fine-tuning minimises, by hand and against torch; and the gates that stop a collapsed run."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.sparse_encoder.losses import (
    SparseDistillKLDivLoss,
    SparseMarginMSELoss,
    SparseMultipleNegativesRankingLoss,
)
from tiny import encoder, texts
from torch import Tensor

from vtkit.encoder.encoding import encode
from vtkit.settings.finetune import FinetuneSection
from vtkit.system.errors import CollapseError, DataError
from vtkit.training.finetune import objective_terms
from vtkit.training.gates import PATIENCE, Gate
from vtkit.training.losses import divergence, info_nce, margin_mse, own_candidates
from vtkit.training.objective import Objective
from vtkit.training.regularizers import flops, quadratic_ramp
from vtkit.training.teachers import COSINE_SCALE, check_targets


def vectors(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).relu()


@given(st.integers(1, 6), st.integers(0, 3), st.floats(0.05, 5.0), st.integers(0, 100))
def test_info_nce_is_its_definition_and_that_of_sentence_transformers(
    n: int, extra: int, scale: float, seed: int
) -> None:
    columns = [vectors(n, 8, seed + column) for column in range(2 + extra)]
    scores = columns[0] @ torch.cat(columns[1:]).t()
    shares = torch.softmax(scale * scores, dim=1)
    assert info_nce(scores, scale).item() == pytest.approx(-shares.diagonal().log().mean().item())
    theirs = SparseMultipleNegativesRankingLoss(None, scale=scale).compute_loss_from_embeddings(columns, None)
    assert info_nce(scores, scale).item() == pytest.approx(theirs.item())


def test_the_own_candidates_of_a_query_stand_a_batch_apart() -> None:
    scores = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]])  # two queries, three documents each
    assert own_candidates(scores).tolist() == [[1, 3, 5], [8, 10, 12]]


def own_scores(columns: list[Tensor]) -> Tensor:
    """Of each query's own documents, from the columns query, document, negatives."""
    return own_candidates(columns[0] @ torch.cat(columns[1:]).t())


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 100))
def test_margin_mse_and_the_divergence_are_those_of_sentence_transformers(n: int, negatives: int, seed: int) -> None:
    columns = [vectors(n, 8, seed + column) for column in range(2 + negatives)]
    teacher = vectors(n, 1 + negatives, seed + 50)
    theirs = SparseMarginMSELoss(None).compute_loss_from_embeddings(columns, teacher)
    assert margin_mse(own_scores(columns), teacher).item() == pytest.approx(theirs.item())
    theirs = SparseDistillKLDivLoss(None, temperature=1.0).compute_loss_from_embeddings(columns, teacher)
    assert divergence(own_scores(columns), teacher).item() == pytest.approx(theirs.item(), abs=1e-6)


COSINES = torch.tensor([[0.90, 0.78, 0.75, 0.74]])


def test_targets_that_are_nearly_uniform_are_refused() -> None:
    with pytest.raises(DataError, match=r"nearly alike.*deviation is 0\.064.*Set teacher_scale to about 31 \(now 1\)"):
        check_targets(COSINES, "teacher_scale", 1.0)
    with pytest.raises(DataError, match=r"nearly alike.*Name another teacher"):
        check_targets(torch.tensor([[0.1, -0.1]]))
    with pytest.raises(DataError, match=r"gives all documents of a query the same score"):
        check_targets(torch.ones(2, 3), "teacher_scale")
    check_targets(COSINE_SCALE * COSINES, "teacher_scale", COSINE_SCALE)
    check_targets(torch.tensor([[1.0, torch.nan]]))  # a document alone is compared with none


def test_the_ramp_is_quadratic_and_stays_at_full_strength() -> None:
    ramp = quadratic_ramp(2.0, 4)
    assert [ramp(step) for step in (0, 1, 2, 4, 5, 100)] == [0.0, 1 / 8, 1 / 2, 2.0, 2.0, 2.0]
    assert quadratic_ramp(1.0, 0)(0) == 0.0
    assert quadratic_ramp(1.0, 0)(1) == 1.0


def objective_of(model: object, step: int = 3) -> Objective:
    section = FinetuneSection(data="unused", query_lambda=0.5, document_lambda=0.25, infonce_scale=0.1, ramp=0.5)
    terms = objective_terms(section, 12, model)  # of which 6 are the ramp
    return Objective(model, terms, step=lambda: step, gate=Gate("fine-tuning", vocabulary=120, ramp_ends=6))


def test_the_whole_loss_is_that_of_the_vectors_sentence_transformers_gives(tmp_path: Path) -> None:
    model = encoder(tmp_path)
    columns = [texts(11, seed=1, words=(1, 3)), texts(11, seed=2, words=(1, 25)), texts(11, seed=3)]
    features = [model.tokenizer(column, padding=True, return_tensors="pt") for column in columns]
    loss = objective_of(model)
    parts = loss([dict(entry) for entry in features])
    queries, documents, negatives = (torch.from_numpy(encode(model, column, 48).toarray()) for column in columns)
    both = torch.cat([documents, negatives])
    assert parts["contrastive"].item() == pytest.approx(info_nce(queries @ both.t(), 0.1).item(), rel=1e-4)
    assert parts["query_flops"].item() == pytest.approx(0.25 * 0.5 * flops(queries).item(), rel=1e-4)
    assert parts["document_flops"].item() == pytest.approx(0.25 * 0.25 * flops(both).item(), rel=1e-4)
    active = loss.take_active_dimensions()
    assert active["query_dimensions"] == pytest.approx((queries > 0).sum(dim=1).float().mean().item(), abs=0.01)
    assert active["document_dimensions"] == pytest.approx((both > 0).sum(dim=1).float().mean().item(), abs=0.01)
    assert loss.take_active_dimensions() == {}


HEALTHY = torch.eye(4, 20) + torch.eye(4, 20).roll(1, dims=1)


def feed(gate: Gate, batches: int, queries: Tensor, documents: Tensor, step: int = 100) -> None:
    for _ in range(batches):
        gate.vectors(step, queries, documents, queries @ documents.t())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_stops_the_run_at_once(value: float) -> None:
    with pytest.raises(CollapseError, match=r"step 7: the loss is .*learning_rate"):
        Gate("fine-tuning")(7, torch.tensor(value))


COLLAPSES = {
    "query vectors are dead.*query_penalty": (torch.zeros(4, 20), HEALTHY),
    "document vectors are dead": (HEALTHY, torch.zeros(4, 20)),
    "query vectors are dense": (torch.ones(4, 20) + HEALTHY, HEALTHY),
    "document vectors are dense.*Raise": (HEALTHY, torch.ones(4, 20) + HEALTHY),
    "all documents of the batch get the same score": (HEALTHY, HEALTHY[:1].expand(4, 20)),
}


@pytest.mark.parametrize("message", COLLAPSES)
def test_a_collapse_stops_the_run_after_some_batches_in_a_row(message: str) -> None:
    gate = Gate("fine-tuning", vocabulary=20, ramp_ends=10)
    feed(gate, 5 * PATIENCE, HEALTHY, HEALTHY)
    for _ in range(3):  # a good batch in between makes it count anew
        feed(gate, PATIENCE - 1, *COLLAPSES[message])
        feed(gate, 1, HEALTHY, HEALTHY)
    feed(gate, PATIENCE - 1, *COLLAPSES[message])
    with pytest.raises(CollapseError, match=f"(?s){message}"):
        feed(gate, 1, *COLLAPSES[message])


def test_dense_vectors_are_no_collapse_before_the_ramp_has_ended() -> None:
    dense = torch.ones(4, 20) + HEALTHY
    gate = Gate("fine-tuning", vocabulary=20, ramp_ends=10)
    feed(gate, 3 * PATIENCE, dense, dense, step=10)
    with pytest.raises(CollapseError, match="dense"):
        feed(gate, PATIENCE, dense, dense, step=11)
