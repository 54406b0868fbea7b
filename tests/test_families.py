"""Every family of encoders: moved onto another vocabulary, saved, and read again with the same numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from tiny import TOKENS, shuffled, texts, tokenizer
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel

from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import max_input_length, mlm_head, position_offset, with_plain_head
from vtkit.system.errors import DataError
from vtkit.transfer.surgery.graft import graft

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
DISENTANGLED = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
XLM = {"emb_dim": 32, "n_layers": 2, "n_heads": 2}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {}),
    "distilbert": ("distilbert", {"hidden_dim": 48}),
    "roberta": ("roberta", {"pad_token_id": 1, "max_position_embeddings": 50}),
    "xlm-roberta": ("xlm-roberta", {"pad_token_id": 1, "max_position_embeddings": 50}),
    "camembert": ("camembert", {"pad_token_id": 1, "max_position_embeddings": 50}),
    "data2vec": ("data2vec-text", {"pad_token_id": 1, "max_position_embeddings": 50}),
    "roberta-prelayernorm": ("roberta-prelayernorm", {"pad_token_id": 1, "max_position_embeddings": 50}),
    "longformer": ("longformer", {"pad_token_id": 1, "max_position_embeddings": 50, "attention_window": [8, 8]}),
    "xlm-roberta-xl": ("xlm-roberta-xl", {"pad_token_id": 1, "max_position_embeddings": 50}),
    "xmod": ("xmod", {"pad_token_id": 1, "max_position_embeddings": 50, "languages": ["x"], "default_language": "x"}),
    "luke": ("luke", {"pad_token_id": 1, "max_position_embeddings": 50, "entity_vocab_size": 9}),
    "mpnet": ("mpnet", {"pad_token_id": 1, "max_position_embeddings": 50}),
    "electra": ("electra", {"embedding_size": 16}),
    "deberta": ("deberta", DISENTANGLED),
    "deberta, newer head": ("deberta", {**DISENTANGLED, "legacy": False}),
    "deberta-v2": ("deberta-v2", {**DISENTANGLED, "position_buckets": 8, "norm_rel_ebd": "layer_norm"}),
    "deberta-v2, newer head": ("deberta-v2", {**DISENTANGLED, "position_buckets": 8, "legacy": False}),
    "deberta-v2, positions in the input": ("deberta-v2", {"position_biased_input": True, "legacy": False}),
    "deberta-v2, narrow embeddings": ("deberta-v2", {"embedding_size": 16}),
    "albert": ("albert", {"embedding_size": 16}),
    "rembert": ("rembert", {"input_embedding_size": 16, "output_embedding_size": 24}),
    "megatron-bert": ("megatron-bert", {}),
    "roformer": ("roformer", {"embedding_size": 16}),
    "ernie": ("ernie", {}),
    "squeezebert": ("squeezebert", {"embedding_size": 32, "q_groups": 2, "k_groups": 2, "v_groups": 2}),
    "big-bird": ("big_bird", {"attention_type": "original_full"}),
    "xlm": ("xlm", XLM),
    "flaubert": ("flaubert", XLM),
    "jina-v3": ("jina_embeddings_v3", {}),
    "nomic": ("nomic_bert", {}),
    "modernbert": ("modernbert", {}),
    "modernbert without bias": ("modernbert", {"decoder_bias": False}),
}
TEXTS = [*texts(4), "river", "Ünknown 字 river"]
UNTIED = ("bert", "distilbert", "roberta", "xlm-roberta", "mpnet", "electra", "deberta", "deberta-v2", "albert",
          "modernbert", "modernbert without bias")  # fmt: skip


def source_of(family: str, tokens: tuple[str, ...], *, tied: bool = True) -> PreTrainedModel:
    """A model of ``family`` over ``tokens`` with weights large enough to tell tokens apart."""
    kind, special = FAMILIES[family]
    roles = {"bos_token_id": tokens.index("[CLS]"), "eos_token_id": tokens.index("[SEP]")}
    roles |= {"cls_token_id": tokens.index("[CLS]"), "sep_token_id": tokens.index("[SEP]")}
    common = {"pad_token_id": tokens.index("[PAD]"), "max_position_embeddings": 48, **roles}
    shape = {} if special is XLM else SHAPE
    config = AutoConfig.for_model(kind, vocab_size=len(tokens), **{**shape, **common, **special})
    config.tie_word_embeddings = tied
    torch.manual_seed(0)
    source = AutoModelForMaskedLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in source.named_parameters():
            if "norm" not in name.lower():
                parameter.normal_(0.0, 0.2)
    return source


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
