"""``vtkit check``: every file of a run, an index or vectors, compared with its checksum."""

from pathlib import Path
from typing import Annotated

from vtkit.commands.options import argument
from vtkit.system import console
from vtkit.system.checksums import OUTPUTS, REMEDIES, verify
from vtkit.system.errors import DataError


def check(folder: Annotated[Path, argument("Folder of runs, of a run, an index or vectors.", "FOLDER")]) -> None:
    """Compare every file of a run or an index with its checksum.

    Whatever a search reads is compared when it is opened, but a file whose size and time have not changed is not read
    again. This command reads all of them, with the stage outputs that a run needs. The exit code is 1 if any is
    damaged.
    """
    from vtkit.pipeline.folder import is_run_folder, open_run

    places = [folder, *(open_run(folder).steps.values() if is_run_folder(folder) else ())]
    records = {path.absolute(): path for place in places for name in REMEDIES for path in sorted(place.rglob(name))}
    checked, damaged = [], []
    for path in records.values():
        try:
            files = verify(path, fully=True).get(OUTPUTS)
        except DataError as error:
            damaged.append(str(error))
            continue
        if files is not None:
            size = sum(each["bytes"] for each in files.values())
            checked.append({"record": str(path), "files": len(files), "bytes": size})
    if damaged:
        raise DataError("\n".join(damaged))
    if not checked:
        raise DataError(
            f"{folder} has no checksums: vtkit did not write it, or an older version did. Name the folder of a run or "
            "of an index, or make it again."
        )
    if console.answered(checked):
        return
    for each in checked:
        console.write(f"{each['record']}: {each['files']} files, {console.size(each['bytes'])}, as they were written")
