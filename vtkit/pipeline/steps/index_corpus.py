"""Stage ``index``: the encoded documents of every evaluation set, weighted, in posting lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.document_files import DOCUMENTS
from vtkit.pipeline.stage import Corpus, Stage, View
from vtkit.pipeline.steps.encode_corpus import EncodeResult, model_name
from vtkit.pipeline.steps.texts import collection_of, evaluation_sets
from vtkit.pipeline.store import result_of
from vtkit.search.measures.cost import Sparsity
from vtkit.settings.index import IndexSection
from vtkit.system.results import Result

if TYPE_CHECKING:
    import scipy.sparse as sp
    from sentence_transformers import SparseEncoder

    from vtkit.search.passages import Passages

HISTOGRAM_BINS = 24
WEIGHTING = ("index.document_weighting", "index.own_tokens", "index.top_dimensions", "index.mass", "index.length")


@dataclass(frozen=True)
class IndexedSet(Result):
    """The documents of one evaluation set in an index."""

    sparsity: Sparsity


@dataclass(frozen=True)
class IndexResult(Result):
    """The index of each evaluation set."""

    sets: Mapping[str, IndexedSet]


def index_corpus(recipe: View, inputs: Mapping[str, Path], out: Path) -> IndexResult:
    """Fill ``out/SET`` with an index for every set of the recipe: ``postings/``, ``documents.jsonl``, ``index.json``.

    The vectors are those of ``inputs["vectors"]``, an output of the stage ``encode``, made by ``inputs["model"]`` or,
    where there is no such input, by the source as it is. Judged models are searched exactly, whatever the engine.
    """
    from vtkit.encoder.asymmetric import output_tokenizer
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.kinds import can_weigh
    from vtkit.search.folders import write_index
    from vtkit.vocabulary.tokenizer_file import tokenizer_digest

    encoder = load_encoder(model_name(recipe, inputs), "cpu")
    tokenizer = tokenizer_digest(output_tokenizer(encoder))
    sets: dict[str, IndexedSet] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        folder = out / str(corpus.folder)
        vectors, passages, left_out = weighted_vectors(recipe, inputs, corpus, encoder, folder)
        documents = inputs["vectors"] / str(corpus.folder) / DOCUMENTS
        made = write_index(folder, IndexSection(), [vectors], documents, tokenizer, passages=passages)
        sparsity = made.info.sparsity(can_weigh(encoder), HISTOGRAM_BINS)
        sets[str(corpus.folder)] = IndexedSet(replace(sparsity, left_out=left_out))
    return IndexResult(sets)


def weighted_vectors(
    recipe: View, inputs: Mapping[str, Path], corpus: Corpus, encoder: SparseEncoder, out: Path | None = None
) -> tuple[sp.csr_matrix, Passages | None, float]:
    """The vectors of one set, (documents, vocabulary), weighted and pruned as ``[index]`` says; the passages whose
    vectors they are, if documents are cut into these; and the share of the weights that is left out. What further
    documents need, if anything, is kept in the folder ``out``."""
    from vtkit.encoder.documents import as_indexed
    from vtkit.search.passages import Passages, row_contents
    from vtkit.search.stored_vectors import VECTORS, read_vectors

    folder = inputs["vectors"] / str(corpus.folder)
    vectors = read_vectors(folder / VECTORS)
    passages = Passages.load(folder, vectors.shape[0])
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    texts = row_contents(collection_of(corpus).whole.documents, passages)
    indexed = as_indexed(encoder, vectors, texts, recipe.index, out)
    left_out = result_of(inputs["vectors"], EncodeResult).sets[str(corpus.folder)].left_out
    return indexed, passages, 1 - (1 - left_out) * indexed.nnz / max(vectors.nnz, indexed.nnz, 1)


INDEX = Stage("index", version=15, reads=WEIGHTING, corpora={"evaluate.sets": evaluation_sets}, function=index_corpus)
