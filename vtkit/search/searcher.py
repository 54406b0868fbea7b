"""Searching the index of an encoder: results, and the tokens that made each score."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from vtkit.data.document_files import DOCUMENTS, is_blank, too_long
from vtkit.data.documents import METADATA
from vtkit.data.retrieval import Document
from vtkit.encoder.documents import pruned
from vtkit.encoder.fitted import UNIT_OF_COMMON_WORDS
from vtkit.encoder.static_queries import StaticQueries
from vtkit.encoder.transformer_queries import TransformerQueries
from vtkit.encoder.truncation import first_tokens
from vtkit.search.bridge_queries import BridgeQueries
from vtkit.search.drift import said_of_unread
from vtkit.search.engine import POSTINGS, Index, open_index
from vtkit.search.fields import ConditionError, Fields, typed_fields
from vtkit.search.index_info import REBUILD, RECORD, Contributions, Ids, Kind, Scores
from vtkit.search.lexical import LexicalPart
from vtkit.search.results import Explanation, Found, Places, SearchResult, SharedToken, Weighted
from vtkit.search.segments import GENERATIONS, Manifest
from vtkit.search.words import PREFIX, READ, QueryWords, forms, words_found
from vtkit.system import console
from vtkit.system.checksums import verify
from vtkit.system.errors import DataError, VtkitError
from vtkit.system.runtime import fastest_device
from vtkit.vocabulary.forms import Vocabulary, whole_encodings
from vtkit.vocabulary.tokenizer_file import tokenizer_digest

if TYPE_CHECKING:
    from vtkit.encoder.sides import EncoderQueries

    QueryEncoder = StaticQueries | TransformerQueries | EncoderQueries | BridgeQueries

TOKENS_SHOWN = 12

WORDS_KEPT = 20_000  # words of documents whose forms are kept, in about 50 MB

QUERIES_AT_ONCE = 256  # queries that are encoded and searched together


@dataclass(frozen=True)
class Documents:
    """The documents of an index, read one by one from ``documents.jsonl``. The file stays open, so that another in its
    place, or its removal, changes nothing."""

    path: Path
    file: BinaryIO
    starts: NDArray[np.int64]  # the first byte of each line, and the end of the last, (documents + 1,)
    written: int  # when the file was last written, in nanoseconds

    @classmethod
    def open(cls, path: Path) -> Documents:
        """Find the first byte of each line of ``path``."""
        try:
            file = path.open("rb")
        except FileNotFoundError as error:
            raise DataError(f"{path} is missing. {REBUILD}") from error
        written = os.fstat(file.fileno()).st_mtime_ns
        return cls(path, file, np.fromiter(accumulate(map(len, file), initial=0), dtype=np.int64), written)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def check_unchanged(self) -> None:
        """Refuse a file that was written into since it was opened: its lines are no longer where they were."""
        if os.fstat(self.file.fileno()).st_mtime_ns != self.written:
            raise DataError(
                f"{self.path} was changed after it was opened. Open the index again, or start the server anew."
            )

    def __getitem__(self, number: int) -> Document:
        """A document."""
        start, stop = (int(byte) for byte in self.starts[number : number + 2])
        self.check_unchanged()
        try:
            document = json.loads(os.pread(self.file.fileno(), stop - start, start))
            if not all(isinstance(document[name], str) for name in ("_id", "text")):
                raise TypeError("_id and text must be strings")
            fields = dict(document.get(METADATA, {}))
            return Document(document["_id"], document.get("title", ""), document["text"], fields)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(
                f"{self.path} is damaged after {number:,} documents ({type(error).__name__}: {error}). {REBUILD}"
            ) from error


@dataclass(frozen=True)
class Searcher:
    """A query encoder, the index of its documents, and the names of the dimensions, loaded once for many queries.
    Special tokens stand for no word, so they are listed separately, although their weights count in every score."""

    encoder: QueryEncoder
    index: Index
    documents: Documents
    names: list[str]
    telling: list[str]  # the same, but empty for units that common words fire, which tell no documents apart
    vocabulary: Vocabulary  # of the encoder's dimensions
    input_vocabulary: Vocabulary  # of the tokens that queries are cut into
    special: frozenset[int]  # dimensions of special tokens
    query_length: int  # tokens at which a query is cut
    query_top_dimensions: int | None = None  # number of a query's largest weights that are kept; None: all
    fields: Fields | None = None  # of the documents, for conditions; None if they have none
    lexical: LexicalPart | None = None  # BM25's terms behind the encoder's dimensions, if the index has them
    marks: bool = False  # whether results say which words of a document found it

    @classmethod
    def load(
        cls,
        home: Path,
        manifest: Manifest,
        bridge: tuple[Path, str] | None = None,
        encoder: QueryEncoder | None = None,
    ) -> Searcher:
        """The searcher of the index in ``home``.

        Args:
            manifest: that of the index, with a model that can be loaded from here.
            bridge: folder of translations that encode queries instead of the model, and the language of the queries.
            encoder: the model's query encoder, if it was loaded before.
        """
        verify(home / RECORD)
        generation, settings = home / GENERATIONS / str(manifest.generation), manifest.index
        opened = open_index(settings, generation / POSTINGS)
        documents = Documents.open(generation / DOCUMENTS)
        if len(documents) < opened.postings.ranked:
            raise DataError(f"{documents.path} is cut short: the index beside it has more documents. {REBUILD}")
        if encoder is None:
            encoder = BridgeQueries.load(*bridge, opened.info) if bridge else _query_encoder(manifest)
        tokenizer = encoder.output_tokenizer
        if tokenizer_digest(tokenizer) != manifest.tokenizer:
            raise DataError(f"{home} was made with another vocabulary than the model {manifest.model} has. {REBUILD}")
        vocabulary, input_vocabulary, lexical = Vocabulary(tokenizer), Vocabulary(encoder.tokenizer), None
        names = vocabulary.legible
        if manifest.lexical is not None:
            lexical = LexicalPart.load(generation, manifest.lexical, manifest.vocabulary)
            names = [*names, *[""] * (manifest.vocabulary - len(names)), *lexical.names()]
        telling = ["" if UNIT_OF_COMMON_WORDS.fullmatch(name) else name for name in names]
        special = frozenset(vocabulary.special)
        limits = settings.query_length, settings.query_top_dimensions
        fields = None if manifest.fields is None else Fields.open(generation, manifest.fields, len(documents))
        described = names, telling, vocabulary, input_vocabulary, special
        return cls(encoder, opened, documents, *described, *limits, fields, lexical)

    @property
    def record(self) -> Path:
        """The file that names the generation which this searcher should read."""
        return self.documents.path.parents[2] / RECORD

    def renewed(self) -> Searcher:
        """The searcher of the newest generation of the index, with the same query encoder; itself if it is that."""
        newest = Manifest.load(self.record.parent)
        if str(newest.generation) == self.documents.path.parent.name:
            return self
        return replace(Searcher.load(self.record.parent, newest, encoder=self.encoder), marks=self.marks)

    def search(
        self, queries: Sequence[str], depth: int, *, skip: int = 0, where: str | None = None, why: bool = False
    ) -> Iterator[Found]:
        """The best ``depth`` documents for each query and, for each, at most :data:`TOKENS_SHOWN` tokens whose products
        sum to its score. A blank query finds nothing.

        Args:
            skip: the number of results to leave out before these: a further page.
            where: a condition on the documents' fields (:mod:`vtkit.search.fields`). The results are then the first
                of the whole exact ranking that meet it, whatever the engine.
            why: also find what each word of the query adds to each score.
        """
        passing = self.passing(where)
        wanted = min(skip + depth, max(1, self.index.postings.ranked))  # memory is asked for by it
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            batch = queries[start : start + QUERIES_AT_ONCE]
            whole = self._vectors(batch)
            warnings = self._lost_text(batch)
            vectors, _ = pruned(whole, self.index.most_weights)
            if passing is None:
                ids, scores = self.index.search(vectors, wanted)
            else:
                ids, scores = self.index.postings.search(vectors, wanted, passing)
            for row, query in enumerate(batch):
                vector = vectors[row]
                words = self._query_words(query) if why else None
                results = self._results(ids[row], scores[row], skip, vector, words)
                if whole[row].nnz > vector.nnz:
                    said = f'the query "{console.one_line(query, 40)}" has {whole[row].nnz:,} weights'
                    warnings[row] += (f"{said}, of which the engine takes the {vector.nnz:,} largest",)
                yield Found(query, *self._query_tokens(vector), results, warnings[row])

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The type of each field of the documents."""
        return {} if self.fields is None else self.fields.kinds

    def passing(self, where: str | None) -> NDArray[np.bool_] | None:
        """Report whether each document meets a condition (:meth:`vtkit.search.fields.Fields.passing`), (documents,);
        None without a condition."""
        if where is None:
            return None
        if self.fields is None:
            raise ConditionError("the documents of this index have no fields, so there is nothing to filter by")
        return self.fields.passing(where)[: self.index.postings.ranked]

    def explain(self, query: str, document_id: str) -> Explanation:
        """Why one document scores what it does for ``query``."""
        documents = self.documents
        number = next((number for number in range(len(documents)) if documents[number].id == document_id), None)
        if number is None:
            examples = [documents[number].id for number in range(min(3, len(documents)))]
            raise VtkitError(f"The index has no document {document_id!r}. Its ids look like {', '.join(examples)}.")
        document = documents[number]
        vector = self.encode([query])
        shared = self.index.postings.explain(vector, number)
        tokens: dict[bool, list[SharedToken]] = {False: [], True: []}
        for position in np.argsort(-shared.products, kind="stable"):
            term = int(shared.dimensions[position])
            of_both = (shared.query_weights, shared.document_weights, shared.products)
            named = SharedToken(self.names[term], *(float(values[position]) for values in of_both))
            tokens[term in self.special].append(named)
        ids, _ = self.index.search(vector, max(self.index.postings.ranked, 1))
        ranks = np.flatnonzero(ids[0] == number)
        about = query, document.id, document.title, document.text, float(shared.products.sum())
        rank = int(ranks[0]) + 1 if len(ranks) else None
        listed = tuple(tokens[False]), tuple(tokens[True]), self._query_words(query).parts(shared, self.telling)
        return Explanation(*about, rank, *listed, self._query_tokens(vector)[0], self._passage(shared, document))

    def dimension(self, unit: str) -> int | None:
        """The dimension of a token or unit by its name, or of a latent unit by its number."""
        if unit in self.names:
            return self.names.index(unit)
        number = int(unit) if unit.isdecimal() and len(unit) < 10 else len(self.names)
        return number if number < len(self.names) and self.names[number].startswith(f"{number}:") else None

    def texts_of(self, unit: str, depth: int, *, skip: int = 0, where: str | None = None) -> Found:
        """The ``depth`` documents in which a dimension weighs most, with these weights as scores.

        Args:
            unit: its name, or the number of a latent term.
            skip, where: as in :meth:`search`.
        """
        dimension = self.dimension(unit)
        if dimension is None:
            raise VtkitError(f"The index has no token or unit {unit!r}. vtkit search --why shows which there are.")
        vector = sparse.csr_matrix(([1.0], ([0], [dimension])), (1, self.index.info.vocabulary), dtype=np.float32)
        ids, scores = self.index.postings.search(vector, min(skip + depth, len(self.documents)), self.passing(where))
        return Found(unit, ((self.names[dimension], 1.0),), (), self._results(ids[0], scores[0], skip, vector, None))

    def encode(self, queries: Sequence[str]) -> sparse.csr_matrix:
        """The vectors of queries as the engine takes them, (queries, dimensions of the index); a blank query has no
        weights, even if the model gives its special tokens some."""
        return pruned(self._vectors(queries), self.index.most_weights)[0]

    def _vectors(self, queries: Sequence[str]) -> sparse.csr_matrix:
        """The vectors of queries with all their weights, whatever the engine takes."""
        if complaint := too_long(max(queries, key=len, default="")):
            raise VtkitError(f"A query {complaint}.")
        vectors, _ = pruned(self.encoder.encode(queries, self.query_length), self.query_top_dimensions)
        if self.lexical is not None:
            vectors = self.lexical.join_queries(vectors, queries)
        if vectors.shape[1] != self.index.info.vocabulary:
            raise DataError(
                f"{self.documents.path.parent} has {self.index.info.vocabulary:,} dimensions, but the model's queries "
                f"have {vectors.shape[1]:,}. {REBUILD}"
            )
        for row, query in enumerate(queries):
            if is_blank(query):
                vectors.data[vectors.indptr[row] : vectors.indptr[row + 1]] = 0
        vectors.eliminate_zeros()
        return vectors

    def _lost_text(self, queries: Sequence[str]) -> list[tuple[str, ...]]:
        """Warnings of each query: that it is cut, or that its letters are not in the vocabulary."""
        tokenizer = self.encoder.tokenizer
        limit = min(self.query_length, tokenizer.model_max_length)
        prompted = [self.encoder.prompt + query for query in queries]
        special = isinstance(self.encoder, StaticQueries)  # a query table has no special tokens
        tokens = first_tokens(tokenizer, prompted, limit + 1, add_special_tokens=not special)["input_ids"]
        warnings: list[tuple[str, ...]] = []
        for query, ids in zip(queries, tokens, strict=True):
            shown, said = console.one_line(query, 40), []
            if len(ids) > limit:
                why = "the model's limit" if limit < self.query_length else "index.query_length"
                rest = "the rest is ignored" if self.lexical is None else "only BM25 reads the rest"
                said.append(f'the query "{shown}" is cut at {limit} tokens ({why}); {rest}')
            if lost := self.input_vocabulary.unread(query):
                letters = sum(map(str.isalnum, query))
                said.append(said_of_unread("the model", lost, letters, f'the query "{shown}"'))
            warnings.append(tuple(said))
        return warnings

    def _results(
        self, ids: Ids, scores: Scores, skip: int, vector: sparse.csr_matrix, words: QueryWords | None
    ) -> tuple[SearchResult, ...]:
        """The results of one query behind the first ``skip``."""
        results = []
        found = int(np.count_nonzero(ids >= 0))
        for rank, number in enumerate(ids[skip:found].tolist(), skip + 1):
            document, score = self.documents[number], float(scores[rank - 1])
            shared = self.index.postings.explain(vector, number)
            tokens, special_tokens = self._weights_by_name(shared.dimensions, shared.products)
            result = SearchResult(
                rank=rank,
                id=document.id,
                title=document.title,
                text=document.text,
                score=score,
                tokens=tokens,
                special_tokens=special_tokens,
                words=() if words is None else words.parts(shared, self.telling),
                fields=typed_fields(document.fields, self.kinds),
                passage=self._passage(shared, document),
            )
            results.append(replace(result, places=self._places(result.shown, shared)) if self.marks else result)
        return tuple(results)

    def _places(self, text: str, shared: Contributions) -> Places:
        """The words of ``text`` that hold what it shares with the query (:func:`~vtkit.search.words.words_found`)."""
        parts: Counter[str] = Counter()
        for dimension, product in zip(shared.dimensions.tolist(), shared.products.tolist(), strict=True):
            for form in forms(self.telling[dimension]) if dimension not in self.special else ():
                parts[form] += product
        return words_found(text[:READ].encode("utf-8", "replace").decode(), parts, self._forms_of)

    @cached_property
    def _forms_of(self) -> Callable[[str], list[set[str]]]:
        """Gives the forms of a word as tokens, as terms of BM25 and as the name of a latent term; those of the last
        :data:`WORDS_KEPT` words are kept."""

        @lru_cache(WORDS_KEPT)
        def forms_of(word: str) -> list[set[str]]:
            (encoding,) = whole_encodings(self.vocabulary.tokenizer, [f" {word}"])
            tokens, terms = [self.names[number] for number in encoding.ids], list[str]()
            if self.lexical is not None:
                terms = [PREFIX + term for term in self.lexical.terms.analyser.of_query(word)]
            return [{form for name in side for form in forms(name)} for side in (tokens, terms, [f"0:{word}"])]

        return forms_of

    def _passage(self, shared: Contributions, document: Document) -> str | None:
        """The text of the passage of ``document`` that a score is of; None if documents are not cut into passages."""
        passages = self.index.postings.passages
        return None if passages is None else passages.text(shared.row, document)

    def _query_words(self, query: str) -> QueryWords:
        alone, ends = self.encoder.by_token(query, self.query_length)
        ends = [end - len(self.encoder.prompt) for end in ends]
        return QueryWords.of(query, alone, ends, self.special, None if self.lexical is None else self.lexical.terms)

    def _query_tokens(self, vector: sparse.csr_matrix) -> tuple[Weighted, Weighted]:
        """The encoder's dimensions of a query's vector, named: those of other tokens, and of special ones."""
        of_encoder = slice(None) if self.lexical is None else vector.indices < self.lexical.vocabulary
        return self._weights_by_name(vector.indices[of_encoder], vector.data[of_encoder])

    def _weights_by_name(self, terms: NDArray[Any], values: NDArray[Any]) -> tuple[Weighted, Weighted]:
        """The :data:`TOKENS_SHOWN` dimensions of the largest values by name, without special tokens and units of common
        words; and those of special tokens."""
        order = np.argsort(-values, kind="stable")
        pairs = [(int(terms[place]), round(float(values[place]), 4)) for place in order]
        special = [pair for pair in pairs if pair[0] in self.special][:TOKENS_SHOWN]
        ordinary = [pair for pair in pairs if pair[0] not in self.special and self.telling[pair[0]]][:TOKENS_SHOWN]
        named, roles = (tuple((self.names[term], value) for term, value in some) for some in (ordinary, special))
        return named, roles


def _query_encoder(manifest: Manifest) -> StaticQueries | TransformerQueries | EncoderQueries:
    """The lightest query encoder of the model: importing one for documents takes longer than a search."""
    model, tokenizer = str(manifest.model), manifest.tokenizer
    light = StaticQueries.load(model, tokenizer) or TransformerQueries.load(model, tokenizer)
    if light is not None:
        return light
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.sides import EncoderQueries

    return EncoderQueries(load_encoder(model, fastest_device()))
