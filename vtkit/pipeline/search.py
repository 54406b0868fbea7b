"""Searching runs on disk, and loading them for a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vtkit.settings.engines import ENGINE
from vtkit.settings.index import IndexSection
from vtkit.system.errors import DataError, RecipeError, VtkitError
from vtkit.system.runtime import fastest_device

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

    from vtkit.search.searcher import Searcher


class Searched(NamedTuple):
    """The parts that a searcher is loaded from."""

    model: str  # folder or hub id
    folder: Path  # of the index
    settings: IndexSection


def open_searcher(
    folder: Path, *, model: str | None, collection: str | None, query_language: str | None = None
) -> Searcher:
    """The searcher of :func:`searched`; the same arguments and errors. ``query_language`` is the ISO 639-1 code of
    queries that go through the run's own translations."""
    loaded_from = searched(folder, model=model, collection=collection)
    from vtkit.search.searcher import Searcher

    if query_language is None:
        while True:
            try:
                return Searcher.load(*loaded_from)
            except (DataError, OSError):  # of a state that was replaced, and removed with the next change
                before, loaded_from = loaded_from, searched(folder, model=model, collection=collection)
                if loaded_from.folder == before.folder:
                    raise
    from vtkit.pipeline.folder import is_run_folder, open_run
    from vtkit.search.bridge_queries import FOLDER

    places = [folder / FOLDER]
    if is_run_folder(folder) and "transfer" in (steps := open_run(folder).steps):
        places.insert(0, steps["transfer"] / FOLDER)
    bridge = next((place for place in places if place.is_dir()), places[-1])
    return Searcher.load(*loaded_from, bridge=(bridge, query_language))


def searched(folder: Path, *, model: str | None, collection: str | None) -> Searched:
    """Model and index of a run on disk, or of a folder that ``vtkit index`` made, which has one of each.

    Args:
        model: stage whose model and index to use, as it was judged; None for the final one, in the index to be used.
        collection: evaluation set; None for the first.
    """
    from vtkit.search.folders import is_index_folder, searched_by
    from vtkit.search.segments import generation_of

    if is_index_folder(folder):
        if model is not None or collection is not None:
            raise RecipeError(f"{folder} is a single index: --model and --collection apply to runs only.")
        encoder, settings = searched_by(folder)
        return Searched(encoder, generation_of(folder), settings)
    from vtkit.pipeline.folder import open_run
    from vtkit.pipeline.steps.deploy_index import DEPLOY, DeployResult
    from vtkit.pipeline.steps.index_corpus import IndexResult
    from vtkit.pipeline.store import result_of

    run = open_run(folder)
    name = model or run.final_model
    indexed = [step.removeprefix("index:") for step in run.steps if step.startswith("index:") and step != DEPLOY.name]
    deployed = model is None and DEPLOY.name in run.steps
    if not deployed and name not in indexed:
        raise VtkitError(
            f"{folder} has no index for {name!r}. "
            + (f"Choose another with --model: {', '.join(indexed)}." if indexed else "Run its recipe to the end.")
        )
    index = run.steps[DEPLOY.name if deployed else f"index:{name}"]
    sets = list(result_of(index, DeployResult).sets if deployed else result_of(index, IndexResult).sets)
    chosen = collection or sets[0]
    if chosen not in sets:
        raise VtkitError(f"{folder} has no collection {chosen!r}. It has {', '.join(sets)}.")
    return Searched(run.model(name), index / chosen, run.index)


# settings of [index] that are a run's own
OF_A_RUN = {"documents", "query_log", *(name.removeprefix("index.") for name in ENGINE)}


def settings_of(name: str) -> tuple[str, IndexSection | None, str | None]:
    """The name of an encoder (the final model of a run, if ``name`` is its folder); and the settings of ``[index]`` and
    the language of the run, or of the index that ``vtkit build`` made, that the encoder is the model of."""
    from vtkit.pipeline.folder import is_run_folder, open_run
    from vtkit.search.folders import is_index_folder, searched_by
    from vtkit.search.index_info import IndexRecord
    from vtkit.search.segments import generation_of

    place = Path(name)
    home = place.absolute().parent if place.name == "model" else place
    if is_run_folder(home):
        run = open_run(home)
        return run.model(run.final_model) if home == place else name, run.index, run.language
    if is_index_folder(home) and (home / "model").is_dir():
        lexical = IndexRecord.load(generation_of(home)).lexical
        return str(home / "model"), searched_by(home)[1], None if lexical is None else lexical.language
    return name, None, None


def open_served(
    names: Sequence[str], stages: Sequence[str] = (), collection: str | None = None, max_length: int | None = None
) -> tuple[str, SparseEncoder, dict[str, Searcher], str | None, int | None, int | None, float]:
    """Load what a server serves: folders of runs, or of indexes that ``vtkit index`` made; one of ``names`` may be a
    model's folder or hub id instead. Texts are encoded by that model, else by the model of the first run, queries then
    as its index needs them. ``stages`` and ``collection`` go for each run, as in :func:`searched`. Documents are cut
    at ``max_length`` tokens, or where the run cuts them.

    Returns:
        Name of the model or of the first run, the encoder, the searchers by name, the name of the searcher for which
        queries are encoded (None for a model of its own); and of documents, the tokens that are read (None: the
        encoder's limit), the number of their largest weights and the share of the sum of their weights that are kept.
    """
    from vtkit.encoder.model_folder import find_model
    from vtkit.pipeline.folder import is_run_folder
    from vtkit.search.folders import candidates_of, is_index_folder

    folders = [Path(name) for name in names if is_run_folder(Path(name)) or is_index_folder(Path(name))]
    models = [name for name in names if Path(name) not in folders]
    if len(models) > 1:
        raise RecipeError(f"only one model can be served beside runs and indexes, not {', '.join(models)}. Name one.")
    wanted = {}
    for folder in folders:
        for stage in stages or (None,):
            called = folder.absolute().name + (f":{stage}" if len(stages) > 1 else "")
            unique = called if called not in wanted else f"{folder}{':' + stage if stage else ''}"
            wanted[unique] = searched(folder, model=stage, collection=collection)
    name = models[0] if models else next(iter(wanted.values())).model
    find_model(name, "model")  # before imports that take seconds
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.documents import Dimensions
    from vtkit.encoder.sides import EncoderQueries
    from vtkit.encoder.transformer_queries import TransformerQueries
    from vtkit.search.searcher import Searcher

    encoder = load_encoder(name, fastest_device(), "model")
    searchers = {called: replace(Searcher.load(*found), marks=True) for called, found in wanted.items()}
    for called, searcher in searchers.items():
        if isinstance(searcher.encoder, TransformerQueries) and wanted[called].model == name:
            searchers[called] = replace(searcher, encoder=EncoderQueries(encoder))  # one copy in memory is enough
    first = None if models else next(iter(wanted))
    settings = wanted[first].settings if first else settings_of(name)[1]
    index, length = settings or IndexSection(), max_length or (settings.document_length if settings else None)
    candidates = index.candidate_dimensions if models else candidates_of(folders[0], index)
    return first or models[0], encoder, searchers, first, length, candidates, Dimensions.of(encoder).mass(index)
