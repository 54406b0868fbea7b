"""Documents as an index holds them: saturated, pruned, raised where they hold a token, weighted by inverse document
frequency, and normalised by length, in this order; and the document frequencies of tokens.

- *Saturation* of units that are summed over tokens: the square root of each weight, and so the fourth of the sum.
- *Pruning*: the largest weights of a document are kept, as many as hold the share m of its sum. What is kept depends on
  no other document, so that the others are left out when it is encoded, and everything below counts what is kept.
- *Own tokens*: w_j(d) <- w_j(d) + c · [d holds token j], c the :data:`QUANTILE` of the weights of the collection, so
  that a query for a word of a document finds it.
- *Weighting*: ŝ_d = w ⊙ s_d, documents only (CAI, arXiv:2211.03988). Scores are dot products, so weighting documents is
  weighting queries, as long as nothing is pruned or quantised. Afterwards so many of the largest weights may be kept
  (Lassance et al., 2023, arXiv:2304.12702).
- *Length*: w_j / (1 − b + b L / L̄), Singhal et al.'s pivoted normalisation (1996), with the sum L of a document's
  weighted weights, and L̄ its mean over the collection.

A unit fires in more documents the longer they are, so that long documents win. Units have the *rule* unless a recipe
says otherwise: the fourth root of IDF, m = :data:`MASS`, and b = n / (n + :data:`LONG`), with n the mean number of
dimensions of a document that are kept. The divisor is then 1 + L / Λ up to a factor, with one Λ for all collections:
paragraphs are told apart by their length, and single sentences hardly. With x_j the sum of a unit over tokens, its
weight is √x_j in a query and (x_j · idf_j)^¼ in a document before its length counts: between a maximum, which forgets
how often a unit fires, and a sum, in which the units that fire most often win (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from vtkit.data.text import batches
from vtkit.settings.index import DocumentWeighting, IndexSection
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.results import Result
from vtkit.vocabulary.forms import whole_ids

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder
    from transformers import PreTrainedTokenizerBase

IDF = "idf.npy"  # file of the factor of each dimension of the documents, if they are weighted
OWN_TOKENS = "own_tokens.npy"  # file of the increase of each dimension in documents that hold its token
LENGTH = "length.json"

MASS = 0.85
LONG = 1000  # dimensions of a document

ROOT = 0.5  # power of the weight of a summed unit, itself the square root of the sum

QUANTILE = 0.9
WEIGHTS_AT_ONCE = 2**17  # that are pruned together
ROWS_AT_ONCE = 1024  # of a block of rows
MUCH = 1 / 3  # share of the sum of all weights from which on its loss is a warning


Blocks = Callable[[], Iterable[sparse.csr_matrix]]
"""Gives the rows of a matrix, block after block from the first, each time that it is called."""


@dataclass(frozen=True)
class Dimensions(Result):
    """The dimensions of an encoder, as far as the weights of documents depend on them."""

    number: int
    units: bool  # latent units, not tokens
    power: float  # of the weights of documents, by which units that are summed over tokens are saturated

    @classmethod
    def of(cls, encoder: SparseEncoder) -> Dimensions:
        """The dimensions of ``encoder``."""
        from vtkit.encoder.asymmetric import sums_units, width_of, writes_units

        return cls(width_of(encoder), writes_units(encoder), ROOT if sums_units(encoder) else 1.0)

    def mass(self, index: IndexSection) -> float:
        """The share m of the sum of a document's weights, saturated, that is kept when it is encoded."""
        return (MASS if self.units else 1.0) if index.mass == "auto" else index.mass


def as_indexed(
    encoder: SparseEncoder, vectors: sparse.csr_matrix, texts: Sequence[str], index: IndexSection
) -> sparse.csr_matrix:
    """Documents as ``index`` has them (:func:`indexed_rows`), in memory; ``texts`` are read where dimensions are
    tokens that are counted."""
    held = held_tokens(encoder, texts, index)
    tokens = None if held is None else partial(row_blocks, held)
    rows = indexed_rows(Dimensions.of(encoder), lambda: encoder, partial(row_blocks, vectors), index, held=tokens)
    return sparse.vstack(list(rows()), format="csr")


