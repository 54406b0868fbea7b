"""Grafting a new vocabulary: the same encoder under other token ids, saved and read again by the plain library."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import ARCHITECTURES, TOKENS, model, shuffled, texts, tokenizer
from torch import Tensor
from transformers import AutoModelForMaskedLM, PreTrainedModel

from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import mlm_head
from vtkit.system.errors import DataError
from vtkit.transfer.surgery.graft import graft

TEXTS = [*texts(6), "", "Ünknown 字 river", " ".join(["willow"] * 60)]


def moved(
    source: PreTrainedModel, tokens: tuple[str, ...], old: tuple[str, ...] = TOKENS
) -> tuple[PreTrainedModel, Tensor]:
    """``source`` (over ``old``) grafted onto the same tokens in the order ``tokens``, and that order."""
    head = mlm_head(source)
    order = torch.tensor([old.index(token) for token in tokens])
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
def test_permuting_the_vocabulary_permutes_only_the_logits(architecture: str, tied: bool, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_special_ids_in_the_configuration_are_the_new_tokenizers(architecture: str) -> None:
    tokens = shuffled(seed=3)
    config = moved(model(architecture), tokens)[0].config
    assert (config.vocab_size, config.pad_token_id) == (len(tokens), tokens.index("[PAD]"))
    for name, token in (("cls_token_id", "[CLS]"), ("sep_token_id", "[SEP]"), ("bos_token_id", "[CLS]")):
        assert getattr(config, name, None) in (None, tokens.index(token))


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
    target, order = moved(source, target_tokens, tokens)
    for ours, theirs in zip(logits(target, target_tokens), logits(source, tokens), strict=True):
        torch.testing.assert_close(ours, theirs[:, order], rtol=1e-4, atol=1e-5)
    assert target.config.max_position_embeddings == 48 + new + 1
    saved = as_sparse_encoder(target, tokenizer(target_tokens), tmp_path / "work")
    save_encoder(saved, tmp_path / "model")
    read_back = load_encoder(str(tmp_path / "model"))
    assert read_back.max_seq_length == 48
    np.testing.assert_allclose(
        encode(read_back, TEXTS, 1000).toarray(),
        encode(as_sparse_encoder(source, tokenizer(tokens), tmp_path / "source"), TEXTS, 1000).toarray()[:, order],
        atol=1e-5,
    )


@pytest.mark.parametrize("what", ["embedding rows", "decoder rows", "biases"])
def test_what_is_not_finite_is_refused(what: str) -> None:
    given = {"embedding rows": torch.zeros(len(TOKENS), 32), "biases": torch.zeros(len(TOKENS))}
    given["decoder rows"] = given["embedding rows"].clone()
    given[what].view(-1)[7] = torch.nan
    with pytest.raises(DataError, match=f"{what} are not finite"):
        graft(model(tied=False), tokenizer(TOKENS), given["embedding rows"], given["biases"], given["decoder rows"])
