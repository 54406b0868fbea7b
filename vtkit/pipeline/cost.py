"""What each step of a plan will take in time and memory: estimated before it runs, compared with the truth after it.

A step's work is counted from the recipe and the files it names: tokens through the transformer and its head, and items
that plain programs go through. What this machine does of either in a second is measured in about a second of processor
time, where a run is long enough for that to pay; on a machine with other work, steps take longer by what that takes.
The factors are those of runs on two processor cores (docs/log.md). A step may end far from its estimate where much
depends on what only the run itself finds out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

from vtkit.data.collections import is_collection
from vtkit.pipeline.disk import Encoder, made_by
from vtkit.pipeline.plan import Step
from vtkit.pipeline.sizes import NUMBER, QUERY, TEXT_S, counts_of, results_of, tokens_a_document, written
from vtkit.report.wording import duration
from vtkit.settings.recipe import Recipe
from vtkit.settings.source import STATES_LENGTH
from vtkit.settings.transfer import ParallelTransfer
from vtkit.system import console
from vtkit.system.runtime import peak_bytes

LIBRARIES_S, LIBRARIES_BYTES = 3.0, 1000 * 2**20
"""What torch, transformers and sentence-transformers take, once a run."""

WORTH_MEASURING_S = 60.0
"""Of a run by :data:`REFERENCE`, from which on the machine is measured."""

CHECKED = {"check:vocabulary": 0.0, "check:calibrate": 0.1, "check:adapt": 0.35}
"""Share of :data:`PROBED` that a check encodes; of others a half."""

PROBED = 1500
"""Texts that gates, probes and balances encode at the most."""

TRAINING = 3
"""Products of a training step for each of a forward pass."""

PAIR_S = 7e-6
"""To learn translations from one byte of parallel text."""


@dataclass(frozen=True)
class Speed:
    """What a machine does in a second."""

    float32: float
    """Multiplications of a matrix product; ..."""

    bf16: float
    """... and where training may use bf16."""

    programs: float = 1.0
    """Plain programs, beside the machine of the factors."""


REFERENCE = Speed(1.6e10, 4e10)


@dataclass(frozen=True)
class Work:
    """What a step does."""

    encoded: float = 0.0
    """Multiplications in float32."""

    trained: float = 0.0
    """Multiplications while training."""

    programs: float = 1.0
    """Seconds of plain programs on the machine of the factors."""

    memory: int = 0
    """Bytes beside the libraries."""

    def seconds(self, speed: Speed) -> float:
        """On a machine of this speed."""
        return self.encoded / speed.float32 + self.trained / speed.bf16 + self.programs / speed.programs


@dataclass(frozen=True)
class StepCost:
    """The estimate of a step."""

    step: str
    seconds: float
    memory: int
    """Bytes of the process at its largest, until the step's end."""


def estimated(steps: Mapping[str, Step]) -> dict[str, StepCost]:
    """What each of ``steps``, those that run in their order, will take, under the same names; a step whose model is
    unknown is left out."""
    works = {name: work for name, step in steps.items() if (work := work_of(step)) is not None}
    speed = REFERENCE
    if sum(work.seconds(speed) for work in works.values()) >= WORTH_MEASURING_S:
        speed = measured()
    memory = accumulate((LIBRARIES_BYTES + work.memory for work in works.values()), max)
    costs = {
        name: StepCost(steps[name].name, work.seconds(speed), most)
        for (name, work), most in zip(works.items(), memory, strict=True)
    }
    for first in [name for name in costs if steps[name].stage.name != "vocabulary"][:1]:
        costs[first] = replace(costs[first], seconds=costs[first].seconds + LIBRARIES_S / speed.programs)
    return costs


def by_stage(costs: Iterable[StepCost]) -> list[StepCost]:
    """The seconds of all steps of a stage together, and the most memory that one of them takes."""
    stages: dict[str, StepCost] = {}
    for cost in costs:
        stage = _own(cost.step).partition(":")[0]
        before = stages.get(stage, StepCost(stage, 0.0, 0))
        stages[stage] = StepCost(stage, before.seconds + cost.seconds, max(before.memory, cost.memory))
    return list(stages.values())


