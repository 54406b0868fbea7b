"""Searching a run on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vtkit.settings.index import IndexSection
from vtkit.system import console
from vtkit.system.errors import RecipeError, VtkitError

if TYPE_CHECKING:
    from vtkit.search.searcher import Searcher


class Searched(NamedTuple):
    """What a searcher is loaded from."""

    model: str  # folder or hub id
    folder: Path  # of the index
    settings: IndexSection


def open_searcher(
    folder: Path, *, model: str | None, collection: str | None, query_language: str | None = None
) -> Searcher:
    """The searcher of :func:`searched`; the same arguments and errors.

    Args:
        query_language: ISO 639-1 code of queries that go through the run's own translations.
    """
    loaded_from = searched(folder, model=model, collection=collection)
    from vtkit.search.searcher import Searcher

    if query_language is None:
        return Searcher.load(*loaded_from)
    from vtkit.pipeline.folder import is_run_folder, open_run
    from vtkit.search.bridge_queries import FOLDER

    places = [folder / FOLDER]
    if is_run_folder(folder) and "transfer" in (steps := open_run(folder).steps):
        places.insert(0, steps["transfer"] / FOLDER)
    bridge = next((place for place in places if place.is_dir()), places[-1])
    return Searcher.load(*loaded_from, bridge=(bridge, query_language))


def searched(folder: Path, *, model: str | None, collection: str | None) -> Searched:
    """Model and index of a run on disk, or of a folder that ``vtkit index`` made.

    Args:
        folder: of either; the latter has one model and one collection, which are not to be named.
        model: stage whose model and index to use, as it was judged; None for the final one, in the index to be used.
        collection: evaluation set; None for the first.

    Raises:
        VtkitError: no such run, model or set.
    """
    from vtkit.search.folders import is_index_folder, searched_by

    if is_index_folder(folder):
        if model is not None or collection is not None:
            raise RecipeError(f"{folder} is a single index: --model and --collection apply to runs only.")
        found = searched_by(folder)
        return Searched(found[0], folder, found[1])
    from vtkit.pipeline.folder import open_run
    from vtkit.pipeline.steps.deploy_index import DEPLOYED, DeployResult
    from vtkit.pipeline.steps.index_corpus import IndexResult
    from vtkit.pipeline.store import result_of

    run = open_run(folder)
    if run.unknown:
        console.warn(f"{folder}: this version of vtkit does not know and ignores {', '.join(run.unknown)}.")
    name = model or run.final_model
    indexed = [step.removeprefix("index:") for step in run.steps if step.startswith("index:")]
    deployed = model is None and f"index:{DEPLOYED}" in run.steps
    if not deployed and (name not in indexed or name == DEPLOYED):
        indexed = [each for each in indexed if each != DEPLOYED]
        raise VtkitError(
            f"{folder} has no index for {name!r}. "
            + (f"Choose another with --model: {', '.join(indexed)}." if indexed else "Run its recipe to the end.")
        )
    index = run.steps[f"index:{DEPLOYED if deployed else name}"]
    of = run.model(name)
    sets = list(result_of(index, DeployResult).sets if deployed else result_of(index, IndexResult).sets)
    chosen = collection or sets[0]
    if chosen not in sets:
        raise VtkitError(f"{folder} has no collection {chosen!r}. It has {', '.join(sets)}.")
    return Searched(of, index / chosen, run.index)
