"""Recipes: what a file may say, what its settings become, and what is said about a recipe that is wrong."""

import os
import random
import re
import sys
import time
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from vtkit.commands.recipe import check_recipe
from vtkit.data.sources import COLLECTION_FORMS
from vtkit.pipeline.steps.texts import used_where_left_open
from vtkit.recipe.checks import check_names
from vtkit.recipe.load import MOST_BYTES, key_lines, load_recipe, one_value, required_things, resolve_name
from vtkit.recipe.new import NewRecipe, as_written_in, new_recipe
from vtkit.recipe.reference import json_schema, settings_reference
from vtkit.recipe.tables import all_settings, field_called, tables_in
from vtkit.recipe.write import resolved_toml, toml_value
from vtkit.settings.analysers import LUCENE
from vtkit.settings.casing import CasingSection
from vtkit.settings.named import find_mark, named_things
from vtkit.settings.recipe import Recipe, SweepSection
from vtkit.settings.transfer import ParallelTransfer, SemanticTransfer, SembridgeTransfer
from vtkit.settings.vocabulary import ExpandedVocabulary, TrainedVocabulary
from vtkit.system.errors import RecipeError, VtkitError

ROOT = Path(__file__).parents[1]

SMALLEST = """\
[recipe]
name = "small"
[source]
model = "org/model"
[vocabulary]
kind = "existing"
tokenizer = "org/tokenizer"
[transfer]
method = "mean"
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refused(path: Path, *overrides: str) -> str:
    """The message with which a recipe is refused, its folder left out."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, overrides)
    return str(caught.value).replace(f"{path.parent}/", "")


def squeezed(message: str) -> list[str]:
    """The lines of a message without the spaces that align them."""
    return [" ".join(line.split()) for line in message.splitlines()]


# The line finder


quiet_text = st.text(alphabet=st.sampled_from("ab =[]{}.,#'\"\\\n\té가"), max_size=12)
scalars = st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), quiet_text)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_every_setting_of_a_shipped_recipe_is_found_on_the_line_that_writes_it(path: Path) -> None:
    text = path.read_text("utf-8")
    lines = text.splitlines()
    for key, line in key_lines(text).items():
        assert re.search(rf'^\[?\[?([\w.]+\.)?"?{re.escape(key[-1])}(?!\w)', lines[line - 1]), (key, line)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('a = """\n[b]\nc = 1"""\n[b]\nc.d = [\n  1,\n]\n"e f" = {g = 1, h = {i = 2}}\n',
         {("a",): 1, ("b",): 4, ("b", "c"): 5, ("b", "c", "d"): 5, ("b", "e f"): 8}),
        ('a = """x"""""\nb = \'\'\'x\'\'\'\'\'\nc = """"""\nd = 1', {("a",): 1, ("b",): 2, ("c",): 3, ("d",): 4}),
    ],
)  # fmt: skip
def test_lines_of_a_file_checkable_by_eye(text: str, lines: dict[tuple[str, ...], int]) -> None:
    tomllib.loads(text)
    assert key_lines(text) == lines


@given(values)
def test_a_toml_value_is_read_as_one_value(value: Any) -> None:
    assert one_value(toml_value(value)) == (value, True)


@pytest.mark.parametrize("text", ["", "../x", "1 2", "1\ny = 2", "[1", "]", "a", "= 1", "'''", "1\n[x]"])
def test_what_is_not_one_value_is_not_taken_for_one(text: str) -> None:
    assert not one_value(text)[1]


# Writing a recipe out