def indexed_rows(
    dimensions: Dimensions,
    encoder: Callable[[], SparseEncoder],
    vectors: Blocks,
    index: IndexSection,
    kept: Path | None = None,
    held: Blocks | None = None,
) -> Blocks:
    """Documents as ``index`` has them; the largest *weighted* entries of a document are kept.

    Args:
        dimensions: those of ``encoder``, which is asked for only where own tokens rise.
        vectors: of documents as they are encoded, with the share :meth:`Dimensions.mass` of their sums, and with
            ``index.candidate_dimensions`` entries a document at most.
        kept: folder for what further documents need: mass and saturation, what their tokens rise by, and weights.
        held: the tokens of the same rows (:func:`held_tokens`).
    """
    power, raised, width = dimensions.power, vectors, dimensions.number
    if index.own_tokens and held is not None:
        raised, rise = with_own_tokens(encoder(), vectors, held)
        if kept is not None:
            np.save(kept / OWN_TOKENS, rise, allow_pickle=False)
    if (*rule_of(dimensions, index), power, index.top_dimensions) == ("none", 1, 0, 1, None):
        return raised
    rows, entries = 0, 0
    frequencies, sums = np.zeros(width, dtype=np.int64), np.zeros(width)
    for block in raised():
        rows, entries = rows + block.shape[0], entries + block.nnz
        sums += np.bincount(block.indices, block.data**power, minlength=width)
        if held is None:
            frequencies += np.bincount(block.indices, minlength=width)
    for block in held() if held is not None else ():
        frequencies += np.bincount(block.indices, minlength=width)
    weighting, mass, slope = rule_of(dimensions, index, entries / max(rows, 1))
    weights = idf_weights(frequencies, rows, weighting)
    total = float(sums @ weights)
    length = Length(mass, slope, total / rows if total else 1.0, power)
    if kept is not None:
        length.to_file(kept / LENGTH)
        if weighting != "none":
            np.save(kept / IDF, weights, allow_pickle=False)

    def indexed() -> Iterator[sparse.csr_matrix]:
        removed = Removed()
        for block in raised():
            powered = sparse.csr_matrix((block.data**power, block.indices, block.indptr), block.shape)
            part, of_part = pruned(weighted(powered, weights), index.top_dimensions)
            removed += of_part
            yield length.divided(part, powered @ weights)
        removed.say("weighted documents")

    return indexed


def row_blocks(vectors: sparse.csr_matrix) -> Iterator[sparse.csr_matrix]:
    """The rows of ``vectors``, :data:`ROWS_AT_ONCE` at a time. Arrays of a block stay in the processor's cache, and
    take the memory of those of the block before."""
    for first in range(0, max(vectors.shape[0], 1), ROWS_AT_ONCE):
        starts = vectors.indptr[first : first + ROWS_AT_ONCE + 1]
        own = slice(int(starts[0]), int(starts[-1]))
        entries = vectors.data[own], vectors.indices[own], starts - starts[0]
        yield sparse.csr_matrix(entries, (len(starts) - 1, vectors.shape[1]))


def rule_of(dimensions: Dimensions, index: IndexSection, n: float = 1) -> tuple[DocumentWeighting, float, float]:
    """The weighting of documents, the share m of their sum that is kept, and the slope b of their length; ``auto`` is
    the rule for units of an embedder, and nothing for other encoders.

    Args:
        n: mean number of dimensions of a document that are kept.
    """
    units = dimensions.units
    weighting: DocumentWeighting = "geng-root" if units else "none"
    return (
        weighting if index.document_weighting == "auto" else index.document_weighting,
        dimensions.mass(index),
        (n / (n + LONG) if units else 0.0) if index.length == "auto" else index.length,
    )


@dataclass(frozen=True)
class Length(Result):
    """The mass and the pivoted length of an index's documents, by which further documents are treated alike."""

    mass: float
    b: float
    mean_sum: float  # L̄
    power: float = 1.0  # of each weight, before all else

    def divided(self, vectors: sparse.csr_matrix, sums: NDArray[np.floating]) -> sparse.csr_matrix:
        """The documents divided by 1 − b + b L / L̄, (documents, dimensions); ``sums`` are their L, (documents,)."""
        pivots = (1 - self.b + self.b * sums / self.mean_sum).astype(np.float32)
        divided = vectors.data / np.repeat(pivots, np.diff(vectors.indptr))
        return sparse.csr_matrix((divided, vectors.indices, vectors.indptr), vectors.shape)


