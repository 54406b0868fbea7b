"""Calibration: the share of positive activations that was asked for, counted by brute force; rescaling, shifting and
folding against their definitions; and the table by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sentence_transformers import SparseEncoder
from tiny import ARCHITECTURES, TOKENS, encoder, model, texts, tokenizer, weights
from typer.testing import Result

from vtkit.api import calibrate_encoder
from vtkit.data.sampling import draw
from vtkit.encoder import calibration
from vtkit.encoder.calibrated import ROWS, Calibration
from vtkit.encoder.calibration import (
    HIGHEST_RATE,
    ActivationRates,
    TokenTargets,
    activation_rates,
    calibrate,
    probe_figures,
    score_spread,
    token_rates,
)
from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.documents import document_frequencies
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import mlm_head
from vtkit.encoder.masked import mask_dimensions, masked_dimensions
from vtkit.pipeline.steps import calibrate_head
from vtkit.settings.calibrate import CalibrateSection
from vtkit.system.errors import CollapseError

TEXTS = [*texts(60, seed=3), ""]


def bias(model: SparseEncoder) -> torch.Tensor:
    return mlm_head(model[0].auto_model).decoder.bias


def counted(model: SparseEncoder, probe: list[str], max_length: int = 48) -> ActivationRates:
    """Both shares by the plain model, one text after the other."""
    positive = total = 0
    pooled = []
    for text in probe:
        ids = model.tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
        with torch.no_grad():
            logits = model[0].auto_model(**ids).logits[0]
        positive, total = positive + int((logits > 0).sum()), total + logits.numel()
        pooled.append((logits.amax(dim=0) > 0).float().mean().item())
    return {"token": positive / total, "pooled": sum(pooled) / len(pooled)}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rates_are_those_of_brute_force(architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = encoder(tmp_path, architecture)
    wanted = counted(ours, TEXTS, max_length=10)
    for block in (calibration.LOGITS_A_BLOCK, 1):  # the whole vocabulary at once, and 64 terms at once
        monkeypatch.setattr(calibration, "LOGITS_A_BLOCK", block)
        found = activation_rates(ours, TEXTS, max_length=10)
        assert found == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("definition", ["token", "pooled"])
@pytest.mark.parametrize("target", [0.02, 0.35, 0.9])
def test_the_shift_brings_the_rate_to_the_target(definition: str, target: float, tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    before, all_before = bias(ours).detach().clone(), weights(ours)
    wanted = counted(ours, TEXTS[0::2])
    found = calibrate(ours, TEXTS, target, definition, max_length=48)
    torch.testing.assert_close(bias(ours).detach(), before - found.shift)
    changed = {name for name, tensor in weights(ours).items() if not torch.equal(tensor, all_before[name])}
    assert changed <= {"cls.predictions.bias", "cls.predictions.decoder.bias"}  # one tensor with two names
    assert found.before["token"] == pytest.approx(wanted["token"], abs=1e-4)
    assert found.after[definition] == pytest.approx(target, abs=2e-3)
    assert found.held_out[definition] == pytest.approx(target, abs=max(0.1 * target, 0.02))
    # what is reported is what the shifted encoder does, on the two halves of the texts
    for reported, half in ((found.after, TEXTS[0::2]), (found.held_out, TEXTS[1::2])):
        assert reported == pytest.approx(counted(ours, half), abs=1e-4)
    assert found.to_json()["held_out"] == {"token": found.held_out["token"], "pooled": found.held_out["pooled"]}
    assert abs(calibrate(ours, TEXTS, target, definition, max_length=48).shift) < 0.01  # nothing is left to shift


def test_texts_too_different_from_each_other_are_refused(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    short, long = texts(20, words=(1, 1)), texts(20, words=(40, 40))  # many positions make a high maximum
    uneven = [text for pair in zip(short, long, strict=True) for text in pair]
    with pytest.raises(CollapseError, match=r"reached .* on held-out probe texts.*Use more \(texts\)"):
        calibrate(ours, uneven, 0.2, "pooled", 48)


@pytest.mark.parametrize("block", [1, 2**23])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_an_infinite_row_is_found(value: float, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "LOGITS_A_BLOCK", block)
    broken = model()
    with torch.no_grad():
        mlm_head(broken).decoder.bias[100] = value
    ours = as_sparse_encoder(broken, tokenizer(), tmp_path)
    with pytest.raises(CollapseError, match="logits are not finite"):
        calibrate(ours, TEXTS, 0.3, "token", 48)


def logits(model: SparseEncoder, probe: list[str]) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model[0].auto_model(**model.tokenizer(text, return_tensors="pt")).logits[0] for text in probe]


def test_a_fixed_shift_is_a_constant_inside_the_activation(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    before = logits(ours, TEXTS[:6])
    found = calibrate(ours, TEXTS, None, "token", 48, shift=0.75)
    assert (found.shift, found.target) == (0.75, None)
    found_weights = encode(ours, TEXTS[:6], 48).toarray()
    for row, text in enumerate(before):  # log1p(relu(x - c)), the logit shift
        np.testing.assert_allclose(
            found_weights[row], torch.log1p(torch.relu(text - 0.75)).amax(dim=0).numpy(), atol=1e-5
        )
    assert found.done() == "bias lowered by 0.7500"


def test_two_logits_and_their_shift_by_hand(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    decoder = mlm_head(ours[0].auto_model).decoder
    with torch.no_grad():
        decoder.weight.zero_()
        decoder.bias.fill_(-1.0)
        decoder.bias[[7, 8]] = torch.tensor([3.0, 1.5])
    found = calibrate(ours, TEXTS, None, "token", 48, shift=2.5)
    # 3 - 2.5 = 0.5; 1.5 - 2.5 < 0
    assert found.before == dict.fromkeys(("token", "pooled"), 2 / 120)
    assert found.after == found.held_out == dict.fromkeys(("token", "pooled"), 1 / 120)
    vector = encode(ours, ["river"], 48)
    assert vector.indices.tolist() == [7]
    assert vector.data[0] == pytest.approx(np.log(1.5))
    assert found.probe["before"].document_dimensions == 2
    assert found.probe["after"].query_dimensions == 1
    assert found.probe["after"].tied == 1.0  # all vectors are the same


def test_masked_dimensions_stay_masked_and_do_not_disturb_the_target(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    masked = list(range(5, 45))
    mask_dimensions(ours[0].auto_model, masked)
    found = calibrate(ours, TEXTS, 0.2, "token", 48)
    assert found.after["token"] == pytest.approx(0.2, abs=2e-3)  # of all dimensions, masked ones included
    assert torch.nonzero(masked_dimensions(ours[0].auto_model))[:, 0].tolist() == masked
    assert not encode(ours, TEXTS, 48)[:, masked].nnz


def test_beside_a_target_a_fixed_shift_changes_nothing_but_where_the_search_begins(tmp_path: Path) -> None:
    alone, beside = encoder(tmp_path / "a"), encoder(tmp_path / "b")
    first = calibrate(alone, TEXTS, 0.1, "pooled", 48)
    second = calibrate(beside, TEXTS, 0.1, "pooled", 48, shift=2.0)
    assert second.shift == pytest.approx(first.shift, abs=2e-3)
    torch.testing.assert_close(bias(alone), bias(beside), atol=2e-3, rtol=0)


def aims(strength: float = 1.0, bound: float = 1e6) -> TokenTargets:
    """Document frequencies from 1 to 119 in 500 documents; the first ten tokens occur nowhere."""
    return TokenTargets(np.where(np.arange(120) < 10, 0, np.arange(120)), 500, strength, bound)


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=50).filter(any), st.floats(0.001, 40.0), st.integers(1000, 9999)
)
def test_rates_by_frequency_add_up_to_those_wanted(frequencies: list[int], wanted: float, documents: int) -> None:
    given_to = np.array(frequencies)
    found = token_rates(TokenTargets(given_to, documents, 1.0, 1.0), wanted)
    assert not found[given_to == 0].any()
    assert found.sum() == pytest.approx(min(wanted, HIGHEST_RATE * (given_to > 0).sum()), rel=1e-6)
    ordered = found[np.argsort(given_to, kind="stable")]
    assert (np.diff(ordered) >= 0).all()  # what stands in more documents is active in more
    free = (found > 0) & (found < HIGHEST_RATE)
    shares = ((given_to + 0.5) / (documents + 1)) ** 0.5
    np.testing.assert_allclose(found[free] / shares[free], (found[free] / shares[free])[:1].repeat(free.sum()))


@pytest.mark.parametrize("block", [1, 2**23])
def test_each_token_is_active_in_its_share_of_the_texts(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "LOGITS_A_BLOCK", block)
    ours, masked = encoder(tmp_path), [30, 31]
    mask_dimensions(ours[0].auto_model, masked)
    before = bias(ours).detach().clone()
    unmasked = aims()
    unmasked.frequencies[masked] = 0
    rates = token_rates(unmasked, activation_rates(ours, TEXTS[0::2], 48)["pooled"] * 120)
    found = calibrate(ours, TEXTS, None, "token", 48, tokens=aims()).tokens
    active = np.mean([(text.amax(dim=0) > 0).numpy() for text in logits(ours, TEXTS[0::2])], axis=0)
    moved = np.setdiff1d(np.arange(10, 120), masked)
    assert np.abs(active - rates)[moved].max() <= 1.01 / len(TEXTS[0::2])
    kept = [*range(10), *masked]
    assert torch.equal(bias(ours)[kept], before[kept])  # what the corpus does not hold, and what is masked
    assert (found.tokens, found.unseen, found.bounded) == (108, 10, 0)
    assert found.mean == pytest.approx(float((bias(ours).detach() - before).abs()[moved].mean()), rel=1e-4)


def test_strength_and_bound_scale_and_limit_the_shifts_of_tokens(tmp_path: Path) -> None:
    whole, half, bounded = (encoder(tmp_path / name) for name in "abc")
    before = bias(whole).detach().clone()
    for ours, targets in ((whole, aims()), (half, aims(0.5)), (bounded, aims(1.0, 0.05))):
        result = calibrate(ours, TEXTS, None, "token", 48, tokens=targets).tokens
    full = before - bias(whole).detach()
    torch.testing.assert_close(before - bias(half), full / 2)
    torch.testing.assert_close(before - bias(bounded), full.clamp(-0.05, 0.05), atol=1e-6, rtol=0)
    assert result.bounded == int((full.abs() > 0.05).sum()) > 10


def test_a_target_beside_them_is_reached_all_the_same(tmp_path: Path) -> None:
    found = calibrate(encoder(tmp_path), TEXTS, 0.1, "pooled", 48, tokens=aims(0.5))
    assert found.after["pooled"] == pytest.approx(0.1, abs=5e-3)
    assert found.done().startswith("110 tokens moved towards their document frequencies (by ")


def test_documents_are_counted_in_the_whole_corpus_while_probe_texts_are_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate_head, "PROBE_TEXTS", 40)
    ours, again = encoder(tmp_path / "a"), encoder(tmp_path / "b")
    corpus = texts(300, seed=8)
    found = calibrate_encoder(ours, iter(corpus), tokens="document-frequency", max_length=48)
    assert found.target is None
    probes = draw(corpus, 40, 42)
    counted_in = document_frequencies(ours.tokenizer, corpus, 120)
    calibrate(again, probes, None, "token", 48, tokens=TokenTargets(*counted_in, 0.5, 1.0))
    assert torch.equal(bias(ours), bias(again))
    assert Calibration.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_spread_and_ties_by_hand() -> None:
    queries = sparse.csr_matrix([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    documents = sparse.csr_matrix([[9.0, 1.0], [1.0, 9.0], [3.0, 1.0], [5.0, 0.0]])
    # its own text left out: query 0 scores 1, 3, 5; query 1: 1, 1, 0; query 2: 0, 0, 0; query 3: 10, 10, 4
    spread, tied = score_spread(queries, documents)
    wanted = [np.std([1, 3, 5]) / 3, np.std([1, 1, 0]) / (2 / 3), 0.0, np.std([10, 10, 4]) / 8]
    assert spread == pytest.approx(np.mean(wanted))
    assert tied == pytest.approx(np.mean([0, 2 / 3, 1, 2 / 3]))
    assert score_spread(queries[:2], documents[:2]) == (0.0, 0.0)
    # only the best ten scores are looked at for ties, and thirty of these queries are empty, so tied throughout
    many = sparse.csr_matrix(np.array([0, *range(20, 10, -1), *[1] * 20], dtype=float)[:, None])
    _, tied = score_spread(sparse.csr_matrix(np.array([1, *[0] * 30], dtype=float)[:, None]), many)
    assert tied == pytest.approx(30 / 31)


def test_the_table_counts_what_the_encoder_gives(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    probe = texts(12, seed=9, words=(20, 30))
    found = probe_figures(ours, [*probe, probe[0]], 40)  # a text that occurs twice would tie with itself
    documents, queries = encode(ours, probe, 40), encode(ours, probe, 16)
    assert found.document_dimensions == documents.nnz / 12
    assert found.query_dimensions == queries.nnz / 12
    assert found.pooled == pytest.approx(documents.nnz / (12 * len(TOKENS)))
    assert found.token == activation_rates(ours, [*probe, probe[0]], 40)["token"]
    assert (found.spread, found.tied) == score_spread(queries, documents)
    assert 0 < found.spread < 1
    assert found.tied < 0.2


def test_the_target_is_the_default_only_where_nothing_else_is_asked_for() -> None:
    assert CalibrateSection().target_activation == 0.35
    others = {"shift": 5.0, "tokens": "document-frequency", "query_encoder": "idf"}
    for name, value in others.items():
        assert CalibrateSection.model_validate({name: value}).target_activation is None
        assert CalibrateSection.model_validate({name: value, "target_activation": 0.3}).target_activation == 0.3


def test_the_command_prints_the_table_and_writes_the_model(tmp_path: Path) -> None:
    model, corpus = tmp_path / "model", tmp_path / "texts.txt"
    save_encoder(encoder(tmp_path), model)
    corpus.write_text("\n".join(texts(40, seed=2)), encoding="utf-8")

    def call(*more: str) -> Result:
        return invoke("calibrate", model, "--corpus", corpus, *more)

    asked = "--definition pooled --tokens document-frequency --target 0.1"
    shown = call(*asked.split())
    assert shown.exit_code == 0, shown.exception
    first, _, head, *rows = shown.stdout.splitlines()
    assert "document frequencies" in first
    assert head.split() == ["before", "after"]
    assert [row.split("  ")[0] for row in rows] == [name for name, _, _ in ROWS]
    written = call("--target", "0.1", "--out", str(tmp_path / "new"), "--json")
    assert written.exit_code == 0, written.exception
    facts = json.loads(written.stdout)
    assert facts["held_out"]["token"] == pytest.approx(0.1, abs=0.03)
    assert set(facts["probe"]) == {"before", "after"}
    new, old = (bias(load_encoder(str(folder))) for folder in (tmp_path / "new", model))
    torch.testing.assert_close(new, old - facts["shift"])
    assert str(call("--target", "1.5").exception).startswith("--target: must be")
    corpus.write_text("one\ntwo\nthree\n", encoding="utf-8")
    assert "at least 8 probe texts" in str(call().exception)
