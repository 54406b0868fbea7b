"""Every family of encoders: moved onto another vocabulary, saved, and read again with the same numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES, SHAPE, TEXTS, UNTIED, source_of
from sentence_transformers import SparseEncoder
from tiny import ARCHITECTURES, TOKENS, model, shuffled, texts, tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel

from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import max_input_length, mlm_head, position_offset, with_plain_head
from vtkit.system.errors import DataError
from vtkit.transfer.surgery.graft import graft


@pytest.mark.parametrize(
    ("family", "tied"), [*((family, True) for family in FAMILIES), *((family, False) for family in UNTIED)]
)
def test_a_family_keeps_its_vectors_on_another_vocabulary_and_reloads(family: str, tied: bool, tmp_path: Path) -> None:
    pad = FAMILIES[family][1].get("pad_token_id", 0)
    old = shuffled(4, pad=pad)
    new = tuple(token for token in shuffled(5, pad=1 if family == "mpnet" else 3) if token not in ("##q", "##x", "##z"))
    source = source_of(family, old, tied=tied)
    before = as_sparse_encoder(with_plain_head(source), tokenizer(old), tmp_path / "before")
    head = mlm_head(with_plain_head(source))
    order = torch.tensor([old.index(token) for token in new])
    output_rows = None if head.tied else head.decoder.weight.detach()[order]
    rows, bias = head.embeddings.weight.detach()[order], head.decoder.bias.detach()[order]
    target = graft(source, tokenizer(new), rows, bias, output_rows)
    assert target.config.pad_token_id == new.index("[PAD]")
    assert target.config.vocab_size == len(new)

    after = as_sparse_encoder(target, tokenizer(new), tmp_path / "after")
    save_encoder(after, tmp_path / "model")
    wanted = encode(before, TEXTS, 1000).toarray()
    ours = encode(after, TEXTS, 1000).toarray()
    assert (wanted > 0).any()
    np.testing.assert_allclose(ours, wanted[:, order], rtol=1e-3, atol=1e-4)
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu")
    saved = {name: tensor for name, tensor in plain[0].auto_model.state_dict().items() if tensor.is_floating_point()}
    for name, tensor in target.state_dict().items():
        if tensor.is_floating_point():
            assert torch.equal(saved[name], tensor), name
    theirs = plain.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    assert not [path for path in (tmp_path / "model").rglob("*") if path.suffix in (".bin", ".pt", ".pkl", ".pth")]
    again = load_encoder(str(tmp_path / "model"))
    assert np.array_equal(encode(again, TEXTS, 1000).toarray(), ours)
    assert again.max_seq_length == max_input_length(target, tokenizer(new))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "ibert": (SHAPE, r"looked for an Embedding that reads tokens \(get_input_embeddings\) and found QuantEmbedding"),
    "esm": (SHAPE, "EsmForMaskedLM has a head without bias and no setting that gives it one"),
    "bart": (
        {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
        "BartForConditionalGeneration is an encoder with a decoder",
    ),
    "mobilebert": (
        {**SHAPE, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
        r"MobileBertForMaskedLM has weights beside its embeddings.*cls\.predictions\.dense\.weight",
    ),
    "fnet": (SHAPE, "FNetForMaskedLM mixes padding into its vectors"),
    "nystromformer": (SHAPE, "NystromformerForMaskedLM mixes padding into its vectors"),
    "convbert": ({**SHAPE, "embedding_size": 16}, "ConvBertForMaskedLM mixes padding into its vectors"),
    "mpnet": (SHAPE, r"mpnet counts positions from the padding id 1, and.*is 0\. Give its \[PAD\] token the id 1"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_moved_is_refused_with_the_reason(kind: str) -> None:
    settings, message = REFUSED[kind]
    config = AutoConfig.for_model(kind, vocab_size=130, pad_token_id=1, **settings)
    source = AutoModelForMaskedLM.from_config(config)
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.normal_(0.0, 0.2)
    with pytest.raises(DataError, match=message):
        graft(source, tokenizer(), torch.zeros(len(TOKENS), source.get_input_embeddings().weight.shape[1]),
              torch.zeros(len(TOKENS)))  # fmt: skip


@pytest.mark.parametrize("kind", ["deberta", "deberta-v2"])
def test_debertas_newer_head_is_brought_into_the_older_layout_with_the_same_logits(kind: str) -> None:
    source = source_of(f"{kind}, newer head", TOKENS)
    plain = with_plain_head(source)
    ids = torch.arange(5, 29).view(2, 12)
    with torch.no_grad():
        torch.testing.assert_close(plain(ids).logits, source(ids).logits, rtol=1e-5, atol=1e-5)
    assert mlm_head(plain).tied
    assert with_plain_head(plain) is plain


def test_a_published_deberta_that_hides_its_newer_head_is_found_out(tmp_path: Path) -> None:
    source = source_of("deberta-v2, newer head", TOKENS)
    source.save_pretrained(tmp_path)
    tokenizer().save_pretrained(str(tmp_path))
    settings = (tmp_path / "config.json").read_text("utf-8")
    (tmp_path / "config.json").write_text(settings.replace('"legacy": false,', ""), "utf-8")
    loaded = load_encoder(str(tmp_path))
    ids = torch.arange(5, 29).view(2, 12)
    with torch.no_grad():
        torch.testing.assert_close(loaded[0].auto_model(ids).logits, source(ids).logits, rtol=1e-5, atol=1e-5)
    save_encoder(loaded, tmp_path / "model")
    wanted = encode(loaded, TEXTS, 1000).toarray()
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu").encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    np.testing.assert_allclose(plain, wanted, rtol=1e-4, atol=1e-5)


def test_positions_count_from_the_padding_id_where_their_table_leaves_it_out() -> None:
    for family, offset in (("roberta", 2), ("mpnet", 2), ("bert", 0), ("modernbert", 0), ("xlm", 0)):
        assert position_offset(source_of(family, shuffled(1, pad=1))) == offset


def test_a_model_that_depends_on_token_ids_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of("bert", TOKENS)
    embeddings = source.bert.embeddings
    forward = type(embeddings).forward

    def by_parity(self: Any, input_ids: torch.Tensor | None = None, **rest: Any) -> torch.Tensor:
        """BERT's embeddings, but odd token ids shift theirs, as no table of rows can tell."""
        found: torch.Tensor = forward(self, input_ids, **rest)
        return found if input_ids is None else found + (input_ids % 2).unsqueeze(-1)

    monkeypatch.setattr(type(embeddings), "forward", by_parity)
    with pytest.raises(DataError, match="does not compute under the new vocabulary what it computed under the old"):
        graft(source, tokenizer(), embeddings.word_embeddings.weight.detach(), torch.zeros(len(TOKENS)))


# Grafting a new vocabulary: the same encoder under other token ids, saved and read again by the plain library.


SENTENCES = [*texts(6), "", "Ünknown 字 river", " ".join(["willow"] * 60)]


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
    batch = tokenizer(tokens)(SENTENCES, padding=True, truncation=True, max_length=48, return_tensors="pt")
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
        encode(read_back, SENTENCES, 1000).toarray(),
        encode(as_sparse_encoder(source, tokenizer(tokens), tmp_path / "source"), SENTENCES, 1000).toarray()[:, order],
        atol=1e-5,
    )


@pytest.mark.parametrize("what", ["embedding rows", "decoder rows", "biases"])
def test_what_is_not_finite_is_refused(what: str) -> None:
    given = {"embedding rows": torch.zeros(len(TOKENS), 32), "biases": torch.zeros(len(TOKENS))}
    given["decoder rows"] = given["embedding rows"].clone()
    given[what].view(-1)[7] = torch.nan
    with pytest.raises(DataError, match=f"{what} are not finite"):
        graft(model(tied=False), tokenizer(TOKENS), given["embedding rows"], given["biases"], given["decoder rows"])
