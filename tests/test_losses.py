"""What fine-tuning minimises, by hand and against torch; and the gates that stop a collapsed run."""

import math
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.sparse_encoder.losses import (
    FlopsLoss,
    SparseDistillKLDivLoss,
    SparseMarginMSELoss,
    SparseMultipleNegativesRankingLoss,
)
from tiny import TOKENS, encoder, texts, tokenizer
from torch import Tensor

from vtkit.encoder.encoding import encode
from vtkit.encoder.kernels.sparse_head import streaming
from vtkit.settings.finetune import PENALTIES, SIDES, FinetuneSection, FlopsDefinition
from vtkit.system.errors import CollapseError, DataError
from vtkit.training import objective
from vtkit.training.finetune import objective_terms
from vtkit.training.gates import PATIENCE, Gate
from vtkit.training.losses import infonce, kl, margin_mse, own_candidates
from vtkit.training.objective import Batch, Objective
from vtkit.training.regularizers import (
    DfFlops,
    cased,
    df_weights,
    flops,
    l1,
    masked_flops,
    of_documents,
    quadratic_ramp,
)
from vtkit.training.teachers import COSINE_SCALE, check_targets
from vtkit.vocabulary.casing import cased_ids


def vectors(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).relu()


@given(st.integers(1, 6), st.integers(0, 3), st.floats(0.05, 5.0), st.integers(0, 100))
def test_info_nce_is_its_definition_and_that_of_sentence_transformers(
    n: int, extra: int, scale: float, seed: int
) -> None:
    columns = [vectors(n, 8, seed + column) for column in range(2 + extra)]
    scores = columns[0] @ torch.cat(columns[1:]).t()
    shares = torch.softmax(scale * scores, dim=1)
    assert infonce(scores, scale).item() == pytest.approx(-shares.diagonal().log().mean().item())
    theirs = SparseMultipleNegativesRankingLoss(None, scale=scale).compute_loss_from_embeddings(columns, None)
    assert infonce(scores, scale).item() == pytest.approx(theirs.item())


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
    assert kl(own_scores(columns), teacher).item() == pytest.approx(theirs.item(), abs=1e-6)


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
    assert parts["infonce"].item() == pytest.approx(infonce(queries @ both.t(), 0.1).item(), rel=1e-4)
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


# Penalties that keep vectors sparse: by hand, against sentence-transformers, and the same however a batch is cut.


DEFINITIONS: tuple[FlopsDefinition, ...] = get_args(FlopsDefinition)
WEIGHTS = torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, 0.0]])


def test_by_hand() -> None:
    assert l1(WEIGHTS).item() == 3.0  # sums 3, 3
    assert masked_flops(WEIGHTS, 1).item() == 0.5**2 + 1**2  # the second text has no more than one
    assert masked_flops(WEIGHTS, 0).item() == flops(WEIGHTS).item()
    assert masked_flops(WEIGHTS, 2).item() == 0.0
    assert cased(WEIGHTS, torch.tensor([0, 2])).item() == 14.0  # (1 + 4) + 9: summed over the texts too
    assert cased(WEIGHTS, torch.tensor([], dtype=torch.long)).item() == 0.0
    capital = tokenizer((*TOKENS, "Paris", "##X"))
    assert cased_ids(capital).tolist() == [len(TOKENS), len(TOKENS) + 1]  # and no special token


def test_flops_of_documents_by_hand_in_each_definition() -> None:
    """Relevant documents (4, 0) and (2, 2): means 3, 1. Negatives (0, 2), (0, 4): means 0, 3. All four: 1.5, 2."""
    relevant, negatives = torch.tensor([[4.0, 0.0], [2.0, 2.0]]), torch.tensor([[0.0, 2.0], [0.0, 4.0]])
    found = {name: of_documents(flops, relevant, negatives, name).item() for name in DEFINITIONS}
    assert found == {"batch": 1.5**2 + 2**2, "splade": (10 + 9) / 2, "cai": 10 + 9}
    assert {of_documents(flops, relevant, negatives[:0], name).item() for name in DEFINITIONS} == {10.0}


def test_the_definition_that_a_recipe_names_is_the_penalty_of_its_documents(tmp_path: Path) -> None:
    model = encoder(tmp_path, tokens=(*TOKENS, "Paris", "##X"))
    width = len(model.tokenizer)
    queries, documents = vectors(2, width, 1), vectors(6, width, 2)
    batch = Batch(queries, documents, step=100)
    expected = {"batch": flops(documents), "splade": (flops(documents[:2]) + flops(documents[2:])) / 2}
    expected["cai"] = 2 * expected["splade"]
    for name, value in expected.items():
        section = FinetuneSection(data="folder", flops_definition=name, document_penalty=["flops", "cased"])
        terms = {term.name: term for term in objective_terms(section, 3, model)}
        assert terms["document_flops"].value(batch).item() == pytest.approx(value.item())
        assert terms["query_flops"].value(batch).item() == pytest.approx(flops(queries).item())
        summed = documents[:, cased_ids(model.tokenizer)].square().sum().item()
        assert summed > 0
        assert terms["document_cased"].value(batch).item() == pytest.approx(summed / 2 if name == "splade" else summed)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8), st.integers(0, 100))
