"""What a server serves: a model, or runs and indexes with theirs, loaded by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.system.errors import RecipeError
from vtkit.system.runtime import Precision, fastest_device

if TYPE_CHECKING:
    from vtkit.serve.served import Served


def open_served(
    names: Sequence[str],
    *,
    stages: Sequence[str] = (),
    collection: str | None = None,
    text_tokens: int | None = None,
    precision: Precision = "float32",
) -> Served:
    """Load what is to be served.

    Args:
        names: folders of runs, or of indexes that ``vtkit index`` made; one of them may be a model's folder or hub id
            instead. Texts are encoded by that model, else by the model of the first run.
        stages: whose models and indexes of each run, as :func:`vtkit.pipeline.search.searched` takes them; the final
            ones by default.
        collection: evaluation set of each run; the first by default.
        text_tokens, precision: as of :class:`vtkit.serve.served.Served`.

    Raises:
        RecipeError: several models, or stages of an index that is in no run.
        VtkitError: something named is not there, or damaged.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.sides import EncoderQueries
    from vtkit.encoder.transformer_queries import TransformerQueries
    from vtkit.pipeline.folder import is_run_folder
    from vtkit.pipeline.search import searched as find_searched
    from vtkit.search.folders import is_index_folder
    from vtkit.search.searcher import Searcher
    from vtkit.serve.served import Served

    searched = [Path(name) for name in names if is_run_folder(Path(name)) or is_index_folder(Path(name))]
    models = [name for name in names if Path(name) not in searched]
    if len(models) > 1:
        raise RecipeError(
            f"only one model can be served beside runs and indexes, not {', '.join(models)}. Name one of them, and any "
            "number of runs."
        )
    wanted = {}
    for folder in searched:
        for stage in stages or (None,):
            called = folder.absolute().name + (f":{stage}" if len(stages) > 1 else "")
            unique = called if called not in wanted else f"{folder}{':' + stage if stage else ''}"
            wanted[unique] = find_searched(folder, model=stage, collection=collection)
    name = models[0] if models else next(iter(wanted.values())).model
    encoder = load_encoder(name, fastest_device(), "model")
    searchers = {called: Searcher.load(*loaded_from) for called, loaded_from in wanted.items()}
    for called, searcher in searchers.items():
        if isinstance(searcher.encoder, TransformerQueries) and wanted[called].model == name:
            searchers[called] = replace(searcher, encoder=EncoderQueries(encoder))  # one copy in memory is enough
    return Served(models[0] if models else next(iter(wanted)), encoder, searchers, text_tokens, precision)
