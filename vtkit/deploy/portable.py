"""The part of an export that all engines share: a SparseEncoder folder with ONNX networks, ``settings.json`` and
``encode.py``, a query table as ``idf.json``, BM25's terms as ``terms.json``, and ``replay.jsonl``: queries, their
vectors, and the first ten results of exact search."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sentence_transformers import SparseEncoder
from sentence_transformers.sentence_transformer.modules import Transformer

from vtkit.data.document_files import is_blank
from vtkit.data.sampling import spread
from vtkit.deploy.documents import DEPTH, Collection, json_line
from vtkit.deploy.network import TermWeights, check_onnx, texts_of_vocabulary, write_onnx
from vtkit.deploy.target import Target
from vtkit.encoder.asymmetric import dimension_names, own_output, query_side, query_table
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.documents import IDF, LENGTH, OWN_TOKENS
from vtkit.encoder.folding import folded_dimensions
from vtkit.encoder.sides import EncoderQueries, Side, prompt_of, tokenizer_of
from vtkit.search.measures.agreement import agreement
from vtkit.search.searcher import Searcher
from vtkit.search.stored_vectors import shortest
from vtkit.vocabulary.saved import save_tokenizer

SETTINGS, REPLAY = "settings.json", "replay.jsonl"
DOCUMENT_WEIGHTS = "document_weights.npy"
"""File of the factor of each dimension of a document (``index.document_weighting``)."""

SCRIPTS = Path(__file__).parent / "scripts"

QUERIES = 200  # largest number of queries that are replayed
QUERY_WORDS = 8  # words of a document that are used as a query

_DOCUMENTS_CHECKED = 64


@dataclass(frozen=True)
class Source:
    """A model to export, perhaps with its index."""

    name: str  # of the run, index or model; collections, tables and fields are named after it
    encoder: SparseEncoder
    searcher: Searcher | None  # the index; None for a model alone
    queries: tuple[str, ...]
    query_length: int
    document_length: int  # tokens at which texts are cut
    document_candidates: int | None = None
    document_dimensions: int | None = None
    """Largest weights of a document that are kept before and after weighting; None: all."""

    beside_bm25: tuple[str | None, float] | None = None
    """Language of the documents, if it is known, and weight of the encoder beside the engine's own BM25."""

    @property
    def lexical(self) -> bool:
        """Whether the index has BM25's terms beside the encoder's."""
        return self.searcher is not None and self.searcher.lexical is not None

    @property
    def prompts(self) -> bool:
        """Whether texts get a prompt."""
        return any(prompt_of(self.encoder, side) for side in ("query", "document"))

    @property
    def pools_elsewhere(self) -> bool:
        """Whether an engine that pools the logits itself gets the same weights."""
        return TermWeights(self.encoder).pools_elsewhere

    @property
    def inference_free(self) -> bool:
        """Report whether a table encodes queries as FastEmbed's ``IfSplade`` reads one: each token of a query has its
        weight in its own dimension, and all are kept."""
        side, folds = query_side(self.encoder), folded_dimensions(self.encoder) is not None
        if side is None or query_table(self.encoder) is None or own_output(self.encoder) is not None:
            return False
        return self.pools_elsewhere and not self.lexical and not folds and side.max_active_dims is None

    @property
    def identifier(self) -> str:
        """The name in small letters, digits and underscores, beginning with a letter."""
        kept = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in self.name.lower())
        return kept[:48] if kept[:1].isalpha() else f"index_{kept[:42]}"

    def query_vectors(self) -> sp.csr_matrix:
        """The vectors of the queries in ``vtkit search``, (queries, dimensions)."""
        if self.searcher is not None:
            return self.searcher.encode(list(self.queries))
        return EncoderQueries(self.encoder).encode(self.queries, self.query_length)

    def texts(self) -> list[str]:
        """Some documents, or texts made from the vocabulary."""
        if self.searcher is None:
            return texts_of_vocabulary(self.encoder)
        return _spread(self.searcher, _DOCUMENTS_CHECKED)


def first_words(encoder: SparseEncoder, searcher: Searcher | None) -> tuple[str, ...]:
    """Queries if there are none: the first words of documents, or texts made from the vocabulary."""
    if searcher is None:
        return tuple(texts_of_vocabulary(encoder))
    texts = (" ".join(text.split()[:QUERY_WORDS]) for text in _spread(searcher, QUERIES))
    return tuple(dict.fromkeys(text for text in texts if not is_blank(text)))


def _spread(searcher: Searcher, count: int) -> list[str]:
    """The texts of ``count`` documents, spread evenly over the index."""
    entries = (searcher.documents[number] for number in spread(range(len(searcher.documents)), count))
    return [f"{entry.title} {entry.text}".strip() for entry in entries]