def test_flops_and_masked_flops_are_those_of_sentence_transformers(
    rows: int, columns: int, threshold: int, seed: int
) -> None:
    weights = vectors(rows, columns, seed)
    assert flops(weights).item() == pytest.approx(FlopsLoss(None).compute_loss_from_embeddings(weights).item())
    theirs = FlopsLoss(None, threshold=threshold).compute_loss_from_embeddings(weights)
    assert masked_flops(weights, threshold).item() == pytest.approx(theirs.item())


@given(st.floats(0.01, 0.9), st.floats(0.5, 20), st.floats(0, 1), st.floats(0, 1))
def test_more_frequent_dimensions_never_weigh_less(alpha: float, beta: float, one: float, other: float) -> None:
    low, high = df_weights(torch.tensor(sorted([one, other]), dtype=torch.float64), alpha, beta).tolist()
    assert 0 <= low <= high <= 1


def test_df_flops_by_hand() -> None:
    """A dimension weighs nothing where no text has it, half at α, and 1 where all have it."""
    weighing = df_weights(torch.tensor([0.0, 0.1, 1.0]), alpha=0.1, beta=10.0)
    assert weighing.tolist() == pytest.approx([0.0, 0.5, 1.0])
    penalty = DfFlops(3, alpha=0.5, beta=1.0, memory=2)  # log_α 2 = -1, so x weighs x
    first = torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, 0.0]])  # shares 1, 0, 1/2
    assert penalty(first).item() == pytest.approx((2 * 1) ** 2 + (1 * 0.5) ** 2)
    second = torch.tensor([[0.0, 4.0, 4.0], [0.0, 0.0, 4.0]])  # shares 0, 1/2, 1: mean 1/2, 1/4, 3/4
    assert penalty(second).item() == pytest.approx((2 * 0.25) ** 2 + (4 * 0.75) ** 2)
    penalty(second)  # the older half of the memory counts half: 1/4, 3/8, 7/8
    assert penalty.shares.tolist() == pytest.approx([0.25, 0.375, 0.875])
    frequent = vectors(5, 7, 3).float() + 0.1  # without rare dimensions it is FLOPS
    assert DfFlops(7, 0.1)(frequent).item() == pytest.approx(flops(frequent).item())


def section(**changes: Any) -> FinetuneSection:
    return FinetuneSection(data="unused", **changes)


EVERY = {"query_penalty": list(PENALTIES), "document_penalty": list(PENALTIES)}


def test_each_side_has_its_penalties_with_strengths_of_their_own(tmp_path: Path) -> None:
    strengths = {"query_lambda": [2.0, 0.5], "document_lambda": 0.25}
    wanted = section(query_penalty=["flops", "l1"], document_penalty="l1", ramp=0.5, **strengths)
    terms = {term.name: term for term in objective_terms(wanted, 20, encoder(tmp_path))}
    assert list(terms) == ["infonce", "query_flops", "query_l1", "document_l1"]
    assert [terms["query_flops"].weight(step) for step in (0, 5, 10, 20)] == [0.0, 0.5, 2.0, 2.0]
    assert [terms["query_l1"].weight(step) for step in (5, 10)] == [0.125, 0.5]
    assert [terms["document_l1"].weight(step) for step in (5, 10)] == [0.0625, 0.25]
    batch = Batch(WEIGHTS, 2 * WEIGHTS)
    assert (terms["query_l1"].value(batch).item(), terms["document_l1"].value(batch).item()) == (3.0, 6.0)
    without = objective_terms(section(query_penalty=[], document_penalty=[]), 10, encoder(tmp_path))
    assert [term.name for term in without] == ["infonce"]


@pytest.mark.parametrize("parts", [(1, 1), (3, 1), (5, 40)])
def test_every_penalty_is_the_same_in_parts_of_any_size(
    parts: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = encoder(tmp_path, dropout=0.0, tokens=(*TOKENS, "Paris", "##X"))
    columns = [texts(11, seed=1, words=(1, 3)), texts(11, seed=2, words=(1, 25))]
    features = [model.tokenizer(column, padding=True, return_tensors="pt") for column in columns]
    masked = PENALTIES["masked_flops"]._replace(spares={"query": 45, "document": 55})  # of 62 tokens
    monkeypatch.setitem(PENALTIES, "masked_flops", masked)
    wanted = section(**EVERY)

    def parts_and_gradient() -> tuple[dict[str, float], Tensor]:
        gate = Gate("fine-tuning", vocabulary=122, ramp_ends=10**9)
        loss = Objective(model, objective_terms(wanted, 1, model), step=lambda: 3, gate=gate)
        model.zero_grad()
        with streaming(model):
            found = loss([dict(entry) for entry in features])
            torch.stack(list(found.values())).sum().backward()
        learned = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
        return {name: value.item() for name, value in found.items()}, torch.cat(learned)

    whole, gradient = parts_and_gradient()
    assert len(whole) == 1 + len(SIDES) * len(PENALTIES)
    assert all(whole[f"{side}_{name}"] > 0 for side in SIDES for name in PENALTIES)
    monkeypatch.setattr(objective, "TEXTS_A_GROUP", parts[0])
    monkeypatch.setattr(objective, "TOKENS_A_GROUP", parts[1])
    cut, its_gradient = parts_and_gradient()
    assert cut == pytest.approx(whole, rel=1e-4)
    torch.testing.assert_close(its_gradient, gradient, rtol=1e-3, atol=1e-5)