def setting(metadata: list[Any], annotation: Any) -> st.SearchStrategy[Any]:
    """Any value that a setting takes, in the form in which the loader leaves it."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        return setting([*marks, *metadata], inner)
    marks = [mark for entry in metadata for mark in (entry.metadata if isinstance(entry, FieldInfo) else [entry])]
    limits = {
        name: getattr(mark, name)
        for mark in marks
        for name in ("ge", "gt", "le", "lt", "min_length", "pattern")
        if getattr(mark, name, None) is not None
    }
    arguments = get_args(annotation)
    if type(None) in arguments:
        return st.none() | st.one_of([setting(metadata, inner) for inner in arguments if inner is not type(None)])
    if get_origin(annotation) is Literal:
        return st.sampled_from(arguments)
    if get_origin(annotation) is tuple:
        return st.lists(
            setting([], arguments[0]), min_size=limits.get("min_length", 0), max_size=3, unique_by=repr
        ).map(tuple)
    if annotation is SweepSection:
        rows = {"plain": {}, "without": {"adapt": "none", "finetune.loss": ("kl", "infonce")}}
        values = {"recipe.seed": (1, 2), "adapt.corpus": (("/a",), ("/b", "/c")), "index.lexical": ("none", "bm25")}
        return st.sampled_from([SweepSection(values=values, baseline="BM25"), SweepSection(rows=rows, columns=rows)])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return section(annotation)
    if arguments:
        return st.one_of([setting([], inner) for inner in arguments])
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        low, high = limits.get("ge", 0), limits.get("le", limits.get("lt", 10**9) - 1)
        return st.integers(low, high)
    if annotation is float:
        return st.floats(
            limits.get("ge", limits.get("gt")),
            limits.get("le", limits.get("lt")),
            exclude_min="gt" in limits,
            exclude_max="lt" in limits,
            allow_nan=False,
            allow_infinity=False,
        )
    assert annotation is str
    if find_mark(marks, str):
        return st.text(min_size=1, alphabet=st.characters(codec="utf-8", exclude_characters="\0/.~")).map("/".__add__)
    return st.from_regex(limits["pattern"], fullmatch=True) if "pattern" in limits else st.text()


def section(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    fields = {name: setting(field.metadata, field.annotation) for name, field in model.model_fields.items()}

    @st.composite
    def build(draw: st.DrawFn) -> Any:
        for _ in range(10):  # drawing one table again costs less than a whole recipe
            origins = ("model", "recipe", "scratch")
            wanted = [draw(st.sampled_from(origins))] if model.__name__ == "SourceSection" else fields
            try:
                return model(**{name: draw(fields[name]) for name in wanted})
            except ValidationError:
                continue
        return assume(False)

    return build()


def test_a_recipe_written_out_says_what_runs_where_a_setting_is_left_open(tmp_path: Path) -> None:
    """Defaults that depend on other settings: the threshold of the rule, corpora, judgements, the rows without
    evidence."""
    text = """
        recipe.name = "open"
        source.model = "org/model"
        vocabulary = {kind = "expanded", tokenizer = "org/tokenizer", corpus = ["/domain.txt"], stop = "first-gain"}
        transfer.method = "auto"
        calibrate.shift = 1.0
        finetune.data = "/train"
        evaluate.sets = ["/judged", "miracl:ko"]
        """
    recipe = load_recipe(tmp_path / "open.toml", text=text).recipe
    shown = resolved_toml(recipe, used_where_left_open(recipe))
    assert "\nepsilon = 0.1\n" in shown
    assert shown.count('# Left open in this recipe, which uses ["/train"].\ncorpus = []\n') == 2  # bias, calibrate
    assert '# Left open in this recipe, which uses "reassigned".\nfallback = "auto"\n' in shown
    assert 'uses {"/judged" = "test", "miracl:ko" = "dev"}.\n# split is not set.\n' in shown
    assert load_recipe(tmp_path / "open.toml", text=shown).recipe == recipe
    stopped = load_recipe(tmp_path / "open.toml", ["vocabulary.stop=entropy-gain"], text=text).recipe
    assert isinstance(stopped.vocabulary, ExpandedVocabulary)
    assert stopped.vocabulary.epsilon == 0.01
    assert "Left open" not in resolved_toml(recipe.model_copy(update={"transfer": None, "calibrate": None}))


# Loading


def test_the_smallest_recipe_gets_its_defaults_and_says_so_where_it_is_written_out(tmp_path: Path) -> None:
    path = write(tmp_path, "small.toml", SMALLEST)
    for _ in range(2):
        loaded = load_recipe(path)
        assert loaded.recipe.recipe.seed == 42
        assert loaded.recipe.finetune is None
        assert loaded.places["transfer.method"] == "line 9"
        path.write_bytes(b"\xef\xbb\xbf" + SMALLEST.replace("\n", "\r\n").encode())  # a byte order mark, Windows lines
    text = resolved_toml(loaded.recipe)
    for written in ("for every seed.\nseed = 42\n", "# [finetune] is left out", "# embedder is not set."):
        assert written in text


def test_extended_tables_are_merged_and_lists_replaced(tmp_path: Path) -> None:
    write(tmp_path, "base.toml", SMALLEST + 'parallel.files = ["a.tsv", "b.tsv"]\nbias.method = "mixture"\n')
    write(tmp_path, "more.toml", '[recipe]\nseed = 1\nabout = "more"\n')
    text = 'extends = ["base.toml", "more.toml"]\n[recipe]\nabout = "top"\n'
    text += '[transfer.parallel]\nfiles = ["c.tsv"]\nmin_probability = 0.2\n'
    recipe = load_recipe(write(tmp_path, "top.toml", text)).recipe
    assert (recipe.recipe.name, recipe.recipe.seed, recipe.recipe.about) == ("small", 1, "top")
    own = recipe.transfer.settings_of(ParallelTransfer)
    assert (own.files, own.min_probability) == ((f"{tmp_path}/c.tsv",), 0.2)
    assert (recipe.transfer.method, recipe.transfer.bias.method) == ("mean", "mixture")


def test_one_base_may_be_extended_along_two_ways(tmp_path: Path) -> None:
    write(tmp_path, "base.toml", SMALLEST)
    write(tmp_path, "left.toml", 'extends = "base.toml"\n[recipe]\nseed = 1\n')
    write(tmp_path, "right.toml", 'extends = "base.toml"\n[recipe]\nlanguage = "ko"\n')
    loaded = load_recipe(write(tmp_path, "top.toml", 'extends = ["left.toml", "right.toml"]'))
    assert loaded.recipe.recipe.language == "ko"
    assert loaded.recipe.recipe.seed == 1


def test_each_path_is_relative_to_the_file_that_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "bases/base.toml", SMALLEST.replace('"org/model"', '"./model"'))
    text = 'extends = "bases/base.toml"\n[adapt]\ncorpus = ["x.txt", "../y.txt", "/z.txt"]\n'
    path = write(tmp_path, "recipes/top.toml", text.replace("bases/", "../bases/"))
    monkeypatch.chdir(tmp_path / "bases")
    recipe = load_recipe(path, ["vocabulary.tokenizer=./vocab.txt"]).recipe
    assert recipe.source.model == f"{tmp_path}/bases/model"
    assert recipe.adapt.corpus == (f"{tmp_path}/recipes/x.txt", f"{tmp_path}/y.txt", "/z.txt")
    assert recipe.vocabulary.tokenizer == f"{tmp_path}/bases/vocab.txt"


@pytest.mark.parametrize(
    ("what", "names", "paths"),
    [
        ("model", ["org/name"], ["./org/name", "../name", "..", "/abs/name", "~/name", "some/where/deep", "there"]),
        ("tokenizer", ["bert-base-uncased"], ["vocab.txt", "spm.model", "folder/tokenizer.json"]),
        ("retrieval", ["miracl:ko"], ["data/set", "there"]),
        *((what, [], ["name"]) for what in ("corpus", "pairs", "recipe")),
    ],
)
def test_what_is_a_path(tmp_path: Path, what: str, names: list[str], paths: list[str]) -> None:
    (tmp_path / "there").mkdir()
    assert [resolve_name(name, what, tmp_path) for name in names] == names
    for name in paths:
        assert resolve_name(name, what, tmp_path) == os.path.abspath(tmp_path / os.path.expanduser(name))


def test_overrides_are_toml_values_or_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "small.toml", SMALLEST)
    overrides = [
        "source.model=../x",
        'transfer.parallel.files=["a.tsv"]',
        "transfer.parallel.min_probability=0.25",
        "transfer.method=parallel",
        "recipe.name=2024",
        "recipe.about=a = b # c",
        'evaluate={sets=["org"], bm25=false}',
        "evaluate.max_queries=10",
        "evaluate.max_queries=20",
    ]
    recipe = load_recipe(path, overrides).recipe
    assert recipe.source.model == os.path.abspath("../x")
    own = recipe.transfer.settings_of(ParallelTransfer)
    assert (own.files, own.min_probability) == ((f"{tmp_path}/a.tsv",), 0.25)
    assert (recipe.recipe.name, recipe.recipe.about) == ("2024", "a = b # c")
    assert (recipe.evaluate.bm25, recipe.evaluate.max_queries) == (False, 20)


def test_none_drops_sections_and_settings(tmp_path: Path) -> None:
    text = '[adapt]\ncorpus = ["x.txt"]\nsteps = 5\n[finetune]\ndata = "a:b"\n'
    path = write(tmp_path, "full.toml", f"{SMALLEST}semantic.alpha = 3.0\n{text}")
    recipe = load_recipe(path, ["finetune=none", "adapt.steps=none", "calibrate=none"]).recipe
    assert recipe.finetune is None
    assert recipe.adapt.steps == 400
    assert "recipe.name: is missing" in refused(path, "recipe.name=none")
    assert load_recipe(path, ['recipe.about="none"']).recipe.recipe.about == "none"
    anew = load_recipe(path, ["transfer=none", "transfer.method=random"]).recipe.transfer
    assert (anew.method, anew.settings_of(SemanticTransfer).alpha) == ("random", 2.0)


def test_another_vocabulary_kind_drops_what_it_does_not_have(tmp_path: Path) -> None:
    path = write(tmp_path, "base.toml", SMALLEST)
    corpus = f'vocabulary.corpus=["{tmp_path}/x.txt"]'
    vocabulary = load_recipe(path, ["vocabulary.kind=trained", corpus]).recipe.vocabulary
    assert vocabulary == TrainedVocabulary(kind="trained", corpus=(f"{tmp_path}/x.txt",))
    text = 'extends = "base.toml"\n[vocabulary]\nkind = "trained"\ncorpus = ["x.txt"]\n'
    assert load_recipe(write(tmp_path, "top.toml", text)).recipe.vocabulary == vocabulary
    back = load_recipe(tmp_path / "top.toml", ["vocabulary.kind=existing", "vocabulary.tokenizer=a/b"]).recipe
    assert back.vocabulary == load_recipe(path, ["vocabulary.tokenizer=a/b"]).recipe.vocabulary
    assert "vocabulary.size: exists with kind" in refused(path, "vocabulary.size=500")


def test_another_source_replaces_the_inherited_one(tmp_path: Path) -> None:
    path = write(tmp_path, "small.toml", SMALLEST)
    assert load_recipe(path, [f"source.recipe={path}"]).recipe.source.model is None
    source = load_recipe(path, ["source.scratch.layers=2", "transfer=none"]).recipe.source
    assert source.model is None
    assert source.scratch is not None
    assert (
        load_recipe(path, ["source.model=a/b", f"source.recipe={path}"]).recipe.source.model is None
    )  # in their order
    both = path.read_text().replace("[source]", '[source]\nrecipe = "./other.toml"')
    assert "exactly one of" in refused(write(tmp_path, "both.toml", both))


# What is said about a recipe that is wrong


def test_all_problems_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    write(tmp_path, "bases/base.toml", SMALLEST + "sembridge.alpha = 0.5\n")
    text = """\
        extends = "bases/base.toml"
        sed = 3
        transfer = {paralel.files = ["x.tsv"], method = "meen", bias.method = 3}
        adapt = {steps = 1.5, mask_rate = 1}
        [evaluate]
        sets = "folder"
        max_queries = true
        measures = []
        models = ["sorce", "adapt"]
        [finetune]
        data = ""
        learning_rate = inf
        """
    path = write(tmp_path, "top.toml", text)
    message = refused(path, "index.query_length=x", "recipe.language=Korean", "nonsense", "index.nothing=none")
    expected = {
        "line 2 sed": ("Did you mean 'recipe.seed'?",),
        "line 3 transfer.paralel": ("unknown", "Did you mean 'parallel'?"),
        "line 3 transfer.method": ('"auto", "parallel",', 'not "meen"', "Did you mean 'mean'?"),
        "line 3 transfer.bias.method": ('"zscore", "mixture"', "not 3"),
        "line 4 adapt.steps": ("whole number", "1.5"), "line 4 adapt.mask_rate": ("less than 1",),
        "line 6 evaluate.sets": ('["folder"]',), "line 7 evaluate.max_queries": ("whole number", "true"),
        "line 8 evaluate.measures": ("at least 1",), "line 9 evaluate.models": ("entry 1", "Did you mean 'source'?"),
        "line 11 finetune.data": ("at least 1 character",), "line 12 finetune.learning_rate": ("finite", "inf"),
        "bases/base.toml line 10 transfer.sembridge.alpha": ("equal to 1", "0.5"),
        "--set 1 index.query_length": ("whole number", '"x"'), "--set 2 recipe.language": ('"Korean"', "ISO 639"),
        "--set 3 must be section.key=value, such as adapt.steps=4000, not \"nonsense\".": (),
        "--set 4 index.nothing": ("unknown", "engine", "query_length"),
    }  # fmt: skip
    assert_explained(squeezed(message)[1:], expected)


def assert_explained(lines: list[str], expected: dict[str, tuple[str, ...]]) -> None:
    """One line for each problem: where it is, then what it is and what to do."""
    assert len(lines) == len(expected), lines
    for line, (place, parts) in zip(sorted(lines), sorted(expected.items()), strict=True):
        assert line.startswith(f"{place}: " if parts else place)
        assert all(part in line for part in parts), line


def test_settings_that_contradict_each_other_are_told_with_the_line_of_a_section(tmp_path: Path) -> None:
    lacking = write(tmp_path, "small.toml", SMALLEST.replace('"mean"', '"parallel"'))
    assert_explained(squeezed(refused(lacking))[1:], {"line 8 transfer": ("transfer.parallel.files",)})
    across = refused(write(tmp_path, "small.toml", SMALLEST), "source.scratch.layers=2")
    assert "line 8  a scratch source has no embeddings to transfer: remove [transfer]" in across
    missing = {"recipe": ("missing",), "source": ("model, recipe and scratch",), "vocabulary": ('"trained"',)}
    assert_explained(squeezed(refused(write(tmp_path, "empty.toml", "")))[1:], missing)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("model = ../x", "write text in quotes, a list in [ ], true and false in lower case: model = ../x"),
        ("[recipe]\nname = 1\n[recipe]", "twice: [recipe]"),
        ("a = 1\na = 2", "overwrite a value: a = 2"),
        ("just words", "expected '=' after a key in a key/value pair: just words"),
        ("a = [1,", "not valid TOML"),
    ],
)
def test_syntax_errors_have_their_line_and_plain_words(tmp_path: Path, line: str, said: str) -> None:
    message = refused(write(tmp_path, "bad.toml", f"# first\n\n{line}"))
    assert said in message
    assert f"  line {3 + line.count(chr(10))}  not valid TOML: " in message


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "korean.toml", SMALLEST)
    assert "Did you mean 'korean.toml'?" in refused(tmp_path / "koraen.toml")
    assert "Recipes in it: korean.toml." in refused(tmp_path)
    assert "Not a directory" in refused(tmp_path / "korean.toml" / "x.toml")
    (tmp_path / "latin.toml").write_bytes(b'[recipe]\nabout = "caf\xe9"\n')
    assert "line 2  byte 0xe9 is not valid UTF-8" in refused(tmp_path / "latin.toml")
    extending = write(tmp_path, "top.toml", 'extends = ["latin.toml", "koraen.toml", "korean.toml"]')
    first, second = squeezed(refused(extending))[1:]
    assert first.startswith("line 1 extends: ")
    assert "Did you mean 'korean.toml'?" in first
    assert second.startswith("latin.toml line 2 byte 0xe9")
    path.chmod(0)
    if os.geteuid():  # nothing is unreadable to root
        assert "Permission denied" in refused(path)


def test_extending_in_a_circle_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.toml", '\nextends = "b.toml"')
    write(tmp_path, "b.toml", 'extends = "./sub/../a.toml"')
    (tmp_path / "sub").mkdir()
    message = refused(tmp_path / "a.toml")
    assert "b.toml line 1  extends: goes in a circle: a.toml -> b.toml -> a.toml." in message
    itself = write(tmp_path, "itself.toml", 'extends = "itself.toml"')
    assert "circle: itself.toml -> itself.toml" in refused(itself)


@pytest.mark.parametrize("value", ["3", "[1]", "{a = 1}", '""', '["a\\u0000.toml"]'])
def test_extends_must_name_files(tmp_path: Path, value: str) -> None:
    assert "line 1  extends: must be the name of a recipe file" in refused(
        write(tmp_path, "a.toml", f"extends = {value}")
    )


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("transfer.parallel.files=[a.tsv]", "transfer.parallel.files: not valid TOML: [a.tsv]."),
        ("transfer.parallel.files=a.tsv", 'must be a list: ["a.tsv"].'),
        ("finetun=none", "finetun: unknown section. Did you mean 'finetune'?"),
        ("extends=a.toml", "extends: is allowed only in the file of a recipe."),
        ("recipe.about=\udcff", "recipe.about: is not valid UTF-8."),
        ("query_log=2", "query_log: unknown section. Did you mean 'index.query_log'?"),
        ("recipe=3", "recipe: must be a table of settings, not 3."),
        ("vocabulary.kind=trainde", "Did you mean 'trained'?"),
        ("vocabulary.kind=none", 'vocabulary.kind: is missing: "source"'),
        ("a b=1", "must be section.key=value"),
    ],
)
def test_overrides_that_are_wrong_are_explained(tmp_path: Path, override: str, said: str) -> None:
    message = refused(write(tmp_path, "small.toml", SMALLEST), override)
    assert said in message
    assert "--set 1" in message or "vocabulary" in message


@given(st.text(max_size=40), st.text(max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_and_no_override_gives_a_traceback(tmp_path: Path, text: str, override: str) -> None:
    with pytest.raises(RecipeError):
        load_recipe(tmp_path / "any.toml", [override], text=text)


@given(st.sampled_from(["recipe.name", "transfer", "vocabulary.kind", "evaluate.sets", "source.model"]), values)
def test_any_value_of_a_setting_is_taken_or_explained(name: str, value: Any) -> None:
    told = ""
    try:
        load_recipe(Path("any.toml"), [f"{name}={toml_value(value)}"], text=SMALLEST)
    except RecipeError as error:
        told = str(error)
    assert not told or f"  {name}" in told or "evaluate.sets" in told


# What a recipe needs from outside


def collection(folder: Path, *splits: str) -> Path:
    write(folder, "corpus.jsonl", "{}")
    write(folder, "queries.jsonl", "{}")
    for split in splits:
        write(folder, f"qrels/{split}.tsv", "")
    return folder


def absent(recipe: Recipe) -> list[tuple[str, str]]:
    return [
        (thing.setting, thing.value)
        for thing in required_things(recipe)
        if os.path.isabs(thing.value) and not os.path.exists(thing.value)
    ]


def test_required_are_the_things_that_the_methods_use(tmp_path: Path) -> None:
    text = SMALLEST + 'parallel.files = ["gone.tsv"]\nsembridge.embedder = "./gone"\n'
    text += 'bias = {method = "mixture", corpus = ["gone.txt"]}\n'
    path = write(tmp_path, "small.toml", text + '[adapt]\ncorpus = ["here.txt", "absent.txt"]\n')
    write(tmp_path, "here.txt", "x")
    recipe = load_recipe(path).recipe
    assert absent(recipe) == [("adapt.corpus", f"{tmp_path}/absent.txt")]
    # parallel counts text too: rows are reassigned by frequency
    also = {
        "parallel": {"transfer.parallel.files", "transfer.bias.corpus"},
        "sembridge": {"transfer.sembridge.embedder"},
    }
    for method, used in also.items():
        missing = absent(load_recipe(path, [f"transfer.method={method}"]).recipe)
        assert {setting for setting, _ in missing} == {*used, "adapt.corpus"}
    unused = {thing.setting for thing in named_things(recipe)} - {thing.setting for thing in required_things(recipe)}
    assert unused == set.union(*also.values())


def refused_before_the_run(path: Path, *overrides: str) -> list[str]:
    loaded = load_recipe(path, overrides)
    with pytest.raises(RecipeError) as caught:
        check_names(loaded.recipe, path=path, places=loaded.places)
    return squeezed(str(caught.value).replace(f"{path.parent}/", ""))


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, and no downloads."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VTKIT_DOWNLOAD", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def judged(tmp_path: Path, hub_cache: Path) -> Path:
    """A recipe whose model and tokenizer are in the cache, and which is judged on collections that are there."""
    write(hub_cache, "models--org--model/refs/main", "1")
    for name in ("org--model/snapshots/1/config.json", "org--tokenizer/snapshots/1/tokenizer.json"):
        write(hub_cache, f"models--{name}", "{}")
    collection(tmp_path / "judged", "test")
    stem = "miracl-v1.0-ko"
    for name in (f"{stem}/qrels/qrels.{stem}-dev.tsv", f"{stem}/topics/topics.{stem}-dev.tsv"):
        write(tmp_path, f"miracl/{name}", "")
    write(tmp_path, "miracl/miracl-corpus-v1.0-ko/docs-0.jsonl.gz", "")
    return write(tmp_path, "small.toml", SMALLEST + '[evaluate]\nsets = ["judged", "miracl"]\n')


def test_everything_that_cannot_be_had_is_named_with_its_remedy(tmp_path: Path, hub_cache: Path) -> None:
    collection(tmp_path / "judged", "test", "dev")
    text = SMALLEST.replace('"mean"', '"parallel"\nparallel.files = ["gone.tsv", "pairs.tsv"]') + (
        '[finetune]\ndata = "./gone"\n[evaluate]\n'
        'sets = ["judged", "miracl:ko", "webfaq:kor", "mirakl:ko"]\nsplit = "train"\n'
    )
    write(tmp_path, "pairs.tsv", "a\tb")
    write(hub_cache, "models--org--tokenizer/snapshots/1/tokenizer.json", "{}")
    *lines, last = refused_before_the_run(write(tmp_path, "small.toml", text))[1:]
    wrong = {
        "line 4 source.model": "org/model",
        "line 10 transfer.parallel.files": "gone.tsv",
        "line 12 finetune.data": "gone",
        'line 14 evaluate.sets: judged has no judgements "train"': 'it has "dev" and "test"',
        "line 14 evaluate.sets: miracl:ko: macavaney/miracl-noauth is": "Hugging Face cache",
        "line 14 evaluate.sets: miracl:ko: miracl/miracl-corpus": "Hugging Face cache",
        "line 14 evaluate.sets: webfaq:kor: PaDaS-Lab/webfaq-retrieval": "c3262adb1c32ac0c3ea8de6393a44366edaa62e1",
        "line 14 evaluate.sets: mirakl:ko": f"Did you mean 'miracl:ko'? {COLLECTION_FORMS}",
    }
    assert_explained(lines, dict.fromkeys(wrong, ()))
    assert all(part in " ".join(lines) for part in wrong.values())
    assert "Set evaluate.split" in " ".join(lines)
    assert last.startswith("Add --download")


@pytest.mark.parametrize(
    ("settings", "parts", "remedy", "passes"),
    [
        (("recipe.language=ja", "index.bm25_analyser=morphemes"), ("SudachiPy", "SudachiDict", "vtkit[morphology]"),
         'index.bm25_analyser to "full"', "evaluate.bm25=false"),
        (("recipe.language=th", "index.bm25_analyser=morphemes"), ('knows ja, ko, not "th"',),
         'index.bm25_analyser to "full"', "index.bm25_analyser=full"),
        (("recipe.language=th", "index.bm25_analyser=lucene"), (f'knows {", ".join(sorted(LUCENE))}, not "th"',),
         'index.bm25_analyser to "full"', "index.bm25_analyser=full"),
        (("index.engine=lucene",), ("pyjnius", "vtkit[lucene]"), 'index.engine to "exact"', "evaluate=none"),
    ],
)  # fmt: skip
def test_analysers_and_engines_are_looked_for_before_the_run_where_they_are_used(
    judged: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], parts: tuple[str, ...], remedy: str,
    passes: str,
) -> None:  # fmt: skip
    if "recipe.language=th" not in settings:
        check_names(load_recipe(judged, settings).recipe, path=judged)
        for module in ("sudachipy", "sudachidict_core", "jnius"):
            monkeypatch.setitem(sys.modules, module, None)
    (what,) = refused_before_the_run(judged, *settings)[1:]
    assert what.startswith(f"--set {len(settings)} index.")
    assert all(part in what for part in (*parts, remedy))
    check_names(load_recipe(judged, (*settings, passes)).recipe, path=judged)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("index.url=https://me:secret@host:9200", "an address in a recipe has no name, password"),
        ("index.url=localhost.db", "is not a server's address"),
        ("index.engine=opensearch", "needs the address of a server"),
    ],
)
def test_addresses_of_servers_are_checked_as_the_recipe_is_read(tmp_path: Path, setting: str, why: str) -> None:
    path = write(tmp_path, "small.toml", SMALLEST)
    assert why in str(refused(path, setting))


def test_a_hub_that_cannot_be_reached_is_named(
    tmp_path: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("VTKIT_DOWNLOAD", "1")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the port that discards, closed
    lines = refused_before_the_run(write(tmp_path, "small.toml", SMALLEST))
    assert "is neither a folder nor in the Hugging Face cache" in lines[1]
    assert lines[-1].startswith("The Hugging Face hub cannot be reached")
    assert not any("--download" in line for line in lines)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("source.model=./file.txt", "is a file, not the folder of a model"),
        (
            "source.model=./empty",
            "empty holds no model: it has neither config.json nor modules.json nor adapter_config.json.",
        ),
        ("vocabulary.tokenizer=./empty", "empty holds no tokenizer: it has none of tokenizer.json"),
        ("source.recipe=./empty", "empty is a folder, not a recipe."),
        ('transfer={method="parallel", parallel.files=["empty"]}', "not a file of two tab-separated columns"),
        ('adapt.corpus=["empty"]', "empty: holds no text. A corpus is a folder of"),
        ('adapt.corpus=["small.toml"]', "small.toml has an unknown format."),
        ('adapt.corpus=["pairs.tsv"]', "pairs.tsv has columns, but a corpus has one text per line."),
        ("finetune.data=./file.txt", "has an unknown form. Training data are a .tsv with query, relevant document"),
        ("finetune.data=./empty", "empty: the corpus is missing; the queries are missing."),
        ("finetune.data=./unjudged", 'has no judgements "train", or any others.'),
        ("finetune.data=miracl:xx", "MIRACL has no subset 'xx'. It has: ar, bn"),
        ("finetune={data='miracl:ko', split='test'}", 'has no judgements "test": it has "dev" and "train".'),
    ],
)
def test_things_of_the_wrong_kind_are_named(
    tmp_path: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch, override: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    write(tmp_path, "file.txt", "x")
    write(tmp_path, "pairs.tsv", "dog\t개\n")
    collection(tmp_path / "unjudged")
    lines = refused_before_the_run(write(tmp_path, "small.toml", SMALLEST), override)
    assert any(line.startswith("--set 1 ") and said in line for line in lines)


def test_the_recipe_named_as_the_source_is_looked_through(tmp_path: Path, hub_cache: Path) -> None:
    write(tmp_path, "first.toml", SMALLEST.replace('"org/model"', '"./gone"'))
    second = write(tmp_path, "second.toml", SMALLEST.replace('model = "org/model"', 'recipe = "first.toml"'))
    lines = refused_before_the_run(second)
    assert "first.toml line 4 source.model: gone does not exist." in lines
    write(tmp_path, "first.toml", "[recipe]\n")
    assert any("line 1 recipe.name: is missing" in line for line in refused_before_the_run(second))
    write(tmp_path, "first.toml", second.read_text().replace("first", "second"))
    assert any("sources go in a circle" in line for line in refused_before_the_run(second))


# Schema and new recipes


def accepts(schema: dict[str, Any], value: Any, definitions: dict[str, Any]) -> bool:
    """Whether ``value`` is valid, by the few words of JSON Schema that matter for the names in a recipe."""
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].removeprefix("#/$defs/")], **schema}
    if "anyOf" in schema and not any(accepts(inner, value, definitions) for inner in schema["anyOf"]):
        return False
    kinds = {"object": dict, "array": list | tuple, "string": str, "integer": int, "number": int | float,
             "boolean": bool}  # fmt: skip
    if "type" in schema and not isinstance(value, kinds[schema["type"]]):
        return False
    if ("enum" in schema and value not in schema["enum"]) or ("const" in schema and value != schema["const"]):
        return False
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        return all(name in known and accepts(known[name], inner, definitions) for name, inner in value.items())
    if isinstance(value, list | tuple) and "items" in schema:
        return all(accepts(schema["items"], entry, definitions) for entry in value)
    return True


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(section(Recipe))
def test_a_recipe_written_out_loads_back_equal_and_the_schema_accepts_it_and_parts_of_it(recipe: Recipe) -> None:
    text, schema = resolved_toml(recipe), json_schema()
    assert load_recipe(Path("anywhere.toml"), text=text).recipe == recipe
    data = tomllib.loads(text)
    assert accepts(schema, data, schema["$defs"])
    for name in data:
        assert accepts(schema, {"extends": "base.toml", name: {}}, schema["$defs"])


@pytest.mark.parametrize("unknown", [{"sorce": {}}, {"adapt": {"stepz": 3}}])
def test_the_schema_accepts_no_other_names(unknown: dict[str, Any]) -> None:
    schema = json_schema()
    assert not accepts(schema, unknown, schema["$defs"])


def tables_below(table: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield table
    for field in table.model_fields.values():
        for inner in tables_in(field.annotation):
            yield from tables_below(inner)


def test_the_schema_describes_every_setting_and_has_no_null() -> None:
    schema = json_schema()
    for table in set(tables_below(Recipe)):
        described = schema if table is Recipe else schema["$defs"][table.__name__]
        assert set(described["properties"]) - {"extends"} == set(table.model_fields)
        for name, entry in described["properties"].items():
            assert "description" in entry or "$ref" in entry or "anyOf" in entry or name == "kind"
    assert "null" not in str(schema)


CORPORA: list[list[str]] = [[], ["x.txt"], [f"{'long' * 20}{number}.txt" for number in range(3)]]
COLLECTIONS: list[tuple[str | None, list[str]]] = [(None, []), ("./train", ["miracl:ko"]), (None, ["./a", "./b"])]


@pytest.mark.parametrize("language", ["jp", "en,cz"])
def test_a_country_in_place_of_its_language_is_refused_with_the_language(tmp_path: Path, language: str) -> None:
    text = new_recipe(NewRecipe(name="new", language=language, embedder="org/model", corpus=("./texts.txt",)), tmp_path)
    with pytest.raises(RecipeError, match=r"jp is a country: its language is ja|cz is a country: its language is cs"):
        load_recipe(tmp_path / "new.toml", text=text)


@pytest.mark.parametrize(
    "answered", list(product([None, "./vocab.txt"], CORPORA, [[], ["p.tsv"]], [None, "a/b"], COLLECTIONS)), ids=str
)
def test_a_new_recipe_loads(tmp_path: Path, answered: tuple[Any, ...]) -> None:
    tokenizer, corpus, parallel, embedder, (train, evaluate) = answered
    given = {"tokenizer": tokenizer, "corpus": corpus, "parallel": parallel, "embedder": embedder}
    given |= {"train": train, "evaluate": evaluate}
    answers: dict[str, Any] = {"name": "new", "language": "ko", "source": "org/model", **given}
    if tokenizer is None and not corpus:
        with pytest.raises(RecipeError, match="needs also: --tokenizer"):
            new_recipe(NewRecipe(**answers), tmp_path)
        return
    recipe = load_recipe(tmp_path / "new.toml", text=new_recipe(NewRecipe(**answers), tmp_path)).recipe
    assert recipe.recipe.name == "new"
    assert recipe.transfer.method == "auto"
    assert bool(recipe.transfer.settings_of(ParallelTransfer).files) == bool(parallel)
    assert recipe.transfer.settings_of(SembridgeTransfer).embedder == embedder
    assert recipe.input_casing == CasingSection(input="lowercase", language="ko")
    assert (recipe.adapt is not None) == bool(corpus or train or evaluate)
    assert (recipe.finetune is not None) == (train is not None)
    assert (recipe.evaluate is not None) == bool(evaluate)
    assert recipe.index.lexical == "bm25"
    if recipe.finetune is not None:
        assert recipe.finetune.query_encoder == "learned"
        assert recipe.finetune.teachers == (() if embedder is None else ("bm25", embedder))
    cased_source = tmp_path / "cased"
    cased_source.mkdir()
    (cased_source / "tokenizer.json").write_text('{"normalizer": null}')
    answers["source"] = str(cased_source)
    cased = load_recipe(tmp_path / "new.toml", text=new_recipe(NewRecipe(**answers), tmp_path)).recipe
    assert cased.input_casing == CasingSection()


@pytest.mark.parametrize("corpus", [[], ["x.txt"]])
@pytest.mark.parametrize("collections", [(None, []), ("./train", ["./train"])])
def test_within_one_language_a_new_recipe_keeps_the_source_s_vocabulary(
    tmp_path: Path, corpus: list[str], collections: tuple[str | None, list[str]]
) -> None:
    answers: dict[str, Any] = {"name": "new", "language": "ja", "source": "org/model", "source_language": "ja"}
    answers |= {"corpus": corpus, "train": collections[0], "evaluate": collections[1]}
    recipe = load_recipe(tmp_path / "new.toml", text=new_recipe(NewRecipe(**answers), tmp_path)).recipe
    assert recipe.vocabulary.kind == "source"
    assert recipe.transfer is None
    assert recipe.calibrate is None
    assert (recipe.adapt is not None) == bool(corpus or collections[0])
    assert recipe.finetune is None or recipe.finetune.query_encoder == "source"
    elsewhere = load_recipe(
        tmp_path / "new.toml", text=new_recipe(NewRecipe(**answers, tokenizer="a/b"), tmp_path)
    ).recipe
    assert elsewhere.vocabulary.kind == "existing"


def test_a_new_recipe_from_an_embedder_loads(tmp_path: Path) -> None:
    text = new_recipe(
        NewRecipe(name="new", language="ko", embedder="a/b", train="./train", evaluate=("./train",)), tmp_path
    )
    recipe = load_recipe(tmp_path / "new.toml", text=text).recipe
    assert recipe.source.units is not None
    assert recipe.vocabulary.kind == "trimmed"
    assert recipe.finetune is None  # which trains units worse: it is there to be tried
    section = text[text.index("# [finetune]") : text.index("\n\n[index]")]
    tried = text.replace(section, re.sub(r"(?m)^# (?=\[|\w+ = )", "", section))
    finetune = load_recipe(tmp_path / "tried.toml", text=tried).recipe.finetune
    assert finetune.teachers == ("bm25", "a/b")


def test_the_source_s_own_vocabulary_leaves_nothing_to_transfer_and_nothing_to_fold(tmp_path: Path) -> None:
    own = '[recipe]\nname = "own"\n[source]\nmodel = "a/b"\n[vocabulary]\nkind = "source"\n'
    path = write(tmp_path, "own.toml", own)
    assert load_recipe(path).recipe.transfer is None
    for override, said in {
        "transfer.method=mean": "remove [transfer] (--set transfer=none)",
        "casing.input=lowercase": "remove [casing]",
        "source={scratch={}}": "a scratch source has no vocabulary of its own",
    }.items():
        assert said in refused(path, override)


@given(st.text(min_size=1))
@example("/")
def test_answers_cannot_break_out_of_a_new_recipe(answer: str) -> None:
    answers = NewRecipe(name=answer, language=answer, source=answer, tokenizer=answer, evaluate=(answer,))
    text = new_recipe(answers, Path.cwd())
    data = tomllib.loads(text)
    assert set(data) == {
        *("recipe", "source", "vocabulary", "casing", "transfer", "adapt", "calibrate", "index", "evaluate")
    }
    assert data["source"] == {"model": as_written_in(Path.cwd(), answer, "model")}


def test_names_are_written_as_the_recipe_s_folder_sees_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    recipes = tmp_path / "work" / "recipes"
    assert as_written_in(recipes, "model", "model") == "../model"
    assert as_written_in(tmp_path / "work", "model", "model") == "./model"
    assert as_written_in(recipes, "x.txt", "corpus") == "../x.txt"
    assert as_written_in(recipes, "/data/x.txt", "corpus") == "/data/x.txt"
    assert as_written_in(recipes, "org/model", "model") == "org/model"
    assert as_written_in(recipes, "miracl:ko", "retrieval") == "miracl:ko"


def test_the_page_of_settings_is_that_of_the_sections() -> None:
    page = ROOT / "docs" / "settings.md"
    assert page.read_text("utf-8") == settings_reference(), (
        "write it anew: python -m vtkit.recipe.reference > docs/settings.md"
    )


@pytest.mark.parametrize("name", ["artifacts", "Artifacts", "ARTIFACTS", "artifacts.", "artiFacts.."])
def test_a_run_cannot_be_called_as_the_folder_that_all_runs_share(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, "r.toml", SMALLEST)
    with pytest.raises(RecipeError, match=r"recipe\.name: .* choose another name"):
        load_recipe(path, [f"recipe.name={name}"])
    for fine in ("artifacts-2", "my.artifacts", "artifact"):
        load_recipe(path, [f"recipe.name={fine}"])


def test_a_collection_is_judged_on_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "r.toml", SMALLEST)
    (tmp_path / "set").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "set")
    for sets in ('["./set", "././set"]', '["./set", "./link"]', '["miracl:ko", "./set", "miracl:ko"]'):
        with pytest.raises(RecipeError, match=r"evaluate\.sets: .* is listed twice"):
            load_recipe(path, [f"evaluate.sets={sets}"])
    loaded = load_recipe(path, ['evaluate.sets=["./set", "./other", "miracl:ko"]'])
    assert len(loaded.recipe.evaluate.sets) == 3


# Values that no setting takes and files that are no recipes get an answer, and soon.


SECONDS = 20.0
"""Of the processor: forty times what the longest takes here, far below what is quadratic in 5,000 lines."""

VALUES = [
    "0", "-1", "1", "1e308", "-1e308", "nan", "inf", "99999999999999999999", "0o7", '""', '"\\u0000"', '"\\u001b[31m"',
    '"\\U0010ffff"', f'"{"x" * 5000}"', '"~\\u0000/a.txt"', "'''\n'''", '"~nobody/a"', "true", "[]", "{}", "[[]]",
    "[1, 'a', true]", "[nan]", "{a = 1}", "[{}]", "1979-05-27T07:32:00Z", "07:32:00", "[" * 100 + "]" * 100,
    "{a = " * 100 + "1" + "}" * 100, "{a." + "a." * 100 + "a = 1}", "'unclosed", '["a", "a"]', '"./absent.txt"',
    '"a/b/c"', '"../"', '"/dev/zero"', '"datasets:"', '"miracl:xx"', '"none"', "none",
    '["nDCG@99999999999999999999"]', '["nDCG@0", "nDCG@-1", "P@1.5", "x", "alpha_nDCG@5"]', '["AP(rel=0)", "((("]',
]  # fmt: skip


def check(path: Path, *overrides: str) -> tuple[int, str]:
    """Exit code and message of ``vtkit recipe check``; anything else than an error with a message is raised."""
    try:
        check_recipe(path, list(overrides))
    except VtkitError as error:
        return error.exit_code, str(error)
    return 0, ""


def expect_an_answer(path: Path, *overrides: str) -> str:
    started = time.process_time()
    code, message = check(path, *overrides)
    assert time.process_time() - started < SECONDS
    assert code in (0, 2)
    assert len(message) < 50_000
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x1b\u202e]", message)
    return message


def test_settings_of_the_command_line_are_checked_or_refused() -> None:
    draw = random.Random(0)
    expect_an_answer(ROOT / "recipes" / "quickstart.toml", r'adapt.corpus=["~\u0000/a.txt"]')
    keys = [".".join(setting) for setting in all_settings()] + ["a", ".", "a." * 50 + "a", "\ud800", "vocabulary", ""]
    for _ in range(100):
        expect_an_answer(
            ROOT / "recipes" / "quickstart.toml", f"{draw.choice(keys)}={draw.choice(VALUES)}".replace("\0", "")
        )


def test_every_number_has_bounds() -> None:
    def unbounded(table: type, above: str) -> list[str]:
        found = []
        for name, field in table.model_fields.items():
            for inner in tables_in(field.annotation):
                found += unbounded(inner, f"{above}{name}.")
            if {int, float} & {field.annotation, *getattr(field.annotation, "__args__", ())} or (
                "int" in str(field.annotation) or "float" in str(field.annotation)
            ):
                known = field_called(name, [table])
                marks = str(known.metadata if known else "") + str(field.annotation)
                if not re.search(r"\bL[te]\(|\bl[te]=|Literal", marks):
                    found.append(f"{above}{name}")
        return found

    assert unbounded(Recipe, "") == []


def test_files_that_are_no_recipes_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text("# " + "x" * 10_000_000)
    assert f"more than {MOST_BYTES} bytes" in refused(path)
    path.write_bytes(bytes(range(256)) * 100)
    assert "not valid" in refused(path)
    assert "no regular file" in refused(Path("/dev/zero"))
    path.write_text(f'extends = "{"x" * 5000}"\n')
    assert "there is no file" in refused(path)


def test_many_problems_are_counted_and_the_first_shown(tmp_path: Path) -> None:
    path = tmp_path / "many.toml"
    text = (ROOT / "recipes" / "quickstart.toml").read_text("utf-8")
    path.write_text(text + "[report.x]\n" + "".join(f"key{number} = 1\n" for number in range(5000)))
    expect_an_answer(path)
    path.write_text(text + "".join(f"[section{number}]\na = 1\n" for number in range(3000)))
    message = expect_an_answer(path)
    assert "section0: unknown section" in message
    assert "... and 2970 more" in message


def test_control_characters_never_reach_the_terminal(tmp_path: Path) -> None:
    text = '[recipe]\nname = "\\u001b[2J"\n"\\u001b[31m" = 1\n'
    assert "\x1b" not in refused(write(tmp_path, "bad.toml", text))
