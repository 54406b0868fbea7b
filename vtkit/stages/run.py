"""Running a recipe: plan, say why, run what is needed, and put the results where a person looks for them.

A run's folder holds what its user wants (``model/``, ``index/``, ``trec/``, ``report.html`` …) and which outputs of
the store it came from (``run.json``). The store beside it is shared, so recipes that agree on a stage share its output.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vtkit import console
from vtkit.artifacts import Store, facts_of, held, publish, versions, write_atomically
from vtkit.errors import DataError, VtkitError, machine_errors
from vtkit.recipe.data_check import check_data
from vtkit.recipe.load import LoadedRecipe, load_recipe
from vtkit.recipe.preflight import NotFetched, preflight
from vtkit.recipe.sections import STORE, Recipe
from vtkit.recipe.write import resolved_toml
from vtkit.stages.disk import Estimate, estimate, free_bytes, refuse_full_disk
from vtkit.stages.order import refuse_unknown
from vtkit.stages.plan import Decision, Plan

RUN_FACTS = "run.json"
LOG = "run.log"


@dataclass(frozen=True)
class RunFolder:
    """A finished or unfinished run on disk."""

    folder: Path
    name: str
    language: str
    final_model: str
    steps: dict[str, Path]
    """Step -> its output in the store, for the steps that are done."""

    models: dict[str, str]
    """Stage -> folder (or hub id, for a source) of its model."""

    query_length: int


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
    """Run a recipe to its report; returns the run's folder.

    Args:
        recipe_path: the TOML file.
        overrides: ``section.key=value`` as given with --set.
        runs: folder of all runs; the store is ``runs/artifacts``.
        dry_run: print the plan and stop.
        until: last stage to run.
        start: stage from which on everything is made again.
        force: stages that are made again.
        threads: processor threads; all cores by default.

    Raises:
        RecipeError: the recipe, or an argument, cannot be run as written; nothing was touched.
    """
    refuse_unknown(until, start, force)
    loaded = load_recipe(recipe_path, overrides)
    recipe = loaded.recipe
    recipe.run_by("vtkit", "run", str(recipe_path), *(word for setting in overrides for word in ("--set", setting)))
    not_fetched = None
    try:
        preflight(recipe, path=recipe_path, places=loaded.places)
    except NotFetched as error:
        if not dry_run:
            raise
        not_fetched = error
    _check_measures(recipe)
    runs = runs.absolute()
    folder = runs / recipe.recipe.name
    store = Store(runs / STORE)
    if dry_run:
        plan = Plan(recipe, store)
        decisions = plan.decide(_previous(folder), until=until, start=start, force=force)
        _show(decisions)
        _show_disk(decisions, runs)
        if not_fetched is not None:
            console.warn(f"{not_fetched}\nIn the plan it counts by its name; whether it fits is seen once it is here.")
        return folder
    store.prepare()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VtkitError(
            f"cannot write to {folder}: {error.strerror or error}. Name another folder with --runs."
        ) from error
    with (
        machine_errors(runs, " What was finished is kept, and the work goes on from there."),
        held(folder / ".lock", f"run {recipe.recipe.name}"),
        console.log_to(folder / LOG),
    ):
        console.note(f"vtkit run {recipe_path} {' '.join(overrides)}")
        plan = Plan(recipe, store)
        decisions = plan.decide(_previous(folder), until=until, start=start, force=force)
        _show(decisions)
        refuse_full_disk(*_show_disk(decisions, runs), runs)
        if any(decision.runs for decision in decisions):
            _check_data(loaded, store)
        write_atomically(folder / "recipe.resolved.toml", resolved_toml(recipe))
        write_atomically(folder / "versions.json", json.dumps(versions(), indent=1))
        steps: dict[str, str] = {}
        begun = time.monotonic()
        for number, decision in enumerate(decisions, start=1):
            step = decision.step
            if decision.runs:
                console.say(f"[{number}/{len(decisions)}] {step.name}")
                started = time.monotonic()
                inputs = {role: store.folder(plan.steps[other].dependencies) for role, other in step.inputs.items()}
                limit_threads(threads)
                _seed(step.dependencies.seed)
                make = partial(step.stage.function, step.view, inputs)
                store.build(step.dependencies, make, afresh=decision.again)
                console.say(f"  done in {time.monotonic() - started:.1f} s")
            steps[step.name] = store.folder(step.dependencies).name
            _record(folder, recipe, plan, steps)
        _publish(folder, store, plan, steps)
        if any(decision.runs for decision in decisions):
            console.say(f"run {recipe.recipe.name} took {time.monotonic() - begun:.0f} s")
    return folder


def open_run(folder: Path) -> RunFolder:
    """The run in ``folder``.

    Raises:
        VtkitError: there is none.
    """
    path = folder / RUN_FACTS
    try:
        facts = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise VtkitError(
            f"{folder} is no run of vtkit ({RUN_FACTS} is missing). Name the folder that vtkit run printed, such as "
            "runs/NAME."
        ) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    store = folder.absolute().parent / STORE
    try:
        steps = {str(name): store / output for name, output in facts["steps"].items()}
        name, language, final_model = (str(facts[key]) for key in ("name", "language", "final_model"))
        source, query_length = facts["source"], int(facts["query_length"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    gone = [str(output) for output in steps.values() if not output.is_dir()]
    if gone:
        raise VtkitError(
            f"{folder} points at stage outputs that are gone, such as {gone[0]}. Run its recipe again, or keep the "
            "folder artifacts beside the runs."
        )
    models = {step: str(output / "model") for step, output in steps.items() if (output / "model").is_dir()}
    if source is not None:
        models["source"] = models.get(str(source), str(source))
    return RunFolder(folder, name, language, final_model, steps, models, query_length)


def _damaged(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} is damaged ({why}). Run the recipe again: vtkit run RECIPE; what is done is not repeated."
    )


def _check_measures(recipe: Recipe) -> None:
    if recipe.evaluate is not None:
        from vtkit.measures.effectiveness import validate_measures

        validate_measures(recipe.evaluate.measures, recipe.evaluate.depth)


def _check_data(loaded: LoadedRecipe, store: Store) -> None:
    """Read the data before anything is computed; what is as it was when it was found sound is not read again."""
    begun = time.monotonic()
    memory = store.root / "checked.json"
    checked = check_data(
        loaded.recipe, path=Path(loaded.shown), places=loaded.places, digest=store.digest, memory=memory
    )
    if checked.read:
        console.say(f"data: {checked.read} read and found sound in {time.monotonic() - begun:.1f} s")
    if checked.known:
        console.say(f"data: {checked.known} unchanged since they were found sound")


def _seed(seed: int) -> None:
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _previous(folder: Path) -> dict[str, str]:
    try:
        return dict(json.loads((folder / RUN_FACTS).read_text("utf-8"))["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _record(folder: Path, recipe: Recipe, plan: Plan, steps: Mapping[str, str]) -> None:
    """What is done so far; steps of an earlier run of this name stay until they are replaced, for the reasons."""
    done = _previous(folder) | dict(steps)
    facts = {
        "name": recipe.recipe.name,
        "language": recipe.recipe.language,
        "final_model": plan.final_model,
        "source": recipe.source.model or plan.steps["transfer"].inputs.get("source"),
        "query_length": recipe.index.query_length,
        "steps": {name: output for name, output in done.items() if name in plan.steps},
    }
    write_atomically(folder / RUN_FACTS, json.dumps(facts, indent=1))


def _show(decisions: list[Decision]) -> None:
    width = max(len(decision.step.name) for decision in decisions)
    for decision in decisions:
        console.say(f"{decision.step.name:<{width}}  {'run' if decision.runs else 'skip'}: {decision.reason}")


def _show_disk(decisions: list[Decision], runs: Path) -> tuple[Estimate, int]:
    """What the steps that run need of the disk, said and given back with what is free."""
    needed = estimate([decision.step for decision in decisions if decision.runs])
    free = free_bytes(runs)
    if needed.bytes or needed.unknown:
        (console.say if needed.bytes <= free else console.warn)(needed.words(free))
    return needed, free


def _publish(folder: Path, store: Store, plan: Plan, steps: Mapping[str, str]) -> None:
    """Put the results of the finished steps into the run's folder."""
    if plan.final_model in steps:
        publish(store.root / steps[plan.final_model] / "model", folder / "model")
    index = f"index:{plan.final_model}"
    if index in steps:
        publish(store.root / steps[index], folder / "index")
    runs = {name.removeprefix("evaluate:"): store.root / steps[name] for name in steps if name.startswith("evaluate:")}
    if runs:
        trec = folder / ".trec.new"
        shutil.rmtree(trec, ignore_errors=True)
        for name, output in runs.items():
            for set_folder in facts_of(output):
                (trec / set_folder).mkdir(parents=True, exist_ok=True)
                publish(output / set_folder / "run.trec", trec / set_folder / f"{name}.trec")
        publish(trec, folder / "trec")
        shutil.rmtree(trec, ignore_errors=True)
    if "report" in steps:
        output = store.root / steps["report"]
        pages = {path.name: path for path in output.glob("report.*")}
        for stale in [path for path in folder.glob("report.*") if path.name not in pages]:
            stale.unlink()
        for name, path in sorted(pages.items()):
            publish(path, folder / name)
        card = output / "model_card.md"
        if card.is_file() and (folder / "model").is_dir():
            publish(card, folder / "model" / "README.md")


def report_of(folder: Path) -> dict[str, Any] | None:
    """The report of a run, as the report stage left it; None where it has not run."""
    steps = open_run(folder).steps
    if "report" not in steps:
        return None
    return dict(json.loads((steps["report"] / "data.json").read_text("utf-8")))


def limit_threads(threads: int | None) -> None:
    """Let torch and numba use so many threads; by default as many as OMP_NUM_THREADS says, else all cores."""
    import torch

    stated = os.environ.get("OMP_NUM_THREADS", "")
    count = threads or (int(stated) if stated.isdigit() and int(stated) else os.cpu_count()) or 1
    torch.set_num_threads(count)
    import numba

    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
