"""A run's folder: the results that a user wants (``model/``, ``index/``, ``trec/``, ``report.html`` …), and the
outputs of the store that they came from (``run.json``)."""

import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vtkit.evaluation.results import RUN_FILE, SetResults
from vtkit.pipeline.plan import Plan
from vtkit.pipeline.steps.deploy_index import DEPLOY
from vtkit.pipeline.store import Store, result_of
from vtkit.report.data import ReportData
from vtkit.settings.index import IndexSection
from vtkit.settings.recipe import STORE, Recipe
from vtkit.system.checksums import files_of, read_record, remembered, verify_part, write_record
from vtkit.system.errors import DataError, VtkitError
from vtkit.system.outputs import publish

RUN_RECORD, RESOLVED, LOCK = "run.json", "recipe.resolved.toml", ".lock"
AGAIN = "Run the recipe again: vtkit run RECIPE; what is done is not repeated."


@dataclass(frozen=True)
class RunFolder:
    """A finished or unfinished run on disk."""

    folder: Path
    name: str
    language: str
    final_model: str
    steps: dict[str, Path]  # step -> its output in the store, for the steps that are done
    models: dict[str, str]  # stage -> folder (or hub id, for a source) of its model
    index: IndexSection  # how its indexes were made and are searched

    def model(self, stage: str) -> str:
        """Folder (or hub id, for a source) of a stage's model; DataError where it is missing."""
        if stage not in self.models:
            raise DataError(f"{self.folder}: the model of {stage!r} is missing from its stage output. {AGAIN}")
        return self.models[stage]


def is_run_folder(folder: Path) -> bool:
    """Report whether a run has begun in ``folder`` and finished a step."""
    return (folder / RUN_RECORD).is_file()


def open_run(folder: str | Path) -> RunFolder:
    """The run in ``folder``: its models by stage, and the outputs of its steps.

    A run that was copied or moved away from its store has only the final model and its index, which lie in the folder
    itself.

    Raises:
        VtkitError: there is no run, or it is damaged.
    """
    folder = Path(folder)
    path, store = folder / RUN_RECORD, folder.absolute().parent / STORE
    if not path.is_file():
        what = f"is not a vtkit run ({RUN_RECORD} is missing)" if folder.exists() else "does not exist"
        raise VtkitError(f"{folder} {what}. Name one that vtkit run, build or index wrote, such as runs/NAME.")
    recorded = read_record(path)
    try:
        steps = {str(name): store / output for name, output in recorded["steps"].items()}
        name, language, final_model = (str(recorded[key]) for key in ("name", "language", "final_model"))
        source = recorded["source"]
        index = IndexSection.model_validate(recorded["index"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}). {AGAIN}") from error
    gone = [str(output) for output in steps.values() if not output.is_dir()]
    models = {step: str(output / "model") for step, output in steps.items() if (output / "model").is_dir()}
    if gone:
        searched = _index_step(steps, final_model)
        steps = {name: output for name, output in steps.items() if output.is_dir()}
        if searched is not None and (folder / "index").is_dir():
            steps.setdefault(searched, folder / "index")
        if (folder / "model").is_dir():
            models.setdefault(final_model, str(folder / "model"))
        elif not steps:
            raise VtkitError(
                f"{folder} refers to stage outputs that are gone, such as {gone[0]}, and has no model of its own. Run "
                "its recipe again, or move the folder artifacts beside it."
            )
    if source is not None:
        models["source"] = models.get(str(source), str(source))
    return RunFolder(folder, name, language, final_model, steps, models, index)


def report_of(run: str | Path | RunFolder) -> ReportData | None:
    """The report of a run, the contents of its ``report.json``; None if it has not been written yet.

    Raises:
        VtkitError: there is no such run, or another version of vtkit wrote its report.
    """
    opened = open_run(run.folder if isinstance(run, RunFolder) else run)
    if "report" in opened.steps:
        return result_of(opened.steps["report"], ReportData)
    path = opened.folder / "report.json"  # of a run without its store
    verify_part(path)
    return ReportData.from_file(path, AGAIN) if path.is_file() else None


def finished_steps(folder: Path) -> dict[str, str]:
    """Step -> name of its output in the store, as the last run left them; empty if the record cannot be read."""
    steps = remembered(folder / RUN_RECORD).get("steps")
    return dict(steps) if isinstance(steps, dict) else {}


def record(folder: Path, recipe: Recipe, plan: Plan, steps: Mapping[str, str], published: Iterable[Path] = ()) -> None:
    """Record the steps that are done, and the checksums of what was published for a finished run. Steps of an earlier
    run of this name stay until they are replaced, because the plan compares with them."""
    done = finished_steps(folder) | dict(steps)
    recorded = {
        "name": recipe.recipe.name,
        "language": recipe.recipe.language,
        "final_model": plan.final_model,
        "source": recipe.source.model or plan.steps["transfer"].inputs.get("source"),
        "index": recipe.index.model_dump(mode="json"),
        "steps": {name: output for name, output in done.items() if name in plan.steps},
    }
    files = [file for path in published for file in ([path] if path.is_file() else files_of(path))]
    write_record(folder / RUN_RECORD, recorded, files)


def publish_results(folder: Path, recipe: Recipe, store: Store, plan: Plan, steps: Mapping[str, str]) -> None:
    """Put the results of the finished steps into the run's folder, and record their checksums; the index has its own
    (:func:`vtkit.search.folders.write_index`)."""
    record(folder, recipe, plan, steps)
    published: list[Path] = []

    def put(source: Path, place: str) -> None:
        (folder / place).parent.mkdir(exist_ok=True)
        publish(source, folder / place)
        published.append(folder / place)

    if plan.final_model in steps:
        put(store.root / steps[plan.final_model] / "model", "model")
    for name in [name for name in steps if name in plan.steps and "/" not in name]:  # not of a source recipe
        for part, place in plan.steps[name].stage.publishes.items():
            if (store.root / steps[name] / part).is_dir():
                put(store.root / steps[name] / part, place)
    index = _index_step(steps, plan.final_model)
    if index is not None:
        publish(store.root / steps[index], folder / "index")
    runs = {run_name(name): store.root / steps[name] for name in steps if name.startswith("evaluate:")}
    if runs:
        trec = folder / ".trec.new"
        shutil.rmtree(trec, ignore_errors=True)
        for name, output in runs.items():
            for set_folder in result_of(output, dict[str, SetResults]):
                (trec / set_folder).mkdir(parents=True, exist_ok=True)
                publish(output / set_folder / RUN_FILE, trec / set_folder / f"{name}.trec.gz")
        put(trec, "trec")
        shutil.rmtree(trec, ignore_errors=True)
    if "report" in steps:
        output = store.root / steps["report"]
        for path in sorted(output.glob("report.*")):
            put(path, path.name)
        card = output / "model_card.md"
        if card.is_file() and (folder / "model").is_dir():
            publish(card, folder / "model" / "README.md")
    record(folder, recipe, plan, steps, published)


def _index_step(steps: Collection[str], final_model: str) -> str | None:
    """The step whose index is searched: the deployed index, else that of the final model."""
    return next((name for name in (DEPLOY.name, f"index:{final_model}") if name in steps), None)


def run_name(step: str) -> str:
    """The name of an evaluation's run file: ``finetune`` for ``evaluate:finetune``, ``peer-NAME`` for
    ``evaluate:peer:NAME``."""
    return step.removeprefix("evaluate:").replace(":", "-")
