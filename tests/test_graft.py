"""Grafting a new vocabulary: the same encoder under other token ids, saved and read again by the plain library."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from tiny import ARCHITECTURES, TOKENS, encoder, model, shuffled, texts, tokenizer
from torch import Tensor
from transformers import AutoModelForMaskedLM, PreTrainedModel

from vtkit.encoder.checkpoint import assemble, load_encoder, save_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import mlm_head
from vtkit.errors import DataError
from vtkit.transfer.graft import graft

TEXTS = [*texts(6), "", "Ünknown 字 river", " ".join(["willow"] * 60)]


def moved(source: PreTrainedModel, tokens: tuple[str, ...]) -> tuple[PreTrainedModel, Tensor]:
    """``source`` (over ``TOKENS``) grafted onto the same tokens in the order ``tokens``, and that order."""
    head = mlm_head(source)
    order = torch.tensor([TOKENS.index(token) for token in tokens])
    output_rows = None if head.tied else head.decoder.weight.detach()[order]
    rows, bias = head.embeddings.weight.detach()[order], head.decoder.bias.detach()[order]
    return graft(source, tokenizer(tokens), rows, bias, output_rows), order


def logits(network: PreTrainedModel, tokens: tuple[str, ...]) -> list[Tensor]:
    """Logits at the tokens of each text, all texts in one padded batch."""
    batch = tokenizer(tokens)(TEXTS, padding=True, truncation=True, max_length=48, return_tensors="pt")
    with torch.no_grad():
        found = network(**batch).logits
    return [row[mask.bool()] for row, mask in zip(found, batch["attention_mask"], strict=True)]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_permuting_the_vocabulary_permutes_the_logits_and_nothing_else(
    architecture: str, tied: bool, tmp_path: Path
) -> None:
    source = model(architecture, tied=tied)
    before = {name: tensor.clone() for name, tensor in source.state_dict().items()}
    tokens = shuffled(seed=1)
    target, order = moved(source, tokens)
    assert mlm_head(target).tied is tied
    assert not target.training
    for ours, theirs in zip(logits(target, tokens), logits(source, TOKENS), strict=True):
        torch.testing.assert_close(ours, theirs[:, order], rtol=1e-4, atol=1e-5)
    # the source is left alone, and what was grafted survives saving to the bit
    assert all(torch.equal(tensor, before[name]) for name, tensor in source.state_dict().items())
    target.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path, local_files_only=True)
    for first, second in zip(logits(again, tokens), logits(target, tokens), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_saved_encoder_gives_the_same_vectors_in_the_plain_library(
    architecture: str, tied: bool, tmp_path: Path
) -> None:
    tokens = shuffled(seed=2, pad=3)
    target, _ = moved(model(architecture, tied=tied), tokens)
    ours = assemble(target, tokenizer(tokens), tmp_path / "work", "max", "log1p_relu")
    save_encoder(ours, tmp_path / "model")
    wanted = encode(ours, TEXTS, 1000).toarray()
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu")
    found = plain.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert plain.max_seq_length == 48
    assert plain[1].activation_function == "log1p_relu"
    assert plain.get_embedding_dimension() == len(TOKENS)
    read_back = load_encoder(str(tmp_path / "model"))
    np.testing.assert_allclose(encode(read_back, TEXTS, 1000).toarray(), wanted, atol=1e-6)
    stored = [path.name for path in (tmp_path / "model").rglob("*") if path.suffix in (".bin", ".pt", ".pkl", ".pth")]
    assert stored == []


def test_special_ids_in_the_configuration_are_the_new_tokenizers() -> None:
    for architecture in ARCHITECTURES:
        tokens = shuffled(seed=3)
        config = moved(model(architecture), tokens)[0].config
        assert config.vocab_size == len(tokens)
        assert config.pad_token_id == tokens.index("[PAD]")
        for name, token in (("cls_token_id", "[CLS]"), ("sep_token_id", "[SEP]"), ("bos_token_id", "[CLS]")):
            if getattr(config, name, None) is not None:
                assert getattr(config, name) == tokens.index(token)


def test_a_larger_and_a_smaller_vocabulary_have_their_own_size() -> None:
    for count in (len(TOKENS) - 20, len(TOKENS) + 30):
        tokens = (*TOKENS[:count], *(f"new{n}" for n in range(count - len(TOKENS))))
        width = 32
        rows, bias = torch.randn(count, width), torch.randn(count)
        target = graft(model(), tokenizer(tokens), rows, bias)
        assert torch.equal(mlm_head(target).embeddings.weight, rows)
        assert torch.equal(mlm_head(target).decoder.bias, bias)
        assert target.config.vocab_size == count


@pytest.mark.parametrize(("old", "new"), [(1, 0), (0, 3), (0, 100), (1, 1), (100, 2)])
def test_robertas_logits_stay_when_the_padding_id_moves(old: int, new: int, tmp_path: Path) -> None:
    tokens = shuffled(seed=4, pad=old)
    source = model("roberta", tokens)
    target_tokens = shuffled(seed=5, pad=new)
    order = torch.tensor([tokens.index(token) for token in target_tokens])
    head = mlm_head(source)
    target = graft(
        source, tokenizer(target_tokens), head.embeddings.weight.detach()[order], head.decoder.bias.detach()[order]
    )
    for ours, theirs in zip(logits(target, target_tokens), logits(source, tokens), strict=True):
        torch.testing.assert_close(ours, theirs[:, order], rtol=1e-4, atol=1e-5)
    assert target.config.max_position_embeddings == 48 + new + 1
    saved = assemble(target, tokenizer(target_tokens), tmp_path / "work")
    save_encoder(saved, tmp_path / "model")
    read_back = load_encoder(str(tmp_path / "model"))
    assert read_back.max_seq_length == 48
    np.testing.assert_allclose(
        encode(read_back, TEXTS, 1000).toarray(),
        encode(assemble(source, tokenizer(tokens), tmp_path / "source"), TEXTS, 1000).toarray()[:, order],
        atol=1e-5,
    )


def test_rows_that_do_not_fit_or_are_not_finite_are_refused() -> None:
    source, target = model(tied=False), tokenizer(TOKENS)
    rows, bias = torch.zeros(len(TOKENS), 32), torch.zeros(len(TOKENS))
    for wrong in (rows[1:], rows[:, 1:]):
        with pytest.raises(DataError, match=r"120 tokens needs embedding rows of the shape \(120, 32\)"):
            graft(source, target, wrong, bias)
        with pytest.raises(DataError, match="needs decoder rows of the shape"):
            graft(source, target, rows, bias, wrong)
    with pytest.raises(DataError, match="needs biases of the shape"):
        graft(source, target, rows, bias[1:])
    for value in (torch.nan, torch.inf):
        broken_rows, broken_bias = rows.clone(), bias.clone()
        broken_rows[7, 7] = broken_bias[7] = value
        with pytest.raises(DataError, match="embedding rows are not finite"):
            graft(source, target, broken_rows, bias)
        with pytest.raises(DataError, match="decoder rows are not finite"):
            graft(source, target, rows, bias, broken_rows)
        with pytest.raises(DataError, match="biases are not finite"):
            graft(source, target, rows, broken_bias)


def test_a_head_without_bias_is_refused() -> None:
    source = model("modernbert")
    source.config.decoder_bias = False
    bare = AutoModelForMaskedLM.from_config(source.config)
    with pytest.raises(DataError, match=r"head without bias.*decoder_bias"):
        graft(bare, tokenizer(), torch.zeros(len(TOKENS), 32), torch.zeros(len(TOKENS)))


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_any_masked_language_model_is_a_source_and_long_texts_are_cut_where_it_ends(
    architecture: str, tmp_path: Path
) -> None:
    model(architecture, shuffled(6, pad=5)).save_pretrained(tmp_path)
    tokenizer(shuffled(6, pad=5)).save_pretrained(str(tmp_path))
    source = load_encoder(str(tmp_path))
    assert source.max_seq_length == 48
    assert (source[1].pooling_strategy, source[1].activation_function) == ("max", "relu")
    assert encode(source, [" ".join(["river"] * 300)], 1000).nnz > 0


def test_a_source_without_masked_language_model_head_is_refused_by_what_it_lacks(tmp_path: Path) -> None:
    model().base_model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(str(tmp_path))
    with pytest.raises(DataError, match=r"no trained masked-language-model head: its weights lack cls\.predictions"):
        load_encoder(str(tmp_path))


def test_a_causal_model_is_refused(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    GPT2LMHeadModel(GPT2Config(vocab_size=120, n_embd=32, n_layer=1, n_head=2)).save_pretrained(tmp_path)
    tokenizer().save_pretrained(str(tmp_path))
    with pytest.raises(DataError, match="cannot be loaded as a masked language model"):
        load_encoder(str(tmp_path))


def test_folders_that_hold_no_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere: there is no such folder"):
        load_encoder(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"neither config\.json nor modules\.json"):
        load_encoder(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="cannot be loaded as a masked language model"):
        load_encoder(str(tmp_path))
    (tmp_path / "modules.json").write_text("[{")
    with pytest.raises(DataError, match=r"modules\.json is damaged"):
        load_encoder(str(tmp_path))


@pytest.mark.parametrize("bare", [True, False])
def test_a_damaged_weight_file_is_an_error_of_one_line(bare: bool, tmp_path: Path) -> None:
    save_encoder(encoder(tmp_path), tmp_path / "model")
    if bare:
        (tmp_path / "model" / "modules.json").unlink()
    with (tmp_path / "model" / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(DataError, match="cannot be loaded") as caught:
        load_encoder(str(tmp_path / "model"))
    assert "\n" not in str(caught.value)


def test_a_sparse_encoder_of_other_modules_is_refused_by_what_it_is_made_of(tmp_path: Path) -> None:
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    table = SparseStaticEmbedding(tokenizer=tokenizer(), weight=torch.ones(len(TOKENS)))
    SparseEncoder(modules=[table], device="cpu").save(str(tmp_path / "model"), create_model_card=False)
    with pytest.raises(DataError, match=r"is made of SparseStaticEmbedding; vtkit moves encoders made of"):
        load_encoder(str(tmp_path / "model"))


def test_saving_inside_the_streaming_block_is_refused(tmp_path: Path) -> None:
    from vtkit.encoder.sparse_head import streaming

    ours = encoder(tmp_path)
    with streaming(ours), pytest.raises(TypeError, match="after the streaming block"):
        save_encoder(ours, tmp_path / "model")


PLAIN = """
import sys
sys.modules["vtkit"] = None  # any import of it fails, as where it is not installed
import numpy
from sentence_transformers import SparseEncoder
folder, texts, out = sys.argv[1], sys.argv[2].split("|"), sys.argv[3]
found = SparseEncoder(folder, device="cpu").encode(texts, convert_to_sparse_tensor=False).numpy()
numpy.save(out, found)
"""


def test_where_vtkit_is_not_installed_the_model_gives_the_same_vectors(tmp_path: Path) -> None:
    ours = encoder(tmp_path, "modernbert", tokens=shuffled(7))
    with torch.no_grad():
        mlm_head(ours[0].auto_model).decoder.bias.sub_(0.3)  # as calibration does
    save_encoder(ours, tmp_path / "model")
    wanted = [text for text in TEXTS if text]
    random.Random(1).shuffle(wanted)
    subprocess.run(
        [sys.executable, "-c", PLAIN, str(tmp_path / "model"), "|".join(wanted), str(tmp_path / "found.npy")],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
    )
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), encode(ours, wanted, 1000).toarray(), atol=1e-5)
