"""Masked and folded dimensions: by hand, against a plain loop, and through models saved and loaded without vtkit."""

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
from tiny import TOKENS, encoder, model, texts, tokenizer

from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import mlm_head
from vtkit.encoder.folding import apply_output_casing, fold_map_of, fold_vectors, fold_weights, folds, set_folding
from vtkit.encoder.masked import MASKED_BIAS, masked_dimensions
from vtkit.settings.casing import CasingSection
from vtkit.system.errors import DataError
from vtkit.vocabulary.casing import cased_ids, fold_map, map_cased
from vtkit.vocabulary.existing import with_casing

CASED = (*TOKENS[:40], "River", "RIVER", "Oslo", *TOKENS[43:])
"""The tokens of the tests, three of them in upper case; "river" is one of the others, "oslo" is none."""

TEXTS = [*texts(8, seed=5), "River river RIVER", "Oslo", "a A"]


def cased_encoder(folder: Path, architecture: str = "bert", **settings: object) -> SparseEncoder:
    return encoder(folder, architecture, tokens=CASED, **settings)


def looped(vectors: np.ndarray, folded_to: np.ndarray) -> np.ndarray:
    folded = np.zeros_like(vectors)
    for row in range(len(vectors)):
        for column in range(len(folded_to)):
            value, to = vectors[row, column], folded_to[column]
            folded[row, to] = max(folded[row, to], value)
    return folded


@given(st.integers(0, 4), st.data())
def test_folding_is_the_plain_loop(count: int, data: st.DataObject) -> None:
    vectors = np.array(
        data.draw(st.lists(st.lists(st.sampled_from([0, 0.5, 1, 2]), min_size=6, max_size=6), min_size=count,
                           max_size=count)), dtype=np.float32).reshape(count, 6)  # fmt: skip
    folded_to = np.array([0, 0, 2, 0, 4, 4])
    wanted = looped(vectors, folded_to)
    found = fold_vectors(sparse.csr_matrix(vectors), folded_to)
    assert found.has_sorted_indices
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.toarray(), wanted)
    np.testing.assert_array_equal(fold_vectors(found, folded_to).toarray(), wanted)
    batch = fold_weights(torch.from_numpy(vectors), torch.from_numpy(folded_to))
    np.testing.assert_array_equal(batch.numpy(), wanted)
    with pytest.raises(ValueError, match="6 dimensions and a fold map of 5"):
        fold_vectors(found, folded_to[:5])


def test_an_encoder_that_says_so_is_encoded_folded_wherever_it_has_been_saved(tmp_path: Path) -> None:
    ours = cased_encoder(tmp_path)
    plain = encode(ours, TEXTS, 48)
    set_folding(ours, True)
    save_encoder(ours, tmp_path / "model")
    loaded = load_encoder(str(tmp_path / "model"))
    assert folds(loaded)
    wanted = fold_vectors(plain, fold_map(tokenizer(CASED)))
    np.testing.assert_allclose(encode(loaded, TEXTS, 48).toarray(), wanted.toarray(), atol=1e-6)
    assert encode(loaded, TEXTS, 48).nnz < plain.nnz
    # what sentence-transformers gives is not folded, and can be
    library = loaded.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    np.testing.assert_allclose(library, plain.toarray(), atol=1e-5)
    set_folding(loaded, False)
    np.testing.assert_allclose(encode(loaded, TEXTS, 48).toarray(), plain.toarray(), atol=1e-6)


def test_only_so_many_dimensions_are_kept_after_folding(tmp_path: Path) -> None:
    ours = cased_encoder(tmp_path)
    set_folding(ours, True)
    whole, kept = encode(ours, TEXTS, 48), encode(ours, TEXTS, 48, top_dimensions=5)
    for row in range(len(TEXTS)):
        np.testing.assert_array_equal(np.sort(kept[row].data), np.sort(whole[row].data)[-5:])
    apply_output_casing(ours, "all")  # takes the folding back
    assert not folds(ours)
    assert not masked_dimensions(ours[0].auto_model).any()
    ours[0].auto_model.config.vtkit_fold = "mean"
    with pytest.raises(DataError, match=r"config\.json .*'mean'"):
        encode(ours, TEXTS, 48)


