"""The export of a model and its index to an engine: the portable part, the documents in bulk, and a README. The folder
is filled beside its place and moved when it is complete; finished parts survive a kill."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from vtkit import __version__
from vtkit.data.text import digest
from vtkit.export.documents import Collection
from vtkit.export.network import require_onnx
from vtkit.export.portable import SCRIPTS, Portable, Source, write_portable, write_replay
from vtkit.export.readme import Facts, readme
from vtkit.export.result import Export, Target
from vtkit.system import console
from vtkit.system.errors import RecipeError
from vtkit.system.outputs import resumed_folder

BITS = 8  # of document weights, for engines that need whole numbers

NINE_BITS: tuple[Target, ...] = ("elasticsearch", "opensearch")
"""Engines that keep weights as Lucene's features, with 9 significant bits."""

REST: tuple[Target, ...] = ("elasticsearch", "opensearch", "vespa")  # engines whose index.py sends HTTP requests


def export(source: Source, target: Target, out: Path, top_dimensions: int | None = None) -> Export:
    """Fill the new folder ``out`` with everything that ``target`` needs of ``source``.

    Raises:
        RecipeError: ``out`` exists, or the target needs documents and there are none.
        DataError: a uniCOIL encoder, weights below zero, or a model that the target cannot hold.
        MissingExtra: packages are missing.
        VtkitError: the network cannot be written, or gives other weights than the model.
    """
    require_onnx()
    if source.searcher is None and target == "lucene":
        raise RecipeError(
            f"{target} needs documents, which a model alone does not have. Export a run, or an index of vtkit index."
        )
    bits = BITS if target == "lucene" else None
    nine = target in NINE_BITS
    collection = None if source.searcher is None else Collection.of(source.searcher, top_dimensions, bits, nine)
    if collection is None and top_dimensions is not None:
        raise RecipeError("{top_dimensions} is for documents, which a model alone does not have.", "top_dimensions")
    with resumed_folder(out, _made_from(source, collection, target)) as folder:
        console.say("writing the model as ONNX")
        portable = write_portable(source, folder, target)
        facts = _write(source, portable, collection, target, folder)
        kept = write_replay(source, folder, collection)
        exported = Export(
            target,
            0 if collection is None else collection.found,
            json.loads((folder / "settings.json").read_text("utf-8"))["dimensions"],
            len(source.queries),
            portable.checked.largest_difference,
            portable.checked.quantised_cosine,
            None if collection is None else collection.step,
            kept,
        )
        (folder / "export.json").write_text(json.dumps(exported.to_json(), indent=1), encoding="utf-8")
        (folder / "README.md").write_text(readme(source, portable, collection, exported, facts), encoding="utf-8")
    return exported


def _write(source: Source, portable: Portable, collection: Collection | None, target: Target, folder: Path) -> Facts:
    write: Callable[[Source, Portable, Collection | None, Path], Facts]
    match target:
        case "onnx":
            from vtkit.export.onnx import write_for_onnx as write
        case "qdrant":
            from vtkit.export.qdrant import write_for_qdrant as write
        case "elasticsearch":
            from vtkit.export.elasticsearch import write_for_elasticsearch as write
        case "opensearch":
            from vtkit.export.opensearch import write_for_opensearch as write
        case "postgres":
            from vtkit.export.postgres import write_for_postgres as write
        case "lucene":
            from vtkit.export.lucene import write_for_lucene as write
        case "milvus":
            from vtkit.export.milvus import write_for_milvus as write
        case "vespa":
            from vtkit.export.vespa import write_for_vespa as write
        case _:
            assert_never(target)
    if collection is not None:
        shutil.copyfile(SCRIPTS / f"{target}.py", folder / "index.py")
        if target in REST:
            shutil.copyfile(SCRIPTS / "rest.py", folder / "rest.py")
    return write(source, portable, collection, folder)


def _made_from(source: Source, collection: Collection | None, target: Target) -> str:
    whole = hashlib.sha256(
        f"{__version__} {target} {source.name} {source.query_length} {source.document_length}".encode()
    )
    whole.update(json.dumps(source.queries).encode())
    for name, tensor in sorted(source.encoder.state_dict().items()):
        whole.update(f"{name} {tuple(tensor.shape)}".encode())
        whole.update(memoryview(tensor.detach().cpu().contiguous().numpy()).cast("B"))
    whole.update(source.encoder.tokenizer.backend_tokenizer.to_str().encode())
    if collection is not None:
        whole.update(f"{collection.top_dimensions} {collection.step}".encode())
        whole.update(digest(str(collection.documents.path.parent)).encode())
    return whole.hexdigest()
