"""The models that recipes name, in the files of their repositories: real architectures and tokenizers, and weights made
here that read each token back, so that an encoder without training already finds a text by its words."""

import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from . import tokenizer_files
from .tokenizer_files import Files, to_json, tokens_of

OWN_LOGIT, QUANTILE = 8.0, 3.5
"""Logit of a token at its own place; of the other tokens' logits those are positive that lie so many deviations up."""

FORMER_NAMES = {".LayerNorm.weight": ".LayerNorm.gamma", ".LayerNorm.bias": ".LayerNorm.beta"}
"""What BERT's first checkpoints call the parts of a layer norm."""


SPARSE_ENCODER = to_json({
    "model_type": "SparseEncoder",
    "__version__": {"sentence_transformers": "5.0.0", "transformers": "4.50.3", "pytorch": "2.6.0+cu124"},
    "prompts": {"query": "", "document": ""}, "default_prompt_name": None, "similarity_fn_name": "dot",
})  # fmt: skip


def _splade_pooling(width: int) -> bytes:
    return to_json({"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": width})


LAYERS, HIDDEN, HEADS, FEED_FORWARD = 2, 64, 4, 128


def _shape(kind: str) -> dict[str, int]:
    """Size of a transformer, as the configuration of an architecture calls its parts."""
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    if kind == "distilbert":
        names = ("n_layers", "dim", "n_heads", "hidden_dim")
    return dict(zip(names, (LAYERS, HIDDEN, HEADS, FEED_FORWARD), strict=True))


def splade_v3() -> Files:
    """naver/splade-v3: BERT, weights as ``pytorch_model.bin`` only, modules under their names of before 5.4."""
    tokenizer = tokenizer_files.bert("bert-base-uncased", lowercase=True)
    config, state = _masked_lm("bert", tokenizer)
    state["bert.embeddings.position_ids"] = torch.arange(config["max_position_embeddings"])[None]
    former = "sentence_transformers.sparse_encoder.models"
    return {
        **tokenizer,
        "config.json": to_json(config),
        "pytorch_model.bin": _pickled(state),
        **_modules(f"{former}.MLMTransformer", ("1_SpladePooling", f"{former}.SpladePooling")),
        "1_SpladePooling/config.json": _splade_pooling(config["vocab_size"]),
        "config_sentence_transformers.json": SPARSE_ENCODER,
    }


def opensearch_router() -> Files:
    """opensearch-project/opensearch-neural-sparse-encoding-doc-v2-distill: one router, the document transformer at the
    root, queries by a static table."""
    tokenizer = tokenizer_files.bert("bert-base-uncased", lowercase=True)
    config, state = _masked_lm("distilbert", tokenizer)
    former = "sentence_transformers.sparse_encoder.models"
    tokens = tokenizer["vocab.txt"].decode().split("\n")[:-1]
    weights = torch.linspace(1.0, 10.0, len(tokens))
    return {
        **tokenizer,
        "config.json": to_json(config),
        "model.safetensors": _saved(state),
        "modules.json": to_json([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}]),
        "router_config.json": to_json(
            {
                "types": {
                    "query_0_SparseStaticEmbedding": f"{former}.SparseStaticEmbedding.SparseStaticEmbedding",
                    "": f"{former}.MLMTransformer.MLMTransformer",
                    "document_1_SpladePooling": f"{former}.SpladePooling.SpladePooling",
                },
                "structure": {"query": ["query_0_SparseStaticEmbedding"], "document": ["", "document_1_SpladePooling"]},
                "parameters": {"default_route": "document", "allow_empty_key": True},
            }
        ),
        "sentence_bert_config.json": to_json({"max_seq_length": 512, "do_lower_case": False}),
        "config_sentence_transformers.json": SPARSE_ENCODER,
        **{f"query_0_SparseStaticEmbedding/{name}": content for name, content in tokenizer.items()},
        "query_0_SparseStaticEmbedding/config.json": to_json({"frozen": False}),
        "query_0_SparseStaticEmbedding/model.safetensors": _saved({"weight": weights}),
        "document_1_SpladePooling/config.json": _splade_pooling(len(tokens)),
        "idf.json": to_json(dict(zip(tokens, weights.tolist(), strict=True))),
        "query_token_weights.txt": "".join(
            f"{token}\t{weight}\n" for token, weight in zip(tokens, weights.tolist(), strict=True)
        ).encode(),
    }


def bert_pretrained(vocabulary: str, *, lowercase: bool) -> Files:
    """google-bert's: safetensors of the pretraining model, next-sentence head included, layer norms by gamma and
    beta."""
    tokenizer = tokenizer_files.bert(vocabulary, lowercase=lowercase)
    config, state = _masked_lm("bert", tokenizer)
    state |= {
        "bert.pooler.dense.weight": torch.eye(HIDDEN),
        "bert.pooler.dense.bias": torch.zeros(HIDDEN),
        "cls.seq_relationship.weight": torch.zeros(2, HIDDEN),
        "cls.seq_relationship.bias": torch.zeros(2),
    }
    renamed = {_former(name): tensor for name, tensor in state.items()}
    return {**tokenizer, "config.json": to_json(config), "model.safetensors": _saved(renamed)}


