"""The record of an index: its engine, the tokenizer that names its dimensions, the weighting of its documents, and its
lexical part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vtkit.search.index_info import REBUILD
from vtkit.settings.analysers import Analysis
from vtkit.settings.engines import Engine
from vtkit.settings.index import DocumentWeighting
from vtkit.system.results import Result

RECORD = "index.json"  # file of the record, in the folder of an index


@dataclass(frozen=True)
class LexicalRecord(Result):
    """The lexical part in the record of an index."""

    language: str
    analysis: Analysis
    terms: int  # dimensions of the part
    document_scale: float
    """BM25's impacts in documents are multiplied by it, so that the largest weight of both parts is the same: an engine
    that rounds weights to steps then spends all steps on each part."""

    encoder_factor: float
    term_factor: float  # the two parts of a query are multiplied by these


@dataclass(frozen=True)
class IndexRecord(Result):
    """The record of an index."""

    engine: Engine
    vocabulary: int  # dimensions of the encoder
    tokenizer: str  # tokenizer_digest of the tokenizer that names them
    weighting: DocumentWeighting = "none"
    lexical: LexicalRecord | None = None

    def save(self, folder: Path) -> None:
        """Write it into ``folder``."""
        self.to_file(folder / RECORD)

    @classmethod
    def load(cls, folder: Path) -> IndexRecord:
        """The record in ``folder``."""
        return cls.from_file(folder / RECORD, REBUILD)
