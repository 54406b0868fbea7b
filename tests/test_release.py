"""The version of the sources is that of their tag."""

import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = spec_from_file_location("release", ROOT / ".ci" / "release.py")
assert _spec is not None
assert _spec.loader is not None
release = module_from_spec(_spec)
_spec.loader.exec_module(release)


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
