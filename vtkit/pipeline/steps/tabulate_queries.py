"""Stage ``query-table``: the final model with its queries encoded by a static table (SPLADE-doc), trained or not."""

from collections.abc import Mapping
from pathlib import Path

from vtkit.pipeline.stage import Corpus, Stage, View
from vtkit.pipeline.steps.texts import corpora_of, read_texts
from vtkit.settings.recipe import Recipe
from vtkit.system import console


def tabulate_queries(recipe: View, inputs: Mapping[str, Path], out: Path) -> str:
    """Fill ``out/model`` with the encoder of ``inputs["model"]`` and the table of ``index.query_encoder``,
    which is returned.

    Documents are encoded as before, so that the vectors of ``inputs["model"]`` serve both.
    """
    from vtkit.encoder.checkpoint import load_encoder, save_encoder
    from vtkit.encoder.kinds import refuse_unicoil
    from vtkit.encoder.query_tables import query_encoder_of, with_static_queries

    kind = recipe.index.query_encoder
    assert kind is not None
    encoder = load_encoder(str(inputs["model"] / "model"))
    refuse_unicoil(encoder, "index.query_encoder")
    tabulated = with_static_queries(encoder, kind, read_texts(recipe.corpora("index.query_encoder")))
    console.say(f"queries are encoded by {query_encoder_of(tabulated)}")
    save_encoder(tabulated, out / "model")
    return kind


def _searched(recipe: Recipe) -> tuple[Corpus, ...]:
    """The documents to search, else the training documents; a binary table counts no texts."""
    if recipe.index.query_encoder != "idf":
        return ()
    if recipe.evaluate is not None:
        return corpora_of(recipe, recipe.evaluate.sets)
    if recipe.index.documents is not None:
        return corpora_of(recipe, [recipe.index.documents])
    return corpora_of(recipe, (recipe.finetune.data,) if recipe.finetune is not None else ())


QUERY_TABLE = Stage(
    "query-table",
    version=2,
    reads=("index.query_encoder",),
    corpora={"index.query_encoder": _searched},
    function=tabulate_queries,
    label="with queries by a table",
)
