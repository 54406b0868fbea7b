"""The plan of a recipe: its stages, the inputs of each, and which of them must run and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.adapt_encoder import ADAPT, adaptation_stage
from vtkit.pipeline.steps.build_vocabulary import VOCABULARY, vocabulary_stage
from vtkit.pipeline.steps.calibrate_head import CALIBRATE
from vtkit.pipeline.steps.deploy_index import DEPLOY
from vtkit.pipeline.steps.encode_corpus import ENCODE
from vtkit.pipeline.steps.encode_queries import ENCODE_QUERIES
from vtkit.pipeline.steps.evaluate_systems import (
    EVALUATE,
    EVALUATE_BM25,
    EVALUATE_BM25_WORDS,
    EVALUATE_DEPLOYED,
    EVALUATE_HYBRID,
    EVALUATE_HYBRID_PEER,
    EVALUATE_PEER,
    peers_of,
)
from vtkit.pipeline.steps.expand_documents import EXPAND, EXPAND_DOCUMENTS
from vtkit.pipeline.steps.finetune_encoder import FINETUNE
from vtkit.pipeline.steps.fusion import FUSION
from vtkit.pipeline.steps.index_corpus import INDEX, WEIGHTING
from vtkit.pipeline.steps.profile_vocabularies import PROFILE
from vtkit.pipeline.steps.run_gates import CHECK_ADAPTATION, CHECK_CALIBRATION, CHECK_TRANSFER, CHECK_VOCABULARY
from vtkit.pipeline.steps.tabulate_queries import QUERY_TABLE
from vtkit.pipeline.steps.transfer_embeddings import TRANSFER
from vtkit.pipeline.steps.write_report import REPORT
from vtkit.pipeline.store import CHECKPOINTS, Dependencies, Store, read_manifest
from vtkit.recipe.load import load_recipe
from vtkit.settings.recipe import Recipe
from vtkit.settings.types import SEED
from vtkit.system.errors import RecipeError

STAGES: tuple[Stage[Any], ...] = (
    *(VOCABULARY, CHECK_VOCABULARY, TRANSFER, CHECK_TRANSFER, ADAPT, CHECK_ADAPTATION, CALIBRATE, CHECK_CALIBRATION),
    *(EXPAND, EXPAND_DOCUMENTS, FINETUNE, QUERY_TABLE, ENCODE, ENCODE_QUERIES, INDEX, FUSION, DEPLOY),
    *(EVALUATE_BM25, EVALUATE_BM25_WORDS, EVALUATE, EVALUATE_HYBRID, EVALUATE_DEPLOYED),
    *(EVALUATE_PEER, EVALUATE_HYBRID_PEER, PROFILE, REPORT),
)
"""All stages in the order they run; options and report labels use their names."""

NAMES = tuple(dict.fromkeys(name for stage in STAGES for name in (stage.name.split(":")[0], stage.name)))
"""The values of --until, --from and --force: a stage, or all whose names begin alike (``check``, ``evaluate``)."""

EXPANDED = (FINETUNE.name, QUERY_TABLE.name)  # models that are trained on expanded documents, and so encode them


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
        return [stage.name for stage in STAGES].index(self.stage.name)

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
        self.final_model = steps_of(self, recipe)

    def add(
        self, recipe: Recipe, prefix: str, stage: Stage[Any], inputs: Mapping[str, str] | None = None, model: str = ""
    ) -> str:
        """Add a step, and return its name.

        Args:
            prefix: of the names of a source recipe's steps.
            inputs: role -> the step that plays it.
            model: whose index or evaluation it is, if the stage has several steps.
        """
        recipe = recipe.model_copy(update={"run": None})  # results do not depend on it
        if not (stage.draws(recipe) if callable(stage.draws) else stage.draws):
            recipe = recipe.model_copy(update={"recipe": recipe.recipe.model_copy(update={"seed": SEED})})
        own, inputs = f"{stage.name}:{model}" if model else stage.name, inputs or {}
        keys = {role: self.steps[other].dependencies.key for role, other in inputs.items()}
        settings, files = stage.settings(recipe), stage.files(recipe, self.store.digest)
        depends = Dependencies(own, stage.version, settings, recipe.recipe.seed, keys, files)
        name = f"{prefix}{own}"
        self.steps[name] = Step(name, stage, recipe, inputs, depends)
        return name

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
        place = max([*called(last), *called(f"check:{last}")])  # a check of the stage belongs to it
        for step in reversed(self.steps.values()):
            if "/" not in step.name and step.place <= place:
                wanted.add(step.name)
            if step.name in wanted:
                wanted.update(step.inputs.values())
        return [step for step in self.steps.values() if step.name in wanted]

    def _why(self, step: Step, before: str | None) -> str:
        """The reason why a step without an output runs: the differences from the output ``before``."""
        partial = self.store.root / ".partial" / self.store.folder(step.dependencies).name / CHECKPOINTS
        if partial.is_dir() and any(partial.iterdir()):
            return "was interrupted, continues from its checkpoint"
        manifest = read_manifest(self.store.root / before) if before else None
        if manifest is None:
            return "not made yet"
        now = step.dependencies
        old, new = {**manifest["settings"], "seed": manifest["seed"]}, {**now.settings, "seed": now.seed}
        differing = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
        changes = []
        # a setting that only one of the two reads follows from another that both have
        for name in [name for name in differing if name in old and name in new] or differing:
            values = ("unset" if of.get(name) is None else str(of[name]) for of in (old, new))
            changes.append("the recipe changed" if name == "recipe" else f"{name} {' -> '.join(values)}")
        files = dict(manifest["files"].items() ^ now.files.items())
        changes += [f"the files of {name} changed" for name in sorted({name.split("[")[0] for name in files})]
        roles = manifest["inputs"]
        changes += [
            f"{step.inputs[role]} {'changed' if role in roles else 'is new'}"
            for role, key in now.inputs.items()
            if roles.get(role) != key
        ]
        changes += [f"{role} is gone" for role in roles if role not in now.inputs]
        if manifest["stage_version"] != now.version:
            changes.append("the stage itself changed")
        # one step may play two roles: it is named once
        return "; ".join(dict.fromkeys(changes)) or "not made yet"


def steps_of(plan: Plan, recipe: Recipe, prefix: str = "") -> str:
    """Add the steps of ``recipe`` to ``plan`` in the order they run; return the last that makes a model.

    The steps of its source recipe come first, as far as they make a model. Their names begin with a ``prefix``.
    """
    source: dict[str, str] = {}
    if recipe.source.recipe is not None:
        other = load_recipe(Path(recipe.source.recipe)).recipe
        source["source"] = steps_of(plan, other, f"{prefix}{other.recipe.name}/")
    add, vocabulary = partial(plan.add, recipe, prefix), vocabulary_stage(recipe)
    both = {"vocabulary": add(vocabulary, {} if vocabulary is VOCABULARY else source), **source}
    if recipe.source.scratch is None:
        add(CHECK_VOCABULARY, both)
    transfer = {"transfer": add(TRANSFER, both)}
    models = [transfer["transfer"]]
    if recipe.transfer is not None or recipe.source.fitted:
        add(CHECK_TRANSFER, both | transfer)
    if recipe.adapt is not None:
        adaptation, inputs = adaptation_stage(recipe), {"model": models[-1]}
        inputs |= transfer if recipe.transfer is not None else {}  # which tokens are new
        inputs |= source if "transfer" in adaptation.reads else {}
        models.append(add(adaptation, inputs))
        add(CHECK_ADAPTATION, {"model": models[-2], "adapt": models[-1], **source})
    uncalibrated = models[-1]  # a calibrated bias would predict other tokens for documents
    if recipe.calibrate is not None:
        models.append(add(CALIBRATE, {"model": models[-1]}))
        add(CHECK_CALIBRATION, {"calibrate": models[-1]})
    expansions = {}
    if recipe.expands:
        expansions["expansions"] = add(EXPAND_DOCUMENTS, {"expand": add(EXPAND, {"model": uncalibrated})})
    if recipe.finetune is not None:
        finetune = FINETUNE.reading("recipe.language") if recipe.finetune.asks_bm25 else FINETUNE
        models.append(add(finetune, {"model": models[-1]} | expansions))
    if not prefix:  # a source goes on as it was trained, and is evaluated by itself
        if recipe.index.query_encoder is not None:
            models.append(add(QUERY_TABLE, {"model": models[-1]}))
        add_evaluation(plan, recipe, source, models)
        add(PROFILE, both)
        add(REPORT, {name: name for name in plan.steps})  # it quotes the result and the cost of each
    return models[-1]


def add_evaluation(plan: Plan, recipe: Recipe, source: Mapping[str, str], models: Sequence[str]) -> None:
    """Add the steps that evaluate ``models``, the last of which is the final one, beside BM25 and dense embedders; if
    nothing is evaluated, those that index the documents of ``[index]``, if it names some."""
    section, index, final = recipe.evaluate, recipe.index, models[-1]
    add = partial(plan.add, recipe, "")
    # weighting changes which weights are the largest, so more of them are kept
    weighted = () if index.top_dimensions is None else WEIGHTING
    if section is None:
        if index.documents is not None:
            model = models[-2] if final == QUERY_TABLE.name else final  # documents are not encoded by a table
            expanded = {"expansions": EXPAND_DOCUMENTS.name} if recipe.expands and model in EXPANDED else {}
            vectors_of = add(ENCODE.reading(*weighted), {"model": model, **expanded}, model)
            encoded = {"vectors": vectors_of, "model": final}
            add(DEPLOY, encoded if index.lexical == "none" else encoded | {"fusion": add(FUSION, encoded)})
        return
    evaluated: dict[str, dict[str, str]] = {}  # model -> itself as an input; nothing for the source as it is
    for name in section.models:
        if name in models:
            evaluated[name] = {"model": name}
        elif name == "source" and recipe.source.scratch is None and not recipe.source.fitted:
            evaluated[name] = {"model": source["source"]} if source else {}

    def of_model(stage: Stage[Any], model: str, **inputs: str) -> str:
        own = evaluated[model]
        return add(stage if own else stage.reading("source.model"), inputs | own, model)

    def vectors(model: str) -> str:
        """The step that encodes documents for a model; queries by a table search those of the model before."""
        before = models[models.index(model) - 1] if model == QUERY_TABLE.name else model
        return next((step for step in (f"encode:{before}", f"encode:{model}") if step in plan.steps), "")

    for model in evaluated:
        if not vectors(model):
            expanded = {"expansions": EXPAND_DOCUMENTS.name} if recipe.expands and model in EXPANDED else {}
            of_model(ENCODE.reading(*weighted), model, **expanded)
    queries = {"queries": add(ENCODE_QUERIES, evaluated[final])} if final in evaluated else {}
    for model in evaluated:
        of_model(INDEX, model, vectors=vectors(model))
    searched = {"index": f"index:{final}", **queries}
    encoded, has_words = {"vectors": vectors(final), "model": final}, index.lexical != "none"
    fusion = {"fusion": add(FUSION, encoded)} if queries and (section.bm25 or has_words) else {}
    of_words = fusion if has_words else {}
    if queries and (index.engine, index.lexical) != ("exact", "none"):  # else the judged index is used
        deployed = {"index": add(DEPLOY, encoded | of_words), **queries, **of_words}
    bm25 = {"bm25": add(EVALUATE_BM25)} if section.bm25 else {}
    if section.bm25:
        add(EVALUATE_BM25_WORDS)
    for model in evaluated:
        of_model(EVALUATE, model, **(searched if model == final else {"index": f"index:{model}"}))
    if bm25 and queries:
        add(EVALUATE_HYBRID, {**bm25, "model": f"evaluate:{final}", **fusion})
    if DEPLOY.name in plan.steps:
        add(EVALUATE_DEPLOYED, deployed)
    for peer, embedder in peers_of(recipe).items():  # each alone, so that others change nothing of its results
        of_peer = recipe.model_copy(update={"evaluate": section.model_copy(update={"peers": (embedder,)})})
        alone = plan.add(of_peer, "", EVALUATE_PEER, model=peer)
        if bm25:
            plan.add(of_peer, "", EVALUATE_HYBRID_PEER, {**bm25, "model": alone}, peer)


def called(name: str) -> list[int]:
    """Places, in :data:`STAGES`, of the stages that a user calls ``name``."""
    return [number for number, stage in enumerate(STAGES) if name in (stage.name, stage.name.split(":")[0])]


def refuse_unknown(until: str | None, start: str | None, force: tuple[str, ...]) -> None:
    """Refuse (RecipeError) names that are no stages."""
    named = [("--until", until), ("--from", start), *(("--force", stage) for stage in force)]
    wrong = [f"{flag} {stage}" for flag, stage in named if stage is not None and stage not in NAMES]
    if wrong:
        raise RecipeError(f"{', '.join(wrong)}: there is no such stage. The stages are {', '.join(NAMES)}.")
