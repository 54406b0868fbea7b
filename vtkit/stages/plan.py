"""The table of stages: which a recipe has, what each is made from, and which must run and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from vtkit.artifacts import Ingredients, Store, read_manifest
from vtkit.recipe.load import load_recipe
from vtkit.recipe.sections import Recipe, TransferSection, is_local, local_path, named_things
from vtkit.recipe.write import resolved_toml
from vtkit.stages.texts import adaptation_corpus, bias_corpus, calibration_corpus, focus_corpus, set_folders

StageFunction = Callable[[Recipe, Mapping[str, Path], Path], dict[str, Any]]

ORDER = ("vocabulary", "transfer", "adapt", "calibrate", "finetune", "index", "evaluate", "report")
"""Stage names as the user writes them (--until, --from, --force); a plan's step may be ``index:finetune``."""

_PLACES = {  # stage: (module.function, hand-raised version)
    "vocabulary": ("build_vocabulary.build_vocabulary", 1),
    "transfer": ("transfer_embeddings.transfer_embeddings", 6),
    "adapt": ("adapt_mlm.adapt_mlm", 2),
    "calibrate": ("calibrate_head.calibrate_head", 1),
    "finetune": ("finetune_encoder.finetune_encoder", 1),
    "index": ("index_corpus.index_corpus", 4),
    "evaluate": ("evaluate_runs.evaluate_model", 2),
    "evaluate:bm25": ("evaluate_runs.evaluate_bm25", 1),
    "evaluate:hybrid": ("evaluate_runs.evaluate_hybrid", 1),
    "report": ("write_report.write_report", 3),
}


@dataclass(frozen=True)
class Step:
    """One stage of one recipe, with everything its output depends on."""

    name: str
    """``transfer``, ``index:finetune``, or ``english/adapt`` for a step of a source recipe."""

    recipe: Recipe
    inputs: Mapping[str, str]
    """Role -> name of the step that plays it."""

    ingredients: Ingredients

    @property
    def stage(self) -> str:
        """The stage's name as the user writes it."""
        return self.name.rsplit("/", 1)[-1].split(":")[0]

    def function(self) -> StageFunction:
        """The stage itself; importing it is what loads torch."""
        step = self.name.rsplit("/", 1)[-1]
        place, _ = _PLACES.get(step, _PLACES[self.stage])
        module, name = place.rsplit(".", 1)
        return getattr(import_module(f"vtkit.stages.{module}"), name)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Decision:
    """Whether a step runs, and why."""

    step: Step
    runs: bool
    reason: str
    again: bool = False
    """The user asked for it although its output may be there: checkpoints are thrown away too."""


