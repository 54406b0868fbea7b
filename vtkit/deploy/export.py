"""The export of a model and its index to an engine: the portable part, the documents in bulk, and a README. The folder
is filled beside its place and moved when it is complete."""

import json
import shutil
from pathlib import Path

import numpy as np

from vtkit.deploy.documents import Collection
from vtkit.deploy.portable import SCRIPTS, Source, write_portable, write_replay
from vtkit.deploy.readme import readme
from vtkit.deploy.result import Export
from vtkit.deploy.target import Target
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
    if source.searcher is None and target.needs_documents:
        raise RecipeError(
            f"{target.name} needs documents, which a model alone does not have. Export a run, or an index of vtkit "
            "index."
        )
    if source.searcher is None and top_dimensions is not None:
        raise RecipeError("top_dimensions is for documents, which a model alone does not have.")
    collection = None
    if source.searcher is not None:
        postings, documents = source.searcher.index.postings, source.searcher.documents
        collection = Collection.of(postings, documents, target, source.searcher.kinds, top_dimensions)
    with new_folder(out) as folder:
        console.say("writing the model as ONNX")
        texts, difference, cosine = write_portable(source, folder, target)
        program = SCRIPTS / f"{target.name}.py"
        if program.is_file() and (collection is not None or target.registers_models):
            shutil.copyfile(program, folder / "index.py")
            if "from rest import" in (folder / "index.py").read_text("utf-8"):
                shutil.copyfile(SCRIPTS / "rest.py", folder / "rest.py")
        if collection is not None and collection.columns:
            (folder / "fields.json").write_text(json.dumps(collection.columns, indent=1), encoding="utf-8")
        facts = target.write(source, collection, folder) | {"program": program.is_file()}
        replaced = {} if collection is None else collection.replaced
        exported = Export(
            target=target.name,
            documents=0 if collection is None else int(np.count_nonzero(collection.vectors.getnnz(axis=1))),
            dimensions=json.loads((folder / "settings.json").read_text("utf-8"))["dimensions"],
            queries=len(source.queries),
            largest_difference=difference,
            quantised_cosine=cosine,
            step=None if collection is None else collection.step,
            results_kept=write_replay(source, folder, collection),
            characters_replaced=sum(replaced.values()),
            documents_replaced=len(replaced),
        )
        write_record(folder / "export.json", exported.to_json(), files_of(folder))
        text = readme(source, target, texts, collection, exported, facts)
        (folder / "README.md").write_text(text, encoding="utf-8")
    return exported
