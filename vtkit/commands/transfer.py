"""``vtkit transfer``: only the move of an encoder onto another vocabulary, without a recipe."""

from collections.abc import Mapping
from typing import Annotated, Any

from vtkit.commands.options import NewFolderOption, argument, option, option_name, set_option, with_options
from vtkit.settings.recipe import RecipeSection
from vtkit.settings.transfer import ARGUMENTS, METHODS
from vtkit.system import console
from vtkit.system.outputs import new_folder

Files = list[str] | None

GIVEN = {  # what methods need, by the names that they have as arguments, and the seed
    name: (option_name(name), METHODS[method].model_fields[setting])
    for name, ((method, setting), *_) in ARGUMENTS.items()
    if name != "corpus"
} | {"seed": ("--seed", RecipeSection.model_fields["seed"])}


@with_options(GIVEN)
def transfer(
    source: Annotated[str, argument("Encoder to start from: folder or hub id.", "SOURCE")],
    target: Annotated[str, argument("Tokenizer whose vocabulary to use: folder, file or hub id.", "TARGET")],
    out: NewFolderOption,
    settings: Mapping[str, Any],
    method: Annotated[
        list[str],
        option(
            f"{', '.join(METHODS)}. Several: the first that has evidence for a token makes its row.",
            "METHOD",
            "--method",
            "-m",
        ),
    ] = ["auto"],  # noqa: B006
    corpus: Annotated[
        Files, option("Target text, to count the bias on (and for focus to train on). Repeatable.", "FILE")
    ] = None,
    others: Annotated[Files, set_option("[transfer] or [casing]", "casing.output=mask", "SECTION.KEY=VALUE")] = None,
) -> None:
    """Move an encoder onto another vocabulary, without a recipe.

    Writes FOLDER/model, a SparseEncoder that plain sentence-transformers loads, and FOLDER/provenance.parquet, which
    vtkit provenance reads. With --corpus, the decoder bias follows the token frequencies of that text; otherwise it is
    mixed like the embeddings.
    """
    from vtkit.api import save_encoder, transfer_encoder

    with new_folder(out) as work:
        moved = transfer_encoder(
            source,
            target,
            method=method,
            corpus=corpus or (),
            settings=others or (),
            **settings,
            work_folder=work,
        )
        from vtkit.transfer.provenance import PROVENANCE  # takes seconds

        save_encoder(moved.encoder, work / "model")
        moved.write_provenance(work / PROVENANCE)
    result = moved.result
    if console.answered(result.to_json()):
        return
    rows = result.moved
    assert rows is not None  # the source is a model
    shared = sum(rows.overlap.values())
    console.write(f"{result.target_size:,} tokens, {shared:,} of them shared ({rows.overlap_share:.1%})")
    for name, count in rows.methods.items():
        console.write(f"  {name:<14} {count:>8,}")
    for entry in rows.neighbours[:8]:
        sources = "  ".join(f"{console.one_line(token, 24)} {weight:.2f}" for token, weight in entry.sources[:4])
        console.write(f"{console.one_line(entry.token, 20)}  ←  {sources}  ({entry.method})")
    console.say(f"wrote {out}/model")
