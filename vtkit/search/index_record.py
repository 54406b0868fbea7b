"""What an index says of itself: the engine, whose tokens its dimensions are, how its documents were weighted, and its
lexical part."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from vtkit.search.index_info import REBUILD
from vtkit.settings.analysers import Analysis
from vtkit.settings.engines import Engine
from vtkit.settings.index import DocumentWeighting
from vtkit.system.errors import DataError
from vtkit.system.results import Result

RECORD = "index.json"
"""File of the record, in the folder of an index."""

IDF = "idf.npy"
"""File of what each dimension of the documents was multiplied by, where they are weighted."""


@dataclass(frozen=True)
class LexicalRecord(Result):
    """A lexical part in the record of its index."""

    language: str
    analysis: Analysis
    terms: int
    """Dimensions of the part."""

    document_scale: float
    encoder_factor: float
    term_factor: float


@dataclass(frozen=True)
class IndexRecord(Result):
    """The record of an index."""

    engine: Engine
    vocabulary: int
    """Dimensions of the encoder."""

    tokenizer: str
    """:func:`tokenizer_digest` of what names them."""

    weighting: DocumentWeighting = "none"
    lexical: LexicalRecord | None = None

    def save(self, folder: Path) -> None:
        """Write it into ``folder``."""
        (folder / RECORD).write_text(json.dumps(self.to_json(), indent=1), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> IndexRecord:
        """The record in ``folder``.

        Raises:
            DataError: it is missing or damaged.
        """
        try:
            return cls.from_json(json.loads((folder / RECORD).read_text("utf-8")))
        except (FileNotFoundError, ValueError, TypeError, RecursionError, ValidationError) as error:
            why = "missing" if isinstance(error, FileNotFoundError) else "damaged"
            raise DataError(
                f"{folder / RECORD}, the record of the index's engine and vocabulary, is {why}. {REBUILD}"
            ) from error
