"""The table of stages: what each output depends on, what must run, and the reason that is given for it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from results import smallest

from vtkit.pipeline.plan import NAMES, STAGES, Decision, Plan, Step
from vtkit.pipeline.steps.calibrate_head import CALIBRATE
from vtkit.pipeline.steps.write_report import rows_of
from vtkit.pipeline.store import Store
from vtkit.recipe.load import load_recipe

RECIPE = """
[recipe]
name = "tiny"
language = "ko"
[source]
model = "source-model"
[vocabulary]
kind = "existing"
tokenizer = "tokenizer"
[transfer]
method = "sembridge"
sembridge.embedder = "embedder"
[adapt]
objective = "mlm"
corpus = ["corpus.txt", "more.txt"]
steps = 10
[calibrate]
[finetune]
data = "pairs"
[evaluate]
sets = ["first-set", "second-set"]
"""


BM25 = "evaluate:bm25", "evaluate:bm25-words"


def judging(*models: str, beside: tuple[str, ...] = ("fusion",)) -> list[str]:
    """The steps that evaluate models, the last of which is the final one, and what they are evaluated beside."""
    encode, index, evaluate = ([f"{stage}:{model}" for model in models] for stage in ("encode", "index", "evaluate"))
    return [*encode, "encode:queries", *index, *beside, *evaluate]


STEPS = [
    *("vocabulary", "check:vocabulary", "transfer", "check:transfer", "adapt", "check:adapt"),
    *("calibrate", "check:calibrate", "finetune"),
    *judging("source", "transfer", "adapt", "calibrate", "finetune", beside=("fusion", *BM25)),
    *("evaluate:hybrid", "profile", "report"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the recipe and the files it names; a plan reads their bytes and nothing else of them."""
    for name in ("source-model", "tokenizer", "embedder", "pairs", "first-set", "second-set"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").write_text(name)
    for name in ("corpus.txt", "more.txt", "dictionary.tsv"):
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)  # names in overrides are relative to the current folder
    return tmp_path


def plan(folder: Path, *overrides: str, name: str = "recipe.toml") -> Plan:
    """The plan of the recipe under ``overrides``, over the store in ``folder/runs``."""
    store = Store(folder / "runs" / "artifacts")
    store.prepare()
    return Plan(load_recipe(folder / name, overrides).recipe, store)


def keys(made: Plan) -> dict[str, str]:
    return {name: step.dependencies.key for name, step in made.steps.items()}


def changed(folder: Path, *overrides: str, before: tuple[str, ...] = ()) -> list[str]:
    """Steps whose output is another one, beside the report (which quotes the recipe)."""
    old, new = keys(plan(folder, *before)), keys(plan(folder, *overrides))
    return [name for name in new if old.get(name) != new[name] and name != "report"]


def make(made: Plan, *names: str) -> dict[str, str]:
    """Outputs for these steps (all by default) in the store, and step -> folder, as a run records them."""

    def build(step: Step) -> str:
        def content(out: Path) -> Any:
            (out / "content").write_text("made")
            return smallest(step.stage.result)

        return made.store.build(step.dependencies, step.stage.result, content, afresh=False).name

    return {name: build(made.steps[name]) for name in names or made.steps}


def reasons(decisions: list[Decision]) -> dict[str, str]:
    """Step -> reason, for the steps that run."""
    return {decision.step.name: decision.reason for decision in decisions if decision.runs}


def judged_after(*models: str) -> list[str]:
    """The last of these models and all that judges them."""
    return [models[-1], *judging(*models), "evaluate:hybrid"]


def downstream(first: str) -> list[str]:
    """``first`` and the steps that come after it up to the final model, and all that judges their models."""
    made = STEPS[STEPS.index(first) : STEPS.index("finetune")]
    models = [name for name in made if name != "vocabulary" and not name.startswith("check:")]
    return [*made, *judged_after(*models, "finetune")]


# what there is


def test_the_steps_come_in_the_order_they_run_each_after_its_inputs(folder: Path) -> None:
    made = plan(folder)
    assert list(made.steps) == STEPS
    seen: set[str] = set()
    for step in made.steps.values():
        assert set(step.inputs.values()) <= seen, step.name
        assert step.stage.name in {stage.name for stage in STAGES}
        seen.add(step.name)
    assert made.final_model == "finetune"
    assert made.steps["report"].inputs.keys() == set(STEPS) - {"report"}
    scratch = plan(folder, "source.scratch.layers=1", "transfer=none")
    assert not {"evaluate:source", "check:vocabulary", "check:transfer"} & scratch.steps.keys()
    assert scratch.steps["transfer"].inputs == {"vocabulary": "vocabulary"}
    assert scratch.steps["adapt"].inputs == {"model": "transfer"}