def roberta() -> Files:
    """FacebookAI/roberta-base."""
    tokenizer = tokenizer_files.roberta()
    config, state = _masked_lm("roberta", tokenizer, max_position_embeddings=514, type_vocab_size=1)
    return {**tokenizer, "config.json": to_json(config), "model.safetensors": _saved(state)}


def modernbert() -> Files:
    """answerdotai/ModernBERT-base, whose matrix is filled up to a multiple of 64 rows."""
    tokenizer = tokenizer_files.modernbert()
    rows = -(-tokens_of(tokenizer) // 64) * 64
    config, state = _masked_lm("modernbert", tokenizer, vocab_size=rows, max_position_embeddings=8192)
    return {**tokenizer, "config.json": to_json(config), "model.safetensors": _saved(state)}


def kobigbird() -> Files:
    """monologg/kobigbird-bert-base, of which recipes take the tokenizer: ``vocab.txt`` and ``tokenizer.json`` under a
    configuration of BERT's, weights as ``pytorch_model.bin``."""
    tokenizer = tokenizer_files.bert("kobigbird", "ko", lowercase=False, length=4096)
    config = {"architectures": ["BigBirdForPreTraining"], "model_type": "big_bird", "vocab_size": tokens_of(tokenizer)}
    return {**tokenizer, "config.json": to_json({**config, "tokenizer_class": "BertTokenizer"})}


def bge_m3() -> Files:
    """BAAI/bge-m3: XLM-R, weights as ``pytorch_model.bin`` only, beside those of the heads that nothing here reads."""
    tokenizer = tokenizer_files.xlm_roberta()
    config, state = _embedder("xlm-roberta", tokenizer, max_position_embeddings=514, type_vocab_size=1)
    return {
        **tokenizer,
        "config.json": to_json(config),
        "pytorch_model.bin": _pickled(state),
        "colbert_linear.pt": _pickled({"weight": torch.zeros(HIDDEN, HIDDEN), "bias": torch.zeros(HIDDEN)}),
        "sparse_linear.pt": _pickled({"weight": torch.zeros(1, HIDDEN), "bias": torch.zeros(1)}),
        **_dense_modules("cls", normalised=True),
    }


def multilingual_e5() -> Files:
    """intfloat/multilingual-e5-small: BERT with XLM-R's vocabulary, safetensors."""
    tokenizer = tokenizer_files.xlm_roberta()
    config, state = _embedder("bert", tokenizer, pad_token_id=1)
    files = {**tokenizer, "config.json": to_json(config), "model.safetensors": _saved(state)}
    return files | _dense_modules("mean", normalised=True)


def dense(kind: str, pooling: str, *, normalised: bool) -> Files:
    """A dense English embedder with the vocabulary of bert-base-uncased."""
    tokenizer = tokenizer_files.bert("bert-base-uncased", lowercase=True)
    config, state = _embedder(kind, tokenizer)
    files = {**tokenizer, "config.json": to_json(config), "model.safetensors": _saved(state)}
    return files | _dense_modules(pooling, normalised=normalised)


def cross_encoder() -> Files:
    """cross-encoder/ms-marco-MiniLM-L6-v2: BERT with one score, and its activation named in the configuration; its
    scores differ by about as much as those of a trained one."""
    tokenizer = tokenizer_files.bert("bert-base-uncased", lowercase=True)
    config = _config("bert", tokenizer, num_labels=1)
    config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0.1"}
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for matrix in (parameter for parameter in model.parameters() if parameter.dim() > 1):
            matrix *= 20
    return {**tokenizer, "config.json": to_json(_content(config, model)), "model.safetensors": _saved(_state(model))}


MODELS: Mapping[str, Callable[[], Files]] = {
    "naver/splade-v3": splade_v3,
    "opensearch-project/opensearch-neural-sparse-encoding-doc-v2-distill": opensearch_router,
    "monologg/kobigbird-bert-base": kobigbird,
    "BAAI/bge-m3": bge_m3,
    "google-bert/bert-base-uncased": lambda: bert_pretrained("bert-base-uncased", lowercase=True),
    "google-bert/bert-base-cased": lambda: bert_pretrained("bert-base-cased-unilm", lowercase=False),
    "FacebookAI/roberta-base": roberta,
    "answerdotai/ModernBERT-base": modernbert,
    "sbintuitions/modernbert-ja-130m": modernbert,
    "cross-encoder/ms-marco-MiniLM-L6-v2": cross_encoder,
    "BAAI/bge-reranker-v2-m3": cross_encoder,
    "sentence-transformers/msmarco-distilbert-base-tas-b": lambda: dense("distilbert", "cls", normalised=False),
    "sentence-transformers/msmarco-bert-co-condensor": lambda: dense("bert", "mean", normalised=False),
    "BAAI/bge-base-en-v1.5": lambda: dense("bert", "cls", normalised=True),
    "intfloat/multilingual-e5-small": multilingual_e5,
}
"""Repository -> its files."""


def _config(kind: str, tokenizer: Files, **settings: Any) -> Any:
    known = tokenizer_ids(tokenizer)
    return AutoConfig.for_model(kind, **{"vocab_size": tokens_of(tokenizer), **known, **_shape(kind), **settings})


def tokenizer_ids(files: Files) -> dict[str, int]:
    """The ids of special tokens as configurations name them."""
    numbers = {entry["content"]: entry["id"] for entry in json.loads(files["tokenizer.json"])["added_tokens"]}
    first, last = ("[CLS]", "<s>"), ("[SEP]", "</s>")
    roles = {"pad_token_id": ("[PAD]", "<pad>"), "bos_token_id": first, "cls_token_id": first, "eos_token_id": last,
             "sep_token_id": last}  # fmt: skip
    return {role: numbers[token] for role, names in roles.items() for token in names if token in numbers}


def _masked_lm(kind: str, tokenizer: Files, **settings: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and weights of a masked language model that reads each token back.

    A token's row times its own state is :data:`OWN_LOGIT`; other tokens' logits are normal, and the bias lets those
    :data:`QUANTILE` deviations up be positive.
    """
    torch.manual_seed(0)
    config = _config(kind, tokenizer, **settings)
    model = AutoModelForMaskedLM.from_config(config)
    deviation = OWN_LOGIT / HIDDEN
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_(0.0, deviation)
        ends = ("transform.dense", "lm_head.dense", "vocab_transform", "head.dense")
        head = next(module for name, module in model.named_modules() if name.endswith(ends))
        head.weight.copy_(torch.eye(HIDDEN))
        if head.bias is not None:
            head.bias.fill_(2.0)  # where GELU is nearly linear; the layer norm takes it off again
        model.get_output_embeddings().bias.fill_(-QUANTILE * OWN_LOGIT / math.sqrt(HIDDEN))
    return _content(config, model), _state(model)


def _embedder(kind: str, tokenizer: Files, **settings: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and weights of a transformer whose every state holds the mean of the text's tokens."""
    torch.manual_seed(0)
    config = _config(kind, tokenizer, **settings)
    model = AutoModel.from_config(config)
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_(0.0, 1.0)
        for name, module in model.named_modules():
            if not isinstance(module, nn.Linear) or module.weight.shape[0] != module.weight.shape[1]:
                continue
            if name.endswith(("query", "key", "q_lin", "k_lin")):
                module.weight.zero_()
            elif name.endswith(("value", "attention.output.dense", "v_lin", "out_lin")):
                module.weight.copy_(torch.eye(HIDDEN))
    return _content(config, model), _state(model)


def _content(config: Any, model: nn.Module) -> dict[str, Any]:
    """config.json as older versions of transformers wrote it: ``torch_dtype``, and the class of the model."""
    content: dict[str, Any] = config.to_dict()
    content.pop("dtype", None)
    names = {"architectures": [type(model).__name__], "torch_dtype": "float32", "transformers_version": "4.41.2"}
    return content | names


def _state(model: nn.Module) -> dict[str, Tensor]:
    """Weights by name, tied ones once."""
    state, seen = {}, set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            state[name] = tensor.contiguous()
    return state


def _former(name: str) -> str:
    for now, before in FORMER_NAMES.items():
        name = name.replace(now, before)
    return name


def _saved(state: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save(dict(state), metadata={"format": "pt"})


def _pickled(state: Mapping[str, Tensor]) -> bytes:
    written = io.BytesIO()
    torch.save(dict(state), written)
    return written.getvalue()


def _modules(first: str, *others: tuple[str, str]) -> Files:
    entries = [("", first), *others]
    return {
        "modules.json": to_json(
            [{"idx": n, "name": str(n), "path": path, "type": kind} for n, (path, kind) in enumerate(entries)]
        ),
        "sentence_bert_config.json": to_json({"max_seq_length": 512, "do_lower_case": False}),
    }


def _dense_modules(pooling: str, *, normalised: bool) -> Files:
    former = "sentence_transformers.models"
    others = [("1_Pooling", f"{former}.Pooling")]
    if normalised:
        others.append(("2_Normalize", f"{former}.Normalize"))
    return {
        **_modules(f"{former}.Transformer", *others),
        "1_Pooling/config.json": _pooling(pooling),
        "config_sentence_transformers.json": to_json(
            {"__version__": {"sentence_transformers": "2.2.2", "transformers": "4.33.0", "pytorch": "2.1.2+cu121"}}
        ),
    }


def _pooling(which: str) -> bytes:
    modes = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "mean_sqrt_len_tokens": "sqrt"}
    chosen = {f"pooling_mode_{name}": which == mode for name, mode in modes.items()}
    return to_json({"word_embedding_dimension": HIDDEN, **chosen})
