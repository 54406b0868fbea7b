"""Stage ``index:deployed``: the final model's index as it is to be used, with its lexical part and in its engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vtkit.evaluation.fusion import FusionWeight
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.encode_corpus import SETS, model_name
from vtkit.pipeline.steps.index_corpus import WEIGHTING
from vtkit.pipeline.steps.texts import collection_of
from vtkit.pipeline.store import result_of
from vtkit.settings.engines import ENGINE
from vtkit.system import console

DEPLOYED = "deployed"  # name of this index in steps


def deploy_index(recipe: View, inputs: Mapping[str, Path], out: Path) -> list[str]:
    """Fill ``out/SET`` with an index of ``inputs["vectors"]``, made by ``inputs["model"]``, for every set; returns the
    sets.

    The weights that ``inputs["fusion"]`` has chosen bring the scores of its lexical part together with the encoder's.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.search.folders import index_folder

    encoder, index, sets = load_encoder(model_name(recipe, inputs), "cpu"), recipe.index, list[str]()
    for corpus in recipe.corpora("evaluate.sets"):
        place, fusion = collection_of(corpus), None
        if index.lexical != "none":
            weight = result_of(inputs["fusion"], dict[str, FusionWeight])[place.folder]
            bm25 = place.bm25(recipe.recipe.language, index).bm25
            fusion = bm25, weight.weight, weight.deviations
            of_document = len(bm25.index.lists.entries) / max(bm25.index.document_count, 1)
            console.say(
                f"  {place.folder}: lexical part of {len(bm25.terms):,} dimensions, {of_document:.0f} a document"
            )
        vectors, home = inputs["vectors"] / place.folder, out / place.folder
        index_folder(vectors, home, index, encoder, place.whole.documents, fusion)
        sets.append(place.folder)
    return sets


DEPLOY = Stage(
    f"index:{DEPLOYED}",
    version=23,
    reads=(*ENGINE, *WEIGHTING, "index.lexical", "recipe.language", "index.bm25_analyser", "index.passages"),
    corpora=SETS,
    function=deploy_index,
)
