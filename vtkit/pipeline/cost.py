"""What each step of a plan will take in time and memory: estimated before it runs, compared with the truth after it.

A step's work is counted from the recipe and the files it names: tokens through the transformer and its head, and items
that plain programs go through. What this machine does of either in a second is measured in about a second of processor
time, where a run is long enough for that to pay; on a machine with other work, steps take longer by what that takes.
The factors are those of runs on two processor cores (docs/log.md). A step may end far from its estimate where much
depends on what only the run itself finds out.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from vtkit.pipeline.disk import Encoder, made_by, source_of
from vtkit.pipeline.plan import Step
from vtkit.pipeline.sizes import (
    CHARACTERS_A_TOKEN,
    NUMBER,
    QUERY,
    TEXT_S,
    counts_of,
    results_of,
    texts_of,
    tokens_a_document,
)
from vtkit.pipeline.steps.source import starts_untrained
from vtkit.report.wording import duration
from vtkit.settings.adapt import AdaptSection
from vtkit.settings.calibrate import PROBE_TEXTS
from vtkit.settings.recipe import Recipe
from vtkit.settings.source import HEAD_STEPS, STATES_LENGTH, UNIT_STEPS
from vtkit.settings.transfer import ParallelTransfer
from vtkit.settings.vocabulary import TrimmedVocabulary
from vtkit.system import console
from vtkit.system.runtime import peak_bytes

LIBRARIES_S = 3.0  # to load torch, transformers and sentence-transformers, once a run
PLAIN_BYTES = 350 * 2**20  # what a process takes before it loads a model, and ...

LOADED_BYTES = {"models": 300 * 2**20, "trainer": 450 * 2**20, "search": 300 * 2**20, "plots": 150 * 2**20}
"""... what stays of each thing that a step loads: torch and transformers; the trainer with what an optimiser leaves;
compiled search; plots."""

TOKEN_S, TOKEN_BYTES = 16e-6, 3000  # to load a token of a vocabulary, and to look at it

WORTH_MEASURING_S = 60.0
"""Of a run by :data:`REFERENCE`, from which on the machine is measured."""

GATED, PROBED, CHECKED_LENGTH = 64, 300, 128
"""Texts that gates encode in single precision, twice and as queries; probe pairs; and where both are cut
(:mod:`vtkit.evaluation.gates`)."""

TRAINING = 3
"""Products of a training step for each of a forward pass: one for the gradient of what comes in, one for that of the
weights."""

HEAPS = 16  # distinct tokens of a text of n tokens are about so many times √n (Heaps' law)

UNIT_TOKENS, UNIT_PRODUCTS, UNIT_SORTED, HEAD_TOKENS = 1024, 5, 16_384, 512
"""Tokens a step of learning units, and its products of all units; tokens by which thresholds are found; tokens a step
of fitting a head."""

PAIR_S = 7e-6  # to learn translations from one byte of parallel text


@dataclass(frozen=True)
class Speed:
    """What a machine does in a second."""

    float32: float  # multiplications of a large matrix product; ...
    bf16: float  # ... and of one in bf16, where the machine is faster with it.
    programs: float = 1.0  # plain programs, beside the machine of the factors


REFERENCE = Speed(3.6e10, 1.8e11)

EFFICIENCY, TRAINING_EFFICIENCY = 0.45, 0.22
"""Of a transformer, which does more than multiply, and while it trains, beside its matrix products alone."""


@dataclass(frozen=True)
class Work:
    """What a step does."""

    encoded: float = 0.0  # multiplications of transformers in float32, ...
    halved: float = 0.0  # ... in bf16, ...
    trained: float = 0.0  # ... and while training.
    products: float = 0.0  # multiplications of heads, which are one large product, in float32, ...
    screened: float = 0.0
    """... and in bf16, as those that find the terms that can be positive (:mod:`vtkit.encoder.kernels.screen`)."""

    programs: float = 1.0  # seconds of plain programs on the machine of the factors
    memory: int = 0  # bytes beside the libraries

    def seconds(self, speed: Speed) -> float:
        """On a machine of this speed."""
        float32 = self.encoded / EFFICIENCY + self.products
        bf16 = self.halved / EFFICIENCY + self.trained / TRAINING_EFFICIENCY + self.screened
        return float32 / speed.float32 + bf16 / speed.bf16 + self.programs / speed.programs


@dataclass(frozen=True)
class StepCost:
    """The estimate of a step."""

    step: str
    seconds: float
    memory: int  # bytes of the process at its largest, until the step's end


def estimated(steps: Mapping[str, Step]) -> dict[str, StepCost]:
    """What each of ``steps``, those that run in their order, will take, under the same names; a step whose model is
    unknown is left out."""
    works = {name: work for name, step in steps.items() if (work := work_of(step)) is not None}
    speed = REFERENCE
    if sum(work.seconds(speed) for work in works.values()) >= WORTH_MEASURING_S:
        speed = measured()
    loaded, largest, memory = set[str](), 0, []
    for name, work in works.items():
        loaded |= _loads(steps[name])
        largest = max(largest, PLAIN_BYTES + sum(LOADED_BYTES[thing] for thing in loaded) + work.memory)
        memory.append(largest)
    costs = {
        name: StepCost(steps[name].name, work.seconds(speed), most)
        for (name, work), most in zip(works.items(), memory, strict=True)
    }
    for first in [name for name in costs if _loads(steps[name])][:1]:
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
    return Speed(float32, bf16, counted / (time.process_time() - start) / WORDS_A_SECOND)


WORDS_A_SECOND = 2.5e7  # that the machine of the factors counts


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
    recipe = step.recipe
    encoder = made_by(recipe)
    if encoder is None:
        return None
    model = NUMBER * 2 * (encoder.vocabulary * encoder.width + encoder.other)
    match _own(step.name).split(":")[0]:
        case "vocabulary":
            return _vocabulary(step, encoder)
        case "transfer":
            return _transfer(step, encoder, model)
        case "adapt" | "finetune" | "expand":
            return _training(step, encoder, model)
        case "calibrate":
            assert recipe.calibrate is not None
            tokens = 3 * PROBE_TEXTS * min(recipe.calibrate.max_length, _tokens(step))
            head = tokens * _head(step, encoder)  # quantiles need every logit
            return Work(tokens * encoder.other, products=head, programs=1.5, memory=model)
        case "check":
            return _checked(step, encoder, model)
        case "analyse":
            counted = [counts_of(corpus.name) for corpus in step.view.corpora("analyse.texts")]
            texts = sum(min(counts.bytes, PROFILED) for counts in counted if counts is not None)
            return Work(programs=0.3 + 2 * TEXT_S * texts + TOKEN_S * _tokens_known(step, encoder), memory=model)
        case "report":
            return Work(programs=1.5 + TOKEN_S / 2 * _tokens_known(step, encoder), memory=model)
        case _ if step.stage.costs is not None:
            return _evaluation(step, encoder, model)
        case _:
            return Work(programs=1.2, memory=model)


PROFILED = 2 * 2**20  # bytes, about, of the documents that both vocabularies are profiled on


def _loads(step: Step) -> set[str]:
    """What a step loads, of :data:`LOADED_BYTES`."""
    match _own(step.name).split(":"):
        case ["vocabulary"] | ["analyse"]:
            return set()
        case ["check", "vocabulary"] if step.recipe.transfer is None:
            return set()
        case ["adapt" | "finetune" | "expand", *_]:
            return {"models", "trainer"}
        case ["report"]:
            return {"models", "plots"}
        case _:
            return {"models", "search"} if step.stage.costs is not None else {"models"}


def _tokens_known(step: Step, encoder: Encoder) -> int:
    """Tokens of the vocabularies, new and old, that a step loads."""
    source = source_of(step.recipe)
    return int(_rows(step, encoder)) + (source.vocabulary if source is not None else 0)


def _vocabulary(step: Step, encoder: Encoder) -> Work:
    """Trimming reads texts once, training counts and merges them."""
    read = _bytes(step)
    tokens = _tokens_known(step, encoder)
    passes = 3 if isinstance(step.recipe.vocabulary, TrimmedVocabulary) else 8
    return Work(programs=0.7 + passes * TEXT_S * read + TOKEN_S * tokens, memory=4 * read + TOKEN_BYTES * tokens)


def _checked(step: Step, encoder: Encoder, model: int) -> Work:
    """The gates of an encoder, and probe pairs searched for by it and by what it was made from."""
    stage, length = _own(step.name), min(CHECKED_LENGTH, _tokens(step))
    if stage == "check:vocabulary":
        return Work(programs=0.4, memory=TOKEN_BYTES * _tokens_known(step, encoder))
    gated = 0.0 if stage == "check:adapt" else GATED * (2 * length + QUERY)
    probed = 0.0 if stage == "check:calibrate" else 2 * PROBED * (length + QUERY)
    off = step.recipe.gates.off
    if {"activation", "dimensions", "ties"} <= set(off):
        gated = 0.0
    if "retrieval" in off or (starts_untrained(step.recipe) and not step.recipe.source.fitted):
        probed = 0.0
    elif step.recipe.source.fitted:
        probed /= 2
    head = (gated + probed) * _head(step, encoder)
    return Work(gated * encoder.other, probed * encoder.other, screened=head, programs=0.4, memory=model)


def _transfer(step: Step, encoder: Encoder, model: int) -> Work:
    recipe = step.recipe
    source, known = recipe.source, model + TOKEN_BYTES * _tokens_known(step, encoder)
    if not source.fitted and recipe.transfer is None:
        return Work(programs=0.4, memory=model)
    if source.fitted:
        tokens = min(source.texts, _texts(step)) * min(STATES_LENGTH, _tokens(step))
        learned, programs, memory = 0.0, 3.0, known + int(tokens) * encoder.width * NUMBER
        if source.head is not None:
            words = _rows(step, encoder) * encoder.width
            learned += TRAINING * (source.steps or HEAD_STEPS) * HEAD_TOKENS * words
        if (units := source.units) is not None:
            products = UNIT_PRODUCTS * min(UNIT_TOKENS, tokens) * units.size * encoder.width
            learned += (source.steps or UNIT_STEPS) * products
            programs += SORTED_S * UNIT_SORTED * units.size
        return Work(halved=tokens * encoder.other, products=learned, programs=programs, memory=memory)
    assert recipe.transfer is not None
    files = [str(file) for each in recipe.transfer.used if isinstance(each, ParallelTransfer) for file in each.files]
    pairs = sum(texts_of(file)[1] for file in files)
    return Work(programs=1.5 + 8 * TEXT_S * _bytes(step) + PAIR_S * pairs, memory=known + model)


SORTED_S = 1e-7  # to sort one of many numbers


def _training(step: Step, encoder: Encoder, model: int) -> Work:
    """Where only what is positive has a gradient, a head is one product; predicting masked tokens takes all three."""
    recipe = step.recipe
    training = step.stage.trains(recipe) if step.stage.trains is not None else None
    section = recipe.adapt if step.stage.name == "adapt" else recipe.finetune
    if training is None or section is None:
        return Work(programs=10, memory=4 * model)
    steps = training.steps or _steps_of_epochs(recipe)
    longest = section.max_length if isinstance(section, AdaptSection) else section.document_length
    length, head = min(longest, _tokens(step)), 1.0
    parallel = recipe.transfer is not None and any(isinstance(each, ParallelTransfer) for each in recipe.transfer.used)
    if isinstance(section, AdaptSection) and _masks(recipe, section):
        read, head = length, TRAINING * section.mask_rate
    elif isinstance(section, AdaptSection) and (parallel or not {*section.objectives} <= {"crop", "auto"}):
        read = 3 * length  # two texts, and a teacher's
    else:
        read = QUERY + length
    tokens = section.batch_size * read
    products = TRAINING - training.embeddings_only  # frozen weights have no gradient
    held = 4 * model + int(tokens * encoder.width * 40 * NUMBER)
    return Work(
        trained=steps * tokens * products * encoder.other,
        screened=steps * tokens * head * _head(step, encoder),
        programs=5,
        memory=held,
    )


def _masks(recipe: Recipe, section: AdaptSection) -> bool:
    """Whether masked tokens are predicted, as far as the recipe alone says."""
    return section.objectives == ("mlm",) or (section.objectives == ("auto",) and recipe.source.scratch is not None)


def _steps_of_epochs(recipe: Recipe) -> float:
    """Steps of fine-tuning where only its passes over the judged queries are known."""
    assert recipe.finetune is not None
    counts = counts_of(recipe.finetune.data)
    if counts is None:
        return 1000
    return recipe.finetune.epochs * (counts.training or counts.queries) / recipe.finetune.batch_size


def _evaluation(step: Step, encoder: Encoder, model: int) -> Work:
    """Of encoding, indexing and searching the evaluation sets."""
    transformer = head = programs = 0.0
    memory = model
    for corpus in step.view.corpora("evaluate.sets"):
        counts = counts_of(corpus.name)
        if counts is not None and step.stage.costs is not None:
            cost = step.stage.costs(step.recipe, counts)
            transformer += (cost.encoded + cost.embedded) * encoder.other
            head += cost.encoded * _head(step, encoder)
            programs += cost.programs
            memory = max(memory, model + 3 * counts.bytes + RESULT_BYTES * results_of(step.recipe, counts))
    half = step.recipe.index.precision == "bf16"
    encoded, halved = (0.0, transformer) if half else (transformer, 0.0)
    return Work(encoded, halved, screened=head, programs=programs, memory=memory)


RESULT_BYTES = 300  # of one result in the two rankings of a sum and in the sum


def _own(step: str) -> str:
    """The name of a step without that of a source recipe."""
    return step.rpartition("/")[2]


def _head(step: Step, encoder: Encoder) -> float:
    """Multiplications of a token through the head."""
    units = step.recipe.source.units
    words = _rows(step, encoder) if units is None or step.recipe.source.head is not None else 0
    return encoder.width * (words + (units.size if units is not None else 0))


def _rows(step: Step, encoder: Encoder) -> float:
    """Tokens of the new vocabulary; of one that is yet to be trimmed, about."""
    section = step.recipe.vocabulary
    if not isinstance(section, TrimmedVocabulary) or section.size is not None:
        return encoder.vocabulary
    read = sum(texts_of(name)[1] for name in section.corpus) / CHARACTERS_A_TOKEN
    return min(encoder.vocabulary, HEAPS * read**0.5) or encoder.vocabulary


def _tokens_of_sets(recipe: Recipe) -> float:
    sets = recipe.evaluate.sets if recipe.evaluate is not None else ()
    lengths = [tokens_a_document(counts) for name in sets if (counts := counts_of(name)) is not None]
    return sum(lengths) / len(lengths) if lengths else 64.0


def _tokens(step: Step) -> float:
    """Tokens of a text that a step reads, on average."""
    texts, read = _texts(step), _bytes(step)
    return read / texts / CHARACTERS_A_TOKEN if texts else _tokens_of_sets(step.recipe)


def _texts(step: Step) -> int:
    """Texts that a step reads."""
    return sum(texts_of(name)[0] for name in _read(step))


def _bytes(step: Step) -> int:
    """Bytes of the texts that a step reads."""
    return sum(texts_of(name)[1] for name in _read(step))


def _read(step: Step) -> dict[str, None]:
    """The corpora of a step, each once."""
    return {corpus.name: None for setting in step.stage.corpora for corpus in step.view.corpora(setting)}
