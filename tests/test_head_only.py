"""Head-only transfer: what is read stays, what is written is another vocabulary; labels, the two objectives, and the
model in the plain library."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from families import LONGER, OUTPUT, moved
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding
from tiny import TOKENS, encoder, model, texts, tokenizer, weights

from vtkit.encoder.asymmetric import WholeEncoder, dimension_names
from vtkit.encoder.calibration import activation_rates, calibrate
from vtkit.encoder.checkpoint import load_encoder, save_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import mlm_head
from vtkit.encoder.folding import apply_output_casing, fold_map_of
from vtkit.encoder.masked import MASKED_BIAS
from vtkit.settings.adapt import AdaptSection
from vtkit.system.errors import DataError
from vtkit.training import masking
from vtkit.training.masking import IGNORED, emlm_labels
from vtkit.training.mlm import adapt, pooled_logits, sap_loss
from vtkit.training.resuming import TrainingRun
from vtkit.transfer.methods.baselines import subtoken_mixture
from vtkit.transfer.surgery.graft import graft_encoder
from vtkit.transfer.surgery.head_only import graft_encoder_head, graft_head
from vtkit.vocabulary.pair import pair_of

TEXTS = texts(40, seed=6, words=(4, 10))


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert"])
@pytest.mark.parametrize("tokens", [OUTPUT, LONGER])
def test_shared_dimensions_keep_their_weights_and_the_plain_library_gives_the_same_vectors(
    architecture: str, tokens: tuple[str, ...], tmp_path: Path
) -> None:
    ours = moved(tmp_path, tokens, architecture=architecture, activation="log1p_relu")
    source = encoder(tmp_path / "again", architecture, activation="log1p_relu")
    before, after = encode(source, TEXTS, 48).toarray(), encode(ours, TEXTS, 48).toarray()
    shared = [(number, TOKENS.index(token)) for number, token in enumerate(tokens) if token in TOKENS]
    np.testing.assert_allclose(
        after[:, [new for new, _ in shared]], before[:, [old for _, old in shared]], rtol=1e-4, atol=1e-5
    )
    assert after.shape[1] == max(len(tokens), len(TOKENS))
    assert not after[:, len(tokens) :].any()
    assert after[:, tokens.index(tokens[-1])].any()

    save_encoder(ours, tmp_path / "model")
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(plain.encode(TEXTS, convert_to_sparse_tensor=False).numpy(), after, atol=1e-5)
    assert plain.tokenizer.get_vocab() == tokenizer().get_vocab()
    again = load_encoder(str(tmp_path / "model"))
    assert isinstance(again, WholeEncoder)
    assert [name for name in dimension_names(again) if name] == list(tokens)
    assert np.array_equal(encode(again, TEXTS, 48).toarray(), after)
    assert all(torch.equal(tensor, weights(ours)[name]) for name, tensor in weights(again).items())


def test_calibration_casing_and_folding_are_those_of_the_output_vocabulary(tmp_path: Path) -> None:
    ours = moved(tmp_path)
    found = calibrate(ours, texts(60, seed=3), 0.2, "token", 48)
    assert found.after["token"] == pytest.approx(0.2, abs=2e-3)
    assert activation_rates(ours, TEXTS, 48)["token"] == pytest.approx(0.2, abs=0.05)
    folded_to = fold_map_of(ours)
    cased, lower = OUTPUT.index("Oakpine"), OUTPUT.index("oakpine")
    assert folded_to[cased] == folded_to[lower] == lower
    apply_output_casing(ours, "mask")
    save_encoder(ours, tmp_path / "model")
    vectors = encode(load_encoder(str(tmp_path / "model")), TEXTS, 48)
    assert not vectors[:, [cased]].nnz
    assert not vectors[:, len(OUTPUT) :].nnz


def test_what_a_head_cannot_be_made_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not finite"):
        graft_head(model(), tokenizer(), torch.full((7, 32), torch.nan), torch.zeros(7))
    ours = moved(tmp_path)
    pair = pair_of(tokenizer(), tokenizer(OUTPUT))
    mixture = subtoken_mixture(pair)
    for graft in (graft_encoder, graft_encoder_head):
        with pytest.raises(DataError, match="input and output vocabularies differ"):
            graft(ours, tokenizer(OUTPUT), mixture, mixture.bias, tmp_path / "work")
    table = SparseStaticEmbedding(tokenizer(), torch.ones(len(TOKENS)))
    router = Router.for_query_document([table], list(encoder(tmp_path / "plain")))
    SparseEncoder(modules=[router], device="cpu").save(str(tmp_path / "model"), create_model_card=False)
    with pytest.raises(DataError, match=r'Set scope to "full"'):
        graft_encoder_head(
            load_encoder(str(tmp_path / "model")), tokenizer(OUTPUT), mixture, mixture.bias, tmp_path / "work"
        )


def test_a_grafted_head_reads_the_embeddings_of_its_source_and_copies_everything_else() -> None:
    """Of 250,001 tokens, a second copy of the embeddings has 384 MB."""
    source = model()
    grafted = graft_head(source, tokenizer(), torch.ones(7, 32), torch.zeros(7))
    shared = {weight.data_ptr() for weight in source.parameters()}
    both = [name for name, weight in grafted.named_parameters() if weight.data_ptr() in shared]
    assert both == ["bert.embeddings.word_embeddings.weight"]


# labels


PIECES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=12)
"""Gap before and length of each token."""


def placed(pieces: list[tuple[int, int]]) -> NDArray[np.int64]:
    found, at = [], 0
    for gap, length in pieces:
        found.append((at + gap, at + gap + length))
        at += gap + length
    return np.array(found, dtype=np.int64).reshape(-1, 2)


@given(PIECES, PIECES)
def test_a_label_is_the_first_output_token_that_shares_a_character(
    read: list[tuple[int, int]], written: list[tuple[int, int]]
) -> None:
    own, output = placed(read), placed(written)
    wanted = [
        next((100 + n for n, span in enumerate(output) if set(range(start, stop)) & set(range(*span))), IGNORED)
        for start, stop in own
    ]
    assert emlm_labels(own, output, 100 + np.arange(len(output))).tolist() == wanted


def test_labels_of_a_text_are_output_tokens_and_unknown_ones_are_none() -> None:
    output, own = tokenizer(OUTPUT), tokenizer()
    text = "riverstone 字 willow"
    read = own(text, return_offsets_mapping=True)
    (found,) = masking.output_labels(output, [text], [read["offset_mapping"]])
    tokens = own.convert_ids_to_tokens(read["input_ids"])
    named = [(token, OUTPUT[label] if label >= 0 else None) for token, label in zip(tokens, found, strict=True)]
    assert named[0] == ("[CLS]", None)
    assert named[1] == ("river", "riverstone")
    assert all(label == "riverstone" for token, label in named[2:-3] if token.startswith("##"))
    assert named[-3:] == [("[UNK]", None), ("willow", "willow"), ("[SEP]", None)]


# objectives


@given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 20))
def test_the_alignment_loss_is_its_equation(seed: int, batch: int, vocabulary: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    student, teacher = (torch.randn(batch, vocabulary, generator=draw, dtype=torch.float64) for _ in range(2))
    student.requires_grad_()
    total = 0.0 * student.sum()
    for mine, theirs in zip(student, teacher, strict=True):
        active = [j for j in range(vocabulary) if mine[j] > 0 or theirs[j] > 0]
        if active:
            total = total + sum((mine[j] - theirs[j]) ** 2 for j in active) / len(active)
    found = sap_loss(student, teacher)
    torch.testing.assert_close(found, total / batch)
    ours, wanted = (torch.autograd.grad(loss, student)[0] for loss in (found, total / batch))
    torch.testing.assert_close(ours, wanted)


def test_the_alignment_loss_by_hand() -> None:
    student = torch.tensor([[1.0, -1.0, -2.0, 0.5], [-1.0, -1.0, -1.0, -1.0]])
    teacher = torch.tensor([[3.0, -5.0, 1.0, -0.5], [-2.0, -3.0, -4.0, -5.0]])
    # dimensions 0, 2 and 3: (2² + 3² + 1²) / 3; the second text has no active dimension on either side
    assert sap_loss(student, teacher).item() == pytest.approx(14 / 3 / 2)
    assert sap_loss(student, teacher[:, :2]).item() == pytest.approx(4 / 2)
    assert sap_loss(student[:, :2], teacher).item() == pytest.approx(4 / 2)
    for masks in ([student], [teacher], [student, teacher]):  # a dimension that either side masks is left out
        pair = [student.clone(), teacher.clone()]
        for side in masks:
            pair[0 if side is student else 1][:, 2] = MASKED_BIAS
        assert sap_loss(*pair).item() == pytest.approx((4 + 1) / 2 / 2)


def test_pooled_logits_are_maxima_over_tokens_with_their_gradient() -> None:
    draw = torch.Generator().manual_seed(1)
    hidden = torch.randn(3, 5, 4, generator=draw, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    decoder = torch.nn.Linear(4, 9)
    logits = decoder(hidden).masked_fill(~mask.bool().unsqueeze(-1), -torch.inf)
    wanted = logits.max(dim=1).values
    found = pooled_logits(hidden, mask, decoder)
    torch.testing.assert_close(found, wanted)
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), [hidden, decoder.weight, decoder.bias]),
        torch.autograd.grad(wanted.square().sum(), [hidden, decoder.weight, decoder.bias]),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def section(**settings: object) -> AdaptSection:
    common = {"corpus": ("unused",), "steps": 30, "batch_size": 4, "max_length": 24, "learning_rate": 1e-2}
    return AdaptSection(**{**common, **settings})


@pytest.mark.bf16
def test_masked_tokens_are_learnt_as_output_tokens_and_what_is_read_stays(tmp_path: Path) -> None:
    ours, few = moved(tmp_path), TEXTS[:3] * 10
    before = weights(ours)
    curve = adapt(
        ours,
        few,
        np.arange(80, 84),
        section(learning_rate=3e-2, steps=60),
        TrainingRun(seed=1, folder=tmp_path / "checkpoints"),
    )[0]
    assert curve["loss"][-1] < 0.9 * curve["loss"][0]
    after = weights(ours)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    decoder = {name for name in changed if "decoder" in name or name == "cls.predictions.bias"}
    assert decoder == changed
    assert any(name.endswith("decoder.weight") for name in changed)
    save_encoder(ours, tmp_path / "model")
    again = encode(load_encoder(str(tmp_path / "model")), few, 24).toarray()
    assert np.array_equal(again, encode(ours, few, 24).toarray())
    assert not again[:, len(OUTPUT) :].any()


def test_output_tokens_behind_the_last_input_token_are_learnt_with_a_prior(tmp_path: Path) -> None:
    ours, new = moved(tmp_path, LONGER), LONGER[len(TOKENS) :]
    few = [f"{first} {second} willow" for first, second in pairwise(new[:9])]
    before = mlm_head(ours[0].auto_model).decoder.weight.detach().clone()
    curve = adapt(
        ours,
        few,
        np.arange(0),
        section(),
        TrainingRun(seed=1, folder=tmp_path / "checkpoints"),
        held_out=few,
        frequencies=True,
    )[0]
    assert np.isfinite(curve["loss"]).all()
    moves = (mlm_head(ours[0].auto_model).decoder.weight - before).abs().amax(dim=1)
    assert (moves[[LONGER.index(token) for token in new[:9]]] > 0).all()


@pytest.mark.bf16
def test_an_encoder_is_brought_to_a_teachers_vectors(tmp_path: Path) -> None:
    ours = moved(tmp_path)
    teacher = encoder(tmp_path / "teacher", tokens=OUTPUT, seed=3)
    save_encoder(teacher, tmp_path / "taught")
    settings = section(objective="sap", teachers=[str(tmp_path / "taught")], train="all", steps=25, batch_size=2)
    nothing = np.empty(0, dtype=np.int64)
    curve = adapt(ours, TEXTS[:4] * 5, nothing, settings, TrainingRun(seed=1, folder=tmp_path / "checkpoints"))[0]
    assert curve["loss"][-1] < 0.7 * curve["loss"][0]
    mine, theirs = (encode(side, TEXTS[:4], 24).toarray() for side in (ours, teacher))
    cosines = (mine[:, : len(OUTPUT)] * theirs).sum(1) / np.linalg.norm(mine, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() > 0.7
    save_encoder(encoder(tmp_path / "other"), tmp_path / "whole")
    settings = section(objective="sap", teachers=[str(tmp_path / "whole")])
    with pytest.raises(DataError, match=r"teachers has an output vocabulary of 120 tokens and the encoder one of 84"):
        adapt(ours, TEXTS, nothing, settings, TrainingRun(seed=1, folder=tmp_path / "checkpoints"))
