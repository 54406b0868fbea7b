"""How much disk a run will need: an estimate from what is known before anything is made.

Weights and checkpoints follow from the sizes of source and vocabulary and are good to a few per cent. Indexes depend on
how many dimensions of a document are active, which only the trained encoder knows: ``DIMENSIONS`` are assumed.
"""

import json
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from vtkit.data import hub
from vtkit.data.documents import LARGE
from vtkit.pipeline.plan import Step
from vtkit.pipeline.sizes import NUMBER, counts_of
from vtkit.pipeline.stage import Training
from vtkit.recipe.load import load_recipe, required_things
from vtkit.settings.analysers import DOCUMENTS_A_PART
from vtkit.settings.named import is_local, local_path
from vtkit.settings.recipe import Recipe
from vtkit.settings.vocabulary import ExistingVocabulary, SourceVocabulary, TrainedVocabulary, TrimmedVocabulary
from vtkit.system.console import size
from vtkit.system.errors import VtkitError

CHECKPOINTS_KEPT = 3  # of a training stage at a time: the last two, and the one that is being written


BM25_SHARE = 8  # bytes of BM25's index on disk, while it is made, for one of text (English, stems and pieces)


@dataclass(frozen=True)
class Encoder:
    """Sizes of a model."""

    vocabulary: int
    width: int
    other: int  # parameters beside the embeddings

    @property
    def bytes(self) -> int:
        """Of its weights on disk, in float32 and with tied embeddings."""
        return NUMBER * (self.vocabulary * self.width + self.other)


@dataclass(frozen=True)
class Estimate:
    """Bytes that the steps of a run will write."""

    models: int = 0
    checkpoints: int = 0  # of the stage that has most of them; they are removed at its end
    indexes: int = 0
    runs: int = 0
    downloads: int = 0  # of models and tokenizers that may be fetched and whose sizes the hub says
    prepared: int = 0  # what is mapped instead of held of large collections that are trained on
    indexed: tuple[str, ...] = ()  # those of them that BM25 is built over on disk
    unknown: tuple[str, ...] = ()  # what could not be estimated, and is not counted

    @property
    def bytes(self) -> int:
        """All together, at the most."""
        return self.models + self.checkpoints + self.indexes + self.runs + self.downloads + self.prepared

    def words(self, free: int) -> str:
        """One line for the plan."""
        parts = [("models", self.models), ("checkpoints while training", self.checkpoints)]
        parts += [("indexes", self.indexes), ("run files", self.runs), ("downloads", self.downloads)]
        parts += [("training data", self.prepared)]
        kinds = ", ".join(f"{name} {size(count)}" for name, count in parts if count)
        line = f"disk: about {size(self.bytes)} needed{f' ({kinds})' if kinds else ''}, {size(free)} free"
        line += f"; not counted (size unknown): {', '.join(self.unknown)}" if self.unknown else ""
        for collection in self.indexed:
            line += (
                f"\nBM25 ranks {collection} for training. Indexing and searching them takes hours. To avoid it, name "
                "existing rankings in finetune.mining.files and leave 'bm25' out of finetune.mining.rankings."
            )
        return line


def estimate(steps: Collection[Step]) -> Estimate:
    """What ``steps``, those that will run, write to the disk."""
    models = checkpoints = indexes = runs = prepared = 0
    indexed: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for step in steps:
        recipe, stage = step.recipe, step.stage.name.split(":")[0]
        if step.stage.label or step.stage.trains is not None:
            encoder = made_by(recipe)
            if encoder is None:
                unknown[f"the models of {recipe.recipe.name}"] = None
                continue
            models += encoder.bytes
            if step.stage.trains is not None:
                checkpoints = max(checkpoints, _checkpoints(step.stage.trains(recipe), encoder))
            tuned = recipe.finetune if stage == "finetune" else None
            counted = None if tuned is None else counts_of(tuned.data)
            if tuned is not None and counted is not None and counted.bytes >= LARGE:
                prepared += counted.bytes
                if tuned.asks_bm25 and counted.documents > DOCUMENTS_A_PART:
                    prepared += BM25_SHARE * counted.bytes
                    indexed[f"{counted.documents:,} documents of {tuned.data}"] = None
        elif step.stage.costs is not None:
            for corpus in step.view.corpora("evaluate.sets"):
                counted = counts_of(corpus.name)
                if counted is None:
                    unknown[corpus.name] = None
                else:
                    cost = step.stage.costs(recipe, counted)
                    indexes, runs = indexes + cost.indexes, runs + cost.runs
    downloads = 0
    things = (thing for step in steps for thing in required_things(step.recipe)) if hub.downloads_allowed() else ()
    models_named = ((thing.value, thing.what) for thing in things if thing.what in ("model", "tokenizer"))
    for name, what in dict.fromkeys(models_named):
        if local_path(name) is None and not hub.in_cache(name):
            fetched = _to_fetch(name, what)
            if fetched is None:
                unknown[name] = None
            downloads += fetched or 0
    return Estimate(models, checkpoints, indexes, runs, downloads, prepared, tuple(indexed), tuple(unknown))


