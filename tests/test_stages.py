"""Stages as records: a stage sees what its record names and nothing else, and what it sees is in its key."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from results import smallest

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.evaluation.fusion_queries import weight_queries
from vtkit.pipeline.plan import NAMES, STAGES, called
from vtkit.pipeline.stage import CHANGES_NO_OUTPUT, WHOLE_RECIPE, Corpus, Stage, UndeclaredRead, View
from vtkit.pipeline.steps.texts import trained_documents, training_queries
from vtkit.pipeline.steps.write_report import MODEL_LABELS
from vtkit.settings.recipe import Recipe
from vtkit.settings.transfer import TransferSection
from vtkit.system.results import Result

RECIPE = Recipe.model_validate(
    {
        "recipe": {"name": "whole", "language": "ko", "about": "all sections"},
        "source": {"model": "/source"},
        "vocabulary": {"kind": "existing", "tokenizer": "/tokenizer"},
        "casing": {"input": "lowercase", "output": "fold"},
        "transfer": {"method": "parallel", "parallel": {"files": ("/pairs.tsv",)}},
        "adapt": {"corpus": ("/corpus.txt",)},
        "calibrate": {"target_activation": 0.1},
        "expand_documents": {"method": "tilde-aug"},
        "finetune": {"data": "/train", "validation": {"queries": 0.1}},
        "evaluate": {"sets": ("/first", "/second/first")},
    }
)
"""A recipe that has every section."""


def settings(section: BaseModel, path: str = "") -> Iterator[str]:
    """Dotted names of all settings."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from settings(value, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def value_of(recipe: Recipe, setting: str) -> Any:
    found: Any = recipe
    for part in setting.split("."):
        found = getattr(found, part)
    return found


def can_read(stage: Stage[Any], setting: str) -> bool:
    try:
        found = value_of(stage.view(RECIPE), setting)
    except UndeclaredRead:
        return False
    assert found == value_of(RECIPE, setting)
    return True


def digest(path: str) -> str:
    return f"digest of {path}"


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_stage_reads_what_its_record_names_and_nothing_else(stage: Stage[Any]) -> None:
    for setting in settings(RECIPE):
        named = WHOLE_RECIPE in stage.reads or setting == "recipe.seed"
        named = named or any(setting == entry or setting.startswith(f"{entry}.") for entry in stage.reads)
        assert can_read(stage, setting) == named, setting


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_whatever_a_stage_can_read_is_in_its_key(stage: Stage[Any]) -> None:
    """But for the seed, which is a part of every key, for settings that have no effect, and for names of files."""
    if WHOLE_RECIPE in stage.reads:
        return
    keyed, files = stage.settings(RECIPE), stage.files(RECIPE, digest)
    assert isinstance(RECIPE.transfer, TransferSection)
    used = RECIPE.transfer.settings_read | RECIPE.finetune.settings_read
    for setting in settings(RECIPE):
        without_effect = setting.startswith(("transfer.", "finetune.")) and setting not in used
        without_effect |= setting.endswith(CHANGES_NO_OUTPUT) or setting == "source.recipe"
        if can_read(stage, setting) and setting != "recipe.seed" and not without_effect:
            assert setting in keyed or setting in stage.corpora, setting
            if "(file)" in str(keyed.get(setting)):
                assert f"{setting}[0]" in files
    for setting in keyed:
        assert setting.startswith(("[", *stage.corpora)) or can_read(stage, setting), setting


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_stage_reads_the_texts_that_its_record_names_and_no_others(stage: Stage[Any]) -> None:
    view, files = stage.view(RECIPE), stage.files(RECIPE, digest)
    for setting in stage.corpora:
        for number, corpus in enumerate(view.corpora(setting)):
            assert files[f"{setting}[{number}]"] == f"digest of {corpus.name}"
    with pytest.raises(UndeclaredRead, match=r"stage .* reads the texts of other\.corpus"):
        view.corpora("other.corpus")


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_stage_says_of_which_class_its_result_is_and_that_class_is_read_back_from_json(stage: Stage[Any]) -> None:
    found = smallest(stage.result)
    assert type(found) is not Result
    assert TypeAdapter(stage.result).validate_python(json.loads(json.dumps(found, default=asdict))) == found
    entries = found.values() if isinstance(found, dict) else found if isinstance(found, list) else [found]
    for record in [entry for entry in entries if is_dataclass(entry)]:
        with pytest.raises(FrozenInstanceError):
            setattr(record, fields(record)[0].name, None)