@cache
def measured() -> Speed:
    """This machine, by matrix products of a transformer's shape and by counting words, about a second altogether."""
    import torch

    from vtkit.system.runtime import bf16_is_fast, fastest_device, limit_threads, threads

    limit_threads()
    device = fastest_device()

    def products(kind: torch.dtype) -> float:
        some, weights = (torch.ones(shape, dtype=kind, device=device) for shape in ((512, 384), (384, 1536)))
        some @ weights
        done, start, begun = 0, time.process_time(), time.perf_counter()
        while time.perf_counter() - begun < 0.4:
            some @ weights
            done += 512 * 384 * 1536
            if device == "cuda":
                torch.cuda.synchronize()
        spent = (time.process_time() - start) / threads() if device == "cpu" else time.perf_counter() - begun
        return done / max(spent, 1e-3)

    float32 = products(torch.float32)
    bf16 = products(torch.bfloat16) if bf16_is_fast() else float32
    texts, counted, start = [str(number % 997) for number in range(20_000)], 0, time.process_time()
    while time.process_time() - start < 0.2:
        counts: dict[str, int] = {}
        for text in texts:
            counts[text] = counts.get(text, 0) + 1
        counted += len(texts)
    programs = counted / (time.process_time() - start) / WORDS_A_SECOND
    return Speed(float32 * EFFICIENCY_FLOAT32, bf16 * EFFICIENCY_BF16, programs)


EFFICIENCY_FLOAT32, EFFICIENCY_BF16 = 0.45, 0.22
"""Of a transformer's step, beside its matrix products alone."""

WORDS_A_SECOND = 2.5e7
"""That the machine of the factors counts."""


def words(costs: Iterable[StepCost]) -> list[str]:
    """A line for each step, and one for all."""
    listed = list(costs)
    if not listed:
        return []
    width = max(len(cost.step) for cost in listed)
    lines = [f"{cost.step:<{width}}  about {duration(cost.seconds)}, {console.size(cost.memory)}" for cost in listed]
    total = duration(sum(cost.seconds for cost in listed))
    return [f"time: about {total}, memory {console.size(max(cost.memory for cost in listed))}", *lines]


def compared(cost: StepCost | None, seconds: float, processor: float) -> str:
    """The truth of a step that is done beside its estimate, if there was one.

    Args:
        seconds: that it took.
        processor: seconds of processor time, of each thread.
    """
    done = f"done in {seconds:.1f} s ({processor:.1f} s of processor time)"
    if cost is None:
        return done
    memory = f"memory {console.size(peak_bytes() or 0)} ({console.size(cost.memory)})"
    return f"{done}, estimated {duration(cost.seconds)}; {memory}"


def work_of(step: Step) -> Work | None:
    """What a step does; None where its model is not known here."""
    recipe, stage = step.recipe, _own(step.name)
    encoder = made_by(recipe)
    if encoder is None:
        return None
    kind = stage.split(":")[0]
    model = NUMBER * 2 * (encoder.vocabulary * encoder.width + encoder.other)
    match kind:
        case "vocabulary":
            return Work(programs=0.4 + 8 * TEXT_S * _bytes(step), memory=4 * _bytes(step))
        case "transfer":
            return _transfer(step, encoder, model)
        case "adapt" | "finetune" | "expand":
            return _training(step, encoder, model)
        case "calibrate":
            assert recipe.calibrate is not None
            tokens = recipe.calibrate.texts * min(recipe.calibrate.max_length, _tokens(step))
            return Work(3 * tokens * _forward(encoder), programs=1.5, memory=model)
        case "check":
            probed = PROBED * min(64.0, _tokens_of_sets(recipe)) * CHECKED.get(stage, 0.5)
            return Work(probed * _forward(encoder), programs=0.4, memory=model)
        case _ if step.stage.costs is not None:
            return _evaluation(step, encoder, model)
        case _:
            return Work(programs=1.2, memory=model)


