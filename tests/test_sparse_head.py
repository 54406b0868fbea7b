"""The sparse head: the same numbers and gradients as its definition, written out; and encoding with it."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling
from tiny import ARCHITECTURES, encoder, texts, weights
from torch import Tensor, nn

from vtkit.encoder import truncation
from vtkit.encoder.encoding import encode
from vtkit.encoder.kernels import sparse_head
from vtkit.encoder.kernels.screen import Screen
from vtkit.encoder.kernels.sparse_head import streaming, summed_weights, term_weights
from vtkit.encoder.masked import mask_dimensions
from vtkit.system import console

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(1, 8), st.integers(1, 300))
"""Texts, positions, width, vocabulary; vocabularies reach across several blocks of 64 terms."""

COMBINATIONS = [(pooling, activation) for pooling in ("max", "sum") for activation in ("relu", "log1p_relu")]


def dense(hidden: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, pooling: str, activation: str) -> Tensor:
    """The definition with all logits in memory, (batch, length, vocabulary)."""
    saturated = torch.log1p(torch.relu(hidden @ weight.t() + bias))
    if activation == "log1p_relu":
        saturated = torch.log1p(saturated)
    saturated = saturated * mask.unsqueeze(-1)
    return saturated.sum(dim=1) if pooling == "sum" else saturated.max(dim=1).values


def problem(shape: tuple[int, int, int, int], seed: int, offset: float = 0.0) -> tuple[Tensor, ...]:
    """Random hidden states, mask (the first position is always a token), decoder rows and bias, in float64."""
    batch, length, width, vocabulary = shape
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(batch, length, width, generator=generator, dtype=torch.float64)
    mask = (torch.rand(batch, length, generator=generator) < 0.7).long()
    mask[:, 0] = 1
    weight = torch.randn(vocabulary, width, generator=generator, dtype=torch.float64)
    bias = torch.randn(vocabulary, generator=generator, dtype=torch.float64) + offset
    return hidden, mask, weight, bias


def with_gradients(function: object, arguments: tuple[Tensor, ...], *names: str) -> list[Tensor]:
    """The weights and, of their randomly weighted sum, the gradients by hidden states, decoder rows and bias."""
    hidden, mask, weight, bias = (tensor.clone().requires_grad_(tensor.is_floating_point()) for tensor in arguments)
    found = function(hidden, mask, weight, bias, *names)
    factors = torch.randn(found.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    (found * factors).sum().backward()
    return [found.detach(), hidden.grad, weight.grad, bias.grad]


@pytest.mark.parametrize(("pooling", "activation"), COMBINATIONS)
@given(shape=SHAPES, seed=st.integers(0, 1000))
@example(shape=(3, 5, 4, 64), seed=1)
@example(shape=(3, 5, 4, 65), seed=1)
def test_values_and_gradients_are_those_of_the_definition(
    pooling: str, activation: str, shape: tuple[int, int, int, int], seed: int
) -> None:
    arguments, weights = problem(shape, seed), term_weights if pooling == "max" else summed_weights
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_head, "BLOCK_BYTES", 1)  # blocks of 64 terms, the smallest there are
        ours = with_gradients(weights, arguments, activation)
        with torch.no_grad():
            without_gradients = weights(*arguments, activation)
    wanted = with_gradients(dense, arguments, pooling, activation)
    torch.testing.assert_close(without_gradients, wanted[0], rtol=1e-9, atol=1e-12)
    for found, expected in zip(ours, wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_sums_in_bf16_are_those_of_rounded_logits() -> None:
    hidden, mask, weight, bias = (tensor.float() for tensor in problem((3, 7, 8, 200), 5, -2.0))
    rounded = hidden.bfloat16(), mask, weight.bfloat16(), bias
    logits = nn.functional.linear(rounded[0], rounded[2], bias.bfloat16()).float()
    wanted = (logits.relu().log1p() * mask[..., None]).sum(1)
    with torch.no_grad():
        torch.testing.assert_close(summed_weights(*rounded), wanted)


def test_where_nothing_is_positive_or_all_is_padding_weights_and_gradients_are_zero() -> None:
    hidden, _, weight, bias = problem((1, 3, 4, 70), seed=3, offset=5.0)
    padding = hidden, torch.zeros(1, 3, dtype=torch.long), weight, bias
    for arguments in (problem((2, 3, 4, 70), seed=2, offset=-1000.0), padding):
        for found in with_gradients(term_weights, arguments):
            assert not found.any()


def test_a_frozen_transformer_gets_no_gradient_and_costs_the_decoder_none() -> None:
    hidden, mask, weight, bias = problem((2, 3, 4, 70), seed=4)
    wanted = with_gradients(term_weights, (hidden, mask, weight, bias))
    weight.requires_grad_(True)
    found = term_weights(hidden, mask, weight, bias)
    factors = torch.randn(found.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    (found * factors).sum().backward()
    torch.testing.assert_close(weight.grad, wanted[2])


def test_where_hidden_states_are_no_numbers_nothing_hides_it() -> None:
    hidden, mask, weight, bias = (tensor.float() for tensor in problem((2, 4, 8, 100), 1, -50.0))
    hidden[1, 2, 3] = torch.nan
    mask[:] = 1
    with torch.no_grad():
        assert summed_weights(hidden, mask, weight, bias)[1].isnan().all()
    found = term_weights(hidden, mask, weight, bias, screen=Screen.of(weight, bias))
    assert found[1].isnan().all()


@pytest.mark.parametrize("offset", [-9.0, -3.0, 0.0])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_screened_values_and_gradients_are_those_of_the_definition(offset: float, activation: str) -> None:
    arguments = problem((4, 9, 8, 300), 3, offset)
    arguments[1][2] = 0  # a text of padding only
    arguments[1][3, :4] = 0  # padding on the left
    screen = Screen.of(arguments[2], arguments[3])

    def screened(*given: Tensor) -> Tensor:
        return term_weights(*given, activation, screen)

    for found, expected in zip(
        with_gradients(screened, arguments), with_gradients(dense, arguments, "max", activation), strict=True
    ):
        assert torch.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("offset", [-9.0, 0.0])
def test_sparse_gradients_are_the_dense_ones(offset: float) -> None:
    arguments = problem((4, 9, 8, 300), 3, offset)
    wanted = with_gradients(dense, arguments, "max", "relu")[2]

    def sparse(*given: Tensor) -> Tensor:
        return term_weights(*given, sparse=True)

    found = with_gradients(sparse, arguments)[2]
    assert found.is_sparse == (offset == -9.0)  # few rows have a gradient, or nearly all
    torch.testing.assert_close(found.to_dense(), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("tied", [True, False])
def test_groups_of_a_batch_leave_the_gradients_of_the_library(tied: bool, tmp_path: Path) -> None:
    model = encoder(tmp_path, dropout=0.0).train()
    transformer = model[0].auto_model
    if not tied:
        transformer.config.tie_word_embeddings = False
        decoder = transformer.get_output_embeddings()
        decoder.weight = torch.nn.Parameter(decoder.weight.detach().clone())
    with torch.no_grad():
        transformer.get_output_embeddings().bias.fill_(-2.0)
    embeddings = transformer.get_input_embeddings()
    assert (embeddings.weight is transformer.get_output_embeddings().weight) == tied
    groups = [model.tokenizer(TEXTS[i : i + 3], return_tensors="pt", padding=True) for i in range(0, 9, 3)]

    def gradients() -> dict[str, Tensor]:
        model.zero_grad(set_to_none=True)
        for _ in range(2):  # a second backward pass adds to what is there
            torch.cat([model(dict(group))["sentence_embedding"] for group in groups]).square().sum().backward()
        return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}

    wanted = gradients()
    with streaming(model):
        assert embeddings.sparse
        found = gradients()
    assert not embeddings.sparse
    assert found.keys() == wanted.keys()
    for name, gradient in found.items():
        assert not gradient.is_sparse
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fused", [False, True])  # a fused step leaves a parameter's version as it was
def test_a_step_of_the_optimizer_is_seen_by_the_screen(
    fused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_head, "bf16_is_fast", lambda: True)
    model = encoder(tmp_path)
    with streaming(model):
        decoder = model[1].decoder
        for parameter in (decoder.weight, decoder.bias):
            before = model[1].screen(decoder.bias)
            assert model[1].screen(decoder.bias) is before
            parameter.grad = torch.ones_like(parameter)
            torch.optim.AdamW([parameter], lr=0.5, fused=fused).step()
            after = model[1].screen(decoder.bias)
            assert torch.equal(after.rows, Screen.of(decoder.weight, decoder.bias).rows)
            assert not torch.equal(after.rows, before.rows)


def test_half_precision_is_for_heads_that_nothing_screens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = encoder(tmp_path)
    whole = encode(model, TEXTS, 48)
    with monkeypatch.context() as patch:
        patch.setattr(sparse_head, "bf16_is_fast", lambda: True)
        with streaming(model, half=True):
            assert model[1].half is None
        # the transformer stays in float32
        monkeypatch.setattr("vtkit.encoder.encoding.half_precision", lambda _: nullcontext())
        screened = encode(model, TEXTS, 48, precision="bf16")
    assert abs(whole - screened).max() < 1e-5
    monkeypatch.setattr(sparse_head, "bf16_is_fast", lambda: False)
    with streaming(model, half=True):
        assert model[1].half.dtype == torch.bfloat16


def test_streaming_leaves_the_encoder_as_it_found_it(tmp_path: Path) -> None:
    model = encoder(tmp_path)
    pooling, decoder, before = model[1], model[0].auto_model.get_output_embeddings(), weights(model)
    with streaming(model) as inside:
        assert inside is model
        assert type(model[1]) is not SpladePooling
    with pytest.raises(RuntimeError, match="on purpose"), streaming(model):
        raise RuntimeError("on purpose")
    assert model[1] is pooling
    assert "forward" not in vars(decoder)
    assert [name for name, _ in model.named_modules() if "Streaming" in type(_).__name__] == []
    assert weights(model).keys() == before.keys()
    hidden = torch.randn(2, 32)
    assert torch.equal(decoder(hidden), torch.nn.functional.linear(hidden, decoder.weight, decoder.bias))


TEXTS = [*texts(9, seed=5), "", "  spaced \t out ", "Ünknown 字", " ".join(["river stone"] * 60), "river"]


@pytest.mark.parametrize(
    "settings",
    [
        *({"architecture": architecture} for architecture in ARCHITECTURES),
        *({"pooling": pooling, "activation": activation} for pooling, activation in COMBINATIONS[1:]),
    ],
    ids=str,
)
def test_encoding_gives_what_sentence_transformers_gives(settings: dict[str, str], tmp_path: Path) -> None:
    model = encoder(tmp_path, **settings)
    found = encode(model, TEXTS, max_length=1000)
    wanted = model.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    assert found.shape == wanted.shape
    assert found.dtype == np.float32
    assert found.has_sorted_indices
    np.testing.assert_allclose(found.toarray(), wanted, atol=1e-5)
    assert 0.3 * wanted.size < found.nnz < 0.98 * wanted.size


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_masked_rows_behind_all_others_are_not_computed(pooling: str, tmp_path: Path) -> None:
    model = encoder(tmp_path, pooling=pooling, tied=False)
    decoder = model[0].auto_model.cls.predictions.decoder
    mask_dimensions(model[0].auto_model, range(30, decoder.out_features))
    wanted = model.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    with torch.no_grad():
        decoder.weight[30:] = torch.nan
    found = encode(model, TEXTS, max_length=1000).toarray()
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert not wanted[:, 30:].any()


def test_it_is_said_that_a_machine_emulates_bf16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vtkit.encoder.encoding.bf16_is_fast", lambda: False)
    console.once.cache_clear()
    encode(encoder(tmp_path), TEXTS, 48, precision="bf16")
    assert "this machine emulates bf16" in capsys.readouterr().err


def test_rows_are_in_the_order_of_the_texts_however_they_are_batched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = encoder(tmp_path)
    together = encode(model, TEXTS, 48).toarray()
    monkeypatch.setattr(truncation, "TOKENS_A_BATCH", 1)  # every text alone
    np.testing.assert_allclose(encode(model, TEXTS, 48).toarray(), together, atol=1e-5)
    for number, text in enumerate(TEXTS):
        np.testing.assert_allclose(encode(model, [text], 48).toarray()[0], together[number], atol=1e-5)


def test_texts_are_cut_at_the_length_that_is_asked_for_and_none_make_no_rows(tmp_path: Path) -> None:
    model = encoder(tmp_path)
    long = encode(model, ["river stone willow amber"], 4).toarray()
    np.testing.assert_allclose(long, encode(model, ["river stone"], 4).toarray(), atol=1e-6)
    assert not np.allclose(long, encode(model, ["river stone willow amber"], 48).toarray())
    assert encode(model, [], 48).shape == (0, model[0].auto_model.config.vocab_size)


def test_the_largest_weights_are_kept_and_no_more_of_them_even_on_ties(tmp_path: Path) -> None:
    model = encoder(tmp_path)
    whole = encode(model, TEXTS, 48).toarray()
    cut = encode(model, TEXTS, 48, top_dimensions=5).toarray()
    for kept, everything in zip(cut, whole, strict=True):
        np.testing.assert_allclose(np.sort(kept)[-5:], np.sort(everything)[-5:], atol=1e-6)
        assert np.count_nonzero(kept) == 5
    np.testing.assert_allclose(cut, np.where(cut > 0, whole, 0.0), atol=1e-6)
    # tokens that one row was mixed for, as of the method "mean", have equal weights in every text
    with torch.no_grad():
        decoder = model[0].auto_model.get_output_embeddings()
        decoder.weight[60:] = decoder.weight[60]
        decoder.bias[:60], decoder.bias[60:] = -50.0, 10.0
    assert np.diff(encode(model, TEXTS, 48, top_dimensions=5).indptr).tolist() == [5] * len(TEXTS)


def test_the_encoders_own_limit_of_dimensions_holds(tmp_path: Path) -> None:
    model = encoder(tmp_path)
    model.max_active_dims = 7
    found = encode(model, TEXTS, 48)
    np.testing.assert_allclose(found.toarray(), model.encode(TEXTS, convert_to_sparse_tensor=False).numpy(), atol=1e-5)
    assert np.diff(found.indptr).max() == 7
    assert np.diff(encode(model, TEXTS, 48, top_dimensions=3).indptr).max() == 3


def test_encoding_puts_the_encoder_into_evaluation_mode(tmp_path: Path) -> None:
    model: SparseEncoder = encoder(tmp_path, dropout=0.5).train()
    assert np.array_equal(encode(model, TEXTS, 48).toarray(), encode(model, TEXTS, 48).toarray())
