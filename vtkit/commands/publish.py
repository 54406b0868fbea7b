"""``vtkit publish``: a run's model as a repository of the Hugging Face hub."""

from pathlib import Path
from typing import Annotated

from vtkit.commands.options import RunArgument, argument, option
from vtkit.system import console
from vtkit.system.errors import RecipeError
from vtkit.system.outputs import write_file


def publish(
    run: RunArgument,
    repository: Annotated[str, argument("Repository to make.", "OWNER/NAME")],
    license: Annotated[
        str | None, option("The hub's identifier of a licence. Default: the source model's.", "ID")
    ] = None,
    private: Annotated[bool, option("Make a private repository.", None, "--private")] = False,
    out: Annotated[Path | None, option("Write the card to a file.", "FILE", "--card")] = None,
    yes: Annotated[
        bool, option("Upload the model; without this option, only show what would be uploaded.", None, "--yes", "-y")
    ] = False,
) -> None:
    """Upload a run's final model to the Hugging Face hub.

    The card has use, data, figures with intervals, licence and limits. Log in first: hf auth login, or HF_TOKEN.
    """
    from vtkit.pipeline.publish import CARD, prepare, upload

    publication = prepare(run, repository, license=license, private=private)
    if out is not None:
        write_file(out, publication.card)
    kind = "private" if private else "public"
    console.write(f"{repository} ({kind}): {len(publication.files) + 1} files, {console.size(publication.bytes)}")
    for name, file in publication.files.items():
        console.write(f"  {console.size(file.stat().st_size):>9}  {name}")
    console.write(f"  {console.size(len(publication.card.encode())):>9}  {CARD}\n\n{publication.card}")
    origin = "its card names none" if publication.source_license is None else publication.source_license
    console.write(f"licence: {publication.license or 'none'} (source model: {origin})")
    if not yes:
        console.say("nothing was uploaded: check the card, then add --yes.")
        return
    if publication.license is None:
        raise RecipeError(
            "nothing was uploaded: the source's licence is unknown. Look it up and give it with --license."
        )
    console.write(f"uploaded: {upload(publication)}")
