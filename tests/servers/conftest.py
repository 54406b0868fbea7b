"""A real OpenSearch: that of VTKIT_OPENSEARCH_URL, or one that is started out of the kit."""

import os
from collections.abc import Iterator
from pathlib import Path

import kit
import pytest


@pytest.fixture(scope="session")
def unpacked(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kit.unpacked(shared, tmp_path_factory.mktemp("opensearch"))


@pytest.fixture(scope="session")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of one node, the same for all tests."""
    own = os.environ.get("VTKIT_OPENSEARCH_URL")
    if own:
        yield own.rstrip("/")
        return
    with kit.cluster(request.getfixturevalue("unpacked"), tmp_path_factory.mktemp("node"), 1) as (node,):
        yield node.url


@pytest.fixture
def three(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[kit.Node]]:
    """A cluster of three nodes; tests that kill one start it again."""
    with kit.cluster(unpacked, tmp_path_factory.mktemp("three"), 3) as nodes:
        yield nodes