def test_every_evaluation_has_a_row_in_the_report(folder: Path) -> None:
    extras = "evaluate.peers=['embedder']", "index.lexical=bm25"
    made = plan(folder, *extras)
    judged = [name.removeprefix("evaluate:") for name in made.steps if name.startswith("evaluate:")]
    recipe = made.steps["report"].recipe
    models = {name: f"after {name}" for name in ("source", *made.steps) if f"evaluate:{name}" in made.steps}
    rows = rows_of(recipe, models)
    assert set(rows) == set(judged)
    assert rows["bm25"] == ("BM25", "BM25")
    assert rows["finetune"] == ("finetune", "after finetune")
    assert rows["hybrid"] == ("finetune + BM25", "after finetune + BM25")
    assert rows["deployed"] == ("deployed", "with BM25 in one index")
    assert rows["hybrid-peer:embedder"] == ("embedder (dense) + BM25",) * 2


def test_what_has_no_section_is_no_step(folder: Path) -> None:
    made = plan(folder, "adapt=none", "finetune=none", "calibrate.corpus=['more.txt']", "evaluate.bm25=false")
    judged = judging("source", "transfer", "calibrate", beside=())
    made_by = ["vocabulary", "check:vocabulary", "transfer", "check:transfer", "calibrate", "check:calibrate"]
    assert list(made.steps) == [*made_by, *judged, "profile", "report"]
    assert made.final_model == "calibrate"
    assert made.steps["calibrate"].inputs == {"model": "transfer"}


def test_expanded_documents_are_read_by_fine_tuning_and_by_the_final_index(folder: Path) -> None:
    before = "expand_documents.method='tilde'"
    made, plain = plan(folder, before), plan(folder)
    assert [name for name in made.steps if name not in plain.steps] == ["expand", "expand:documents"]
    assert made.steps["expand"].inputs == {"model": "adapt"}  # not the calibrated one
    assert made.steps["finetune"].inputs == {"model": "calibrate", "expansions": "expand:documents"}
    assert made.steps["encode:finetune"].inputs["expansions"] == "expand:documents"
    assert made.steps["encode:adapt"].inputs == {"model": "adapt"}
    assert keys(plan(folder, "expand_documents.method='none'")) | {"report": ""} == keys(plain) | {"report": ""}
    found = changed(folder, before, "expand_documents.keep=40", before=(before,))
    assert found == ["expand:documents", *judged_after("finetune")]
    assert changed(folder, before, "expand_documents.batch_size=8", before=(before,))[:2] == [
        "expand",
        "expand:documents",
    ]


# keys


def test_a_lexical_part_changes_no_model_and_no_vectors(folder: Path) -> None:
    before, after = keys(plan(folder)), keys(plan(folder, "index.lexical=bm25"))
    assert after.keys() - before.keys() == {"index:deployed", "evaluate:deployed"}
    assert [name for name in before if before[name] != after[name]] == ["report"]


def test_the_same_recipe_has_the_same_keys_and_every_step_a_key_of_its_own(folder: Path) -> None:
    first = keys(plan(folder))
    assert keys(plan(folder)) == first
    assert len(set(first.values())) == len(first)


def test_a_changed_setting_changes_its_stage_and_what_is_made_from_it(folder: Path) -> None:
    evaluations = [name for name in STEPS if name.startswith("evaluate")]
    indexed = [name for name in STEPS if name.startswith(("index", "fusion", "evaluate:")) and "bm25" not in name]
    encoded = [name for name in STEPS if name.startswith("encode") and name != "encode:queries"]
    for setting, steps in {
        "transfer.sembridge.alpha=2.0": downstream("transfer"),
        "adapt.steps=11": downstream("adapt"),
        "calibrate.target_activation=0.2": downstream("calibrate"),
        "finetune.infonce_scale=2.0": downstream("finetune"),
        "evaluate.measures=['nDCG@5']": ["fusion", *evaluations],
        "index.document_length=64": [*encoded, *indexed],
        "index.document_weighting='geng'": indexed,
        "index.query_length=32": ["encode:queries", *(name for name in indexed if not name.startswith("index"))],
        "recipe.seed=1": downstream("adapt"),  # neither vocabulary nor rows are drawn
        "recipe.language=ja": [*("check:transfer", "fusion", *BM25, "evaluate:hybrid", "profile")],
        "index.bm25_analyser='morphemes'": [*("check:transfer", "fusion", "evaluate:bm25", "evaluate:hybrid")],
        **{f"{section}.checkpoint_every=7": [] for section in ("adapt", "finetune")},
        "recipe.about=new": [],
    }.items():
        assert changed(folder, setting) == steps, setting
    noise = "transfer.fallback=random"
    assert changed(folder, noise, "recipe.seed=1", before=(noise,)) == downstream("transfer")


