"""``vtkit compare``: what it says of two runs is what their outputs and searches say."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from command_line import invoke
from pages import cut_off, shown_by_a_browser

from vtkit.pipeline.compare import by_run, compare_runs
from vtkit.pipeline.folder import open_run
from vtkit.pipeline.run import run
from vtkit.pipeline.search import open_searcher
from vtkit.report.compared import ComparedRuns, compared_page
from vtkit.search.measures.significance import holm, paired_randomization

SET = "collection"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, two with fewer dimensions, and one on another set."""
    folder = tmp_path_factory.mktemp("compare")
    found = tiny.collection(40)
    recipe = folder / "tiny.toml"
    tiny.finished_run(folder, found)
    tiny.write_collection(folder / "other-set", tiny.collection(10, seed=5))
    for name, settings in {
        "queries": ("index.query_top_dimensions=1",),
        "documents": ("index.top_dimensions=2", "recipe.seed=7"),
        "elsewhere": ('evaluate.sets=["other-set"]',),
    }.items():
        at = [each.replace('"other-set"', f'"{folder / "other-set"}"') for each in settings]
        run(recipe, (f"recipe.name={name}", *at), runs=folder / "runs", threads=1)
    return folder / "runs"


@pytest.fixture(scope="module")
def compared(runs: Path) -> ComparedRuns:
    return compare_runs([runs / "tiny", runs / "queries", runs / "documents"], queries=3)[0]


def values(runs: Path, name: str) -> dict[str, float]:
    opened = open_run(runs / name)
    path = opened.steps[f"evaluate:{opened.final_model}"] / SET / "per_query.json"
    return dict(json.loads(path.read_text("utf-8"))["nDCG@10"])


def test_figures_and_tests_are_those_of_the_queries(compared: ComparedRuns, runs: Path) -> None:
    (found,) = compared.sets
    of = {name: values(runs, name) for name in ("tiny", "queries", "documents")}
    assert found.queries == 40
    p = holm({name: paired_randomization(of[name], of["tiny"]) for name in ("queries", "documents")})
    for row in found.rows:
        mean = sum(of[row.system].values()) / 40
        assert row.measures["nDCG@10"] == pytest.approx(mean)
        if row.system != "tiny":
            assert row.tested["nDCG@10"].randomization == pytest.approx(p[row.system])
            assert row.tested["nDCG@10"].difference == pytest.approx(mean - sum(of["tiny"].values()) / 40)
    for beside in compared.outcomes:
        assert (beside.set, beside.baseline, beside.measure, beside.queries) == (SET, "tiny", "nDCG@10", 40)
        assert beside.won == sum(of[beside.system][query] > of["tiny"][query] for query in of["tiny"])
        assert beside.lost == sum(of[beside.system][query] < of["tiny"][query] for query in of["tiny"])
        assert len(beside.most_lost) == min(3, beside.lost)
        losses = sorted(of[beside.system][query] - of["tiny"][query] for query in of["tiny"])
        shown = [each.value - each.baseline for each in beside.most_lost]
        assert shown == pytest.approx(losses[: len(shown)])
    assert any(beside.lost for beside in compared.outcomes)


def test_tokens_are_those_of_the_explained_scores(compared: ComparedRuns, runs: Path) -> None:
    beside = next(each for each in compared.outcomes if each.system == "documents")
    searchers = [open_searcher(runs / name, model=None, collection=SET) for name in ("tiny", "documents")]
    for query in (*beside.most_won, *beside.most_lost):
        explained = [searcher.explain(query.query, query.document) for searcher in searchers]
        assert query.ranks == tuple(each.rank for each in explained)
        for token, *parts in query.changes:
            for each, part in zip(explained, parts, strict=True):
                own = {one.token: one.product for one in each.tokens}
                own["special tokens"] = sum(one.product for one in each.special_tokens)
                assert own.get(token, 0.0) == pytest.approx(part, abs=1e-4)
        changes = [abs(after - before) for _, before, after in query.changes]
        assert changes == sorted(changes, reverse=True)


