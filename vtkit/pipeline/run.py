"""Running a recipe: plan, say why, run what is needed, and put the results where a person looks for them.

The store beside the runs is shared, so recipes that agree on a stage share its output.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vtkit.data.documents import keep_large_collections
from vtkit.data.executors import executed_by
from vtkit.pipeline.disk import show_disk, show_earlier_times
from vtkit.pipeline.folder import LOCK, RESOLVED, finished_steps, publish_results, record
from vtkit.pipeline.plan import Decision, Plan, Step, refuse_unknown
from vtkit.pipeline.stage import StageFunction
from vtkit.pipeline.steps.build_vocabulary import build_vocabulary, vocabulary_stage
from vtkit.pipeline.steps.run_gates import CHECK_VOCABULARY, look_at_vocabulary
from vtkit.pipeline.steps.texts import forget_collections, used_where_left_open
from vtkit.pipeline.store import Store, versions
from vtkit.recipe.checks import NotFetched, check_data, check_names
from vtkit.recipe.load import LoadedRecipe, load_recipe, required_things
from vtkit.recipe.write import resolved_toml
from vtkit.search.measures.effectiveness import validate_measures
from vtkit.settings.evaluate import DEPTH
from vtkit.settings.named import is_local
from vtkit.settings.recipe import STORE, Recipe
from vtkit.system import console, distributed
from vtkit.system.errors import RecipeError, VtkitError, machine_errors
from vtkit.system.interrupt import end_with_starter
from vtkit.system.outputs import held, remove_half_written, write_atomically
from vtkit.system.runtime import peak_bytes, reuse_memory, want_threads
from vtkit.system.runtime import threads as processor_threads

LOG = "run.log"

SIDE_BY_SIDE = "VTKIT_SWEEP"  # environment variable of a cell that runs beside others of its sweep
SECONDS_TO_SPEAK = 10.0  # in which the main process of a launch can end the others with a message of its own
PLAN_LINES = 5  # of a plan that is not shown in full


def run(
    recipe_path: Path,
    overrides: tuple[str, ...] = (),
    *,
    runs: Path,
    dry_run: bool = False,
    until: str | None = None,
    start: str | None = None,
    force: tuple[str, ...] = (),
    threads: int | None = None,
) -> Path:
    """Run a recipe to its report, or show the plan; returns the run's folder in ``runs``, with the store
    ``runs/artifacts``. From ``start`` on, and those in ``force``, stages are made again."""
    refuse_unknown(until, start, force)
    runs = runs.absolute()
    if SIDE_BY_SIDE in os.environ:
        threading.Thread(target=end_with_starter, daemon=True).start()
    if not distributed.is_main():
        if not dry_run:
            _train_along(runs / STORE, threads)
        return runs
    loaded = load_recipe(recipe_path, overrides)
    recipe = loaded.recipe
    if recipe.sweep is not None:
        raise RecipeError(
            f"{recipe_path} has [sweep], a grid of runs: vtkit sweep {recipe_path} runs it. To run the recipe "
            "by itself, add --set sweep=none."
        )
    shown = [word for setting in overrides if not setting.startswith(("run.", "run=")) for word in ("--set", setting)]
    recipe.run_by("vtkit", "run", str(recipe_path), *shown)
    try:
        check_settings(loaded)
    except NotFetched as error:
        if not dry_run:
            raise
        console.warn(f"{error}\nThe plan assumes that it fits; this is checked once it has been fetched.")
    folder = runs / recipe.recipe.name
    store = Store(runs / STORE)
    if dry_run:
        _planned(recipe, store, folder, refuse=False, until=until, start=start, force=force)
        return folder
    store.prepare(folder)
    keep_large_collections(store.root / ".collections")
    with (
        machine_errors(runs, " What was finished is kept, and the work goes on from there."),
        held(folder / LOCK, f"run {recipe.recipe.name}"),
        console.log_to(folder / LOG),
        executed_by(recipe.run),
    ):
        remove_half_written(folder)
        console.note(f"vtkit run {recipe_path} {' '.join(overrides)}")
        plan, decisions = _planned(recipe, store, folder, refuse=True, until=until, start=start, force=force)
        if any(decision.runs for decision in decisions):
            check_contents(loaded, store)
        want_threads(threads)
        write_atomically(folder / RESOLVED, resolved_toml(recipe, used_where_left_open(recipe)))
        write_atomically(folder / "versions.json", json.dumps(versions(), indent=1))
        steps: dict[str, str] = {}
        begun = time.monotonic()
        forget_collections()
        for number, decision in enumerate(decisions, start=1):
            step = decision.step
            if decision.runs:
                console.say(f"[{number}/{len(decisions)}] {step.name}")
                started, before = time.monotonic(), time.process_time()
                inputs = {role: store.folder(plan.steps[other].dependencies) for role, other in step.inputs.items()}
                _begin(step.dependencies.seed)
                make = partial(_make, step, inputs)
                store.build(step.dependencies, step.stage.result, make, afresh=decision.again)
                seconds, each = time.monotonic() - started, (time.process_time() - before) / processor_threads()
                done = f"done in {seconds:.1f} s ({each:.1f} s of processor time)"
                console.say(f"  {done}, memory {console.size(peak_bytes() or 0)}", short="")
            steps[step.name] = store.folder(step.dependencies).name
            record(folder, recipe, plan, steps)
        forget_collections()
        publish_results(folder, recipe, store, plan, steps)
        if any(decision.runs for decision in decisions):
            console.say(f"run {recipe.recipe.name} took {time.monotonic() - begun:.0f} s")
    distributed.from_main()  # the others leave
    return folder


def _planned(recipe: Recipe, store: Store, folder: Path, *, refuse: bool, **asked: Any) -> tuple[Plan, list[Decision]]:
    """Plan the run in ``folder``, and show the steps to run with their reasons, the disk they need, and how long they
    last took. If ``refuse``, a run that does not fit on the disk is refused."""
    plan = Plan(recipe, store)
    decisions = plan.decide(previous := finished_steps(folder), **asked)
    _show(decisions)
    running = [decision.step for decision in decisions if decision.runs]
    show_disk(running, folder.parent, refuse=refuse)
    show_earlier_times(running, store, previous)
    return plan, decisions


def _make(step: Step, inputs: Mapping[str, Path], out: Path) -> Any:
    """Make an output in the main process. All processes train together."""
    function: StageFunction[Any] = step.stage.function
    if not step.stage.trains:
        with distributed.alone():
            return function(step.view, inputs, out)
    if distributed.count() > 1:
        console.say(f"  {distributed.count()} processes train together")
    distributed.from_main((step.stage, step.recipe, inputs, out))
    return function(step.view, inputs, out)


def _train_along(store: Path, threads: int | None) -> None:
    """Run the other processes of a launch: they train when the main process does, and wait in between."""
    console.be_silent()
    keep_large_collections(store / ".collections")
    want_threads(threads)
    while (work := distributed.from_main()) is not None:
        stage, recipe, inputs, out = work
        _begin(recipe.recipe.seed)
        try:
            stage.function(stage.view(recipe), inputs, out)
        except VtkitError:
            time.sleep(SECONDS_TO_SPEAK)  # the main process reports the same error and then stops these processes
            console.be_silent(False)
            raise


def check_settings(loaded: LoadedRecipe) -> None:
    """Refuse the recipe if anything it names is missing; files are not opened."""
    from vtkit.training.reporting import require

    recipe, problems = loaded.recipe, list[VtkitError]()
    looks: list[Callable[[], object]] = [
        partial(check_names, recipe, path=Path(loaded.shown), places=loaded.places),
        *([] if recipe.evaluate is None else [partial(validate_measures, recipe.evaluate.measures, DEPTH)]),
        partial(require, recipe.report.training),
    ]
    for look in looks:
        try:
            look()
        except VtkitError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise RecipeError("\n".join(map(str, problems)))


def check_contents(loaded: LoadedRecipe, store: Store) -> None:
    """Refuse (VtkitError) the recipe, before anything is computed, if the engine does not answer or models and data
    cannot be read. Files that have not changed since a check are not read again."""
    if loaded.recipe.evaluate is not None:
        from vtkit.search.engine import reach_engine

        reach_engine(loaded.recipe.index)
    begun = time.monotonic()
    memory = store.root / "checked.json"
    read, unchanged = check_data(
        loaded.recipe, path=Path(loaded.shown), places=loaded.places, digest=store.digest, memory=memory
    )
    if read:
        console.say(f"data: {read} checked in {time.monotonic() - begun:.1f} s")
    if unchanged:
        console.say(f"data: {unchanged} unchanged since they were checked")


def _begin(seed: int) -> None:
    """Prepare this process for a stage."""
    import random

    import numpy as np
    import torch

    reuse_memory()
    torch.set_num_threads(processor_threads())
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _show(decisions: list[Decision]) -> None:
    """Show why steps run, grouped by reason, in :data:`PLAN_LINES` lines at most. In full, each step has a line."""
    width = max(len(decision.step.name) for decision in decisions)
    full = [f"{each.step.name:<{width}}  {'run' if each.runs else 'skip'}: {each.reason}" for each in decisions]
    steps, running = {each.step.name for each in decisions}, [each for each in decisions if each.runs]
    stages: dict[str, dict[str, None]] = {}  # by reason, in their order
    for each in running:
        follows = all(change.partition(" ")[0] in steps for change in each.reason.split("; "))
        reason = "earlier steps changed" if follows else each.reason
        stages.setdefault(reason, {})[each.step.name.partition(":")[0]] = None
    lines = [f"  {', '.join(names)}: {reason}" for reason, names in stages.items()]
    if len(lines) >= PLAN_LINES:
        others = dict.fromkeys(name for names in list(stages.values())[PLAN_LINES - 2 :] for name in names)
        lines[PLAN_LINES - 2 :] = [f"  {', '.join(others)}: for other reasons"]
    head = f"plan: {len(running)} of {len(decisions)} steps to run (--verbose lists all)"
    console.say("\n".join(full), short="\n".join([head, *lines]))


def check_first_stage(recipe: Recipe) -> None:
    """Make the vocabulary of ``recipe`` in a temporary folder, and show what the gates overlap and unicode find, with
    their errors. Passed over where the source is another recipe's model, or where texts would have to come from the
    hub."""
    corpora = [thing for thing in required_things(recipe) if thing.what in ("corpus", "retrieval")]
    if recipe.source.model is None or not all(is_local(thing.value) for thing in corpora):
        return
    with TemporaryDirectory(prefix="vtkit-check-") as folder:
        made = build_vocabulary(vocabulary_stage(recipe).view(recipe), {}, Path(folder))
        look_at_vocabulary(CHECK_VOCABULARY.view(recipe), {"vocabulary": Path(folder)}, made)