def with_own_tokens(encoder: SparseEncoder, vectors: Blocks, held: Blocks) -> tuple[Blocks, NDArray[np.float32]]:
    """``vectors`` raised in the dimensions that each text holds (:func:`held_tokens`), and the increase of each
    dimension: c, or 0 for special tokens, fillers and masked tokens, (vocabulary,)."""
    from vtkit.encoder.kinds import can_weigh

    data = np.concatenate([block.data for block in vectors()])
    rise = np.where(can_weigh(encoder), np.quantile(data, QUANTILE) if len(data) else 1, 0).astype(np.float32)

    def raised() -> Iterator[sparse.csr_matrix]:
        for block, tokens in zip(vectors(), held(), strict=True):
            yield (block + weighted(tokens, rise)).tocsr()

    return raised, rise


def held_tokens(encoder: SparseEncoder, texts: Iterable[str], index: IndexSection) -> sparse.csr_matrix | None:
    """Ones for the tokens that each text holds (:func:`tokens_held`), (texts, vocabulary); None if ``index`` does not
    count them, or the dimensions are latent units. DataError: ``index`` raises own tokens, which latent units are not,
    and which a uniCOIL encoder weights alone."""
    from vtkit.encoder.asymmetric import dimension_names, output_tokenizer, writes_units
    from vtkit.encoder.folding import folded_dimensions
    from vtkit.encoder.kinds import refuse_unicoil

    if index.own_tokens:
        refuse_unicoil(encoder, "index.own_tokens")
        if writes_units(encoder):
            raise DataError("latent units are not tokens: remove index.own_tokens")
    if not index.changes_tokens or writes_units(encoder):
        return None
    held = list(tokens_held(output_tokenizer(encoder), texts, folded_dimensions(encoder)))
    columns = np.concatenate([np.zeros(0, dtype=np.int64), *held])
    shape = len(held), len(dimension_names(encoder))
    ones = np.ones(len(columns), dtype=np.float32)
    return sparse.csr_matrix((ones, columns, np.cumsum([0, *map(len, held)])), shape)


@dataclass
class DocumentCounter:
    """Document frequencies of texts on their way to somebody else; :func:`document_frequencies` says what counts."""

    tokenizer: PreTrainedTokenizerBase
    frequencies: NDArray[np.int64]  # so far, (size,)
    folded_to: NDArray[np.int64] | None = None
    documents: int = 0

    def counting(self, texts: Iterable[str]) -> Iterator[str]:
        """``texts``, counted as they pass."""
        for batch in batches(texts):
            self.documents += len(batch)
            for held in tokens_held(self.tokenizer, batch, self.folded_to):
                self.frequencies[held] += 1
            yield from batch


def tokens_held(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], folded_to: NDArray[np.int64] | None = None
) -> Iterator[NDArray[np.int64]]:
    """The distinct tokens of each of ``texts``, or the dimensions they are folded into, sorted;
    :func:`document_frequencies` says what counts."""
    for ids in whole_ids(tokenizer, texts):
        yield np.unique(ids if folded_to is None else folded_to[ids])


def document_frequencies(
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    size: int,
    folded_to: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], int]:
    """In how many of ``texts`` each token occurs, (size,), and how many texts there are.

    Whole texts count, however long; special tokens do not. Where vectors are folded (``folded_to``, (size,), of
    ``fold_map_of``), a text counts once for a dimension if it holds any of its case variants.
    """
    counter = DocumentCounter(tokenizer, np.zeros(size, dtype=np.int64), folded_to)
    for _ in counter.counting(texts):
        pass
    return counter.frequencies, counter.documents


def idf_weights(frequencies: NDArray[np.integer], documents: int, weighting: DocumentWeighting) -> NDArray[np.float32]:
    """The factor of each dimension of a document, (vocabulary,), for N documents of which N_t hold token t.

    - ``cai-paper``: ``w_t = ln(N / N_t)``, and 1 where no document holds t (CAI).
    - ``cai-code``: the square root of that, as the authors' code has it by default.
    - ``geng``: ``w_t = ln(1 + (N − N_t + ½) / (N_t + ½))`` (Geng et al. 2024, arXiv:2411.04403).
    - ``geng-root``: the fourth root of that, for units: a unit that fires in most documents still tells them apart.
    - ``none``: 1.
    """
    held = np.asarray(frequencies, dtype=np.float64)
    match weighting:
        case "none":
            weights = np.ones_like(held)
        case "geng" | "geng-root":
            weights = np.log1p((documents - held + 0.5) / (held + 0.5)) ** (1 if weighting == "geng" else 0.25)
        case "cai-paper" | "cai-code":
            weights = np.where(held > 0, np.log(documents / np.maximum(held, 1)), 1.0)
            if weighting == "cai-code":
                weights = np.sqrt(weights)
    return weights.astype(np.float32)