def nothing(recipe: View, inputs: Any, out: Any) -> Result:
    return Result()


def test_a_question_mark_tells_whether_there_is_a_section_and_nothing_of_it() -> None:
    stage = Stage("check:example", 1, ("adapt?",), nothing)
    without = RECIPE.model_copy(update={"adapt": None})
    assert stage.view(without).adapt is None
    with pytest.raises(UndeclaredRead, match=r"reads adapt\.steps"):
        _ = stage.view(RECIPE).adapt.steps
    assert stage.settings(RECIPE) == {"[adapt]": "given"}
    assert stage.settings(without) == {"[adapt]": "missing"}
    assert stage.files(RECIPE, digest) == {}


def test_a_single_setting_is_read_without_its_section() -> None:
    stage = Stage("example", 1, ("transfer.bias.method", "index.precision"), nothing)
    view = stage.view(RECIPE)
    assert view.transfer.bias.method == "zscore"
    assert isinstance(view, Recipe)
    assert isinstance(view.transfer, TransferSection)  # match statements go on working
    for read in ("transfer.method", "transfer.bias.corpus", "index.engine", "recipe.name", "gates"):
        with pytest.raises(UndeclaredRead, match=f"stage example reads {read}"):
            value_of(view, read)
    assert stage.settings(RECIPE) == {"transfer.bias.method": "zscore", "index.precision": "float32"}
    with pytest.raises(UndeclaredRead, match="stage example reads transfer"):
        _ = view.transfer.methods  # a property that reads more
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = view.nothing_like_it


def test_what_is_read_by_a_whole_section_is_keyed_where_it_has_an_effect() -> None:
    stage = Stage("example", 1, ("transfer", "finetune", "casing"), nothing)
    keyed = stage.settings(RECIPE)
    assert keyed["transfer.parallel.files"] == ["(file)"]
    assert stage.files(RECIPE, digest) == {
        "transfer.parallel.files[0]": "digest of /pairs.tsv", "finetune.data[0]": "digest of /train",
    }  # fmt: skip
    assert not any(setting.startswith("transfer.sembridge") for setting in keyed)
    assert "finetune.checkpoint_every" not in keyed


def test_sets_of_the_same_name_have_folders_of_their_own_which_are_in_the_key() -> None:
    (index,) = [stage for stage in STAGES if stage.name == "index"]
    assert [corpus.folder for corpus in index.view(RECIPE).corpora("evaluate.sets")] == ["first", "first-2"]
    assert index.settings(RECIPE)["evaluate.sets (folder)"] == ["first", "first-2"]
    assert index.settings(RECIPE)["evaluate.sets (split)"] == ["test", "test"]


def test_training_queries_choose_the_weight_unless_the_recipe_trains_or_judges_on_them(tmp_path: Path) -> None:
    queries = {
        "first": ("a", "b", "c"), "second": ("d", "e", "f"), "third": (), "first-in-english": ("a", "b", "x"),
        "a-little-of-second": ("d", "x", "y"),
    }  # fmt: skip
    for name, identities in queries.items():
        write_splits(tmp_path / name, {"test": "", "train": identities} if identities else {"test": ""})

    def folders(evaluate: dict[str, Any], finetune: str | None = None, source: str | None = None) -> list[str | None]:
        sets = tuple(str(tmp_path / name) for name in ("first", "second", "third"))
        changes = {
            "evaluate": {"sets": sets} | evaluate,
            "finetune": finetune and {"data": finetune},
            "expand_documents": None,
        }
        if source is not None:
            earlier = tmp_path / f"{source}.toml"
            earlier.write_text(
                '[recipe]\nname = "earlier"\n[source]\nmodel = "some/model"\n[vocabulary]\nkind = "existing"\n'
                f'tokenizer = "some/model"\n[transfer]\nmethod = "mean"\n[finetune]\ndata = "{tmp_path / source}"\n'
            )
            changes["source"] = {"recipe": str(earlier)}
        recipe = Recipe.model_validate({**RECIPE.model_dump(), **changes})
        assert {corpus.split for corpus in training_queries(recipe)} <= {"train"}
        return [corpus.folder for corpus in training_queries(recipe)]

    assert folders({}) == ["first", "second"]
    assert folders({}, str(tmp_path / "third" / ".." / "first")) == ["second"]
    assert folders({}, source="first") == ["second"]
    assert folders({}, source="first-in-english") == ["second"]
    assert folders({}, str(tmp_path / "second"), source="first-in-english") == []
    assert folders({}, source="a-little-of-second") == ["first", "second"]
    for texts, left in (("def", ["first"]), ("dx", ["first", "second"])):
        (tmp_path / "pairs.tsv").write_text("".join(f"Sea  {each}?\twater\n" for each in texts))
        assert folders({}, str(tmp_path / "pairs.tsv")) == left
    assert folders({"split": "train"}) == []
    assert folders({"bm25": False}) == []


