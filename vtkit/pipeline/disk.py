"""Before a run: how much disk its steps fill, about, and how long the same stages took before.

The estimate is coarse on purpose. A model counts as its source's weight files and the rows that a larger vocabulary
adds; the checkpoints of a training as nine models (three at a time, each with the two moments of Adam); an index as its
texts and 256 active dimensions a document or passage, which only the trained encoder knows.
"""

import gzip
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vtkit.data import hub
from vtkit.data.documents import LARGE
from vtkit.data.sources import source_of
from vtkit.pipeline.plan import Step
from vtkit.pipeline.store import Store, read_manifest
from vtkit.recipe.load import load_recipe, required_things
from vtkit.report.wording import duration
from vtkit.settings.named import is_local, local_path
from vtkit.settings.recipe import Recipe
from vtkit.system import console
from vtkit.system.console import size
from vtkit.system.errors import DataError, VtkitError, free_bytes

CHECKPOINTS = 9
"""Models that the checkpoints of a training take: the last two and the one that is being written, each with the two
moments of every weight."""

DOCUMENT_BYTES = 256 * 8  # dimensions and weights of a document or passage
WORD_BYTES = 6  # of a word in a text, with its space
BM25_SHARE = 8  # bytes of BM25's index on disk, while it is made, for one byte of text
SAMPLE = 2**21  # bytes at the beginning of a file by which its lines are estimated
WRITES_VECTORS = ("encode", "index", "index:deployed")  # stages that write all documents of an evaluation set


@dataclass
class Estimate:
    """An estimate of the bytes that the steps of a run write."""

    models: int = 0
    checkpoints: int = 0  # of one training at a time; they are removed at its end
    indexes: int = 0
    downloads: int = 0  # of models and tokenizers whose sizes the hub says
    training_data: int = 0  # large collections that are mapped instead of held in memory
    unknown: dict[str, None] = field(default_factory=dict)  # names whose size is unknown, and not counted
    indexed: dict[str, None] = field(default_factory=dict)  # collections over which BM25 is built on disk

    @property
    def bytes(self) -> int:
        """The sum of all parts."""
        return self.models + self.checkpoints + self.indexes + self.downloads + self.training_data

    def words(self, free: int) -> str:
        """The line of a plan, and one for each collection that BM25 ranks for training."""
        parts = {name: count for name, count in vars(self).items() if isinstance(count, int) and count}
        kinds = ", ".join(f"{name.replace('_', ' ')} {size(count)}" for name, count in parts.items())
        line = f"disk: about {size(self.bytes)} needed{f' ({kinds})' if kinds else ''}, {size(free)} free"
        line += f"; not counted (size unknown): {', '.join(self.unknown)}" if self.unknown else ""
        for collection in self.indexed:
            line += (
                f"\nBM25 ranks {collection} for training. Indexing and searching them takes hours. To avoid it, name "
                "existing rankings in finetune.mining.files and leave 'bm25' out of finetune.mining.rankings."
            )
        return line


def estimate(steps: Collection[Step]) -> Estimate:
    """Estimate the disk space that the steps to run will fill."""
    needed = Estimate()
    for step in steps:
        recipe = step.recipe
        if step.stage.label or step.stage.trains:
            model = model_bytes(recipe)
            if model is None:
                needed.unknown[f"the models of {recipe.recipe.name}"] = None
            needed.models += model or 0
            needed.checkpoints = max(needed.checkpoints, CHECKPOINTS * (model or 0) * step.stage.trains)
        if step.stage.name == "finetune" and recipe.finetune is not None:
            documents, written = collection_size(recipe.finetune.data) or (0, 0)
            if written >= LARGE:
                on_disk = recipe.finetune.asks_bm25
                needed.training_data += written * (1 + BM25_SHARE * on_disk)
                if on_disk:
                    needed.indexed[f"{documents:,} documents of {recipe.finetune.data}"] = None
        if step.stage.name in WRITES_VECTORS:
            for corpus in step.view.corpora("evaluate.sets"):
                documents, written = collection_size(corpus.name) or (0, 0)
                if not documents:
                    needed.unknown[corpus.name] = None
                cut = recipe.index.passages
                passages = 0 if cut is None else written // (WORD_BYTES * (cut.words - cut.overlap))
                needed.indexes += max(documents, passages) * DOCUMENT_BYTES + written
    things = (thing for step in steps for thing in required_things(step.recipe)) if hub.downloads_allowed() else ()
    for name, what in dict.fromkeys((each.value, each.what) for each in things if each.what in ("model", "tokenizer")):
        if local_path(name) is None and not hub.in_cache(name):
            try:
                weights = 0
                if what == "model":
                    weights = hub.bytes_to_fetch(name, ["*.safetensors"]) or hub.bytes_to_fetch(name, ["*.bin"])
                needed.downloads += weights + hub.bytes_to_fetch(name, ["*.json", "*.txt", "*.model"])
            except VtkitError:
                needed.unknown[name] = None
    return needed


