"""Stage ``index``: the encoded documents of every evaluation set, weighted, in posting lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.encode_corpus import model_name
from vtkit.pipeline.steps.texts import collection_of, evaluation_sets
from vtkit.search.measures.cost import Sparsity
from vtkit.settings.index import IndexSection

HISTOGRAM_BINS = 24
WEIGHTING = ("index.document_weighting", "index.own_tokens", "index.top_dimensions", "index.mass", "index.length")


def index_corpus(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, Sparsity]:
    """Fill ``out/SET`` with an index for every set of the recipe; returns how sparse each is.

    The vectors are those of ``inputs["vectors"]``, an output of the stage ``encode``, made by ``inputs["model"]`` or,
    where there is no such input, by the source as it is. Evaluated models are searched exactly, whatever the engine.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.kinds import can_weigh
    from vtkit.search.engine import POSTINGS, open_index
    from vtkit.search.folders import index_folder, read_encoding
    from vtkit.search.segments import generation_of

    encoder = load_encoder(model_name(recipe, inputs), "cpu")
    exact, sets = recipe.index.model_copy(update={"engine": "exact"}), dict[str, Sparsity]()
    for corpus in recipe.corpora("evaluate.sets"):
        vectors, home = inputs["vectors"] / str(corpus.folder), out / str(corpus.folder)
        index_folder(vectors, home, exact, encoder, collection_of(corpus).whole.documents)
        info, encoding = open_index(IndexSection(), generation_of(home) / POSTINGS).info, read_encoding(vectors)
        kept = (1 - encoding.postings_removed) * info.postings / max(encoding.postings, info.postings, 1)
        sparsity = info.sparsity(can_weigh(encoder), HISTOGRAM_BINS)
        sets[str(corpus.folder)] = replace(sparsity, left_out=1 - kept)
    return sets


INDEX = Stage("index", version=18, reads=WEIGHTING, corpora={"evaluate.sets": evaluation_sets}, function=index_corpus)
