"""New masked language models, with random weights."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerFast

from vtkit.settings.source import Scratch

DROPOUT = 0.1  # dropout probability while training, BERT's

FEED_FORWARD = {"distilbert": "hidden_dim"}
DROPOUTS = {
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "roberta": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "distilbert": ("dropout", "attention_dropout"),
    "modernbert": ("embedding_dropout", "mlp_dropout", "attention_dropout"),
}
"""Names of an architecture's settings, where they differ."""


def scratch_model(section: Scratch, tokenizer: PreTrainedTokenizerFast, dropout: float = DROPOUT) -> PreTrainedModel:
    """A masked language model of ``section``'s architecture over ``tokenizer``'s vocabulary, with random weights from
    torch's global generator. The linear map inside its head starts as the identity: with tied embeddings each token's
    own logit is then the largest from the first step, so that a new sparse encoder begins as a lexical matcher."""
    roles = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "cls_token_id": tokenizer.cls_token_id,
        "sep_token_id": tokenizer.sep_token_id,
    }
    positions = section.max_length + (tokenizer.pad_token_id + 1 if section.architecture == "roberta" else 0)
    common: dict[str, Any] = {"vocab_size": len(tokenizer), "max_position_embeddings": positions, **roles}
    common |= {
        "hidden_size": section.hidden,
        "num_hidden_layers": section.layers,
        "num_attention_heads": section.heads,
        FEED_FORWARD.get(section.architecture, "intermediate_size"): section.feed_forward,
        **dict.fromkeys(DROPOUTS[section.architecture], dropout),
    }
    if section.architecture == "roberta":
        common["type_vocab_size"] = 1
    config = AutoConfig.for_model(section.architecture, **common)
    model = AutoModelForMaskedLM.from_config(config, trust_remote_code=False)
    heads = ("cls.predictions.transform.dense", "lm_head.dense", "vocab_transform", "head.dense")
    for name, module in model.named_modules():
        if name in heads:
            torch.nn.init.eye_(module.weight)
    return model
