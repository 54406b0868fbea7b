"""``vtkit transfer``: only the move of an encoder onto another vocabulary, without a recipe."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtkit import console
from vtkit.commands.folders import located, new_folder
from vtkit.commands.options import DownloadOption, JsonOption, allow_downloads

if TYPE_CHECKING:
    from vtkit.recipe.sections import Recipe

Files = list[str] | None


def _option(name: str, help: str, metavar: str) -> Any:
    return typer.Option(name, help=help, metavar=metavar, show_default=False)


def transfer(
    source: Annotated[str, typer.Argument(help="Encoder to start from: folder or hub id.", show_default=False)],
    target: Annotated[
        str, typer.Argument(help="Tokenizer whose vocabulary to use: folder, file or hub id.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the model goes.")],
    method: Annotated[
        list[str],
        typer.Option(
            "--method", "-m", metavar="METHOD",
            help="auto, parallel, sembridge, semantic, subtoken, focus, ofa, wechsel, mean, random, random_all, "
            "univariate or multivariate. Several: the first that has evidence for a token makes its row.",
        ),
    ] = ["auto"],  # noqa: B006
    parallel: Annotated[Files, _option("--parallel", "Pairs of texts, source first. Repeatable.", "TSV")] = None,
    embedder: Annotated[str | None, _option("--embedder", "Embedder that knows both languages.", "MODEL")] = None,
    target_embeddings: Annotated[
        str | None, _option("--target-embeddings", "Model that owns the target vocabulary (semantic).", "MODEL")
    ] = None,
    vectors: Annotated[str | None, _option("--vectors", "Word vectors (focus, ofa, wechsel).", "FILE")] = None,
    source_vectors: Annotated[
        str | None, _option("--source-vectors", "Word vectors of the source language (wechsel).", "FILE")
    ] = None,
    dictionary: Annotated[Files, _option("--dictionary", "Bilingual dictionary (wechsel). Repeatable.", "TSV")] = None,
    corpus: Annotated[
        Files,
        _option("--corpus", "Target text, to count the bias on (and for focus to train on). Repeatable.", "FILE"),
    ] = None,
    settings: Annotated[
        Files,
        _option("--set", "Any other setting of [transfer] or [casing], e.g. transfer.alpha=2.5.", "SECTION.KEY=VALUE"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of what a method draws.")] = 42,
    as_json: JsonOption = False,
    download: DownloadOption = False,
) -> None:  # fmt: skip
    """Move an encoder onto another vocabulary, and nothing else.

    Writes FOLDER/model, a SparseEncoder that plain sentence-transformers loads, and FOLDER/provenance.parquet, which
    vtkit provenance reads. With --corpus the decoder bias follows the token frequencies of that text; without, it is
    mixed as the embeddings are.
    """
    from vtkit.recipe.load import load_recipe
    from vtkit.recipe.preflight import preflight
    from vtkit.recipe.write import toml_value

    allow_downloads(download)
    given: dict[str, Any] = {
        "recipe.name": "transfer",
        "recipe.seed": seed,
        "source.model": located(source),
        "vocabulary.kind": "existing",
        "vocabulary.tokenizer": located(target),
        "transfer.method": method if len(method) > 1 else method[0],
        "transfer.parallel": parallel,
        "transfer.embedder": embedder,
        "transfer.target_embeddings": target_embeddings,
        "transfer.vectors": vectors,
        "transfer.source_vectors": source_vectors,
        "transfer.dictionary": dictionary,
        "transfer.corpus": corpus,
        "transfer.bias.corpus": corpus,
        "transfer.bias.method": "zscore" if corpus else "mixture",
    }
    overrides = [f"{name}={toml_value(value)}" for name, value in given.items() if value is not None]
    loaded = load_recipe(Path("vtkit transfer"), [*overrides, *(settings or [])], text="")
    preflight(loaded.recipe, path=Path("vtkit transfer"), places=loaded.places)

    with new_folder(out) as work:
        facts = _moved(loaded.recipe, work)
    if as_json:
        console.write_json(facts)
        return
    shared = sum(facts["overlap"].values())
    console.write(f"{facts['target_size']:,} tokens, {shared:,} of them shared ({facts['overlap_share']:.1%})")
    for name, count in facts["methods"].items():
        console.write(f"  {name:<14} {count:>8,}")
    for entry in facts["neighbours"][:8]:
        sources = "  ".join(f"{console.one_line(token, 24)} {weight:.2f}" for token, weight in entry["sources"][:4])
        console.write(f"{console.one_line(entry['token'], 20)}  ←  {sources}  ({entry['method']})")
    console.say(f"wrote {out}/model")


def _moved(recipe: Recipe, out: Path) -> dict[str, Any]:
    """The stages of a run up to the transfer, with their checks; what the transfer found."""
    from vtkit.stages.build_vocabulary import VOCABULARY
    from vtkit.stages.check_transfer import CHECK_TRANSFER, check_moved
    from vtkit.stages.check_vocabulary import CHECK_VOCABULARY
    from vtkit.stages.transfer_embeddings import TRANSFER

    vocabulary = out / ".vocabulary"
    vocabulary.mkdir()
    inputs = {"vocabulary": vocabulary}
    VOCABULARY.function(VOCABULARY.view(recipe), {}, vocabulary)
    CHECK_VOCABULARY.function(CHECK_VOCABULARY.view(recipe), inputs, out)
    facts = TRANSFER.function(TRANSFER.view(recipe), inputs, out)
    check_moved(CHECK_TRANSFER.view(recipe), {**inputs, "transfer": out}, facts["rank"])
    shutil.rmtree(vocabulary)
    return facts
