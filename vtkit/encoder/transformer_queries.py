"""The queries of a plain SPLADE encoder, encoded with transformers alone: importing sentence-transformers takes longer
than the rest of a search together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from vtkit.data.hub import read_json
from vtkit.encoder.model_folder import FOLD_SETTING, OUTPUT_TOKENIZER, SAFELY_WEIGHTS, model_folder
from vtkit.encoder.static_queries import query_prompt, query_tokenizer
from vtkit.encoder.truncation import first_encoding, first_tokens, padded
from vtkit.system.runtime import fastest_device, quiet_libraries

if TYPE_CHECKING:
    from torch import Tensor

    from vtkit.encoder.static_queries import QueryTokenizer

FAMILIES = ("bert", "distilbert", "modernbert", "roberta", "xlm-roberta")
"""Model types whose logits are those of the decoder as it is saved."""

LOGITS_AT_ONCE = 2**25  # numbers, of all positions of the queries that are encoded together

_TRANSFORMER_SETTINGS = {"do_lower_case", "max_seq_length", "modality_config", "module_output_name", "transformer_task"}


@dataclass(frozen=True)
class TransformerQueries:
    """An encoder of one masked language model for both sides, of which only the query side is wanted."""

    model: Any  # a masked language model of transformers
    tokenizer: QueryTokenizer  # cuts queries into tokens, and names the dimensions
    prompt: str  # stands before each query
    pooling: str
    activation: str
    longest: int  # tokens that the encoder reads of a text

    @property
    def output_tokenizer(self) -> QueryTokenizer:
        """Names the dimensions."""
        return self.tokenizer

    @property
    def parameters(self) -> int:
        """The number of the model's parameters."""
        return sum(weight.numel() for weight in self.model.parameters())

    @classmethod
    def load(cls, name: str, tokenizer: str) -> TransformerQueries | None:
        """The query side of an encoder's folder or hub id, whose dimensions ``tokenizer`` is the digest of; None where
        :func:`vtkit.encoder.checkpoint.load_encoder` is needed for it: routers, folding, limits, other modules and
        architectures, and all that is damaged, since loading the whole encoder says how."""
        folder = model_folder(name)
        modules = read_json(folder / "modules.json", name)
        pooling, inside = {"pooling_strategy": "max", "activation_function": "relu"}, folder
        if modules is not None:
            kinds = [module["type"].rpartition(".")[2] for module in modules]
            if kinds not in (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"]):
                return None
            inside = folder / modules[0]["path"]
            pooling |= read_json(folder / modules[1]["path"] / "config.json", name) or {}
        whole = read_json(folder / "config_sentence_transformers.json", name) or {}
        transformer = read_json(inside / "sentence_bert_config.json", name) or {}
        config = read_json(inside / "config.json", name) or {}
        if (
            (folder / OUTPUT_TOKENIZER).exists()
            or whole.get("max_active_dims") is not None
            or whole.get("similarity_fn_name") not in (None, "dot")
            or transformer.get("do_lower_case")
            or not set(transformer) <= _TRANSFORMER_SETTINGS
            or FOLD_SETTING in config
            or config.get("model_type") not in FAMILIES
        ):
            return None
        cutting = query_tokenizer(inside, name, tokenizer)
        if cutting is None:
            return None
        import torch
        from transformers import AutoModelForMaskedLM

        from vtkit.encoder.families import max_input_length, not_finite

        try:
            with quiet_libraries():
                model, info = AutoModelForMaskedLM.from_pretrained(
                    str(inside), output_loading_info=True, dtype=torch.float32, **SAFELY_WEIGHTS
                )
        except Exception:  # of any kind: loading the whole encoder says what is wrong
            return None
        missing = [key for key in info["missing_keys"] if "position_ids" not in key]
        if missing or info["mismatched_keys"] or not_finite(model):
            return None
        longest = max_input_length(model, cutting)
        pooled = pooling["pooling_strategy"], pooling["activation_function"]
        limit = min(transformer.get("max_seq_length") or longest, longest)
        return cls(model.eval().to(fastest_device()), cutting, query_prompt(whole), *pooled, limit)

    def encode(self, queries: Sequence[str], max_length: int) -> sparse.csr_matrix:
        """As :func:`vtkit.encoder.sides.encode_side` for queries."""
        prompted = [self.prompt + query for query in queries]
        token_ids = first_tokens(self.tokenizer, prompted, min(max_length, self.longest))["input_ids"]
        size, padding = int(self.model.config.vocab_size), int(self.model.config.pad_token_id or 0)
        at_once = max(1, LOGITS_AT_ONCE // (size * max(map(len, token_ids), default=1)))
        rows = []
        for start in range(0, len(token_ids), at_once):
            batch = token_ids[start : start + at_once]
            weights = self._weights(*padded(batch, padding, self.model.device))
            pooled = weights.sum(dim=1) if self.pooling == "sum" else weights.amax(dim=1)
            rows.append(sparse.csr_matrix(pooled.cpu().numpy()))
        return sparse.vstack(rows, "csr") if rows else sparse.csr_matrix((0, size), dtype=np.float32)

    def by_token(self, query: str, max_length: int) -> tuple[sparse.csr_matrix, list[int]]:
        """As :meth:`vtkit.encoder.sides.EncoderQueries.by_token`."""
        import torch

        listed, ends = first_encoding(self.tokenizer, self.prompt + query, min(max_length, self.longest))
        ids = torch.tensor([listed], device=self.model.device)
        return sparse.csr_matrix(self._weights(ids, torch.ones_like(ids))[0].cpu().numpy()), ends

    def _weights(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Before pooling, (queries, tokens, vocabulary) float32."""
        import torch

        with torch.inference_mode():
            logits = self.model(input_ids=ids, attention_mask=mask).logits
            weights = torch.log1p(torch.relu(logits.float())) * mask.unsqueeze(-1)
            return torch.log1p(weights) if self.activation == "log1p_relu" else weights
