"""Embedders made of decoders, with random weights, in the layouts of Qwen3-Embedding and of EmbeddingGemma."""

from pathlib import Path

import tiny
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import Gemma3TextConfig, Gemma3TextModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3Model

PROMPTS = {"query": "Instruct: Given a web search query, retrieve passages\nQuery:", "document": ""}


def byte_level(folder: Path) -> PreTrainedTokenizerFast:
    """A tokenizer as Qwen's: byte-level BPE, padding on the left, and its padding token behind each text."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<|endoftext|>", "<|im_end|>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(tiny.texts(300, seed=5), trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", pair="$A $B <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<|endoftext|>", eos_token="<|im_end|>", padding_side="left",
        model_max_length=4096,
    )  # fmt: skip
    tokenizer.save_pretrained(str(folder))
    return tokenizer


SHAPE = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16,
    "num_key_value_heads": 1, "max_position_embeddings": 128,
}  # fmt: skip


def qwen3(folder: Path) -> Path:
    """Causal, pooled at the last token, with an instruction before queries."""
    tokenizer = byte_level(folder / "body")
    torch.manual_seed(0)
    body = Qwen3Model(Qwen3Config(vocab_size=len(tokenizer) + 5, pad_token_id=0, eos_token_id=1, **SHAPE))
    return _saved(folder, body, [Pooling(32, "lasttoken"), Normalize()])


def embedding_gemma(folder: Path) -> Path:
    """Bidirectional, pooled by the mean, with two dense layers behind it."""
    tokenizer = byte_level(folder / "body")
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=len(tokenizer), pad_token_id=0, eos_token_id=1, use_bidirectional_attention=True, sliding_window=16,
        **SHAPE,
    )  # fmt: skip
    dense = [Dense(32, 64, False, torch.nn.Identity()), Dense(64, 32, False, torch.nn.Identity())]
    return _saved(folder, Gemma3TextModel(config), [Pooling(32, "mean"), *dense, Normalize()])


def _saved(folder: Path, body: torch.nn.Module, modules: list[torch.nn.Module]) -> Path:
    with torch.no_grad():
        for parameter in body.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, 0.2)
    body.save_pretrained(folder / "body")
    transformer = Transformer(str(folder / "body"))
    made = SentenceTransformer(modules=[transformer, *modules], device="cpu", prompts=PROMPTS)
    made.save(str(folder / "model"))
    return folder / "model"
