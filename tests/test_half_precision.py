"""Encoding in bf16 against autocast alone and against float32."""

from pathlib import Path

import numpy as np
import pytest
import torch
from test_families import FAMILIES, TEXTS, source_of
from tiny import encoder, shuffled, texts, tokenizer
from torch import nn

from vtkit.encoder.checkpoint import as_sparse_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import NO_AUTOCAST, mlm_head, with_plain_head
from vtkit.encoder.kernels import half_precision as module
from vtkit.encoder.kernels.half_precision import half_precision
from vtkit.settings.adapt import AdaptSection
from vtkit.system.runtime import bf16_is_fast
from vtkit.training import resuming
from vtkit.training.adapt import adapt_vectors

pytestmark = pytest.mark.bf16

FAST = pytest.mark.skipif(not bf16_is_fast(), reason="this processor has no fast bf16 products, so nothing is packed")


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_encodes_in_bf16_and_is_left_as_it_was(family: str, tmp_path: Path) -> None:
    tokens = shuffled(4, pad=FAMILIES[family][1].get("pad_token_id", 0))
    model = as_sparse_encoder(with_plain_head(source_of(family, tokens)), tokenizer(tokens), tmp_path / "model")
    wanted = encode(model, TEXTS, 1000).toarray()
    assert relative_error(encode(model, TEXTS, 1000, precision="bf16").toarray(), wanted) < 0.1
    assert not any("forward" in vars(part) for part in model[0].auto_model.modules())
    np.testing.assert_array_equal(encode(model, TEXTS, 1000).toarray(), wanted)


@FAST
def test_packed_weights_give_the_products_of_autocast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = encoder(tmp_path)
    packed = encode(model, TEXTS, 48, precision="bf16").toarray()
    monkeypatch.setattr(module, "_packs", lambda: False)
    plain = encode(model, TEXTS, 48, precision="bf16").toarray()
    assert relative_error(packed, plain) < 2.0**-8
    assert plain.any()


def test_a_linear_map_is_packed_in_the_transformer_and_exact_in_the_head(tmp_path: Path) -> None:
    model = encoder(tmp_path)[0].auto_model
    transform = next(part for part in model.cls.modules() if type(part) is nn.Linear)
    inner = model.bert.encoder.layer[0].intermediate.dense
    states = torch.randn(3, 5, transform.in_features, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        exact, rough = transform(states), inner(states)
        with half_precision(model):
            assert transform(states).equal(exact)
            found = inner(states)
            assert found.dtype == torch.bfloat16
            torch.testing.assert_close(found.float(), rough, rtol=0.02, atol=0.02)
            assert "forward" not in vars(mlm_head(model).decoder)
        assert inner(states).equal(rough)


@pytest.mark.parametrize("family", ["bert", *sorted(NO_AUTOCAST)])
def test_a_family_trains_where_bf16_is_fast(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "bf16_is_fast", lambda: True)
    tokens = shuffled(4, pad=FAMILIES[family][1].get("pad_token_id", 0))
    model = as_sparse_encoder(with_plain_head(source_of(family, tokens)), tokenizer(tokens), tmp_path / "model")
    section = AdaptSection(objective="crop", steps=2, batch_size=4, max_length=24)
    before = encode(model, TEXTS, 24)
    curves = adapt_vectors(model, section.objectives, texts(12, words=(8, 20)), section, "en", 1, tmp_path / "trained")
    assert np.isfinite(curves["loss"]).all()
    assert abs(encode(model, TEXTS, 24) - before).max() > 0