def write_splits(folder: Path, splits: Mapping[str, Sequence[str]]) -> None:
    """A collection of one document, which every query of every split asks for."""
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "1", "text": "water"}\n')
    identities = sorted({each for of in splits.values() for each in of})
    (folder / "queries.jsonl").write_text(
        "".join(f'{{"_id": "{each}", "text": "sea {each}"}}\n' for each in identities)
    )
    for split, of in splits.items():
        lines = "".join(f"{each}\t1\t1\n" for each in of)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")


@pytest.mark.parametrize(
    ("judged", "trained_on", "chosen"),
    [("test", None, "train"), ("test", "train", "dev"), ("test", "fit", "train"), ("dev", "train", None)],
)
def test_where_it_trains_on_the_training_queries_dev_queries_choose_the_weight(
    judged: str, trained_on: str | None, chosen: str | None, tmp_path: Path
) -> None:
    folder = str(tmp_path / "collection")
    write_splits(tmp_path / "collection", {"train": "ab", "dev": "cd", "test": "ef", "fit": "gh"})
    finetune = trained_on and {"data": folder, "split": trained_on}
    changes = {"evaluate": {"sets": (folder,), "split": judged}, "finetune": finetune, "expand_documents": None}
    recipe = Recipe.model_validate({**RECIPE.model_dump(), **changes})
    assert [corpus.split for corpus in training_queries(recipe)] == ([] if chosen is None else [chosen])


def test_queries_of_documents_that_were_trained_on_choose_no_weight(tmp_path: Path) -> None:
    """Of 60 dev queries, ten ask for a document that a query of the training queries found, and are left out."""
    documents = [Document(f"d{number}", "", f"text {number}") for number in range(80)]
    (tmp_path / "qrels").mkdir()
    judged = {
        "train": {f"t{number}": {f"d{number}": 1, f"d{number + 10}": 0} for number in range(20)},
        "dev": {f"v{number}": {f"d{number + 10}": 1, "d0": 0} for number in range(60)},
    }
    for split, qrels in judged.items():
        lines = "".join(
            f"{query}\t{document}\t{grade}\n" for query in qrels for document, grade in qrels[query].items()
        )
        (tmp_path / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")
    others = RetrievalSet("tiny", documents, [], {})
    trained = trained_documents([Corpus(str(tmp_path / "." / ""), "train")], str(tmp_path), others)
    assert trained == {f"d{number}" for number in range(20)}
    assert trained_documents([Corpus(str(tmp_path / "elsewhere"), "train")], str(tmp_path), others) == set()
    (tmp_path / "pairs.tsv").write_text("ask\ttext 3\nask\ttext 4\n")
    assert trained_documents([Corpus(str(tmp_path / "pairs.tsv"), "train")], str(tmp_path), others) == {"d3", "d4"}
    dev = RetrievalSet("tiny", documents, [Query(query, f"ask {query}") for query in judged["dev"]], judged["dev"])
    chosen = weight_queries(dev, others, 1, trained)
    assert {query.id for query in chosen.queries} == {f"v{number}" for number in range(10, 60)}
    everything = weight_queries(dev, others, 1)
    assert len(everything.queries) == 60
    assert weight_queries(dev, others, 1, trained | {"d79", "d20"}) is None  # 49 are too few


def test_names_order_and_labels_come_from_the_records() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert {"check", *(stage.name for stage in STAGES)} == set(NAMES)
    assert [name for name in NAMES if name in MODEL_LABELS] == list(MODEL_LABELS)[1:]
    assert list(MODEL_LABELS) == ["source", *(stage.name for stage in STAGES if stage.label)]
    evaluating = {name for name in NAMES if name.startswith("evaluate")}
    assert {STAGES[place].name for place in called("evaluate")} == evaluating
    (index,) = [stage for stage in STAGES if stage.name == "index"]
    reading = index.reading("source.model")
    assert reading == replace(index, reads=(*index.reads, "source.model"))
    assert [can_read(each, "source.model") for each in (reading, index)] == [True, False]
