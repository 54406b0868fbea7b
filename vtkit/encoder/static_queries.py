"""The queries of an inference-free encoder, encoded without torch and sentence-transformers, whose import takes several
times as long as all the rest of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from vtkit.data.hub import read_json, read_settings
from vtkit.encoder.model_folder import FOLD_SETTING, OUTPUT_TOKENIZER, SAFELY, WEIGHTS, find_model, library_errors
from vtkit.encoder.truncation import first_encoding, first_tokens
from vtkit.system.runtime import quiet_libraries
from vtkit.vocabulary.existing import AS_THEY_STAND, prepare_tokenizer
from vtkit.vocabulary.saved import SETTINGS, SPECIAL_TOKENS
from vtkit.vocabulary.tokenizer_file import FILE, TokenizerFile, tokenizer_digest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    QueryTokenizer: TypeAlias = PreTrainedTokenizerFast | TokenizerFile

_TOKENIZERS = (
    "PreTrainedTokenizerFast", "TokenizersBackend", "BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer",
    "DistilBertTokenizerFast", "RobertaTokenizer", "RobertaTokenizerFast", "XLMRobertaTokenizer",
    "XLMRobertaTokenizerFast",
)  # fmt: skip
"""Classes, in ``tokenizer_config.json``, that transformers has under this name whatever the model's kind is. For others
it looks into the model's configuration, which imports torch."""


_HARMLESS = {
    "add_prefix_space", "added_tokens_decoder", "backend", "clean_up_tokenization_spaces", "is_local",
    "local_files_only", "max_length", "model_input_names", "model_max_length", "pad_to_multiple_of",
    "pad_token_type_id", "padding_side", "stride", "tokenizer_class", "truncation_side", "truncation_strategy",
    "bos_token", "cls_token", "eos_token", "mask_token", "pad_token", "sep_token", "unk_token",
}  # fmt: skip
"""Settings by which tokens stay those of the file."""


@dataclass(frozen=True)
class StaticQueries:
    """A query encoder by a static table."""

    tokenizer: QueryTokenizer  # cuts queries into tokens
    weights: NDArray[np.float32]  # of each token, (vocabulary,)
    output_tokenizer: QueryTokenizer
    """Names the dimensions, as :func:`vtkit.encoder.asymmetric.output_tokenizer` of the whole encoder does."""

    prompt: str  # stands before each query
    parameters = None  # there is no model

    @classmethod
    def load(cls, name: str, tokenizer: str = "") -> StaticQueries | None:
        """The query side of an encoder's folder or hub id; None where :func:`vtkit.encoder.checkpoint.load_encoder` is
        needed for it: a model encodes the queries, or weights are folded, limited in number or of length 1.

        What is odd in the folder gives None too, since loading the whole encoder says what it is.

        Args:
            tokenizer: :func:`~vtkit.vocabulary.tokenizer_file.tokenizer_digest` of what names the dimensions of an
                index. Where a file is known to make these tokens, transformers is not imported for it.
        """
        from safetensors import safe_open

        folder = find_model(name)
        sides = _table_and_transformer(folder)
        settings = read_settings(folder / "config_sentence_transformers.json", name)
        limited = settings.get("max_active_dims") is not None or settings.get("similarity_fn_name") not in (None, "dot")
        if sides is None or (folder / OUTPUT_TOKENIZER).exists() or limited:
            return None
        file = sides[0] / WEIGHTS
        if FOLD_SETTING in read_settings(sides[1] / "config.json", name) or not file.is_file():
            return None
        with library_errors(f"the query table of {name} cannot be loaded"), safe_open(file, "np") as table:
            if list(table.keys()) != ["weight"] or table.get_slice("weight").get_dtype() != "F32":
                return None
            weights = table.get_tensor("weight")
        if weights.ndim != 1 or not (np.isfinite(weights).all() and weights.min(initial=0) >= 0):
            return None
        cutting, naming = (query_tokenizer(side, name, tokenizer) for side in sides)
        if cutting is None or naming is None:
            return None
        return cls(cutting, weights, naming, query_prompt(settings))

    def encode(self, queries: Sequence[str], max_length: int) -> sparse.csr_matrix:
        """As :func:`vtkit.encoder.sides.encode_side` for queries."""
        return looked_up(self.tokenizer, self.weights, [self.prompt + query for query in queries], max_length)

    def by_token(self, query: str, max_length: int) -> tuple[sparse.csr_matrix, list[int]]:
        """As :meth:`vtkit.encoder.sides.EncoderQueries.by_token`."""
        return looked_up_by_token(self.tokenizer, self.weights, self.prompt + query, max_length)


