"""``vtkit doctor``: what it finds on this machine, and that it says what to do."""

import json
import tomllib
from pathlib import Path

import pytest
from command_line import invoke
from packaging.requirements import Requirement

from vtkit.pipeline.doctor import FOR_AUTHORS, _wrong, examine

ROOT = Path(__file__).resolve().parents[1]


def test_a_package_that_is_missing_or_too_old_is_named() -> None:
    assert _wrong(Requirement("no-such-package>=1")) == "no-such-package is missing"
    assert str(_wrong(Requirement("torch>=999"))).endswith("is not >=999")
    assert _wrong(Requirement("torch>=1")) is None


def test_this_machine_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "hub" / "models--a--b").mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    found = {each.about: each for each in examine(tmp_path / "runs")}
    assert {"vtkit", "packages", "accelerator", "bf16", "hub", "disk, runs", "extra serve"} <= set(found)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {f"extra {extra}" for extra in set(extras) - set(FOR_AUTHORS)} <= set(found)
    assert "torch " in found["packages"].found
    assert "HF_HUB_OFFLINE keep it offline" in found["hub"].found
    assert str(tmp_path / "runs") in found["disk, runs"].found
    assert all(each.remedy for each in found.values() if each.state != "ok")


def test_the_command_prints_a_line_for_each_finding(tmp_path: Path) -> None:
    result = invoke("doctor", "--runs", tmp_path)
    assert result.exit_code == 0, result.stdout
    lines = result.stdout.splitlines()
    assert all(line.split()[0] in ("ok", "note") for line in lines)
    listed = json.loads(invoke("doctor", "--runs", tmp_path, "--json").stdout)
    assert len(listed) == len(lines)
    assert set(listed[0]) == {"about", "found", "state", "remedy"}
