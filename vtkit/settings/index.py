"""[index] of a recipe: how documents are encoded and searched; the settings of engines are in ``engines.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from vtkit.settings.analysers import Analysis
from vtkit.settings.calibrate import StaticQueryEncoder
from vtkit.settings.engines import Address, Alias, Engine
from vtkit.settings.types import CorpusName, PositiveInt, Section

DocumentWeighting = Literal["none", "cai-paper", "cai-code", "geng", "geng-root"]
"""What the dimensions of documents are multiplied by (``vtkit/encoder/documents.py``)."""


Lexical = Literal["none", "bm25"]


CANDIDATES = 4
"""Weights that are encoded for one that is kept, where documents are changed afterwards: of 1,100 units that fire in a
paragraph, 1,000 for 250."""

Auto = Literal["auto"]
"""As the encoder needs it: units of an embedder have the rule of
``vtkit/encoder/documents.py``, other encoders nothing."""


class PassagesSection(Section):
    """[index.passages]: long documents cut into passages of whole sentences, each encoded with the document's title. A
    document scores as its best passage (MaxP, arXiv:1905.09217; docs/engines.md#long-documents). Default: no passages;
    what follows ``document_length`` is not read."""

    words: PositiveInt = 200
    """Most words of a passage. A sentence with more is cut between words."""

    overlap: Annotated[int, Field(ge=0, le=1_000_000)] = 50
    """Most words that a passage shares with the one before it, in whole sentences."""

    def _faults(self) -> Iterator[str]:
        if self.overlap >= self.words:
            yield f"overlap must be less than words, {self.words}"


class IndexSection(Section):
    """[index]: how documents are encoded and searched."""

    documents: CorpusName | None = None
    """Documents to index (docs/data.md#documents) with the final model, if nothing is evaluated; with [evaluate], its
    sets are indexed. Spans of them bring BM25 and the encoder together, and no query is needed. Other settings that
    need texts and name none use them too."""

    engine: Engine = "exact"
    """Search engine. ``exact``: every document that shares a term is scored, in process, without approximation.
    ``lucene``: Lucene's impact index, in process. ``seismic``: approximate, in process.
    ``opensearch``: an OpenSearch cluster. All but ``exact`` are extras to install, and the
    evaluation compares them with ``exact`` (docs/engines.md)."""

    url: Address | None = None
    """Address of the cluster, such as "https://localhost:9200"; the environment holds its credentials
    (docs/engines.md)."""

    shards: PositiveInt = 1
    """Shards of the index in the cluster (docs/engines.md)."""

    replicas: Annotated[int, Field(ge=0, le=100)] = 1
    """Further copies of each shard, on other nodes of the cluster."""

    alias: Alias | None = None
    """Name by which applications ask the cluster. Once a new index is complete, the name stands for it, and the index
    before is removed. For one evaluation set. Default: none; indexes stay until they are removed by hand."""

    query_encoder: StaticQueryEncoder | None = None
    """Static table that encodes the queries of the final model, whatever it was trained with, so that queries need no
    model (SPLADE-Doc of the CAI paper). ``binary``: every token weighs 1. ``idf``: inverse document frequencies in the
    evaluation documents, else in those of ``finetune.data``. The model as trained is evaluated beside it. Default: the
    model's own query encoder."""

    query_length: PositiveInt = 64
    """Queries are cut at this many tokens."""

    document_length: PositiveInt = 256
    """Documents are cut at this many tokens."""

    passages: PassagesSection | None = None

    top_dimensions: PositiveInt | None = None
    """Largest weights of a document to keep, after ``own_tokens`` and ``document_weighting``. The run
    prints what it removed. Default: all."""

    mass: Annotated[float, Field(gt=0, le=1)] | Auto = "auto"
    """Share of the sum of a document's weights to keep, the largest first, when it is encoded. ``auto``: 0.85 for units
    of an embedder, all for other encoders (docs/evaluation.md)."""

    length: Annotated[float, Field(ge=0, lt=1)] | Auto = "auto"
    """Slope b of the length normalisation: weights are divided by 1 − b + b L / L̄, L the sum of a document's weights.
    ``auto``: n / (n + 1000) for units of an embedder of which a document keeps n on average, 0 for other encoders
    (docs/evaluation.md)."""

    query_top_dimensions: PositiveInt | None = None
    """Largest weights of a query to keep, from its static table or the encoder. Default: all."""

    own_tokens: bool = False
    """Raise the weight of each token that a document holds by the 0.9 quantile of the collection's weights. A word of a
    document, as a query, then finds it without adaptation too; best with queries by a static table
    (``query_encoder``)."""

    document_weighting: DocumentWeighting | Auto = "auto"
    """Multiply each dimension of the documents by its token's inverse document frequency. ``cai-paper``: ln(N/N_t), 1
    for tokens of no document. ``cai-code``: its square root, as in the authors' code. ``geng``: ln(1 + (N − N_t +
    ½)/(N_t + ½)); ``geng-root``: its fourth root. Counted on the whole texts of each evaluation set. ``auto``:
    ``geng-root`` for units of an embedder, ``none`` for other encoders
    (docs/evaluation.md)."""

    bm25_analyser: Analysis = "full"
    """How BM25, alone and in the index, splits text into terms (docs/data.md). ``full``: words, their stems and
    pieces of words; needs no package and supports every language. ``morphemes``: also the morphemes of Korean or
    Japanese words (``pip install "vtkit[morphology]"``). ``lucene``: Lucene's own analyser of the language (``pip
    install "vtkit[lucene]"``). ``words``: unchanged words. Fine-tuning and adaptation always find their negatives with
    ``full``."""

    query_log: tuple[CorpusName, ...] = ()
    """Queries of users, without judgements, one a text. They bring the scores of encoder and BM25 to one scale; the
    snippets of documents used otherwise are often shorter than queries (docs/evaluation.md). Used if there are no
    training queries to choose the weight; at least 50 are needed besides those evaluated. Default: snippets of the
    documents."""

    lexical: Lexical = "none"
    """``bm25``: add BM25's weights as further dimensions to the final model's vectors, so that the sum with BM25 needs
    one index and one query. Training queries, or else the documents, determine how the two are weighted
    (docs/evaluation.md)."""

    precision: Literal["float32", "bf16"] = "float32"
    """Precision of the encoder's matrix products, for documents and evaluated queries. ``bf16`` is several times faster
    on GPUs and processors that support it, and several times slower on others; it changes weights by about 1 %.
    ``vtkit recipe new`` and ``vtkit build`` choose by the machine that they run on."""

    @property
    def candidate_dimensions(self) -> int | None:
        """Weights of a document that are kept until they are weighted: the largest of them differ after that."""
        if self.top_dimensions is None:
            return None
        unchanged = self.document_weighting == "none" and self.length == 0 and not self.own_tokens
        return self.top_dimensions if unchanged else CANDIDATES * self.top_dimensions

    @property
    def changes_tokens(self) -> bool:
        """Whether documents whose dimensions are tokens are changed after they are encoded."""
        weighted = self.document_weighting not in ("none", "auto")
        return weighted or self.length not in (0, "auto") or self.own_tokens

    def _faults(self) -> Iterator[str]:
        if self.engine == "opensearch" and self.url is None:
            yield 'engine = "opensearch" needs the address of a server: set url'