@pytest.mark.parametrize("objective", ["mlm", "auto", "crop", '["align", "crop"]', "distill"])
def test_what_adaptation_reads_of_the_source_and_the_transfer(folder: Path, objective: str) -> None:
    """Masked-language-model training reads the source to choose its prior; the others read the vectors, too."""
    asked, bias = f"adapt.objective={objective}", "transfer.bias.method"
    settings, other = (
        plan(folder, asked, *more).steps["adapt"].dependencies.settings for more in ([], [f"{bias}=mixture"])
    )
    assert "source.model" in settings
    assert (bias in settings) == (objective != "mlm")
    assert objective == "mlm" or settings[bias] != other[bias]
    assert objective == "mlm" or ("recipe.language" in settings) == (objective == "distill")


def test_settings_of_other_methods_change_no_key(folder: Path) -> None:
    for override in ("transfer.parallel.files=['dictionary.tsv']", "transfer.parallel.min_probability=0.2"):
        assert changed(folder, override) == [], override
    subtoken = "transfer.method=subtoken"
    for override in ("sembridge.alpha=2.0", "sembridge.embedder=none", "parallel.min_probability=0.3"):
        assert changed(folder, subtoken, f"transfer.{override}", before=(subtoken,)) == [], override
    parallel = ("transfer.method=parallel", "transfer.parallel.files=['dictionary.tsv']")
    more = changed(folder, *parallel, "transfer.parallel.min_probability=0.3", before=parallel)
    assert more == downstream("transfer")
    assert changed(folder, *parallel, "transfer.sembridge.embedder=none", before=parallel) == []
    negatives = "finetune.hard_negatives=1"  # only where it draws them does the language matter to fine-tuning
    assert "finetune" in changed(folder, negatives, "recipe.language=ja", before=(negatives,))


def test_a_bias_by_mixture_reads_no_corpus(folder: Path) -> None:
    mixture = ("transfer.bias.method=mixture", "adapt=none", "finetune=none", "calibrate=none")
    found = changed(folder, *mixture, "transfer.bias.corpus=['more.txt']", before=mixture)
    assert found == ["check:vocabulary", "check:transfer"]  # which take their probe texts from it
    zscore = mixture[1:]
    assert "transfer" in changed(folder, *zscore, "transfer.bias.corpus=['more.txt']", before=zscore)


def test_which_models_are_judged_changes_no_models_own_numbers(folder: Path) -> None:
    before = keys(plan(folder))
    after = keys(plan(folder, "evaluate.models=['calibrate', 'finetune']", "evaluate.bm25=false"))
    assert set(before) - set(after) >= {"index:source", "evaluate:transfer", "evaluate:bm25", "evaluate:hybrid"}
    assert all(after[name] == before[name] for name in after if name != "report")
    assert after["report"] != before["report"]


CHECKS = [name for name in STEPS if name.startswith("check:")]


def test_a_changed_gate_runs_its_checks_again_and_nothing_else(folder: Path) -> None:
    previous = make(plan(folder))
    for override in ("gates.warn=ties", "gates.off=['ties', 'overlap']"):
        assert changed(folder, override) == CHECKS
        assert list(reasons(plan(folder, override).decide(previous))) == [*CHECKS, "report"]  # which quotes them


def test_a_check_knows_whether_a_later_stage_can_repair_what_it_finds(folder: Path) -> None:
    """The checks ask only whether the section is there, and one of two is enough, but either changes the key."""
    texts = ("calibrate.corpus=['more.txt']", "transfer.bias.corpus=['more.txt']")
    without = changed(folder, *texts, "adapt=none", before=texts)
    assert "check:transfer" in without
    assert not {"vocabulary", "check:vocabulary", "transfer"} & set(without)
    assert "check:transfer" not in changed(folder, *texts, "adapt.steps=11", before=texts)
    unrepaired = changed(folder, "finetune=none", "adapt.corpus=['more.txt']", before=("adapt.corpus=['more.txt']",))
    assert "check:calibrate" in unrepaired
    assert "calibrate" not in unrepaired


