"""Dropout: its rate, its gradient, attention with it against the definition; and that it comes and goes."""

from pathlib import Path

import pytest
import torch
from tiny import encoder, weights
from torch import Tensor, nn

from vtkit.encoder.kernels.dropout import ATTENTION, attention, dropout, fast_dropout, kept_bits, scale


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
