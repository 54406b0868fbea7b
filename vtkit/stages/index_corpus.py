"""Stage ``index``: the documents of every evaluation set as sparse vectors in posting lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vtkit import console
from vtkit.data.collections import load_retrieval
from vtkit.data.retrieval import RetrievalSet
from vtkit.measures.sparsity import Sparsity
from vtkit.results import Result
from vtkit.stages.stage import Corpus, Stage, View
from vtkit.stages.texts import evaluation_sets

HISTOGRAM_BINS = 24


@dataclass(frozen=True)
class IndexedSet(Result):
    """The documents of one evaluation set in an index."""

    documents: int
    postings: int
    """Weights above zero, of all documents together."""

    sparsity: Sparsity
    share_cut: float = 0.0
    """Share of the documents of which the encoder does not read the end."""


@dataclass(frozen=True)
class IndexResult(Result):
    """What one encoder made of the documents of each evaluation set."""

    sets: Mapping[str, IndexedSet]
    query_encoder: str | None = None
    """What encodes the queries that it is searched with, in words; None where the encoder of documents does."""


def index_corpus(recipe: View, inputs: Mapping[str, Path], out: Path) -> IndexResult:
    """Fill ``out/SET`` with ``postings/`` and ``documents.jsonl`` for every set of the recipe.

    The encoder is ``inputs["model"]/model``, or the source as it is where there is no such input.
    """
    from vtkit.encoder.asymmetric import output_tokenizer
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.folding import fold_map_of, folding
    from vtkit.encoder.idf import document_frequencies, idf_weights, weighted
    from vtkit.encoder.query_tables import query_encoder_of
    from vtkit.encoder.sides import encode_side, prompt_of
    from vtkit.encoder.truncation import share_cut
    from vtkit.runtime import fastest_device
    from vtkit.search.engine import POSTINGS, build_index

    encoder = load_encoder(model_name(recipe, inputs), fastest_device())
    sets: dict[str, IndexedSet] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        collection, folder = opened(corpus), str(corpus.folder)
        texts = [document.contents for document in collection.documents]
        length = min(recipe.index.document_length, encoder.max_seq_length or recipe.index.document_length)
        cut = share_cut(encoder.tokenizer, texts, length, prompt_of(encoder, "document"))
        if cut:
            console.say(f"  {cut:.0%} of the documents of {folder} are cut at {length} tokens (index.document_length)")
        vectors = encode_side(
            encoder,
            texts,
            "document",
            length,
            top_dimensions=recipe.index.top_dimensions,
            precision=recipe.index.precision,
            description=f"encoding the documents of {folder}",
        )
        if recipe.index.document_weighting != "none":
            folded_to = None if folding(encoder) is None else fold_map_of(encoder)
            frequencies, count = document_frequencies(output_tokenizer(encoder), texts, vectors.shape[1], folded_to)
            vectors = weighted(vectors, idf_weights(frequencies, count, recipe.index.document_weighting))
        info = build_index(recipe.index.engine, vectors, out / folder / POSTINGS).info
        with (out / folder / "documents.jsonl").open("w", encoding="utf-8") as file:
            for document in collection.documents:
                entry = {"_id": document.id, "title": document.title, "text": document.text}
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        sparsity = Sparsity(info.dead_dimensions, info.histogram(HISTOGRAM_BINS), info.frequencies())
        sets[folder] = IndexedSet(len(collection.documents), info.postings, sparsity, cut)
    return IndexResult(sets, query_encoder_of(encoder))


def model_name(recipe: View, inputs: Mapping[str, Path]) -> str:
    """Folder of the model a step works with, or the source's own name."""
    if "model" in inputs:
        return str(inputs["model"] / "model")
    assert recipe.source.model is not None
    return recipe.source.model


def opened(corpus: Corpus) -> RetrievalSet:
    """The collection that a stage reads."""
    assert corpus.split is not None
    return load_retrieval(corpus.name, corpus.split)


INDEX = Stage(
    "index",
    version=6,
    reads=(
        "index.engine",
        "index.document_length",
        "index.top_dimensions",
        "index.document_weighting",
        "index.precision",
    ),
    corpora={"evaluate.sets": evaluation_sets},
    function=index_corpus,
)
"""Of one model; where that is the source itself, its name is read too."""