def test_probe_texts_are_in_the_key_of_the_checks_that_read_them(folder: Path) -> None:
    before = ("transfer.bias.corpus=['corpus.txt']", "transfer.bias.method=mixture")
    after = ("transfer.bias.corpus=['more.txt']", "transfer.bias.method=mixture")
    assert changed(folder, *after, before=before) == ["check:vocabulary", "check:transfer"]
    (folder / "more.txt").write_text("other\n")
    found = changed(folder, "calibrate.corpus=['more.txt']", before=("calibrate.corpus=['corpus.txt']",))
    assert found == downstream("calibrate")


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("tokenizer/content", "vocabulary"),
        ("source-model/content", "check:vocabulary"),
        ("embedder/content", "check:vocabulary"),  # whether there is a bridge
        ("more.txt", "check:vocabulary"),  # probe texts and counts of the bias come from the adaptation corpus
    ],
)
def test_a_changed_file_changes_the_stages_that_read_it(name: str, first: str, folder: Path) -> None:
    before = keys(plan(folder))
    (folder / name).write_text("something else\n")
    after = keys(plan(folder))
    found = [step for step in after if before[step] != after[step]]
    source = ["encode:source", "index:source", "evaluate:source"] if name.startswith("source") else []
    source += ["profile"] if name.startswith(("source", "tokenizer")) else []
    assert sorted(found) == sorted([*downstream(first), *source, "report"])


def test_a_file_that_only_moved_changes_no_model(folder: Path) -> None:
    (folder / "corpus.txt").rename(folder / "moved.txt")
    (folder / "corpus.txt").write_text("corpus.txt\n")
    assert changed(folder, "adapt.corpus=['moved.txt', 'more.txt']") == []
    assert changed(folder, "adapt.corpus=['more.txt', 'corpus.txt']") == downstream("check:vocabulary")  # new order


def test_two_recipes_that_agree_on_a_stage_share_its_output(folder: Path) -> None:
    (folder / "other.toml").write_text(RECIPE.replace('name = "tiny"', 'name = "other"'))
    first, second = keys(plan(folder)), keys(plan(folder, name="other.toml"))
    assert [name for name in first if first[name] != second[name]] == ["report"]


# decisions


def test_everything_is_made_once(folder: Path) -> None:
    decisions = plan(folder).decide({})
    assert [decision.step.name for decision in decisions] == STEPS
    assert reasons(decisions) == dict.fromkeys(STEPS, "not made yet")
    previous = make(plan(folder))
    decisions = plan(folder).decide(previous)
    assert not any(decision.runs or decision.again for decision in decisions)
    assert {decision.reason for decision in decisions} == {"done"}
    assert reasons(plan(folder).decide({})) == {}  # whoever made it


@pytest.mark.parametrize(
    ("overrides", "expected", "done"),
    [
        (["transfer.sembridge.alpha=2.0"],
         {"transfer": ["transfer.sembridge.alpha 4.0 -> 2.0"], "adapt": ["transfer changed"],
          "finetune": ["calibrate changed"], "evaluate:adapt": ["index:adapt changed", "adapt changed"]},
         {"vocabulary", "evaluate:source"}),
        (["transfer.method=mean", "transfer.bias.method=mixture"],
         {"transfer": ["transfer.bias.method zscore -> mixture", "transfer.method sembridge -> mean",
                       "the files of transfer.bias.corpus changed",
                       "the files of transfer.sembridge.embedder changed"]}, set()),
        (["recipe.seed=7"], {"adapt": ["seed 42 -> 7"], "calibrate": ["seed 42 -> 7", "adapt changed"]},
         {"vocabulary", "transfer"}),
        ([], {"transfer": ["the files of transfer.bias.corpus changed"],
              "adapt": ["the files of adapt.corpus changed", "transfer changed"],
              "calibrate": ["the files of calibrate.corpus changed", "adapt changed"]}, set()),
    ],
)  # fmt: skip
def test_the_reason_names_settings_with_both_values_seeds_files_and_inputs(
    folder: Path, overrides: list[str], expected: dict[str, list[str]], done: set[str]
) -> None:
    previous = make(plan(folder))
    if not overrides:
        (folder / "more.txt").write_text("changed\n")
    found = reasons(plan(folder, *overrides).decide(previous))
    assert {name: found[name] for name in expected} == {name: "; ".join(parts) for name, parts in expected.items()}
    assert not done & found.keys()