def write_portable(source: Source, folder: Path, target: Target) -> tuple[int, float, float]:
    """Fill ``folder`` with the encoder, and compare its network with it: the number of texts, and what
    :func:`~vtkit.deploy.network.check_onnx` finds."""
    encoder = source.encoder
    encoder.max_seq_length = encoder.tokenizer.model_max_length = source.document_length
    save_encoder(encoder, folder)
    doubled = target.double_logarithm and source.inference_free
    write_onnx(encoder, folder, types=target.token_types, double_logarithm=doubled)
    texts = [*source.texts(), *source.queries][:QUERIES]
    differences = check_onnx(encoder, folder, texts, source.document_length)
    side = _query_transformer(encoder)
    if side is not None:
        (folder / "query").mkdir(exist_ok=True)
        save_tokenizer(side.tokenizer, folder / "query")
        write_onnx(side, folder / "query")
        check_onnx(side, folder / "query", source.queries, source.query_length)
    if source.searcher is not None:
        if source.searcher.lexical is not None:
            source.searcher.lexical.save(folder)
        for name, copy in ((IDF, DOCUMENT_WEIGHTS), (OWN_TOKENS, OWN_TOKENS), (LENGTH, LENGTH)):
            kept = source.searcher.documents.path.with_name(name)
            if kept.is_file():
                shutil.copyfile(kept, folder / copy)
    (folder / SETTINGS).write_text(json.dumps(_settings(source), indent=1, ensure_ascii=False), encoding="utf-8")
    shutil.copyfile(SCRIPTS / "encode.py", folder / "encode.py")
    return len(texts), *differences


def write_replay(source: Source, folder: Path, collection: Collection | None) -> float | None:
    """Write ``replay.jsonl``: each query with its vector and the first ten results of exact search over what the engine
    gets.

    Returns:
        The share of the index's first ten results that rounded or pruned vectors still find; None if they are
        unchanged.
    """
    vectors = source.query_vectors()
    nothing = np.empty((len(source.queries), 0))
    ids, scores, kept = nothing.astype(np.int32), nothing.astype(np.float32), None
    if source.searcher is not None and collection is not None:
        ids, scores = source.searcher.index.postings.search(vectors, DEPTH)
        if collection.changed:
            exact = ids, scores
            ids, scores = collection.search(vectors)
            kept = agreement("as exported", ids, scores, *exact).overlap
    with (folder / REPLAY).open("w", encoding="utf-8") as file:
        for row, query in enumerate(source.queries):
            part = slice(vectors.indptr[row], vectors.indptr[row + 1])
            dimensions = map(str, vectors.indices[part].tolist())
            vector = dict(zip(dimensions, shortest(vectors.data[part]).tolist(), strict=True))
            named = [
                {"id": collection.id_of(int(number)), "score": round(float(score), 6)}
                for number, score in zip(ids[row], scores[row], strict=True)
                if collection is not None and number >= 0
            ]
            file.write(json_line({"query": query, "vector": vector, "results": named}))
    return kept


def _query_transformer(encoder: SparseEncoder) -> SparseEncoder | None:
    """The query encoder, if it is a separate transformer."""
    side = query_side(encoder)
    return side if side is not None and isinstance(side[0], Transformer) else None


def _settings(source: Source) -> dict[str, Any]:
    encoder, searcher = source.encoder, source.searcher
    lexical = None
    if searcher is not None and searcher.lexical is not None:
        lexical = searcher.lexical.record.to_json() | {"first": searcher.lexical.vocabulary}
    own = _query_transformer(encoder)
    query = _side(own or encoder, encoder, "query", source.query_length)
    query |= {"table": query_table(encoder) is not None, "network": "query" if own is not None else ""}
    if query["table"]:
        query["folder"] = f"query_0_{type(encoder.query_side[0]).__name__}"
        query["active"] = encoder.query_side.max_active_dims
    elif own is not None:
        query["folder"] = "query"
    query["top_dimensions"] = None if searcher is None else searcher.query_top_dimensions
    folded_to = folded_dimensions(encoder)
    changed = {} if folded_to is None else {int(n): int(to) for n, to in enumerate(folded_to) if n != to}
    return {
        "name": source.name,
        "dimensions": len(dimension_names(encoder)) if searcher is None else searcher.index.info.vocabulary,
        "document": _side(encoder, encoder, "document", source.document_length)
        | {"candidates": source.document_candidates, "top_dimensions": source.document_dimensions},
        "query": query | {"folded_to": changed},
        "lexical": lexical,
        "passages": searcher is not None and searcher.index.postings.passages is not None,
        "cosine": encoder.similarity_fn_name == "cosine",
    }


def _side(encoder: SparseEncoder, whole: SparseEncoder, side: Side, max_length: int) -> dict[str, Any]:
    tokenizer = tokenizer_of(whole, side)
    longest = min(max_length, tokenizer.model_max_length)
    if query_table(whole) is None or side == "document":
        longest = min(longest, encoder.max_seq_length or longest)
    return {
        "prompt": prompt_of(whole, side),
        "max_length": longest,
        "folder": "",
        "network": "",
        "pad_id": int(encoder.tokenizer.pad_token_id or 0),
        "pad_token": encoder.tokenizer.pad_token or "[PAD]",
        "truncation_side": tokenizer.truncation_side,
    }
