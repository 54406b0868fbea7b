"""``vtkit sweep``: the cells are the product of what varies, what they share is made once, and tables are what the runs
found."""

import csv
import json
import os
import re
import shutil
import statistics
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from command_line import killed
from hypothesis import given
from hypothesis import strategies as st
from pages import shown_by_a_browser
from support import refused
from typer.testing import CliRunner, Result

from vtkit.cli import app
from vtkit.encoder.checkpoint import save_encoder
from vtkit.pipeline.folder import open_run
from vtkit.pipeline.listing import running_by
from vtkit.pipeline.run import run
from vtkit.pipeline.sweep import gather, plan_sweep
from vtkit.recipe.load import load_recipe
from vtkit.recipe.sweep import grid_of
from vtkit.report.sweep_page import pareto_front
from vtkit.report.sweep_tables import table_rows
from vtkit.search.measures.significance import difference, holm
from vtkit.system.errors import RecipeError, VtkitError

BASE = """
[recipe]
name = "tiny"
[source]
model = "./encoder"
[vocabulary]
kind = "existing"
tokenizer = "./target"
[transfer]
method = "subtoken"
[adapt]
objective = "mlm"
corpus = ["corpus.txt"]
steps = 4
batch_size = 4
max_length = 32
learning_rate = 1e-3
[gates]
off = "retrieval"
[evaluate]
sets = ["collection"]
measures = ["nDCG@10", "R@100"]
"""
GRID = """
[sweep.values]
"transfer.bias.method" = ["mixture", "zero"]
recipe.seed = [1, 2]
"""