def test_the_reason_names_inputs_that_came_or_went(folder: Path) -> None:
    previous = make(plan(folder, "evaluate.models=['finetune']"))
    found = reasons(plan(folder, "evaluate.models=['adapt', 'finetune']").decide(previous))
    assert found.keys() == {"encode:adapt", "index:adapt", "evaluate:adapt", "report"}
    assert found["evaluate:adapt"] == "not made yet"
    assert "index:adapt is new; evaluate:adapt is new" in found["report"]
    found = reasons(plan(folder, "evaluate.models=['finetune']", "evaluate.bm25=false").decide(previous))
    assert "evaluate:bm25 is gone; evaluate:bm25-words is gone; evaluate:hybrid is gone" in found["report"]


def test_a_new_version_of_a_stage_is_a_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    previous = make(plan(folder))
    monkeypatch.setattr("vtkit.pipeline.plan.CALIBRATE", replace(CALIBRATE, version=CALIBRATE.version + 1))
    assert reasons(plan(folder).decide(previous))["calibrate"] == "the stage itself changed"


def test_a_damaged_output_is_made_again_and_says_what_is_wrong(folder: Path) -> None:
    made = plan(folder)
    previous = make(made)
    (made.store.root / previous["adapt"] / "content").write_text("nade")
    (made.store.root / previous["finetune"] / "manifest.json").unlink()
    found = reasons(plan(folder).decide(previous))
    assert found == {
        "adapt": "its output is damaged: content is damaged: its checksum does not match",
        "finetune": "its output is damaged: its manifest is missing",
    }


def test_an_interrupted_stage_goes_on_from_its_checkpoint(folder: Path) -> None:
    made = plan(folder)
    folder_of_adapt = made.store.folder(made.steps["adapt"].dependencies).name
    checkpoints = made.store.root / ".partial" / folder_of_adapt / "checkpoints"
    checkpoints.mkdir(parents=True)
    assert reasons(plan(folder).decide({}))["adapt"] == "not made yet"
    (checkpoints / "checkpoint-10").mkdir()
    assert reasons(plan(folder).decide({}))["adapt"] == "was interrupted, continues from its checkpoint"
    again = {decision.step.name: decision for decision in plan(folder).decide({}, start="adapt")}["adapt"]
    assert (again.reason, again.again) == ("asked for with --from", True)


def test_stages_asked_for_are_made_again(folder: Path) -> None:
    previous = make(plan(folder))
    decisions = plan(folder).decide(previous, start="calibrate")
    found = reasons(decisions)
    assert set(found.values()) == {"asked for with --from"}
    assert list(found) == STEPS[STEPS.index("calibrate") :]
    assert all(decision.again == decision.runs for decision in decisions)
    for force, steps in {
        ("adapt", "index"): ["adapt", *(name for name in STEPS if name.startswith("index"))],
        ("check:transfer",): ["check:transfer"],
        ("check",): CHECKS,
    }.items():
        found = reasons(plan(folder).decide(previous, force=force))
        assert list(found) == steps
        assert set(found.values()) == {"asked for with --force"}


@pytest.mark.parametrize(
    ("last", "step"),
    [
        *(
            (stage, f"check:{stage}") for stage in ("vocabulary", "transfer", "adapt", "calibrate")
        ),  # which belong to it
        *((step, step) for step in ("check:vocabulary", "finetune", "report")),
        ("check", "check:calibrate"),
        ("evaluate", "evaluate:hybrid"),
    ],
)
def test_until_a_stage_nothing_later_is_planned(last: str, step: str, folder: Path) -> None:
    decided = [decision.step.name for decision in plan(folder).decide({}, until=last)]
    assert decided == STEPS[: STEPS.index(step) + 1]


def test_until_the_index_nothing_is_judged(folder: Path) -> None:
    decided = [decision.step.name for decision in plan(folder).decide({}, until="index")]
    assert decided == [name for name in STEPS if not name.startswith(("evaluate", "profile", "report"))]


# a recipe whose source is another recipe


ENGLISH = """
[recipe]
name = "english"
[source.scratch]
layers = 1
[vocabulary]
kind = "trained"
corpus = ["corpus.txt"]
[adapt]
objective = "mlm"
corpus = ["corpus.txt"]
[finetune]
data = "pairs"
[evaluate]
sets = ["first-set"]
"""