def looked_up(
    tokenizer: QueryTokenizer, weights: NDArray[np.float32], texts: Sequence[str], max_length: int
) -> sparse.csr_matrix:
    """A table's weight of every distinct token of each text, special tokens left out; (texts, vocabulary) float32,
    indices sorted. ``weights`` are of each token, (vocabulary,); texts are cut at ``max_length`` tokens."""
    limit = min(max_length, tokenizer.model_max_length)
    token_ids = first_tokens(tokenizer, texts, limit, add_special_tokens=False)["input_ids"]
    distinct = [np.unique(np.asarray(ids, dtype=np.int64)) for ids in token_ids]
    tokens = np.concatenate([np.empty(0, dtype=np.int64), *distinct])
    entries = weights[tokens], tokens, np.cumsum([0, *map(len, distinct)])
    matrix = sparse.csr_matrix(entries, shape=(len(texts), len(weights)), dtype=np.float32)
    matrix.eliminate_zeros()
    return matrix


def looked_up_by_token(
    tokenizer: QueryTokenizer, weights: NDArray[np.float32], text: str, max_length: int
) -> tuple[sparse.csr_matrix, list[int]]:
    """:func:`looked_up` for each token of one text, (tokens, vocabulary), and the character behind each token."""
    limit = min(max_length, tokenizer.model_max_length)
    ids, ends = first_encoding(tokenizer, text, limit, add_special_tokens=False)
    shape = (len(ids), len(weights))
    return sparse.csr_matrix((weights[ids], (range(len(ids)), ids)), shape=shape, dtype=np.float32), ends


def _table_and_transformer(folder: Path) -> tuple[Path, Path] | None:
    """The folders of the static query table and of the document transformer, in an encoder made of these alone."""
    modules: Any = read_json(folder / "modules.json", str(folder))
    try:
        (module,) = modules
        inside = folder / module["path"]
        router: Any = read_json(inside / "router_config.json", str(folder))
        ways = {side: router["structure"][side] for side in ("query", "document")}
        kinds = [[router["types"][part].rpartition(".")[2] for part in way] for way in ways.values()]
        mapped = router["parameters"].get("route_mappings")
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    documents = (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"])
    if mapped or kinds[0] != ["SparseStaticEmbedding"] or kinds[1] not in documents:
        return None
    return inside / ways["query"][0], inside / ways["document"][0]


def query_prompt(settings: Mapping[str, Any]) -> str:
    """The prompt before each query, by an encoder's ``config_sentence_transformers.json``: as in the library's
    ``encode_query``, an encoder without a prompt of this name puts nothing there, whatever its default prompt is."""
    return (settings.get("prompts") or {}).get("query") or ""


def query_tokenizer(folder: Path, name: str, wanted: str) -> QueryTokenizer | None:
    """The tokenizer of the model called ``name`` in ``folder``, without transformers if the file makes its tokens or
    has the digest ``wanted``; None for a kind that needs the model's configuration."""
    settings = read_settings(folder / SETTINGS, name)
    kind = settings.get("tokenizer_class")
    if kind not in _TOKENIZERS or "auto_map" in settings or not (folder / FILE).is_file():
        return None
    with library_errors(f"the tokenizer of {name} cannot be loaded"):
        tokenizer: QueryTokenizer = TokenizerFile.load(folder, settings)
        if "added_tokens_decoder" in settings:  # then transformers reads no other list
            added = {str(number): token.__getstate__() for number, token in tokenizer.added_tokens_decoder.items()}
            others = settings["added_tokens_decoder"] != added
        else:
            others = any((folder / file).exists() for file in (SPECIAL_TOKENS, "added_tokens.json"))
        as_it_stands = kind in AS_THEY_STAND and not others and set(settings) <= _HARMLESS
        if not as_it_stands and tokenizer_digest(tokenizer) != wanted:
            import transformers

            with quiet_libraries():
                tokenizer = getattr(transformers, kind).from_pretrained(str(folder), **SAFELY)
    prepare_tokenizer(tokenizer, f"of {name}")
    return tokenizer
