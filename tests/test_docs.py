"""The documentation hangs together: every page is in the index, and every link leads somewhere."""

import re
from pathlib import Path

import pytest
import yaml

import vtkit

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_holds_the_marks_of_a_merge(page: Path) -> None:
    assert not re.search(r"^(?:<{7}|>{7}) ", page.read_text("utf-8"), re.MULTILINE)


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


def test_the_pages_stay_short() -> None:
    """Words outside blocks of code; the log is an archive, and docs/settings.md is written by a program."""
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in ("log.md", "settings.md")]
    assert len(pages) > 15
    words = 0
    for page in pages:
        text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        words += sum(len(line.split()) for line in text.splitlines() if not line.startswith("    "))
    assert words <= 22_000


def test_every_log_entry_begins_with_its_verdict() -> None:
    entries = (ROOT / "docs" / "log.md").read_text("utf-8").split("\n## ")[1:]
    for entry in entries:
        title, _, text = entry.partition("\n")
        assert text.lstrip().startswith("**Verdict:** "), title


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