def _transfer(step: Step, encoder: Encoder, model: int) -> Work:
    recipe = step.recipe
    fitted = recipe.source.fitted
    if fitted is not None:
        tokens = fitted.texts * min(STATES_LENGTH, _tokens(step))
        layers = 2 * encoder.width * (recipe.source.units.size if recipe.source.units is not None else encoder.width)
        steps = TRAINING * getattr(fitted, "steps", 400) * 2048 * layers
        return Work(tokens * encoder.other, steps, 5, model + int(tokens) * encoder.width * NUMBER)
    used = recipe.transfer.used if recipe.transfer is not None else ()
    pairs = sum(written(str(file)) for each in used if isinstance(each, ParallelTransfer) for file in each.files)
    return Work(programs=1.5 + 8 * TEXT_S * _bytes(step) + PAIR_S * pairs, memory=2 * model)


def _training(step: Step, encoder: Encoder, model: int) -> Work:
    recipe = step.recipe
    training = step.stage.trains(recipe) if step.stage.trains is not None else None
    section = recipe.adapt if step.stage.name == "adapt" else recipe.finetune
    if training is None or section is None:
        return Work(programs=10, memory=4 * model)
    steps = training.steps or _steps_of_epochs(recipe)
    length = min(getattr(section, "max_length", 128), _tokens(step))
    # fine-tuning reads a query and its text, masking a text, other adaptation two texts and a teacher's
    masked = recipe.adapt is not None and set(recipe.adapt.objectives) <= {"mlm", "auto"} and recipe.source.scratch
    read = QUERY + length if step.stage.name == "finetune" else length if masked else 3 * length
    tokens = section.batch_size * read
    trained = steps * tokens * TRAINING * _forward(encoder)
    held = 4 * model + int(tokens * encoder.width * 40 * NUMBER)
    return Work(trained=trained, programs=5, memory=held)


def _steps_of_epochs(recipe: Recipe) -> float:
    """Steps of fine-tuning where only its passes over the judged queries are known."""
    assert recipe.finetune is not None
    counts = counts_of(recipe.finetune.data)
    return 1000 if counts is None else recipe.finetune.epochs * counts.queries / recipe.finetune.batch_size


def _evaluation(step: Step, encoder: Encoder, model: int) -> Work:
    """Of encoding, indexing and searching the evaluation sets."""
    multiplications = programs = 0.0
    memory = model
    for corpus in step.view.corpora("evaluate.sets"):
        counts = counts_of(corpus.name)
        if counts is not None and step.stage.costs is not None:
            cost = step.stage.costs(step.recipe, counts)
            multiplications += cost.encoded * _forward(encoder) + cost.embedded * encoder.other
            programs += cost.programs
            memory = max(memory, model + 3 * counts.bytes + 200 * results_of(step.recipe, counts))
    return Work(multiplications, programs=programs, memory=memory)


def _own(step: str) -> str:
    """The name of a step without that of a source recipe."""
    return step.rpartition("/")[2]


def _forward(encoder: Encoder) -> float:
    """Multiplications of a token through the transformer and its head."""
    return encoder.other + encoder.vocabulary * encoder.width


def _tokens_of_sets(recipe: Recipe) -> float:
    sets = recipe.evaluate.sets if recipe.evaluate is not None else ()
    lengths = [tokens_a_document(counts) for name in sets if (counts := counts_of(name)) is not None]
    return sum(lengths) / len(lengths) if lengths else 64.0


def _tokens(step: Step) -> float:
    """Tokens of a text that a step reads: those of the first of its corpora that is a collection."""
    for setting in step.stage.corpora:
        for corpus in step.view.corpora(setting):
            if is_collection(corpus.name) and (counts := counts_of(corpus.name)) is not None:
                return tokens_a_document(counts)
    return _tokens_of_sets(step.recipe)


def _bytes(step: Step) -> int:
    """Bytes of the texts that a step reads."""
    return sum(written(corpus.name) for setting in step.stage.corpora for corpus in step.view.corpora(setting))
