"""The documents of an index with their vectors, in the files that an engine loads in bulk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from vtkit.data.text import batches
from vtkit.deploy.target import Target, engine_names
from vtkit.encoder.documents import pruned
from vtkit.search.exact import ExactIndex
from vtkit.search.fields import moment, typed_fields
from vtkit.search.index_info import Ids, Kind, Scores
from vtkit.search.lucene import quantised
from vtkit.search.passages import Passages
from vtkit.search.searcher import Documents
from vtkit.search.stored_vectors import shortest
from vtkit.system import console
from vtkit.system.errors import DataError

DEPTH = 10  # results of a replayed query
PART_CHARACTERS = 5_000_000  # of a file, which bulk interfaces accept as one request, whatever its letters
PASSAGE_OF = "document_number"  # field of a passage, by which results are grouped
_DIGEST = b"sha256:"


@dataclass(frozen=True)
class Entry:
    """A document with weights above zero."""

    number: int  # its row in the index
    document: dict[str, Any]
    """``id``, ``title``, ``text`` and, if documents have any, ``fields`` by the engine's names. A passage has a text of
    its own and the field :data:`PASSAGE_OF`, the number of its document, which it has the rest from."""

    dimensions: NDArray[np.int64]  # ascending, from 0
    weights: NDArray[np.float64]  # the index's float32 values by :func:`shortest`, or whole numbers of steps

    def vector(self, names: Sequence[str] | None = None) -> dict[str, float]:
        """Weight by dimension; its name is in ``names``, or its number."""
        pairs = zip(self.dimensions.tolist(), self.weights.tolist(), strict=True)
        return {str(number) if names is None else names[number]: weight for number, weight in pairs}

    def name(self, longest: int) -> str:
        """The document's id, or ``sha256:`` and its digest if it has more than ``longest`` bytes. Ids that begin like a
        digest get one too, so that no two documents have the same name; passages are called by their rows."""
        if PASSAGE_OF in self.document.get("fields", ()):
            return str(self.number)
        identity = self.document["id"].encode()
        fits = len(identity) <= longest and not identity.startswith(_DIGEST)
        return (identity if fits else _DIGEST + hashlib.sha256(identity).hexdigest().encode()).decode()


@dataclass(frozen=True)
class Collection:
    """The documents of an index in the form that an engine needs."""

    vectors: sp.csr_matrix  # (documents or passages, dimensions), float32, or whole numbers of steps
    documents: Documents
    target: Target  # the engine
    step: float | None = None  # the weight of 1, if the engine needs whole numbers
    changed: bool = False  # whether the engine's weights differ from those of the index
    kinds: Mapping[str, Kind] = field(default_factory=dict)  # type of each field
    names: Mapping[str, str] = field(default_factory=dict)  # the engine's name of each field
    replaced: dict[int, int] = field(default_factory=dict)
    """Row of a document that was read -> how many of its characters the engine refuses."""

    passages: Passages | None = None  # whose vectors these are; None: documents'

    @classmethod
    def of(
        cls,
        postings: ExactIndex,
        documents: Documents,
        target: Target,
        kinds: Mapping[str, Kind],
        top_dimensions: int | None = None,
    ) -> Collection:
        """The documents of an index.

        Args:
            target: the engine.
            kinds: the type of each field.
            top_dimensions: number of a document's largest weights to keep; None: all.
        """
        if postings.lists.entries.min(initial=0) < 0:
            raise DataError(
                "The documents have negative weights, which no engine can hold. Only vtkit can search them."
            )
        vectors, _ = pruned(postings.by_document(), top_dimensions)
        vectors, step = (vectors, None) if target.bits is None else quantised(vectors, target.bits)
        return cls(
            vectors=vectors,
            documents=documents,
            target=target,
            step=step,
            changed=top_dimensions is not None or step is not None or target.nine_bits,
            kinds=kinds,
            names=engine_names(kinds, target.refused_in_names, {*target.own_names, PASSAGE_OF}),
            passages=postings.passages,
        )

    def __len__(self) -> int:
        return int(self.vectors.shape[0])

    @property
    def columns(self) -> dict[str, Kind]:
        """The type of each field by the engine's name."""
        own: dict[str, Kind] = {} if self.passages is None else {PASSAGE_OF: "integer"}
        return own | {self.names[name]: kind for name, kind in self.kinds.items()}

    def id_of(self, document: int) -> str:
        """The id of a document as the engine takes it."""
        row = document if self.passages is None else self.passages.rows_of(document)[0]
        return str(self.document(row)["id"])

    def document(self, number: int) -> dict[str, Any]:
        """The document or passage of a row as the engine takes it (:attr:`Entry.document`). A space stands for each
        character that the engine refuses, and fields without a value are left out."""
        passages = self.passages
        whole = number if passages is None else int(passages.documents[number])
        read = self.documents[whole]
        document: dict[str, Any] = {"id": read.id, "title": read.title, "text": read.text}
        if self.columns:
            values = typed_fields(read.fields, self.kinds)
            for name in [name for name in values if self.kinds.get(name) == "datetime"]:  # texts that order like times
                values[name] = f"{moment(values[name]).isoformat(timespec='microseconds')}Z"
            document["fields"] = {self.names[name]: value for name, value in values.items() if name in self.kinds}
        if passages is not None:
            document["text"] = passages.text(number, read)
            document["fields"][PASSAGE_OF] = whole
        if self.target.refused is not None:
            document, count = self._accepted(document)
            if count:
                self.replaced[number] = count
        return document

    def _accepted(self, value: Any) -> tuple[Any, int]:
        """A value with a space for each character that the engine refuses in its texts, and their number."""
        if isinstance(value, str):
            assert self.target.refused is not None
            return self.target.refused.subn(" ", value)
        if isinstance(value, dict):
            values, count = self._accepted(list(value.values()))
            return dict(zip(value, values, strict=True)), count
        if isinstance(value, list):
            pairs = [self._accepted(each) for each in value]
            return [each for each, _ in pairs], sum(count for _, count in pairs)
        return value, 0

    def entries(self) -> Iterator[Entry]:
        """The documents that have weights; no search could find the others."""
        for number, (start, stop) in enumerate(pairwise(self.vectors.indptr.tolist())):
            if start < stop:
                yield Entry(
                    number, self.document(number),
                    self.vectors.indices[start:stop].astype(np.int64), shortest(self.vectors.data[start:stop]),
                )  # fmt: skip

    def write(
        self, folder: Path, name: str, line: Callable[[Entry], str], around: tuple[str, str, str] = ("", "", "")
    ) -> list[str]:
        """Write the documents into files of about :data:`PART_CHARACTERS`, ``folder/name``, in which ``{}`` becomes the
        number of a file.

        Args:
            line: what a file has of a document.
            around: what stands before the first of a file, between two, and behind the last.

        Returns:
            The names of the files.
        """
        folder.mkdir()
        opening, between, closing = around
        files: list[str] = []
        parts = batches(map(line, self.entries()), len(self), PART_CHARACTERS)
        for part in console.tracked(parts, "documents", len(self), len):
            files.append(name.format(f"{len(files):05}"))
            text = opening + between.join(part) + closing
            (folder / files[-1]).write_text(text, encoding="utf-8", newline="\n")
        return files

    def search(self, queries: sp.csr_matrix) -> tuple[Ids, Scores]:
        """The first :data:`DEPTH` documents of each query by exact search over the engine's weights, and their scores,
        both (queries, :data:`DEPTH`)."""
        vectors = self.vectors
        if self.target.nine_bits:
            vectors = vectors.copy()
            vectors.data = (vectors.data.view(np.int32) >> 15 << 15).view(np.float32)
        ids, scores = ExactIndex.build(vectors, self.passages).search(queries, DEPTH)
        return ids, scores * np.float32(self.step or 1.0)


def json_line(value: object) -> str:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