class Plan:
    """The steps of a recipe in the order they run, those of its source recipe first."""

    def __init__(self, recipe: Recipe, store: Store) -> None:
        self.store = store
        self.steps: dict[str, Step] = {}
        self.final_model = self._add_models(recipe, prefix="")
        self._add_evaluation(recipe)

    def _add(
        self,
        name: str,
        recipe: Recipe,
        settings: Mapping[str, Any],
        inputs: Mapping[str, str],
        files: Mapping[str, str],
    ) -> str:
        step = name.rsplit("/", 1)[-1]
        _, version = _PLACES.get(step, _PLACES[step.split(":")[0]])
        self.steps[name] = Step(
            name,
            recipe,
            inputs,
            Ingredients(
                stage=step,
                version=version,
                settings=settings,
                seed=recipe.recipe.seed,
                inputs={role: self.steps[other].ingredients.key for role, other in inputs.items()},
                files=files,
            ),
        )
        return name

    def _add_models(self, recipe: Recipe, prefix: str) -> str:
        """The steps that make a model; returns the name of the last."""
        inputs = {"vocabulary": f"{prefix}vocabulary"}
        if recipe.source.recipe is not None:
            other = load_recipe(Path(recipe.source.recipe)).recipe
            inputs["source"] = self._add_models(other, prefix=f"{prefix}{other.recipe.name}/")
        sections: dict[str, BaseModel] = {"vocabulary": recipe.vocabulary}
        casing = _flat({"casing": recipe.casing})
        settings = _flat(sections) | {"casing.input": casing.pop("casing.input")}
        self._add(f"{prefix}vocabulary", recipe, settings, {}, self._files(sections))
        if recipe.casing.output != "fold":
            del casing["casing.fold"]
        settings = _flat({"source": recipe.source}) | casing
        files = self._files({"source": recipe.source})
        settings.pop("source.recipe", None)
        if recipe.transfer is not None:
            used = _used(recipe.transfer)
            settings |= used
            files |= self._files({"transfer": recipe.transfer}, only=used)
            if recipe.transfer.counts_tokens:
                files |= self._named("transfer.bias.corpus", bias_corpus(recipe))
            if "focus" in recipe.transfer.methods and recipe.transfer.vectors is None:
                files |= self._named("transfer.corpus", focus_corpus(recipe))
        last = self._add(f"{prefix}transfer", recipe, settings, inputs, files)

        if recipe.adapt is not None:
            inputs = {"model": last} | ({"transfer": last} if recipe.transfer is not None else {})
            files = self._files({"adapt": recipe.adapt}, only=("adapt.teacher",))
            files |= self._named("adapt.corpus", adaptation_corpus(recipe))
            last = self._add(f"{prefix}adapt", recipe, _flat({"adapt": recipe.adapt}), inputs, files)
        if recipe.calibrate is not None:
            files = self._named("calibrate.corpus", calibration_corpus(recipe))
            last = self._add(
                f"{prefix}calibrate", recipe, _flat({"calibrate": recipe.calibrate}), {"model": last}, files
            )
        if recipe.finetune is not None:
            settings, files = _flat({"finetune": recipe.finetune}), self._files({"finetune": recipe.finetune})
            if recipe.finetune.hard_negatives:
                settings["recipe.language"] = recipe.recipe.language
            last = self._add(f"{prefix}finetune", recipe, settings, {"model": last}, files)
        return last

    def _add_evaluation(self, recipe: Recipe) -> None:
        if recipe.evaluate is not None:
            sets = self._named("evaluate.sets", recipe.evaluate.sets)
            folders = {"evaluate.folders": list(set_folders(recipe).values()), "evaluate.split": recipe.evaluate.split}
            documents = _flat({"index": recipe.index}) | folders
            # which models are judged, and whether BM25 is, changes no model's own numbers
            judged = (
                _flat({"evaluate": recipe.evaluate})
                | {
                    "index.query_length": recipe.index.query_length,
                    "index.precision": recipe.index.precision,
                }
                | folders
            )
            for name in ("evaluate.models", "evaluate.bm25"):
                judged.pop(name)
            for name in recipe.evaluate.models:
                if name == "source" and recipe.source.model is None and recipe.source.recipe is None:
                    continue
                if name != "source" and name not in self.steps:
                    continue
                model, files, settings = self._model_of(recipe, name)
                self._add(f"index:{name}", recipe, documents | settings, model, sets | files)
                inputs = {"index": f"index:{name}"} | model
                self._add(f"evaluate:{name}", recipe, judged | settings, inputs, sets | files)
            if recipe.evaluate.bm25:
                language = {"recipe.language": recipe.recipe.language}
                self._add("evaluate:bm25", recipe, judged | language, {}, sets)
                final = f"evaluate:{self.final_model}"
                if final in self.steps:
                    inputs = {"bm25": "evaluate:bm25", "model": final}
                    self._add("evaluate:hybrid", recipe, judged, inputs, sets)
        # the report quotes the whole recipe and what every step found and cost
        self._add("report", recipe, {"recipe": resolved_toml(recipe)}, {name: name for name in self.steps}, {})

    def _model_of(self, recipe: Recipe, name: str) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
        """Inputs, files and settings by which a step gets hold of the model called ``name``."""
        if name != "source":
            return {"model": name}, {}, {}
        if recipe.source.recipe is not None:
            return {"model": self.steps["transfer"].inputs["source"]}, {}, {}
        return {}, self._files({"source": recipe.source}), _flat({"source": recipe.source})

    def _files(self, sections: Mapping[str, BaseModel], only: Collection[str] | None = None) -> dict[str, str]:
        found: dict[str, str] = {}
        for prefix, section in sections.items():
            seen: Counter[str] = Counter()
            for named in named_things(section, f"{prefix}."):
                number = seen[named.setting]
                seen[named.setting] += 1
                if named.what != "recipe" and is_local(named.value) and (only is None or named.setting in only):
                    found[f"{named.setting}[{number}]"] = self.store.digest(local_path(named.value) or named.value)
        return found

    def _named(self, setting: str, values: tuple[str, ...]) -> dict[str, str]:
        return {
            f"{setting}[{number}]": self.store.digest(path) if (path := local_path(value)) else value
            for number, value in enumerate(values)
        }

    def decide(
        self,
        previous: Mapping[str, str],
        *,
        until: str | None = None,
        start: str | None = None,
        force: tuple[str, ...] = (),
    ) -> list[Decision]:
        """What runs and why.

        Args:
            previous: step -> output folder of the last run under this name, for the reasons.
            until: last stage to run.
            start: stage from which on everything is made again.
            force: stages that are made again.
        """
        decisions = []
        for step in self._until(until):
            again = step.stage in force or (start is not None and ORDER.index(step.stage) >= ORDER.index(start))
            if again and "/" not in step.name:
                reason = f"asked for with --{'force' if step.stage in force else 'from'}"
                decisions.append(Decision(step, True, reason, again=True))
                continue
            if self.store.manifest(step.ingredients) is not None:
                damage = self.store.damage(step.ingredients)
                if damage is None:
                    decisions.append(Decision(step, False, "done"))
                else:
                    decisions.append(Decision(step, True, f"its output is damaged: {damage}"))
                continue
            if self.store.folder(step.ingredients).exists():
                decisions.append(Decision(step, True, "its output is damaged: its manifest is missing"))
                continue
            decisions.append(Decision(step, True, self._why(step, previous.get(step.name))))
        return decisions

    def _until(self, last: str | None) -> list[Step]:
        """The recipe's own steps up to the stage ``last``, and whatever steps of a source recipe these need."""
        if last is None:
            return list(self.steps.values())
        wanted: set[str] = set()
        for step in reversed(self.steps.values()):
            if "/" not in step.name and ORDER.index(step.stage) <= ORDER.index(last):
                wanted.add(step.name)
            if step.name in wanted:
                wanted.update(step.inputs.values())
        return [step for step in self.steps.values() if step.name in wanted]

    def _why(self, step: Step, before: str | None) -> str:
        partial = self.store.root / ".partial" / self.store.folder(step.ingredients).name / "checkpoints"
        if partial.is_dir() and any(partial.iterdir()):
            return "was interrupted, continues from its checkpoint"
        manifest = read_manifest(self.store.root / before) if before else None
        if manifest is None:
            return "not made yet"
        changes = []
        old, new = manifest["settings"], dict(step.ingredients.settings)
        differing = [name for name in sorted(old.keys() | new.keys()) if _plain(old.get(name)) != _plain(new.get(name))]
        # a setting that only one of the two reads follows from another that both have
        for name in [name for name in differing if name in old and name in new] or differing:
            shown = f"{name} {_shown(old.get(name))} -> {_shown(new.get(name))}"
            changes.append("the recipe changed" if name == "recipe" else shown)
        if manifest["seed"] != step.ingredients.seed:
            changes.append(f"seed {manifest['seed']} -> {step.ingredients.seed}")
        files, now = manifest["files"], step.ingredients.files
        changed = sorted({name.split("[")[0] for name in files.keys() | now.keys() if files.get(name) != now.get(name)})
        changes += [f"the files of {name} changed" for name in changed]
        before_inputs, inputs = manifest["inputs"], step.ingredients.inputs
        for role, key in inputs.items():
            if before_inputs.get(role) != key:
                changes.append(f"{step.inputs[role]} {'changed' if role in before_inputs else 'is new'}")
        changes += [f"{role} is gone" for role in before_inputs if role not in inputs]
        if manifest["stage_version"] != step.ingredients.version:
            changes.append("the stage itself changed")
        # one step may play two roles: it is named once
        return "; ".join(dict.fromkeys(changes)) or "not made yet"


def _flat(sections: Mapping[str, BaseModel]) -> dict[str, Any]:
    """Dotted setting -> value, without the names of local things (their digests stand for them)."""
    flat: dict[str, Any] = {}
    for prefix, section in sections.items():
        named = {thing.setting for thing in named_things(section, f"{prefix}.")}
        for name in type(section).model_fields:
            value = getattr(section, name)
            path = f"{prefix}.{name}"
            if isinstance(value, BaseModel):
                flat |= _flat({path: value})
            elif path in named:
                values = value if isinstance(value, tuple) else (value,)
                flat[path] = [entry.replace(local_path(entry) or "\0", "(file)") for entry in values]
            else:
                flat[path] = list(value) if isinstance(value, tuple) else value
    # how often a stage writes checkpoints changes nothing it computes
    return {name: value for name, value in flat.items() if not name.endswith(".checkpoint_every")}


def _used(section: TransferSection) -> dict[str, Any]:
    """The settings of [transfer] that its method and its bias read."""
    read = section.settings_read
    return {name: value for name, value in _flat({"transfer": section}).items() if name in read}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    return "unset" if value is None else str(value)
