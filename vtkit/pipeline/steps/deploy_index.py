"""Stage ``index:deployed``: the final model's index as it is to be used, with its lexical part and in its engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.evaluation.balance import Balance
from vtkit.pipeline.stage import Corpus, Stage, View
from vtkit.pipeline.steps.encode_corpus import model_name
from vtkit.pipeline.steps.encode_queries import (
    BALANCING,
    SETS,
    SUMMED,
    TRAINING,
    TUNED,
    EncodeQueriesResult,
    balancing_of,
    stored,
)
from vtkit.pipeline.steps.index_corpus import WEIGHTING, keep_documents, weighted_vectors
from vtkit.pipeline.steps.texts import collection_of, training_queries, tuned_collections
from vtkit.pipeline.store import result_of
from vtkit.settings.engines import ENGINE
from vtkit.system import console
from vtkit.system.results import Result

if TYPE_CHECKING:
    import scipy.sparse as sp
    from sentence_transformers import SparseEncoder

    from vtkit.search.lexical import LexicalPart

DEPLOYED = "deployed"  # what this index is called in steps, beside those of single models


@dataclass(frozen=True)
class DeployedSet(Result):
    """The documents of one evaluation set in the index to be used."""

    documents: int
    postings: int  # weights above zero, of all documents together; with those of the lexical part ...
    lexical_postings: int  # ... which are so many of them
    terms: int  # dimensions of the lexical part
    balance: Balance | None = None


@dataclass(frozen=True)
class DeployResult(Result):
    """The index of each evaluation set, as it is to be used."""

    sets: Mapping[str, DeployedSet]


@dataclass(frozen=True)
class _Assembled:
    """A collection's vectors with their lexical part."""

    documents: sp.csr_matrix  # (documents, width)
    vocabulary: int  # dimensions of the encoder
    lexical: LexicalPart | None = None
    balance: Balance | None = None


def deploy_index(recipe: View, inputs: Mapping[str, Path], out: Path) -> DeployResult:
    """Fill ``out/SET`` with an index of ``inputs["vectors"]``, made by ``inputs["model"]``, for every set.

    The scores of its lexical part are brought together with the encoder's on ``inputs["queries"]``.
    """
    from vtkit.encoder.asymmetric import output_tokenizer
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.search.engine import POSTINGS, build_index
    from vtkit.search.index_info import IndexRecord
    from vtkit.vocabulary.tokenizer_file import tokenizer_digest

    encoder = load_encoder(model_name(recipe, inputs), "cpu")
    tokenizer = tokenizer_digest(output_tokenizer(encoder))
    sets: dict[str, DeployedSet] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        folder = out / str(corpus.folder)
        index = _assembled(recipe, inputs, corpus, encoder, folder)
        build_index(recipe.index, index.documents, folder / POSTINGS)
        keep_documents(inputs, corpus, folder)
        lexical = None if index.lexical is None else index.lexical.save(folder)
        record = IndexRecord(recipe.index.engine, index.vocabulary, tokenizer, recipe.index.document_weighting, lexical)
        record.save(folder)
        lexical_postings = int((index.documents.indices >= index.vocabulary).sum())
        terms = index.documents.shape[1] - index.vocabulary
        sets[str(corpus.folder)] = DeployedSet(
            index.documents.shape[0], index.documents.nnz, lexical_postings, terms, index.balance
        )
        if index.lexical is not None and index.balance is not None:
            say = console.warn if index.balance.contradicted else console.say
            mean = lexical_postings / max(index.documents.shape[0], 1)
            say(
                f"  {corpus.folder}: lexical part of {terms:,} dimensions, {mean:.0f} a document; scores compared on "
                f"{index.balance.measured_on}; the encoder weighs {index.balance.weight:g}: {index.balance.words}"
            )
    return DeployResult(sets)


def _assembled(
    recipe: View, inputs: Mapping[str, Path], corpus: Corpus, encoder: SparseEncoder, out: Path
) -> _Assembled:
    """The vectors of one set, made by ``encoder``, with the weighting and the lexical part of ``[index]``, ``out`` as
    of :func:`weighted_vectors`."""
    vectors = weighted_vectors(recipe, inputs, corpus, encoder, out)
    assert recipe.evaluate is not None
    if recipe.index.lexical == "none":
        return _Assembled(vectors, vectors.shape[1])
    from vtkit.evaluation.balancing import in_one_index

    place, folder = collection_of(corpus), str(corpus.folder)
    documents, part, balance = in_one_index(
        vectors,
        place.whole.documents,
        stored(inputs["queries"] / folder / BALANCING),
        balancing_of(recipe, place),
        recipe.recipe.language,
        recipe.index.bm25_analyser,
        result_of(inputs["queries"], EncodeQueriesResult).sets[folder].probed,
        recipe.evaluate.measures[0],
    )
    return _Assembled(documents, vectors.shape[1], part, balance)


DEPLOY = Stage(
    f"index:{DEPLOYED}",
    version=15,
    reads=(*ENGINE, *WEIGHTING, "index.lexical", *SUMMED, "evaluate.measures", "evaluate.ignore_identical_ids"),
    corpora=SETS | {TRAINING: training_queries, TUNED: tuned_collections},
    function=deploy_index,
)