def test_the_rows_that_fill_a_vocabulary_up_are_folded_onto_themselves(tmp_path: Path) -> None:
    padded = model(tokens=(*CASED, *(f"[unused{n}]" for n in range(8))))
    ours = as_sparse_encoder(padded, tokenizer(CASED), tmp_path / "padded")
    assert fold_map_of(ours)[len(CASED) :].tolist() == list(range(len(CASED), len(CASED) + 8))
    set_folding(ours, True)
    assert encode(ours, TEXTS, 48).shape == (len(TEXTS), len(CASED) + 8)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["bert", "distilbert", "roberta", "modernbert"])
def test_a_masked_dimension_is_never_active_others_as_before(architecture: str, tied: bool, tmp_path: Path) -> None:
    ours = cased_encoder(tmp_path, architecture, tied=tied)
    ids = cased_ids(ours.tokenizer)
    assert [CASED[number] for number in ids] == ["River", "RIVER", "Oslo"]
    wanted = encode(ours, TEXTS, 48).toarray()
    assert wanted[:, ids].any()
    wanted[:, ids] = 0
    assert apply_output_casing(ours, "mask") == 3
    bias = mlm_head(ours[0].auto_model).decoder.bias
    assert (bias[ids] == MASKED_BIAS).all()
    assert torch.isfinite(bias.half()).all()
    save_encoder(ours, tmp_path / "model")
    loaded = load_encoder(str(tmp_path / "model"))
    assert np.flatnonzero(masked_dimensions(loaded[0].auto_model)).tolist() == ids.tolist()
    np.testing.assert_array_equal(encode(loaded, TEXTS, 48).toarray(), encode(ours, TEXTS, 48).toarray())
    np.testing.assert_allclose(encode(loaded, TEXTS, 48).toarray(), wanted, atol=1e-5)
    library = loaded.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    np.testing.assert_allclose(library, wanted, atol=1e-5)


def test_a_mapped_model_reads_and_writes_the_lower_case_name(tmp_path: Path) -> None:
    before = cased_encoder(tmp_path)
    mapped = map_cased(with_casing(tokenizer(CASED), CasingSection(input="lowercase"))).tokenizer
    ours = as_sparse_encoder(before[0].auto_model, mapped, tmp_path / "mapped")
    assert apply_output_casing(ours, "map") == 2  # River and RIVER, beside river; oslo is no longer cased
    save_encoder(ours, tmp_path / "model")
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu")
    found = plain.encode(["OSLO River"], convert_to_sparse_tensor=False)[0].numpy()
    assert mapped.convert_tokens_to_ids("oslo") == CASED.index("Oslo")
    reads = before[0].auto_model(torch.tensor([[*tokenizer(CASED)("Oslo river")["input_ids"]]])).logits[0]
    weights = torch.log1p(torch.relu(reads.amax(dim=0)))
    weights[[CASED.index("River"), CASED.index("RIVER")]] = 0
    np.testing.assert_allclose(found, weights.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("policy", ["mask", "map", "fold"])
def test_the_command_writes_a_model_with_the_policy(policy: str, tmp_path: Path) -> None:
    ours = cased_encoder(tmp_path)
    ours.max_seq_length = 20
    save_encoder(ours, tmp_path / "model")
    out = tmp_path / "changed"
    result = invoke("casing", tmp_path / "model", "--apply", policy, "--input", "lowercase", "--out", out, "--json")
    assert result.exit_code == 0, result.exception
    facts = json.loads(result.stdout)
    changed = load_encoder(str(out))
    assert changed.max_seq_length == 20
    assert changed.tokenizer("RIVER")["input_ids"] == changed.tokenizer("river")["input_ids"]
    lower = "oslo river " + TEXTS[0]
    np.testing.assert_array_equal(
        encode(changed, [lower.upper()], 48).toarray(), encode(changed, [lower], 48).toarray()
    )
    if policy == "fold":
        assert folds(changed)
        assert facts["fold"] == "max"
        assert facts["dimensions_after_folding"] == len(set(fold_map(tokenizer(CASED)).tolist()))
    else:
        masked = int(masked_dimensions(changed[0].auto_model).sum())
        assert facts["masked_dimensions"] == masked == {"mask": 3, "map": 2}[policy]
    if policy == "map":
        assert facts["renamed_tokens"] == 1
        assert changed.tokenizer.tokenize("OSLO") == ["oslo"]