def show_disk(steps: Collection[Step], runs: Path, *, refuse: bool) -> None:
    """Say how much disk ``steps``, those that run, need; if ``refuse``, :func:`refuse_full_disk` too."""
    needed, free = estimate(steps), free_bytes(runs)
    if needed.bytes or needed.unknown:
        (console.say if needed.bytes <= free else console.warn)(needed.words(free))
    if refuse:
        refuse_full_disk(needed, free, runs)


def refuse_full_disk(needed: Estimate, free: int, folder: Path) -> None:
    """Refuse (VtkitError) a run whose models, one checkpoint and training data do not fit on the disk: it would
    end without a result."""
    least = needed.models + needed.checkpoints // 3 + needed.training_data
    if least > free:
        alone = "models and training data" if needed.training_data else "models"
        raise VtkitError(
            f"{folder} has {size(free)} free, and the {alone} of this run alone need about {size(least)}. Free some "
            "space, name a folder on another disk with --runs, or run fewer stages (--until)."
        )


def show_earlier_times(steps: Iterable[Step], store: Store, previous: Mapping[str, str]) -> None:
    """Say how long ``steps`` took when this recipe last ran them, if any of them has an output in ``previous``, by the
    names of steps. Times of other recipes would say nothing of its data."""
    took: dict[str, float] = {}
    unknown: list[str] = []
    for step in steps:
        manifest, name = read_manifest(store.root / previous.get(step.name, "")), step.stage.name.partition(":")[0]
        if manifest is None:
            unknown.append(step.dependencies.stage)
        else:
            took[name] = took.get(name, 0.0) + manifest["seconds"]
    if took:
        each = ", ".join(f"{name} {duration(seconds)}" for name, seconds in took.items())
        shown = (name if (name := stage.partition(":")[0]) not in took else stage for stage in unknown)
        never = f"; never run by this recipe: {', '.join(dict.fromkeys(shown))}" if unknown else ""
        console.say(f"time: these stages last took {duration(sum(took.values()))} ({each}){never}")


def model_bytes(recipe: Recipe) -> int | None:
    """Bytes of a model that ``recipe`` makes; None if its source is not here."""
    scratch, rows = recipe.source.scratch, getattr(recipe.vocabulary, "size", None) or 0
    if scratch is not None:
        layer = 4 * scratch.hidden**2 + 2 * scratch.hidden * scratch.feed_forward
        return 4 * (scratch.layers * layer + (scratch.max_length + rows) * scratch.hidden)
    if recipe.source.recipe is not None:
        return model_bytes(load_recipe(Path(recipe.source.recipe)).recipe)
    folder = _folder(str(recipe.source.model))
    if folder is None:
        return None
    files = [*folder.rglob("*.safetensors")] or [*folder.rglob("pytorch_model*.bin")]
    weights = sum(path.stat().st_size for path in files)
    with suppress(OSError, ValueError, KeyError, TypeError):
        config = json.loads((folder / "config.json").read_text("utf-8"))
        weights *= 1 + (config.get("dtype", config.get("torch_dtype")) in ("float16", "bfloat16"))  # kept as float32
        weights += 4 * max(rows - config["vocab_size"], 0) * config["hidden_size"]
    return weights or None


def collection_size(name: str) -> tuple[int, int] | None:
    """About how many documents a local collection has, and the bytes of their texts; None if it is not here."""
    if not is_local(name):
        return None
    try:
        sizes = [_lines(path) for path in source_of(name, "corpus").files()]
    except DataError:
        return None
    return sum(lines for lines, _ in sizes), sum(written for _, written in sizes)


def _lines(path: Path) -> tuple[int, int]:
    """About how many lines and bytes of text a file has, by its beginning; a damaged file counts as it is."""
    whole = path.stat().st_size
    with suppress(Exception):
        if path.suffix == ".parquet":
            import pyarrow.parquet

            record = pyarrow.parquet.read_metadata(path)
            groups = (record.row_group(number).total_byte_size for number in range(record.num_row_groups))
            return record.num_rows, sum(groups)
        with path.open("rb") as raw:
            if path.suffix == ".zst":
                import pyarrow

                text = pyarrow.CompressedInputStream(raw, "zstd").read(SAMPLE)
            else:
                text = gzip.GzipFile(fileobj=raw).read(SAMPLE) if path.suffix == ".gz" else raw.read(SAMPLE)
            share = whole / max(min(raw.tell(), whole), 1)
        return round(text.count(b"\n") * share), round(len(text) * share)
    return 0, whole


def _folder(model: str) -> Path | None:
    """The folder of a model, or its newest revision in the cache of the hub."""
    if is_local(model):
        return Path(model)
    snapshots = hub.cache_folder() / f"models--{model.replace('/', '--')}" / "snapshots"
    revisions = (entry for entry in snapshots.glob("*") if entry.is_dir())
    return max(revisions, key=lambda folder: folder.stat().st_mtime, default=None)