def weighted(vectors: sparse.csr_matrix, weights: NDArray[np.float32]) -> sparse.csr_matrix:
    """``vectors`` with every dimension multiplied by its weight; dimensions that become 0 are left out."""
    data = vectors.data * weights[vectors.indices]
    result = sparse.csr_matrix((data, vectors.indices, vectors.indptr), vectors.shape, copy=not data.all())
    if not data.all():
        result.eliminate_zeros()
    return result


@dataclass(frozen=True)
class Removed(Result):
    """Counts and sums of the weights that pruning removed."""

    weights: int = 0  # how many there were before
    weights_removed: int = 0
    mass: float = 0.0  # their sum before
    mass_removed: float = 0.0

    def __add__(self, other: Removed) -> Removed:
        return Removed(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def say(self, name: str) -> None:
        """Say what was removed from the vectors of ``name``; much of their sum is a warning."""
        if self.weights_removed:
            (console.warn if self.share_of_mass >= MUCH else console.say)(
                f"  {name}: {self.share_of_weights:.1%} of the weights removed, "
                f"with {self.share_of_mass:.1%} of their sum (index.top_dimensions, index.mass)"
            )

    @property
    def left(self) -> int:
        """Number of weights that were kept."""
        return self.weights - self.weights_removed

    @property
    def share_of_weights(self) -> float:
        """Share of the weights (postings of an index) that are gone."""
        return self.weights_removed / self.weights if self.weights else 0.0

    @property
    def share_of_mass(self) -> float:
        """Share of their sum that is gone."""
        return self.mass_removed / self.mass if self.mass else 0.0


def pruned(
    vectors: sparse.csr_matrix, top_dimensions: int | None = None, mass: float = 1.0, power: float = 1.0
) -> tuple[sparse.csr_matrix, Removed]:
    """The ``top_dimensions`` largest weights of each row of ``vectors``, (texts, vocabulary), not negative (Lassance et
    al., 2023, arXiv:2304.12702), at most as many of them as together hold the share ``mass`` of the row's sum of
    weights to the ``power``, and what the others were. Of equal weights the lower dimension comes first."""
    before = Removed(vectors.nnz, 0, float(vectors.data.sum(dtype=np.float64)), 0.0)
    longest = int(np.diff(vectors.indptr).max(initial=1))
    most = longest if top_dimensions is None else top_dimensions
    if mass == 1 and longest <= most and vectors.data.all():
        return vectors, before
    rows, kept = vectors.shape[0], np.zeros(vectors.nnz, dtype=np.bool_)
    at_once = max(1, WEIGHTS_AT_ONCE // longest)
    for first in range(0, rows, at_once):
        starts = vectors.indptr[first : first + at_once + 1]
        filled = np.arange(longest) < np.diff(starts)[:, None]
        weights = np.zeros(filled.shape, dtype=vectors.dtype)
        weights[filled] = vectors.data[starts[0] : starts[-1]]
        ordered = -np.sort(-weights, axis=1)
        counts = np.full(len(weights), min(most, longest))
        if mass < 1:  # else the smallest weights would be lost in the sum
            held = np.cumsum(ordered**power, axis=1, dtype=np.float64)
            counts = np.minimum(counts, 1 + (held < mass * held[:, -1:]).sum(axis=1))
        least = np.take_along_axis(ordered, counts[:, None] - 1, axis=1)
        above, equal = weights > least, (weights == least) & (weights != 0)
        left = (counts - above.sum(axis=1))[:, None]
        kept[starts[0] : starts[-1]] = (above | (equal & (np.cumsum(equal, axis=1) <= left)))[filled]
    indptr = np.concatenate([[0], np.cumsum(kept)])[vectors.indptr]
    vectors = sparse.csr_matrix((vectors.data[kept], vectors.indices[kept], indptr), vectors.shape)
    after = float(vectors.data.sum(dtype=np.float64))
    return vectors, Removed(before.weights, before.weights - vectors.nnz, before.mass, max(0.0, before.mass - after))