def test_only_what_differs_in_the_recipes_is_told(compared: ComparedRuns) -> None:
    assert compared.settings == {
        "recipe.seed": (42, 42, 7),
        "index.query_top_dimensions": (None, 1, None),
        "index.top_dimensions": (None, None, 2),
    }
    assert by_run([{"a": 1, "b.c": [1]}, {"a": 1, "b.c": [1], "d": 2}])["d"] == (None, 2)
    figures = compared.figures
    assert len(set(figures["vocabulary.target_size"])) == 1
    assert figures["seconds"][0] > 0
    assert figures[f"document_dimensions, {SET}"][2] == 2


def test_queries_are_filtered_by_their_words_and_by_split_ones(runs: Path) -> None:
    def of(**only: Any) -> Any:
        return compare_runs([runs / "tiny", runs / "queries"], queries=0, **only)[0]

    assert of(min_words=3, max_words=3).sets[0].queries == 40  # all have three
    assert of(min_words=4).not_compared
    assert of(split=True).not_compared  # every word is a token of the source


def test_runs_that_cannot_be_compared_are_told_why(runs: Path) -> None:
    found = compare_runs([runs / "tiny", runs / "elsewhere"])[0]
    assert len(found.not_compared) == len(found.sets) == 2
    tiny_run, none, queries = (str(runs / name) for name in ("tiny", "none", "queries"))
    for arguments, words in (
        ([tiny_run], "at least two runs"),
        ([tiny_run, none], "does not exist"),
        ([tiny_run, queries, "--model", "finetune"], "finetune"),
    ):
        assert words in str(invoke("compare", *arguments).exception)


def test_runs_that_lack_their_values_by_query_are_told_so(runs: Path) -> None:
    opened = {name: open_run(runs / name) for name in ("tiny", "queries")}
    lacking = {name: each.steps[f"evaluate:{each.final_model}"] / SET for name, each in opened.items()}
    for folder in lacking.values():
        (folder / "per_query.json").rename(folder / "aside.json")
    found = compare_runs([runs / name for name in lacking])[0]
    for folder in lacking.values():
        (folder / "aside.json").rename(folder / "per_query.json")
    assert found.not_compared == {SET: "not every run was evaluated on it"}


def test_a_page_says_what_the_command_says_and_a_browser_shows_it(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "compare.html"
    pair = [str(runs / "tiny"), str(runs / "documents")]
    result = invoke("compare", *pair, "--queries", "2", "--html", page)
    document, logged = shown_by_a_browser(page)
    assert "CONSOLE" not in logged
    found = compare_runs([Path(each) for each in pair], queries=2)[0]
    for shown in (document, result.stdout):
        for row in found.sets[0].rows:
            assert f"{row.measures['nDCG@10']:.4f}" in shown
        for query in (*found.outcomes[0].most_lost, *found.outcomes[0].most_won):
            assert query.query in shown
        assert "index.top_dimensions" in shown
    listed = json.loads(invoke("compare", *pair, "--json").stdout)
    assert listed["runs"] == ["tiny", "documents"]


def test_long_names_of_runs_do_not_cut_the_page_off_and_figures_stand_below_each_other(
    runs: Path, tmp_path: Path
) -> None:
    names = tuple(f"korean-encoder-as-it-is-with-cased-penalty-seed-{seed}" for seed in (1, 2, 3))
    figures = {"tokens of the vocabulary": (28996, 30522, None), "seconds of check": (0.8, 1382.9, 2.0)}
    settings = {"finetune.query_penalty": (["flops"], ["flops", "cased"], None)}
    found = compare_runs([runs / name for name in ("tiny", "queries", "documents")], queries=0)[0]
    text = compared_page(replace(found, runs=names, figures=figures, settings=settings), {})
    for number in ("28,996", "30,522", "1,382.9"):
        assert f'<td class="number">{number}</td>' in text
    assert "<td>flops, cased</td>" in text
    assert cut_off(text, tmp_path / "page.html", 1280) == []