def write(folder: Path, sweep: str, base: str = BASE, name: str = "recipe.toml") -> Path:
    (folder / name).write_text(base + sweep, "utf-8")
    return folder / name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that :data:`BASE` names, and its sweep, which was killed in its second cell."""
    folder = tmp_path_factory.mktemp("sweep")
    save_encoder(tiny.encoder(folder / "work"), folder / "encoder")
    tiny.tokenizer(tiny.shuffled(1)).save_pretrained(str(folder / "target"))
    tiny.write_collection(folder / "collection", tiny.collection(40))
    (folder / "corpus.txt").write_text("\n".join(tiny.texts(60)), "utf-8")
    write(folder, GRID)
    second = folder / "runs" / "tiny-method-mixture-seed-2" / "run.json"
    killed(folder, ["sweep", "recipe.toml", "--threads", "1"], os.environ, second.exists)
    return folder


def manifests(folder: Path) -> dict[str, str]:
    """Output -> when it was made, and how long that took."""
    read = {
        path.parent.name: json.loads(path.read_text("utf-8")) for path in folder.glob("runs/artifacts/*/manifest.json")
    }
    return {name: f"{manifest['started']} {manifest['seconds']}" for name, manifest in read.items()}


@pytest.fixture(scope="module")
def finished(made: Path) -> Path:
    """:func:`made` after the same command again."""
    before = manifests(made)
    grid = grid_of(made / "recipe.toml")
    states = [each.finished for each in plan_sweep(grid, made / "runs")]
    assert states == [True, False, False, False]
    record = (made / "runs" / grid.cells[0].name / "run.json").stat().st_mtime_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        result = CliRunner().invoke(app, ["sweep", "recipe.toml", "--threads", "1"], catch_exceptions=False)
    assert result.exit_code == 0
    after = manifests(made)
    assert {name: after[name] for name in before} == before
    assert (made / "runs" / grid.cells[0].name / "run.json").stat().st_mtime_ns == record
    assert all(each.finished for each in plan_sweep(grid, made / "runs"))
    return made


def test_a_killed_sweep_repeats_nothing_and_makes_what_cells_share_once(finished: Path) -> None:
    made = [name.rpartition("-")[0] for name in manifests(finished)]
    assert (made.count("vocabulary"), made.count("transfer"), made.count("adapt")) == (1, 2, 4)
    assert made.count("evaluate-bm25") == made.count("evaluate-source") == 1
    assert made.count("evaluate-transfer") == 2


def test_a_cell_is_what_vtkit_run_makes_of_its_settings(finished: Path) -> None:
    cell = finished / "runs" / "tiny-method-zero-seed-2"
    settings = ("sweep=none", "recipe.name=other", "transfer.bias.method=zero", "recipe.seed=2")
    other = run(finished / "recipe.toml", settings, runs=finished / "runs", threads=1)
    same, steps = open_run(cell).steps, open_run(other).steps
    assert {name for name in steps if steps[name] != same[name]} == {"report"}  # which quotes the recipe's name
    trec = [(folder / "trec" / "collection" / "adapt.trec.gz").read_bytes() for folder in (cell, other)]
    assert trec[0] == trec[1]
    shutil.rmtree(other)


def test_figures_are_means_of_the_runs_and_tests_are_over_seeds_and_queries(finished: Path) -> None:
    grid = grid_of(finished / "recipe.toml")
    results, reports = gather(grid, finished / "runs")
    assert len(reports) == 4
    assert results.places == {("", "collection"): ["nDCG@10", "R@100"]}
    place = ("encoder", "", "collection", "nDCG@10")
    values: dict[str, list[dict[str, float]]] = {}
    for method in ("mixture", "zero"):
        values[method] = []
        for seed in (1, 2):
            opened = open_run(finished / "runs" / f"tiny-method-{method}-seed-{seed}")
            path = opened.steps["evaluate:adapt"] / "collection" / "per_query.json"
            values[method].append(json.loads(path.read_text("utf-8"))["nDCG@10"])
        of_seeds = [statistics.fmean(of.values()) for of in values[method]]
        shown = results.figures(*place)[f"method={method}"]
        assert shown == pytest.approx((statistics.fmean(of_seeds), statistics.stdev(of_seeds)))
    found = results.tested[*place, "method=zero"]
    assert found == difference(values["zero"], values["mixture"])  # one row is tested: nothing to correct
    page = (finished / "runs" / "tiny" / "sweep.md").read_text("utf-8")
    assert f"{found.mean:+.4f} ± {found.half:.4f}, p = {found.p:.3f}" in page
    assert "over seeds and queries" in page
    assert [labels[0] for labels, _ in table_rows(results, "encoder", lambda *shown: shown)] == [
        "BM25",
        "source",
        "mixture",
        "zero",
    ]
    against, _ = gather(replace(grid, baseline="BM25"), finished / "runs")
    path = opened.steps["evaluate:bm25"] / "collection" / "per_query.json"
    bm25 = [json.loads(path.read_text("utf-8"))["nDCG@10"]]  # it has no seeds
    p = holm({method: difference(seeds, bm25).p for method, seeds in values.items()})
    tested = {method: against.tested[*place, f"method={method}"].p for method in values}
    assert tested == pytest.approx(p)


def test_every_table_has_the_same_figures(finished: Path) -> None:
    folder = finished / "runs" / "tiny"
    with (folder / "sweep.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    values = [
        float(row["value"])
        for row in rows
        if (row["method"], row["system"], row["measure"]) == ("zero", "encoder", "nDCG@10")
    ]
    shown = f"{statistics.fmean(values):.4f}", f"{statistics.stdev(values):.4f}"
    (line,) = [line for line in (folder / "sweep.md").read_text("utf-8").splitlines() if line.startswith("| zero")][:1]
    latex = next(line for line in (folder / "sweep.tex").read_text("utf-8").splitlines() if line.startswith("zero &"))
    page = (folder / "sweep.html").read_text("utf-8")
    for text in (line, latex, page):
        assert shown[0] in text
        assert shown[1] in text
    assert latex.count("&") == 2
    assert line.count("|") == 4


def test_a_browser_shows_the_page_without_a_complaint(finished: Path) -> None:
    document, logged = shown_by_a_browser(finished / "runs" / "tiny" / "sweep.html")
    assert "CONSOLE" not in logged
    assert document.count("<img") == 1  # FLOPS against nDCG; of four steps there is no curve
    assert "tiny-method-zero-seed-2" in document


def test_the_tables_are_written_from_what_is_there_and_a_dry_run_says_what_all_cells_last_took(finished: Path) -> None:
    wider = write(finished, GRID.replace("[1, 2]", "[1, 2, 3]"), name="wider.toml")
    result = sweep_of(wider, finished / "runs", "--tables")
    assert "Without 2 cells that are not finished." in result.stdout
    assert "no cell of tiny is finished" in str(sweep_of(wider, finished / "none", "--tables").exception)
    said = sweep_of(wider, finished / "runs", "--dry-run").stdout
    (times,) = [line for line in said.splitlines() if line.startswith("time: these stages last took ")]
    assert "adapt" in times  # of the third seed
    assert "transfer" not in times  # which all seeds share
    assert "never run" not in times


def test_a_failing_cell_does_not_stop_the_others_and_is_named_at_the_end(finished: Path) -> None:
    tiny.tokenizer((*tiny.ROLES.values(), *"абвгдежз")).save_pretrained(str(finished / "strange"))
    grid = '[sweep.rows.bad]\nvocabulary.tokenizer = "./strange"\n[sweep.rows.good]\n'
    recipe = write(finished, grid, BASE.replace("steps = 4", "steps = 40"), "failing.toml")
    for jobs in ("1", "2"):
        result = sweep_of(recipe, finished / "failing", "--jobs", jobs, "--threads", "1")
        assert isinstance(result.exception, VtkitError), result.output
        for part in ("1 of 2 cells failed", "tiny-bad: ", "unknown to this tokenizer"):
            assert part in str(result.exception)
        assert "| good |" in result.stdout
        assert "Loss, adaptation" in (finished / "failing" / "tiny" / "sweep.html").read_text("utf-8")
        shutil.rmtree(finished / "failing" / "tiny-good")


# the cells


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("encoder", "target", "collection", "sub"):
        (tmp_path / name).mkdir()
    (tmp_path / "sub" / "other.txt").write_text("other\n")
    return tmp_path


def sweep_of(recipe: Path, runs: Path, *more: str) -> Result:
    return CliRunner().invoke(app, ["sweep", str(recipe), "--runs", str(runs), *more])


def test_cells_are_the_product_of_what_varies(folder: Path) -> None:
    sweep = """
    [sweep.rows.plain]
    [sweep.rows."no adaptation"]
    adapt = "none"
    [sweep.columns.ja]
    recipe.language = "ja"
    [sweep.columns.ko]
    recipe.language = "ko"
    adapt.corpus = ["sub/other.txt"]
    [sweep.values]
    "transfer.overlap" = ["exact", "fuzzy"]
    """
    grid = grid_of(write(folder, sweep), ("adapt.steps=7",))
    assert grid.heads == ("row", "overlap")
    assert grid.rows == [(row, overlap) for row in ("plain", "no adaptation") for overlap in ("exact", "fuzzy")]
    assert [cell.name for cell in grid.cells][:3] == [
        "tiny-ja-plain-overlap-exact", "tiny-ja-plain-overlap-fuzzy", "tiny-ja-no-adaptation-overlap-exact",
    ]  # fmt: skip
    for cell in grid.cells:
        recipe = cell.loaded.recipe
        assert recipe.sweep is None
        assert recipe.recipe.language == cell.column
        assert (recipe.adapt is None) == (cell.row[0] == "no adaptation")
        assert recipe.transfer.overlap == cell.row[1]
        if recipe.adapt is not None:
            assert recipe.adapt.steps == 7
    (korean,) = [c for c in grid.cells if c.name == "tiny-ko-plain-overlap-fuzzy"]
    assert korean.loaded.recipe.adapt.corpus == (str(folder / "sub" / "other.txt"),)


def test_all_problems_of_all_cells_are_told_with_their_lines_before_any_work(folder: Path) -> None:
    sweep = '[sweep.values]\n"adapt.steps" = [4, -1]\n"adapt.stepz" = [1]\n'
    message = refused(RecipeError, "", grid_of, write(folder, sweep))
    said, first = message, (BASE + sweep).splitlines().index('"adapt.steps" = [4, -1]') + 1
    assert f"line {first}  adapt.steps: must be" in said
    assert f"line {first + 1}  adapt.stepz: unknown setting. Did you mean 'steps'?" in said
    assert "(in tiny-steps--1-stepz-1)" in said or "tiny-steps-1" in said
    missing = '[sweep.values]\n"transfer.bias.corpus" = [["a.txt"], ["b.txt"]]\n'
    result = sweep_of(write(folder, missing), folder / "runs")
    assert "a.txt" in str(result.exception)
    assert "b.txt" in str(result.exception)
    assert result.exit_code != 0
    assert not (folder / "runs").exists()
    assert "b.txt" in str(CliRunner().invoke(app, ["recipe", "check", str(folder / "recipe.toml")]).exception)


def test_the_check_reads_the_data_of_every_cell_as_the_sweep_does(made: Path) -> None:
    broken = made / "broken"
    tiny.write_collection(broken, tiny.collection(40))
    (broken / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\tmany\n", "utf-8")
    other = '[sweep.rows.whole]\n[sweep.rows.other]\n"evaluate.sets" = ["broken"]\n'
    recipe = write(made, other, name="other.toml")
    checked = CliRunner().invoke(app, ["recipe", "check", str(recipe), "--data"])
    assert isinstance(checked.exception, VtkitError)
    assert "test.tsv: line 2: the grade 'many' is not a whole number" in str(checked.exception)
    assert str(checked.exception).endswith("(in tiny-other)")
    assert str(sweep_of(recipe, made / "never").exception) == str(checked.exception)
    fine = CliRunner().invoke(app, ["recipe", "check", str(made / "recipe.toml"), "--data"], catch_exceptions=False)
    assert f"recipe.toml is fine, a grid of 4 runs. Next: vtkit sweep {made}" in fine.stdout


def test_the_check_does_not_ask_for_what_every_cell_replaces(made: Path) -> None:
    replaced = BASE.replace('"corpus.txt"', '"gone.txt"') + '[sweep.values]\n"adapt.corpus" = [["corpus.txt"]]\n'
    recipe = write(made, replaced, "", "replaced.toml")
    checked = CliRunner().invoke(app, ["recipe", "check", str(recipe)], catch_exceptions=False)
    assert "is fine, a grid of 1 run. Next" in checked.stdout


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ("", "has no [sweep]. Run it with vtkit run"),
        ("[sweep]\n", "nothing varies"),
        ('[sweep.values]\n"adapt.steps" = []\n', "sweep.values"),
        ('[sweep.values]\n"adapt.steps" = [1, 1]\n', "adapt.steps: a value is given twice"),
        ('[sweep.values]\n"recipe.name" = ["a", "b"]\n', "recipe.name: cells are named by their values"),
        ('[sweep.rows.a]\nrecipe.name = "b"\n', "recipe.name: cells are named by their values"),
        ('[sweep]\nbaseline = "steps=3"\n[sweep.values]\n"adapt.steps" = [1, 2]\n', "from steps=1, steps=2, BM25"),
        ('[sweep.values]\n"adapt.steps" = 4\n', "sweep.values"),
    ],
)
def test_what_is_no_grid_is_refused(folder: Path, sweep: str, words: str) -> None:
    refused(RecipeError, re.escape(words), grid_of, write(folder, sweep))
    recipe = write(folder, GRID)
    refused(RecipeError, r"vtkit sweep .* runs it", run, recipe, runs=folder / "runs")
    assert load_recipe(recipe, ("sweep=none",)).recipe.sweep is None


def test_a_pareto_front_by_eye() -> None:
    found = [(1.0, 0.2, "a"), (2.0, 0.5, "b"), (3.0, 0.4, "c"), (4.0, 0.6, "d"), (2.0, 0.3, "e")]
    assert [name for _, _, name in pareto_front(found)] == ["a", "b", "d"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_no_point_beats_one_of_the_front_in_both(points: list[tuple[int, int]]) -> None:
    found = [(float(x), float(y), str(n)) for n, (x, y) in enumerate(points)]
    front = pareto_front(found)
    for x, y, _ in front:
        assert not any((a <= x and b > y) or (a < x and b >= y) for a, b, _ in found)
    for a, b, _ in found:
        assert any(x <= a and y >= b for x, y, _ in front)


def test_a_recipe_that_is_shown_has_absolute_paths_in_its_sweep_too(folder: Path) -> None:
    sweep = """
    [sweep.values]
    "transfer.bias.corpus" = [["sub/other.txt"], ["a.txt"]]
    adapt = ["none", {corpus = ["sub/other.txt"]}]
    [sweep.rows.other]
    adapt.corpus = ["sub/other.txt"]
    """
    shown = CliRunner().invoke(app, ["recipe", "show", str(write(folder, sweep))], catch_exceptions=False).stdout
    read, other = tomllib.loads(shown)["sweep"], str(folder / "sub" / "other.txt")
    assert read["values"]["transfer.bias.corpus"] == [[other], [str(folder / "a.txt")]]
    assert read["values"]["adapt"] == ["none", {"corpus": [other]}]
    assert read["rows"]["other"] == {"adapt.corpus": [other]}
    elsewhere = folder / "sub" / "shown.toml"
    elsewhere.write_text(shown, "utf-8")
    settings = [[cell.loaded.recipe.adapt, cell.loaded.recipe.transfer] for cell in grid_of(elsewhere).cells]
    cells = grid_of(folder / "recipe.toml").cells
    assert settings == [[cell.loaded.recipe.adapt, cell.loaded.recipe.transfer] for cell in cells]


def test_cells_that_run_side_by_side_end_with_a_sweep_that_is_killed(finished: Path) -> None:
    recipe = write(finished, GRID, BASE.replace("steps = 4", "steps = 1000000"), "long.toml")
    runs = finished / "long"
    cells = [runs / cell.name for cell in grid_of(recipe).cells[:2]]
    arguments = ["sweep", str(recipe), "--runs", str(runs), "--jobs", "2", "--threads", "2"]
    killed(finished, arguments, os.environ, lambda: all(running_by(cell) is not None for cell in cells))
    deadline = time.monotonic() + 120
    while any(running_by(cell) is not None for cell in cells):
        assert time.monotonic() < deadline
        time.sleep(0.1)
