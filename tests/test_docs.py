"""The documentation hangs together, and the version of the sources is that of their tag."""

import re
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml

import vtkit
from vtkit.data.collections import load_retrieval

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    listed = {target.partition("#")[0] for target in LINK.findall(index)}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"} <= listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: {target} leads nowhere"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{page.name}: {target} names no heading"


def test_torch_is_installed_pinned_and_without_cuda() -> None:
    """The line of torch's own page for processors, with the version of ``make``."""
    (pinned,) = re.findall(r"^torch==\S+$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    for name in ("README.md", "docs/quickstart.md", "Dockerfile"):
        lines = re.findall(r"pip install .*torch.*", (ROOT / name).read_text("utf-8"))
        assert lines, name
        for line in lines:
            assert f"{pinned} --index-url https://download.pytorch.org/whl/cpu" in line, name


def test_every_page_that_code_and_recipes_name_is_there() -> None:
    for folder in ("vtkit", "recipes", "tokenizers"):
        for path in [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.toml")]:
            for name, anchor in re.findall(r"\bdocs/(\w+\.md)(?:#([\w-]+))?", path.read_text("utf-8")):
                page = ROOT / "docs" / name
                assert page.exists(), f"{path.relative_to(ROOT)}: there is no docs/{name}"
                assert not anchor or anchor in anchors(page), f"{path.relative_to(ROOT)}: docs/{name} has no #{anchor}"


def test_the_citation_is_of_this_version_and_names_authors_and_years() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert str(citation["version"]) == vtkit.__version__
    for reference in citation["references"]:
        assert reference["title"]
        assert reference["authors"]
        assert 1900 < reference["year"] < 2100


def test_the_map_of_the_code_names_every_file() -> None:
    """But those of folders of which it says that each method, collection, stage or command has a file."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8").partition("## Who imports whom")[0]
    entries = dict(re.findall(r"^      ([\w.]+/?) +(.*(?:\n {21}.*)*)", text, re.MULTILINE))
    listed_elsewhere = {"commands", "steps", "methods"}
    for path in (ROOT / "vtkit").rglob("*.py"):
        folder, *rest = path.relative_to(ROOT / "vtkit").parts
        if not rest:
            assert folder in entries, folder
        elif path.name != "__init__.py" and listed_elsewhere.isdisjoint(path.parts):
            assert path.name in entries[f"{folder}/"], f"{folder}/{path.name} is not in docs/architecture.md"


def test_the_map_of_the_code_names_what_its_files_hold() -> None:
    """``NAME`` of ``folder/file.py``, and every other name of code anywhere in the package or its tests."""
    text = " ".join((ROOT / "docs" / "architecture.md").read_text("utf-8").split())
    placed = re.findall(r"`(\w+)`(?: \w+)? (?:of|in) `([\w/]+\.py)`", text)
    assert len(placed) > 8
    for name, file in placed:
        (path,) = {path for path in (ROOT / "vtkit").rglob("*.py") if path.as_posix().endswith(f"/{file}")}
        assert re.search(rf"\b{name}\b", path.read_text("utf-8")), f"{file} has no {name}"
    code = "".join(path.read_text("utf-8") for room in ("vtkit", "tests") for path in (ROOT / room).rglob("*.py"))
    for name in re.findall(r"`(_?[a-zA-Z]+(?:_[a-z]+)+|[A-Z][A-Z_]+[A-Z])`", text):
        assert re.search(rf"\b{name}\b", code), f"docs/architecture.md: nothing is called {name}"


def test_the_quickstart_searches_its_own_run_with_a_query_that_its_texts_answer() -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text("utf-8")
    recipe = (ROOT / "recipes" / "quickstart.toml").read_text("utf-8")
    (run,) = re.findall(r'^name = "(.*)"$', recipe, re.MULTILINE)
    shown = page.partition("## Look at the result")[2].partition("\n## ")[0]
    lines = re.findall(r"^    vtkit (?:search|explain) (\S+)(?: \"(.*?)\")?(?: (\w[\w-]*))?", shown, re.MULTILINE)
    assert len(lines) == 3
    collection = ROOT / "recipes" / "quickstart_data" / "elements-ko"
    elements = load_retrieval(collection, "test")
    queries = {query.text: query.id for query in elements.queries}
    for folder, query, document in lines:
        assert folder == f"runs/{run}"
        assert not query or max(elements.qrels[queries[query]].values()) > 0
        assert not document or elements.qrels[queries[query]][document] > 0
    assert f'SparseEncoder("runs/{run}/model")' in page


def program(name: str) -> Any:
    """A module of the folder .ci, which is no package."""
    specification = spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


release = program("release")


def test_no_page_of_the_site_links_to_itself() -> None:
    pytest.importorskip("mkdocs")
    site = program("site")
    pages = {path.name: path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")}
    pages |= {page: (ROOT / name).read_text("utf-8") for name, page in site.PAGES.items()}
    assert "overview.md" in (ROOT / "mkdocs.yml").read_text("utf-8")
    for name, text in pages.items():
        targets = LINK.findall(site.on_page_markdown(text.replace("](docs/", "](")))
        assert name not in targets, f"{name} links to itself"


def git(folder: Path, *arguments: str) -> None:
    settings = ("user.name=t", "user.email=t@example.org", "tag.gpgsign=false", "commit.gpgsign=false")
    identity = [part for setting in settings for part in ("-c", setting)]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A checkout of version 1.2.3, which is not tagged."""
    (tmp_path / "vtkit" / "system").mkdir(parents=True)
    (tmp_path / "vtkit" / "system" / "version.py").write_text('"""Doc."""\n\n__version__ = "1.2.3"\n')
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (2026-11-25)\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


def test_a_tag_of_this_version_is_right(sources: Path) -> None:
    assert release.problems(sources) == []
    git(sources, "tag", "v1.2.3")
    assert release.problems(sources) == []
    assert release.problems(ROOT) == []


def test_a_tag_of_another_version_is_refused_wherever_it_differs(sources: Path) -> None:
    git(sources, "tag", "v1.2.4")
    found = release.problems(sources)
    assert len(found) == 3
    for line, named in zip(found, ("vtkit/system/version.py", "CITATION.cff", "CHANGELOG.md"), strict=True):
        assert named in line
        assert "1.2.4" in line


def test_a_commit_after_a_release_needs_a_version_of_its_own(sources: Path) -> None:
    git(sources, "tag", "v1.2.3")
    git(sources, "commit", "-q", "--allow-empty", "-m", "two")
    (found,) = release.problems(sources)
    assert found.startswith("v1.2.3 is tagged already. Set the next version, such as X.Y.Z.dev0")
    version = sources / "vtkit" / "system" / "version.py"
    version.write_text(version.read_text().replace("1.2.3", "1.3.0.dev0"))
    assert release.problems(sources) == []


def test_clones_without_tags_and_archives_are_built(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    git(sources, "tag", "v9.9.9")
    clone, archive = tmp_path_factory.mktemp("clones") / "shallow", tmp_path_factory.mktemp("archive")
    git(sources, "clone", "-q", "--depth", "1", "--no-tags", sources.as_uri(), str(clone))
    assert release.problems(clone) == []
    for name in ("vtkit/system/version.py", "CITATION.cff", "CHANGELOG.md"):
        (archive / name).parent.mkdir(parents=True, exist_ok=True)
        (archive / name).write_bytes((sources / name).read_bytes())
    assert release.problems(archive) == []
