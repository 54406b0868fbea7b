"""The export of a model and its index to an engine: the portable part, the documents in bulk, and a README. The folder
is filled beside its place and moved when it is complete."""

import json
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np

from vtkit.deploy.documents import PASSAGE_OF, Collection
from vtkit.deploy.filters import NO_NAME, engine_names
from vtkit.deploy.portable import SCRIPTS, Source, write_portable, write_replay
from vtkit.deploy.readme import Facts, readme
from vtkit.deploy.result import Export, Target
from vtkit.system import console
from vtkit.system.checksums import files_of, write_record
from vtkit.system.errors import RecipeError
from vtkit.system.outputs import new_folder


def export(source: Source, target: Target, out: Path, top_dimensions: int | None = None) -> Export:
    """Fill the new folder ``out`` with everything that ``target`` needs of ``source``.

    Raises:
        RecipeError: ``out`` exists, or the target needs documents and there are none.
        DataError: a uniCOIL encoder, weights below zero, or a model that the target cannot hold.
        VtkitError: the network cannot be written, or gives other weights than the model.
    """
    if source.searcher is None and target == "lucene":
        raise RecipeError(
            f"{target} needs documents, which a model alone does not have. Export a run, or an index of vtkit index."
        )
    if source.searcher is None and top_dimensions is not None:
        raise RecipeError("top_dimensions is for documents, which a model alone does not have.")
    engine, collection = import_module(f"vtkit.deploy.{target}"), None
    if source.searcher is not None:
        kinds, taken = source.searcher.kinds, {*getattr(engine, "OWN_NAMES", ()), PASSAGE_OF}
        collection = Collection.of(
            source.searcher.index.postings,
            source.searcher.documents,
            top_dimensions=top_dimensions,
            bits=getattr(engine, "BITS", None),
            nine_bits=getattr(engine, "NINE_BITS", False),
            refused=getattr(engine, "REFUSED", None),
            kinds=kinds,
            names=engine_names(kinds, getattr(engine, "REFUSED_IN_NAMES", NO_NAME), taken),
        )
    with new_folder(out) as folder:
        console.say("writing the model as ONNX")
        checked = write_portable(source, folder, target)
        if collection is not None or target == "opensearch":  # whose index.py also registers models
            shutil.copyfile(SCRIPTS / f"{target}.py", folder / "index.py")
            if "from rest import" in (folder / "index.py").read_text("utf-8"):
                shutil.copyfile(SCRIPTS / "rest.py", folder / "rest.py")
            if collection is not None and collection.columns:
                (folder / "fields.json").write_text(json.dumps(collection.columns, indent=1), encoding="utf-8")
        facts: Facts = engine.write(source, collection, folder)
        replaced = {} if collection is None else collection.replaced
        exported = Export(
            target,
            0 if collection is None else int(np.count_nonzero(collection.vectors.getnnz(axis=1))),
            json.loads((folder / "settings.json").read_text("utf-8"))["dimensions"],
            len(source.queries),
            checked.largest_difference,
            checked.quantised_cosine,
            None if collection is None else collection.step,
            write_replay(source, folder, collection),
            sum(replaced.values()),
            len(replaced),
        )
        write_record(folder / "export.json", exported.to_json(), files_of(folder))
        (folder / "README.md").write_text(readme(source, checked.texts, collection, exported, facts), encoding="utf-8")
    return exported
