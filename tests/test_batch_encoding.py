"""Gradient caching: the losses, gradients and sparsity of the whole batch, in the memory of one group."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from fine_tuning import DATA, section
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.losses import CachedSpladeLoss, SparseMultipleNegativesRankingLoss
from tiny import ARCHITECTURES, encoder, texts, weights
from torch import Tensor, nn

from vtkit.encoder.kernels.dropout import ATTENTION, attention, dropout, fast_dropout, kept_bits, scale
from vtkit.encoder.kernels.sparse_head import streaming
from vtkit.settings.finetune import FinetuneSection
from vtkit.training import objective
from vtkit.training.finetune import finetune, objective_terms
from vtkit.training.gates import Gate
from vtkit.training.objective import Objective, term_weights_of
from vtkit.training.resuming import TrainingRun


def columns(model: SparseEncoder, pairs: int) -> list[dict[str, Tensor]]:
    """Queries and documents, tokenized."""
    made = (texts(pairs, seed=1, words=(1, 4)), texts(pairs, seed=2, words=(3, 25)))
    return [dict(model.tokenizer(column, padding=True, return_tensors="pt")) for column in made]


def step(
    model: SparseEncoder, pairs: int, texts_at_once: int | None, wanted: FinetuneSection
) -> tuple[dict[str, float], dict[str, Tensor], dict[str, float]]:
    """Losses, gradients and active dimensions of one step, always with the same dropout."""
    gate = Gate("fine-tuning", vocabulary=122, ramp_ends=10**9)
    terms = objective_terms(wanted, 1, model)
    loss = Objective(model, terms, step=lambda: 3, gate=gate, texts_at_once=texts_at_once)
    model.zero_grad()
    torch.manual_seed(3)
    with streaming(model):
        parts = loss(columns(model, pairs))
        torch.stack(list(parts.values())).sum().backward()
    gradients = {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
    return {name: value.item() for name, value in parts.items()}, gradients, loss.take_active_dimensions()


PENALTIES: dict[str, Any] = {"query_penalty": ["l1", "flops"], "document_penalty": ["df_flops", "masked_flops"]}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_caching_changes_nothing_dropout_included(architecture: str, tmp_path: Path) -> None:
    model = encoder(tmp_path, architecture).train()
    whole = step(model, 20, None, section(**PENALTIES))
    cached = step(model, 20, objective.TEXTS_A_GROUP, section(**PENALTIES))
    assert cached[0] == whole[0]
    assert cached[2] == whole[2]
    torch.testing.assert_close(cached[1], whole[1], rtol=1e-5, atol=1e-7)
    model.eval()
    assert step(model, 20, None, section(**PENALTIES))[0] != whole[0]  # there is dropout


def test_a_batch_of_32_is_the_same_as_four_times_eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = encoder(tmp_path, dropout=0.0).train()
    monkeypatch.setattr(objective, "TOKENS_A_GROUP", 1)
    wanted = section(**PENALTIES)
    losses, gradients, dimensions = step(model, 32, 32, wanted)
    with forwards(model) as sizes:
        cut = step(model, 32, 8, wanted)
    assert sizes == [8] * 16  # four groups of each side, and each of them again
    assert cut[0] == pytest.approx(losses, rel=1e-5)
    assert cut[2] == dimensions
    torch.testing.assert_close(cut[1], gradients, rtol=1e-3, atol=1e-6)


def test_it_is_the_librarys_cached_loss(tmp_path: Path) -> None:
    model = encoder(tmp_path, dropout=0.0).train()
    _, gradients, _ = step(model, 12, 3, section(query_lambda=0.05, document_lambda=0.02))
    theirs = CachedSpladeLoss(
        model,
        SparseMultipleNegativesRankingLoss(model, scale=1.0),
        document_regularizer_weight=0.02,
        query_regularizer_weight=0.05,
        mini_batch_size=3,
    )
    model.zero_grad()
    torch.stack(list(theirs(columns(model, 12), None).values())).sum().backward()
    expected = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    assert gradients.keys() == expected.keys()
    torch.testing.assert_close(gradients, expected, rtol=1e-3, atol=1e-5)


@contextmanager
def forwards(model: SparseEncoder) -> Iterator[list[int]]:
    """The texts of each pass through a layer of the encoder."""
    sizes: list[int] = []
    layer = next(module for module in model.modules() if type(module) is torch.nn.LayerNorm)
    hook = layer.register_forward_hook(lambda _, __, output: sizes.append(len(output)))
    try:
        yield sizes
    finally:
        hook.remove()


def test_no_activations_are_held_for_the_backward_pass(tmp_path: Path) -> None:
    model = encoder(tmp_path).train()

    def held(texts_at_once: int | None) -> int:
        kept: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            kept[tensor.data_ptr()] = tensor.nbytes
            return tensor

        with streaming(model), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            vectors = term_weights_of(model, columns(model, 40), texts_at_once)
            torch.cat(vectors).sum().backward()
        return sum(kept.values())

    assert held(5) < 0.01 * held(None)


def test_a_training_run_computes_again_what_it_does_not_hold_and_ends_the_same(tmp_path: Path) -> None:
    found = []
    for at_once in (None, objective.TEXTS_A_GROUP):
        ours, wanted = encoder(tmp_path / f"{at_once}"), section(**PENALTIES, steps=2, texts_at_once=at_once)
        with forwards(ours) as sizes:
            curves = finetune(
                ours, DATA, wanted, TrainingRun(seed=5, folder=tmp_path / f"{at_once}" / "checkpoints", language="en")
            )
        found.append((curves, len(sizes), weights(ours)))
    (curves, passes, whole), (their_curves, their_passes, cached) = found
    assert (their_curves, their_passes) == (curves, passes + 4)  # two steps of queries and documents
    torch.testing.assert_close(cached, whole, rtol=1e-4, atol=1e-5)


def test_without_a_gradient_nothing_is_computed_again(tmp_path: Path) -> None:
    model = encoder(tmp_path).train()
    with torch.no_grad(), forwards(model) as sizes:
        term_weights_of(model, columns(model, 16), 4)
    assert sum(sizes) == 32


# Dropout: its rate, its gradient, attention with it against the definition; and that it comes and goes.


def definition(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kept: Tensor, factor: float, p: float
) -> Tensor:
    """Attention with the dropout mask ``kept`` (0 or 1), written out."""
    scores = query @ key.transpose(2, 3) * factor
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (scores.softmax(dim=-1) * kept * scale(p)) @ value


def problem(dtype: torch.dtype, length: int = 7) -> tuple[list[Tensor], Tensor]:
    """Queries, keys and values of two texts with three heads, and their mask: the second text has padding."""
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(2, 3, length, 4, generator=generator, dtype=torch.float64).to(dtype) for _ in range(3)]
    mask = torch.ones(2, 1, length, length, dtype=torch.bool)
    mask[1, :, :, 5:] = False
    return tensors, mask


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_values_are_dropped_at_the_rate_and_the_others_scaled(dtype: torch.dtype, p: float) -> None:
    torch.manual_seed(1)
    values = torch.rand(1000, 401, dtype=torch.float64).add(0.5).to(dtype)
    found = dropout(values, p)
    dropped = (found == 0).double()
    deviation = (p * (1 - p) / values.numel()) ** 0.5
    assert abs(dropped.mean().item() - p) < 5 * deviation + 2**-16
    assert torch.equal(found[found != 0], (values * scale(p))[found != 0])
    assert scale(p) == pytest.approx(1 / (1 - p), rel=1e-3)
    # four neighbours come from one number of the generator; each has the rate, and they are independent
    columns = dropped[:, :400].reshape(-1, 4) - p
    assert columns.mean(dim=0).abs().max() < 5 * (p * (1 - p) / len(columns)) ** 0.5 + 2**-16
    correlations = columns.t() @ columns / len(columns) / (p * (1 - p))
    assert correlations.fill_diagonal_(0).abs().max() < 5 / len(columns) ** 0.5


def test_the_seed_fixes_the_mask_and_every_call_has_its_own() -> None:
    like = torch.empty(5, 33)
    torch.manual_seed(3)
    first, second = kept_bits(like, 0.5), kept_bits(like, 0.5)
    torch.manual_seed(3)
    assert torch.equal(kept_bits(like, 0.5), first)
    assert not torch.equal(first, second)
    assert set(first.unique().tolist()) == {-1, 0}


def test_the_gradient_has_the_mask_of_the_values() -> None:
    values = torch.rand(40, 40).add(0.5).requires_grad_()
    found = dropout(values.t(), 0.3)  # not contiguous
    found.sum().backward()
    torch.testing.assert_close(values.grad, (found / values.t()).t().detach())


@pytest.mark.parametrize(("dtype", "masked"), [(torch.float64, True), (torch.float64, False), (torch.bfloat16, True)])
def test_attention_and_its_gradients_are_those_of_the_definition(dtype: torch.dtype, masked: bool) -> None:
    """In bf16 up to rounding."""
    tensors, mask = problem(dtype, length=16)
    own = [tensor.clone().requires_grad_() for tensor in tensors]
    torch.manual_seed(5)
    found, _ = attention(nn.Module(), *own, mask if masked else None, dropout=0.4, scaling=0.5, is_causal=False)
    torch.manual_seed(5)
    kept = (kept_bits(torch.empty(2, 3, 16, 16), 0.4) != 0).double()
    exact = [tensor.double().requires_grad_() for tensor in tensors]
    wanted = definition(*exact, mask if masked else None, kept, 0.5, 0.4).transpose(1, 2)
    assert found.dtype == dtype
    factors = torch.randn(found.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    (found * factors).sum().backward()
    (wanted * factors.double()).sum().backward()
    rounding = 2**-8 if dtype == torch.bfloat16 else 1e-9
    for mine, its in [(found, wanted), *((mine.grad, its.grad) for mine, its in zip(own, exact, strict=True))]:
        assert (mine.double() - its).abs().max() < 4 * rounding * its.abs().max()
        assert (mine.double() - its).norm() < 2 * rounding * its.norm()


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "roberta", "modernbert"])
def test_an_encoder_has_it_in_training_only_and_only_inside(architecture: str, tmp_path: Path) -> None:
    model = encoder(tmp_path, architecture, dropout=0.5)
    transformer = model[0].auto_model
    batch = model.tokenizer(["river stone willow", "amber"], return_tensors="pt", padding=True)
    before, attended = weights(model), transformer.config._attn_implementation
    with torch.no_grad():
        wanted = transformer.eval()(**batch).logits
        with fast_dropout(transformer):
            assert torch.equal(transformer(**batch).logits, wanted)
            if attended == "sdpa":
                assert transformer.config._attn_implementation == ATTENTION
            transformer.train()
            torch.manual_seed(0)
            first, second = transformer(**batch).logits, transformer(**batch).logits
            torch.manual_seed(0)
            assert torch.equal(transformer(**batch).logits, first)
            assert not torch.equal(first, second)
        assert torch.equal(transformer.eval()(**batch).logits, wanted)
    assert transformer.config._attn_implementation == attended
    assert not any("forward" in vars(module) for module in transformer.modules())
    assert weights(model).keys() == before.keys()
