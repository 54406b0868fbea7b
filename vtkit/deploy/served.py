"""The encoder and the indexes of a server, each for several requests at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from scipy import sparse

from vtkit.deploy.limits import Refusal
from vtkit.encoder.asymmetric import dimension_names
from vtkit.encoder.documents import Dimensions, pruned
from vtkit.encoder.sides import Side, encode_side, prompt_of, tokenizer_of
from vtkit.encoder.truncation import first_tokens
from vtkit.search.results import Found
from vtkit.system import console
from vtkit.system.errors import VtkitError
from vtkit.system.runtime import Precision

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

    from vtkit.search.searcher import Searcher

Text: TypeAlias = str | list[int]  # a text, or its token ids
CHARACTERS_A_TOKEN = 4  # for estimating the work of a text


class Encoding(NamedTuple):
    """Encode texts of one side; those that are too long are cut or, without ``truncate``, refused."""

    side: Side
    truncate: bool


class Searching(NamedTuple):
    """Search for queries."""

    run: str
    top: int
    offset: int  # results to leave out before these
    where: str | None  # a condition on the documents' fields
    why: bool  # with what each word of the query adds
    units: bool = False  # the queries name tokens or units, whose documents are wanted


Kind: TypeAlias = Encoding | Searching  # requests of the same kind are computed together
Answer: TypeAlias = sparse.csr_matrix | list[Found]  # vectors of a request's texts, or results of its queries


def tokens_of(texts: Sequence[Text], limit: int) -> int:
    """Approximate number of tokens to read, at most ``limit`` per text."""
    counts = (len(text) if isinstance(text, list) else len(text) // CHARACTERS_A_TOKEN for text in texts)
    return sum(min(count, limit) + 2 for count in counts)


@dataclass(frozen=True)
class Served:
    """An encoder, and the indexes of runs."""

    name: str  # name of the encoder: folder, hub id or run
    encoder: SparseEncoder
    searchers: dict[str, Searcher]
    encoded_for: str | None
    """The run for whose index queries are encoded, with BM25's terms; None: a model was named, which encodes them
    alone."""

    text_tokens: int | None  # tokens at which a document is cut; None: the encoder's limit
    candidates: int | None  # largest weights of a document that are kept; None: all
    mass: float  # share of the sum of a document's weights that is kept
    precision: Precision = "float32"
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)  # time and number of the file of each index's state

    @property
    def index(self) -> Searcher | None:
        """The index that queries are encoded for."""
        return None if self.encoded_for is None else self.searchers[self.encoded_for]

    def renew(self) -> None:
        """Take the newest state of each index that was changed; searches go on meanwhile, and each reads one state."""
        for name, searcher in list(self.searchers.items()):
            try:
                if not searcher.record.is_file():  # of a run that was made anew
                    continue
                known = searcher.record.stat()
                before, self.seen[name] = self.seen.get(name), (known.st_mtime_ns, known.st_ino)
                if before != self.seen[name] and (newest := searcher.renewed()) is not searcher:
                    self.searchers[name] = newest
                    console.say(f"{name} has changed: {len(newest.documents):,} documents")
            except (VtkitError, OSError) as error:
                console.warn(f"{name} has changed, and the state before is served on: {error}")

    def longest(self, side: Side) -> int:
        """Tokens of a text that are read, including special tokens."""
        own = self.index.query_length if side == "query" and self.index is not None else self.text_tokens
        limits = (own, self.encoder.max_seq_length, tokenizer_of(self.encoder, side).model_max_length)
        return min(limit for limit in limits if limit is not None)

    def compute(self, kind: Kind, requests: Sequence[Sequence[Text]]) -> Sequence[Answer | Exception]:
        """The answers to requests of one kind, each of some texts or queries, or their errors."""
        if isinstance(kind, Searching):
            queries = [str(query) for request in requests for query in request]
            searcher = self.searchers[kind.run]
            if kind.units:
                return [[searcher.texts_of(unit, kind.top, skip=kind.offset, where=kind.where)] for unit in queries]
            found = searcher.search(queries, kind.top, skip=kind.offset, where=kind.where, why=kind.why)
            return [list(islice(found, len(request))) for request in requests]
        rows: list[slice | Exception] = []
        texts: list[str] = []
        for request in requests:
            try:
                taken = [self._as_text(text, kind.side) for text in request]
                if not kind.truncate:
                    self._refuse_long(taken, kind.side)
                rows.append(slice(len(texts), len(texts) + len(taken)))
                texts += taken
            except Exception as error:
                rows.append(error)
        if kind.side == "query" and self.index is not None:
            vectors = self.index.encode(texts)
        else:
            vectors = encode_side(self.encoder, texts, kind.side, self.longest(kind.side), precision=self.precision)
        if kind.side == "document":  # as the index has them
            vectors, _ = pruned(vectors, self.candidates, self.mass, Dimensions.of(self.encoder).power)
        return [row if isinstance(row, Exception) else vectors[row] for row in rows]

    def _as_text(self, text: Text, side: Side) -> str:
        if isinstance(text, str):
            return text
        known = len(dimension_names(self.encoder))
        if any(number >= known for number in text):
            raise Refusal(422, f"`inputs` has token ids outside the vocabulary of {known:,} tokens")
        return str(tokenizer_of(self.encoder, side).decode(text, skip_special_tokens=True))

    def _refuse_long(self, texts: Sequence[str], side: Side) -> None:
        limit, prompt = self.longest(side), prompt_of(self.encoder, side)
        token_ids = first_tokens(tokenizer_of(self.encoder, side), [prompt + text for text in texts], limit + 1)
        for number, ids in enumerate(token_ids["input_ids"]):
            if len(ids) > limit:
                raise Refusal(
                    422,
                    f"`inputs` must have at most {limit} tokens; text {number} has more. Shorten it, or cut it with "
                    '"truncate": true',
                )