def _to_fetch(name: str, what: str) -> int | None:
    """Bytes of a model, or of the files of a tokenizer, that are to be fetched; None if the hub does not say."""
    try:
        weights = 0
        if what == "model":
            weights = hub.bytes_to_fetch(name, ["*.safetensors"]) or hub.bytes_to_fetch(name, ["*.bin"])
        return weights + hub.bytes_to_fetch(name, ["*.json", "*.txt", "*.model"])
    except VtkitError:
        return None


def free_bytes(folder: Path) -> int:
    """What is free where ``folder`` is, or will be."""
    return shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free


def refuse_full_disk(needed: Estimate, free: int, folder: Path) -> None:
    """Nothing, if the models, and one checkpoint of a training stage, have room; else VtkitError: the run would end
    without a result."""
    least = needed.models + needed.checkpoints // CHECKPOINTS_KEPT + needed.prepared
    if least > free:
        alone = "models and training data" if needed.prepared else "models"
        raise VtkitError(
            f"{folder} has {size(free)} free, and the {alone} of this run alone need about {size(least)}. Free some "
            "space, name a folder on another disk with --runs, or run fewer stages (--until)."
        )


def made_by(recipe: Recipe) -> Encoder | None:
    """Sizes of the models that ``recipe`` makes; None where source or vocabulary are not here."""
    source = source_of(recipe)
    vocabulary = _vocabulary(recipe, source)
    if source is None or vocabulary is None:
        return None
    if recipe.transfer is not None and recipe.transfer.scope == "head-only":  # the input embeddings stay
        return Encoder(vocabulary, source.width, source.other + source.vocabulary * source.width)
    return Encoder(vocabulary, source.width, source.other)


def source_of(recipe: Recipe) -> Encoder | None:
    """Sizes of the model that ``recipe`` starts from; None where it is not here."""
    scratch = recipe.source.scratch
    if scratch is not None:
        layer = 4 * scratch.hidden**2 + 2 * scratch.hidden * scratch.feed_forward
        return Encoder(0, scratch.hidden, scratch.layers * layer + scratch.max_length * scratch.hidden)
    if recipe.source.recipe is not None:
        return made_by(load_recipe(Path(recipe.source.recipe)).recipe)
    folder = _folder(str(recipe.source.model))
    config = {} if folder is None else _json(folder / "config.json")
    if folder is None or not config:
        return None
    files = [*folder.rglob("*.safetensors")] or [*folder.rglob("pytorch_model*.bin")]
    parameters = sum(map(_parameters, files))
    sizes = {name: value for name, value in config.items() if isinstance(value, int)}
    widths = (sizes[name] for name in ("hidden_size", "dim", "embedding_size") if name in sizes)
    rows, width = sizes.get("vocab_size", 0), next(widths, 0)
    return Encoder(rows, width, max(parameters - rows * width, 0)) if parameters and width else None


def _parameters(file: Path) -> int:
    """How many numbers a file of weights holds: as its header says, else as if all were in single precision."""
    size = file.stat().st_size
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError), file.open("rb") as opened:
        header = int.from_bytes(opened.read(8), "little") if file.suffix == ".safetensors" else 0
        if 0 < header < size:
            tensors = json.loads(opened.read(header))
            return sum(prod(tensor["shape"]) for name, tensor in tensors.items() if name != "__metadata__")
    return size // NUMBER


def _vocabulary(recipe: Recipe, source: Encoder | None) -> int | None:
    section = recipe.vocabulary
    if isinstance(section, SourceVocabulary):
        return None if source is None else source.vocabulary or None
    if isinstance(section, TrimmedVocabulary):
        return section.size or (None if source is None else source.vocabulary or None)
    if isinstance(section, TrainedVocabulary):
        return section.size
    if not isinstance(section, ExistingVocabulary) and section.size is not None:
        return section.size
    place = Path(section.tokenizer) if is_local(section.tokenizer) else _folder(section.tokenizer)
    if place is None:
        return None
    for path in (place,) if place.is_file() else (place / "tokenizer.json", place / "vocab.txt", place / "vocab.json"):
        if path.name == "tokenizer.json" and (vocabulary := _json(path).get("model", {}).get("vocab")):
            return len(vocabulary)
        if path.suffix == ".txt" and path.is_file():
            return path.read_bytes().count(b"\n")
        if path.name == "vocab.json" and (vocabulary := _json(path)):
            return len(vocabulary)
    return source.vocabulary or None if source is not None else None


def _checkpoints(training: Training, encoder: Encoder) -> int:
    """Weights and two moments of everything that learns, as often as checkpoints are kept at a time, the weights that
    validations find best, and those of several trainings."""
    learns = encoder.vocabulary * encoder.width if training.embeddings_only else encoder.bytes // NUMBER
    kept = CHECKPOINTS_KEPT
    if training.steps is not None:
        kept = min(kept, -(-training.steps // training.checkpoint_every))
    ended = encoder.bytes * training.trainings if training.trainings > 1 else 0
    return kept * (encoder.bytes + 2 * NUMBER * learns) + training.validated * NUMBER * learns + ended


def _folder(model: str) -> Path | None:
    """Where a model is: its folder, or the newest revision in the cache of the hub."""
    if is_local(model):
        return Path(model)
    snapshots = hub.cache_folder() / f"models--{model.replace('/', '--')}" / "snapshots"
    revisions = (entry for entry in snapshots.glob("*") if entry.is_dir())
    return max(revisions, key=lambda folder: folder.stat().st_mtime, default=None)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