@pytest.fixture
def chained(folder: Path) -> Path:
    """The folder with a second recipe that is the source of the first."""
    (folder / "english.toml").write_text(ENGLISH)
    (folder / "recipe.toml").write_text(RECIPE.replace('model = "source-model"', 'recipe = "english.toml"'))
    return folder


THEIRS = ["english/vocabulary", "english/transfer", "english/adapt", "english/check:adapt", "english/finetune"]
NEEDED = [name for name in THEIRS if ":" not in name]


def test_the_steps_of_a_source_recipe_come_first_and_are_not_judged_there(chained: Path) -> None:
    made = plan(chained)
    assert list(made.steps) == [*THEIRS, *STEPS]
    assert made.steps["transfer"].inputs == {"vocabulary": "vocabulary", "source": "english/finetune"}
    assert made.steps["encode:source"].inputs == {"model": "english/finetune"}
    assert [made.steps[name].recipe.recipe.name for name in ("english/adapt", "adapt")] == ["english", "tiny"]
    assert made.steps["english/finetune"].stage.name == "finetune"


def test_a_source_recipe_shares_its_outputs_with_its_own_run(chained: Path) -> None:
    theirs, ours = keys(plan(chained, name="english.toml")), keys(plan(chained))
    assert {name: ours[f"english/{name}"] for name in ("vocabulary", "transfer", "adapt", "finetune")} == {
        name: theirs[name] for name in ("vocabulary", "transfer", "adapt", "finetune")
    }


def test_a_change_in_the_source_recipe_reaches_the_recipe(chained: Path) -> None:
    previous = make(plan(chained))
    (chained / "english.toml").write_text(ENGLISH.replace("layers = 1", "layers = 2"))
    found = reasons(plan(chained).decide(previous))
    assert found["english/transfer"] == "source.scratch.layers 1 -> 2"
    assert found["transfer"] == "english/finetune changed"
    assert "english/vocabulary" not in found
    assert "vocabulary" not in found


@pytest.mark.parametrize(
    ("last", "theirs"), [("vocabulary", NEEDED), ("transfer", NEEDED), ("adapt", NEEDED), ("report", THEIRS)]
)
def test_until_a_stage_the_source_recipe_runs_as_far_as_it_is_needed(
    last: str, theirs: list[str], chained: Path
) -> None:
    decided = [decision.step.name for decision in plan(chained).decide({}, until=last)]
    assert [name for name in decided if name.startswith("english/")] == theirs
    ends = {name: f"check:{name}" for name in ("vocabulary", "transfer", "adapt")}.get(last, last)
    ours = STEPS[: STEPS.index(ends) + 1]
    assert [name for name in decided if not name.startswith("english/")] == ours


def test_from_and_force_mean_the_recipes_own_stages(chained: Path) -> None:
    previous = make(plan(chained))
    for arguments in ({"start": "vocabulary"}, {"force": NAMES}):
        found = reasons(plan(chained).decide(previous, **arguments))
        assert list(found) == STEPS


def test_manifests_hold_no_key_twice_and_read_back(folder: Path) -> None:
    made = plan(folder)
    make(made, "transfer")
    stored = json.loads((made.store.folder(made.steps["transfer"].dependencies) / "manifest.json").read_text())
    assert stored["settings"]["transfer.sembridge.embedder"] == ["(file)"]
    assert str(folder) not in json.dumps(stored["settings"])
    assert stored["files"].keys() >= {"source.model[0]", "transfer.sembridge.embedder[0]", "transfer.bias.corpus[1]"}


def test_vocabularies_are_analysed_again_when_they_or_the_judged_texts_change(folder: Path) -> None:
    before = keys(plan(folder))
    assert plan(folder).steps["profile"].inputs == {"vocabulary": "vocabulary"}
    (folder / "first-set" / "content").write_text("other documents\n")
    assert keys(plan(folder))["profile"] != before["profile"]


def test_the_report_is_written_again_for_another_command_line(folder: Path) -> None:
    recipe = load_recipe(folder / "recipe.toml").recipe
    first = keys(Plan(recipe, Store(folder / "runs" / "artifacts")))
    recipe.run_by("vtkit", "run", "recipe.toml", "--set", "finetune.epochs=2")
    second = keys(Plan(recipe, Store(folder / "runs" / "artifacts")))
    assert [name for name in first if first[name] != second[name]] == ["report"]
    assert recipe.command[-1] == "finetune.epochs=2"
