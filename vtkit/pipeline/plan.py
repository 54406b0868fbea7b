"""The plan of a recipe: which stages it has, what each is made from, and which must run and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtkit.pipeline.order import STAGES, called, last_until
from vtkit.pipeline.stage import Chain, Stage, View, Wired
from vtkit.pipeline.steps.models import MAKING
from vtkit.pipeline.store import CHECKPOINTS, Dependencies, Store, read_manifest
from vtkit.recipe.load import load_recipe
from vtkit.settings.recipe import SEED, Recipe


@dataclass(frozen=True)
class Step:
    """One stage of one recipe, with everything its output depends on."""

    name: str  # `transfer`, `index:finetune`, or `english/adapt` for a step of a source recipe
    stage: Stage[Any]
    recipe: Recipe
    inputs: Mapping[str, str]  # role -> name of the step that plays it
    dependencies: Dependencies

    @property
    def place(self) -> int:
        """The position of its stage in the order of all stages."""
        return next(number for number, stage in enumerate(STAGES) if stage.name == self.stage.name)

    @property
    def view(self) -> View:
        """The recipe as its stage sees it."""
        return self.stage.view(self.recipe)


@dataclass(frozen=True)
class Decision:
    """The decision whether a step runs, with the reason."""

    step: Step
    runs: bool
    reason: str
    again: bool = False  # the user asked for it although its output may be there: checkpoints are thrown away too


class Plan:
    """The steps of a recipe in the order they run, those of its source recipe first."""

    def __init__(self, recipe: Recipe, store: Store) -> None:
        self.store = store
        self.steps: dict[str, Step] = {}
        self.final_model = self._add_recipe(recipe, prefix="")

    def _add(self, wired: Wired, own: str, recipe: Recipe, prefix: str) -> str:
        """Add a step, and return its name: ``own`` behind the ``prefix`` of the steps of a source recipe."""
        stage, inputs = wired.stage, wired.inputs
        if not (stage.draws(recipe) if callable(stage.draws) else stage.draws):
            recipe = recipe.model_copy(update={"recipe": recipe.recipe.model_copy(update={"seed": SEED})})
        name = f"{prefix}{own}"
        keys = {role: self.steps[other].dependencies.key for role, other in inputs.items()}
        depends = Dependencies(
            stage=own,
            version=stage.version,
            settings=stage.settings(recipe),
            seed=recipe.recipe.seed,
            inputs=keys,
            files=stage.files(recipe, self.store.digest),
        )
        self.steps[name] = Step(name, stage, recipe, inputs, depends)
        return name

    def _add_recipe(self, recipe: Recipe, prefix: str) -> str:
        """The steps of a recipe, of a source recipe those that make its model; returns the last that makes one."""
        source = {}
        if recipe.source.recipe is not None:
            other = load_recipe(Path(recipe.source.recipe)).recipe
            source = {"source": self._add_recipe(other, prefix=f"{prefix}{other.recipe.name}/")}
        chain = Chain(source, of_source=bool(prefix), before=tuple(self.steps))
        for stage in MAKING if prefix else STAGES:
            for wired in stage.wire(recipe, chain):
                own = f"{stage.name}:{wired.model}" if wired.model else stage.name
                chain.steps[own] = self._add(wired, own, wired.recipe or recipe, prefix)
                if stage.label:
                    chain.models.append(chain.steps[own])
        return chain.models[-1]

    def decide(
        self,
        previous: Mapping[str, str],
        *,
        until: str | None = None,
        start: str | None = None,
        force: tuple[str, ...] = (),
    ) -> list[Decision]:
        """Decide which steps run, and why. ``previous`` holds the outputs of the last run under this name, step by
        step, to name the reasons. Stages from ``start`` on, and those in ``force``, are made again."""
        decisions = []
        for step in self._until(until):
            forced = any(step.place in called(name) for name in force)
            again = forced or (start is not None and step.place >= min(called(start)))
            if again and "/" not in step.name:
                reason = f"asked for with --{'force' if forced else 'from'}"
                decisions.append(Decision(step, True, reason, again=True))
            elif self.store.folder(step.dependencies).exists():
                damage = self.store.damage(step.dependencies, step.stage.result)
                reason = "done" if damage is None else f"its output is damaged: {damage}"
                decisions.append(Decision(step, damage is not None, reason))
            else:
                decisions.append(Decision(step, True, self._why(step, previous.get(step.name))))
        return decisions

    def _until(self, last: str | None) -> list[Step]:
        """The recipe's own steps up to the stage ``last``, and whatever steps of a source recipe these need."""
        if last is None:
            return list(self.steps.values())
        wanted: set[str] = set()
        for step in reversed(self.steps.values()):
            if "/" not in step.name and step.place <= last_until(last):
                wanted.add(step.name)
            if step.name in wanted:
                wanted.update(step.inputs.values())
        return [step for step in self.steps.values() if step.name in wanted]

    def _why(self, step: Step, before: str | None) -> str:
        partial = self.store.root / ".partial" / self.store.folder(step.dependencies).name / CHECKPOINTS
        if partial.is_dir() and any(partial.iterdir()):
            return "was interrupted, continues from its checkpoint"
        manifest = read_manifest(self.store.root / before) if before else None
        if manifest is None:
            return "not made yet"
        changes = []
        old, new = manifest["settings"], dict(step.dependencies.settings)
        differing = [name for name in sorted(old.keys() | new.keys()) if _plain(old.get(name)) != _plain(new.get(name))]
        # a setting that only one of the two reads follows from another that both have
        for name in [name for name in differing if name in old and name in new] or differing:
            shown = f"{name} {_shown(old.get(name))} -> {_shown(new.get(name))}"
            changes.append("the recipe changed" if name == "recipe" else shown)
        if manifest["seed"] != step.dependencies.seed:
            changes.append(f"seed {manifest['seed']} -> {step.dependencies.seed}")
        files, now = manifest["files"], step.dependencies.files
        changed = sorted({name.split("[")[0] for name in files.keys() | now.keys() if files.get(name) != now.get(name)})
        changes += [f"the files of {name} changed" for name in changed]
        before_inputs, inputs = manifest["inputs"], step.dependencies.inputs
        for role, key in inputs.items():
            if before_inputs.get(role) != key:
                changes.append(f"{step.inputs[role]} {'changed' if role in before_inputs else 'is new'}")
        changes += [f"{role} is gone" for role in before_inputs if role not in inputs]
        if manifest["stage_version"] != step.dependencies.version:
            changes.append("the stage itself changed")
        # one step may play two roles: it is named once
        return "; ".join(dict.fromkeys(changes)) or "not made yet"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    return "unset" if value is None else str(value)
