"""Searching runs on disk, and loading them for a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.settings.engines import ENGINE
from vtkit.settings.index import IndexSection
from vtkit.system.errors import DataError, RecipeError, VtkitError
from vtkit.system.runtime import fastest_device

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

    from vtkit.search.searcher import Searcher
    from vtkit.search.segments import Manifest


def open_searcher(
    folder: Path, *, model: str | None, collection: str | None, query_language: str | None = None
) -> Searcher:
    """The searcher of :func:`searched`; the same arguments and errors. ``query_language`` is the ISO 639-1 code of
    queries that go through the run's own translations."""
    from vtkit.search.searcher import Searcher
    from vtkit.search.segments import Manifest

    bridge = None
    if query_language is not None:
        from vtkit.pipeline.folder import is_run_folder, open_run
        from vtkit.search.bridge_queries import FOLDER

        places = [folder / FOLDER]
        if is_run_folder(folder) and "transfer" in (steps := open_run(folder).steps):
            places.insert(0, steps["transfer"] / FOLDER)
        bridge = next((place for place in places if place.is_dir()), places[-1]), query_language
    while True:
        home, manifest = searched(folder, model=model, collection=collection)
        try:
            return Searcher.load(home, manifest, bridge)
        except (DataError, OSError):  # of a generation that was replaced, and removed with the next change
            if Manifest.load(home).generation == manifest.generation:
                raise


def searched(folder: Path, *, model: str | None, collection: str | None) -> tuple[Path, Manifest]:
    """The folder and the manifest of an index of a run on disk, or of one that ``vtkit index`` or ``vtkit build`` made.

    Args:
        model: stage whose model and index to use, as it was judged; None for the final one, in the index to be used.
        collection: evaluation set; None for the first.
    """
    from vtkit.search.segments import Manifest, is_index_folder, open_manifest

    if is_index_folder(folder):
        if model is not None or collection is not None:
            raise RecipeError(f"{folder} is a single index: --model and --collection apply to runs only.")
        return folder, open_manifest(folder)
    from vtkit.pipeline.folder import open_run
    from vtkit.pipeline.steps.deploy_index import DEPLOY
    from vtkit.pipeline.store import result_of
    from vtkit.search.measures.cost import Sparsity

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
    sets = result_of(index, list[str]) if deployed else list(result_of(index, dict[str, Sparsity]))
    chosen = collection or sets[0]
    if chosen not in sets:
        raise VtkitError(f"{folder} has no collection {chosen!r}. It has {', '.join(sets)}.")
    return index / chosen, Manifest.load(index / chosen).searched_by(run.model(name), run.index)


# settings of [index] that are a run's own
OF_A_RUN = {"documents", "query_log", *(name.removeprefix("index.") for name in ENGINE)}


def encoder_settings(name: str) -> tuple[str, IndexSection | None, str | None]:
    """The name of an encoder (the final model of a run, if ``name`` is its folder); and the settings of ``[index]`` and
    the language of the run, or of the index that ``vtkit build`` made, that the encoder is the model of."""
    from vtkit.pipeline.folder import is_run_folder, open_run
    from vtkit.search.segments import is_index_folder, open_manifest

    place = Path(name)
    home = place.absolute().parent if place.name == "model" else place
    if is_run_folder(home):
        run = open_run(home)
        return run.model(run.final_model) if home == place else name, run.index, run.language
    if is_index_folder(home) and (home / "model").is_dir():
        manifest = open_manifest(home)
        return str(home / "model"), manifest.index, None if manifest.lexical is None else manifest.lexical.language
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
    from vtkit.search.folders import candidates_of
    from vtkit.search.segments import is_index_folder

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
    used = {called: str(manifest.model) for called, (_, manifest) in wanted.items()}
    name = models[0] if models else next(iter(used.values()))
    find_model(name, "model")  # before imports that take seconds
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.documents import Dimensions
    from vtkit.encoder.sides import EncoderQueries
    from vtkit.encoder.transformer_queries import TransformerQueries
    from vtkit.search.searcher import Searcher

    encoder = load_encoder(name, fastest_device(), "model")
    searchers = {called: replace(Searcher.load(*found), marks=True) for called, found in wanted.items()}
    for called, searcher in searchers.items():
        if isinstance(searcher.encoder, TransformerQueries) and used[called] == name:
            searchers[called] = replace(searcher, encoder=EncoderQueries(encoder))  # one copy in memory is enough
    first = None if models else next(iter(wanted))
    settings = wanted[first][1].index if first else encoder_settings(name)[1]
    index, length = settings or IndexSection(), max_length or (settings.document_length if settings else None)
    candidates = candidates_of(*wanted[first]) if first else index.candidate_dimensions
    return first or models[0], encoder, searchers, first, length, candidates, Dimensions.of(encoder).mass(index)
