"""A run's folder that was copied or moved away from its store: what it holds itself goes on working."""

import json
import shutil
from pathlib import Path

import pytest
import tiny
from command_line import invoke

from vtkit.pipeline.folder import open_run, report_of
from vtkit.pipeline.search import open_searcher
from vtkit.settings.recipe import STORE
from vtkit.system.errors import VtkitError


@pytest.fixture(scope="module", params=["none", "bm25"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with one index of encoder and BM25 or without."""
    lexical = f'[index]\nlexical = "{request.param}"\n'
    return tiny.finished_run(tmp_path_factory.mktemp("moved"), tiny.collection(30), more=lexical)


def found(folder: Path) -> list[list[tuple[str, float]]]:
    searcher = open_searcher(folder, model=None, collection=None)
    return [
        [(result.id, result.score) for result in each.results] for each in searcher.search(["river house", "tree"], 5)
    ]


def test_a_copy_elsewhere_is_searched_explained_and_reported_as_the_run(finished: Path, tmp_path: Path) -> None:
    expected = found(finished)
    assert expected[0]
    whole = report_of(finished)
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(finished, copy)
    aside = finished.parent / "aside"
    (finished.parent / STORE).rename(aside)
    try:
        assert found(copy) == found(finished) == expected
        assert report_of(copy) == whole is not None
        first = expected[0][0]
        explained = open_searcher(copy, model=None, collection=None).explain("river house", first[0])
        assert explained.score == pytest.approx(first[1])
        with pytest.raises(VtkitError, match="no index for 'source'"):
            open_searcher(copy, model="source", collection=None)
        shutil.rmtree(copy / "model")
        shutil.rmtree(copy / "index")
        with pytest.raises(VtkitError, match=r"stage outputs that are gone.*no model of its own"):
            open_run(copy)
    finally:
        aside.rename(finished.parent / STORE)


def test_its_vocabularies_are_listed_and_measured_where_none_is_named(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.parents[1])
    listed = invoke("inspect-vocab").stdout
    assert "final model of runs/tiny" in listed
    assert "source of runs/tiny" in listed
    Path("text.txt").write_text("the river house\n", "utf-8")
    for more in ([], ["--run", "runs/tiny"]):
        measured = invoke("fragmentation", "text.txt", *more, "--json").stdout
        assert any(one["name"].endswith("model") for one in json.loads(measured)["tokenizers"])
