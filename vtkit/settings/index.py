"""[index] of a recipe: how documents are encoded and searched; the settings of engines are in ``engines.py``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from vtkit.settings.analysers import Analysis
from vtkit.settings.calibrate import StaticQueryEncoder
from vtkit.settings.engines import Engine, MilvusSettings, OpenSearchSettings, SeismicSettings
from vtkit.settings.types import CorpusName, PositiveInt, Section

DocumentWeighting = Literal["none", "cai-paper", "cai-code", "geng"]
"""What the dimensions of documents are multiplied by (``vtkit/encoder/idf.py``)."""


Lexical = Literal["none", "bm25"]


class IndexSection(Section):
    """[index]: how documents are encoded and searched."""

    engine: Engine = "exact"
    """What searches. ``exact``: every document that shares a term is scored, in process, no approximation.
    ``lucene``: Lucene's index of impacts, in process. ``seismic``: approximate, in process. ``milvus``: a Milvus
    database, embedded or a cluster. ``opensearch``: an OpenSearch cluster. All but ``exact`` are extras to install, and
    are compared with ``exact`` in the evaluation (docs/engines.md)."""

    quantisation_bits: Annotated[int, Field(ge=2, le=16)] = 8
    """``lucene``: document weights become whole numbers of so many bits, in equal steps up to the largest."""

    query_encoder: StaticQueryEncoder | None = None
    """Static table that encodes the queries of the final model, after whatever it was trained with, so that no model
    runs for a query (SPLADE-Doc of the CAI paper). ``binary``: every token weighs 1. ``idf``: inverse document
    frequencies in the evaluation documents, else in those of ``finetune.data``. The model as it was trained is judged
    beside it. Default: as the model encodes them."""

    query_length: PositiveInt = 64
    """Tokens a query is cut at."""

    document_length: PositiveInt = 256
    """Tokens a document is cut at."""

    top_dimensions: PositiveInt | None = None
    """Keep only so many of the largest weights of a document. Default: all."""

    query_top_dimensions: PositiveInt | None = None
    """Keep only so many of the largest weights of a query, of its static table's or of the encoder's. Default: all."""

    keep: Annotated[float, Field(gt=0, le=1)] | None = None
    """Keep only the largest weights of a document that together hold this share of its vector's sum: 0.9 removes many
    small weights that hardly change a score, and makes the index smaller. What it removed is printed. Default: all."""

    document_weighting: DocumentWeighting = "none"
    """Multiply each dimension of the documents by its token's inverse document frequency. ``cai-paper``: ln(N/N_t), 1
    for tokens of no document. ``cai-code``: its square root, as the authors' code has it. ``geng``:
    ln(1 + (N − N_t + ½)/(N_t + ½)). Counted on the whole texts of each evaluation set (docs/evaluation.md)."""

    bm25_analyser: Analysis = "full"
    """What cuts text into the terms of the BM25 that everything is compared and summed with (docs/data.md). ``full``:
    words, their stems and pieces of words; needs no package, and knows every language. ``morphemes``: the same and the
    morphemes of Korean or Japanese words (``pip install "vtkit[morphology]"``). ``lucene``: Lucene's own
    analyser of the language (``pip install "vtkit[lucene]"``). ``words``: words as they stand. Fine-tuning and
    adaptation find their negatives with ``full``."""

    query_log: tuple[CorpusName, ...] = ()
    """Queries that users asked, without judgements, one a text. On them the scores of encoder and BM25 are brought to
    one scale, since spans of documents are often shorter than queries (docs/evaluation.md). Read where there are no
    training queries to choose the weight; at least 50 other than those that are evaluated. Default: spans of the
    documents."""

    lexical: Lexical = "none"
    """``bm25``: index BM25's impacts beside the final model's weights, as further dimensions of the same vectors, so
    that the sum with BM25 is one index and one query. Training queries, or else the documents, decide how much each of
    the two weighs (docs/evaluation.md)."""

    precision: Literal["float32", "bf16"] = "float32"
    """Of the encoder's matrix products, for documents and judged queries. ``bf16`` is several times faster on GPUs
    and processors that have it, and moves weights by about one part in a hundred."""

    seismic: SeismicSettings = SeismicSettings()
    milvus: MilvusSettings = MilvusSettings()
    opensearch: OpenSearchSettings = OpenSearchSettings()

    @property
    def settings_read(self) -> set[str]:
        """Dotted paths of the settings that have an effect: of the engines' own only those of the one named."""
        tables = {"seismic", "milvus", "opensearch"}
        own = set(type(self).model_fields) - tables - (set() if self.engine == "lucene" else {"quantisation_bits"})
        if self.engine in tables:
            own |= {f"{self.engine}.{name}" for name in type(getattr(self, self.engine)).model_fields}
        return {f"index.{name}" for name in own}

    @property
    def takes_text(self) -> bool:
        """Whether the engine encodes queries itself."""
        return self.engine == "opensearch" and self.opensearch.text_queries

    @model_validator(mode="after")
    def _a_server_has_an_address(self) -> IndexSection:
        if self.engine == "opensearch" and self.opensearch.url is None:
            raise ValueError('engine = "opensearch" needs the address of a server: opensearch.url')
        if self.takes_text and self.lexical != "none":
            raise ValueError(
                "opensearch.text_queries: the terms of a lexical part are no tokens, so that text alone cannot ask for "
                'them. Set lexical to "none", or opensearch.text_queries to false'
            )
        if self.takes_text and self.query_top_dimensions is not None:
            raise ValueError(
                "opensearch.text_queries: OpenSearch keeps every token of a query. Remove query_top_dimensions, or set "
                "opensearch.text_queries to false"
            )
        return self
