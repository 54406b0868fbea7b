"""Small encoders of every architecture, and encoders with a head of other tokens."""

from pathlib import Path
from typing import Any

import torch
from tiny import WORDS, encoder, shuffled, texts, tokenizer
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel

from vtkit.encoder.asymmetric import WholeEncoder
from vtkit.transfer.methods.baselines import subtoken_mixture
from vtkit.transfer.surgery.head_only import graft_encoder_head
from vtkit.vocabulary.pair import pair_of

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


OUTPUT = (*(token for token in shuffled(2) if token not in WORDS[:40]), "riverstone", "oakpine", "Oakpine", "maplereef")
"""80 tokens of the source and four of its own: fewer than the source's 120."""
LONGER = (*shuffled(2), *(first + second for first, second in zip(WORDS, WORDS[9:], strict=False)))
"""More than the source's."""


def moved(folder: Path, tokens: tuple[str, ...] = OUTPUT, **settings: object) -> WholeEncoder:
    source = encoder(folder / "source", **settings)
    pair = pair_of(source.tokenizer, tokenizer(tokens))
    mixture = subtoken_mixture(pair)
    return graft_encoder_head(source, tokenizer(tokens), mixture, mixture.bias, folder / "work")
