"""Stage ``index:deployed``: the final model's index as it is to be used, with its lexical part and in its engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vtkit.data.document_files import DOCUMENTS
from vtkit.evaluation.balance import Balance
from vtkit.pipeline.stage import Stage, View
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
from vtkit.pipeline.steps.index_corpus import WEIGHTING, weighted_vectors
from vtkit.pipeline.steps.texts import collection_of, training_queries, tuned_collections
from vtkit.pipeline.store import result_of
from vtkit.settings.engines import ENGINE
from vtkit.system import console
from vtkit.system.results import Result

DEPLOYED = "deployed"  # name of this index in steps


@dataclass(frozen=True)
class DeployedSet(Result):
    """The documents of one evaluation set in the index to be used."""

    balance: Balance | None = None  # of its lexical part with the encoder, if it has one


@dataclass(frozen=True)
class DeployResult(Result):
    """The index of each evaluation set, as it is to be used."""

    sets: Mapping[str, DeployedSet]


def deploy_index(recipe: View, inputs: Mapping[str, Path], out: Path) -> DeployResult:
    """Fill ``out/SET`` with an index of ``inputs["vectors"]``, made by ``inputs["model"]``, for every set.

    The scores of its lexical part are brought together with the encoder's on ``inputs["queries"]``.
    """
    from vtkit.encoder.asymmetric import output_tokenizer
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.evaluation.balancing import in_one_index
    from vtkit.search.folders import write_index
    from vtkit.vocabulary.tokenizer_file import tokenizer_digest

    encoder, index = load_encoder(model_name(recipe, inputs), "cpu"), recipe.index
    tokenizer = tokenizer_digest(output_tokenizer(encoder))
    encoded = result_of(inputs["queries"], EncodeQueriesResult).sets
    sets: dict[str, DeployedSet] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        place, folder = collection_of(corpus), out / str(corpus.folder)
        vectors, passages, _ = weighted_vectors(recipe, inputs, corpus, encoder, folder)
        documents, part, balance = iter([vectors]), None, None
        if index.lexical != "none":
            encode, balancing = stored(inputs["queries"] / place.folder / BALANCING), balancing_of(recipe, place)
            probed, bm25 = encoded[place.folder].probed, place.bm25(recipe.recipe.language, index)
            measure = "nDCG@10" if recipe.evaluate is None else recipe.evaluate.measures[0]
            documents, part, balance = in_one_index(vectors, bm25, encode, balancing, probed, measure, passages)
        stored_documents = inputs["vectors"] / place.folder / DOCUMENTS
        made = write_index(folder, index, documents, stored_documents, tokenizer, part, passages)
        sets[place.folder] = DeployedSet(balance)
        if balance is not None and part is not None:
            terms, of_document = len(part.terms), (made.info.postings - vectors.nnz) / max(vectors.shape[0], 1)
            (console.warn if balance.contradicted else console.say)(
                f"  {place.folder}: lexical part of {terms:,} dimensions, {of_document:.0f} a document; "
                f"scores compared on {balance.measured_on}; the encoder weighs {balance.weight:g}: {balance.words}"
            )
    return DeployResult(sets)


DEPLOY = Stage(
    f"index:{DEPLOYED}",
    version=19,
    reads=(*ENGINE, *WEIGHTING, "index.lexical", *SUMMED, "evaluate.measures", "evaluate.ignore_identical_ids"),
    corpora=SETS | {TRAINING: training_queries, TUNED: tuned_collections},
    function=deploy_index,
)
