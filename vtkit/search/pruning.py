"""The compiled search of exact lists: every document is scored, or most postings of a large collection are left unread.

The weights of frequent terms are also kept as rows of bytes, one per document, in 255 steps, rounded up. A query is
answered in windows of documents, so that its sums stay in the cache: rows are added and lists of rarer terms read as
they are, which bounds each document's score; documents whose bound reaches the k-th best, less the possible rounding
error, are candidates; those left at the end are scored from the postings. The results are those of scoring everything,
bit for bit. The maxima of lists and of blocks (MaxScore; Mallia et al., 2024, arXiv:2405.01117) are too far above the
scores to be of use.
"""

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

LEAST_DOCUMENTS = 20_000  # in smaller collections, pruning gains nothing

DOCUMENTS_A_RESULT = 2000
"""With fewer documents per result, everything is scored: each result is looked up in every list of the query."""

FREQUENT_SHARE = 1 / 16
"""Lists that hold a larger share of the documents have a row, which is then cheaper to read than the list."""

STEPS = 255
WINDOW = 2**15  # documents per window; four bytes each
BLOCK = 64  # documents that are skipped together by their best score
SMALLEST = 1e-30  # below this, float32's rounding error is no longer proportional to the number, as the margin assumes
_STRIDE = 32  # of documents whose scores are sampled
_LARGEST_NUMBER = 2**32 - 1
_LEAST = np.float32(1e-45)
LONGEST_QUERY = 4096  # terms; the margin for float32 sums of more terms would be too wide


class FrequentTerms(NamedTuple):
    """The lists of frequent terms as rows over all documents."""

    terms: npt.NDArray[np.int32]  # their terms, ascending, (frequent,)
    rows: npt.NDArray[np.uint8]  # weights in steps, rounded up: 0 stands for no weight. (frequent, documents)
    steps: npt.NDArray[np.float32]  # the weight of one step, (frequent,)


def frequent_terms(
    starts: npt.NDArray[np.int64],
    documents: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    document_count: int,
) -> FrequentTerms | None:
    """The rows of an index; None if nothing can be pruned: a small collection, or negative weights."""
    if document_count < LEAST_DOCUMENTS or (len(weights) and weights.min() < 0):
        return None
    terms = np.flatnonzero(np.diff(starts) > FREQUENT_SHARE * document_count).astype(np.int32)
    rows = np.zeros((len(terms), document_count), dtype=np.uint8)
    steps = np.zeros(len(terms), dtype=np.float32)
    for place, term in enumerate(terms.tolist()):
        of_term = slice(int(starts[term]), int(starts[term + 1]))
        # At least float32's smallest normal number: a product with a step must not vanish.
        steps[place] = max(weights[of_term].max() / STEPS, np.finfo(np.float32).tiny)
        rows[place, documents[of_term]] = np.clip(np.ceil(weights[of_term] / steps[place]), 1, STEPS)
    return FrequentTerms(terms, rows, steps)


def compiled(**options: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """numba.njit; the machine code is kept on disk if a cache folder is writable."""

    def compile_it(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(cache=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError:
            return numba.njit(**options)(function)  # type: ignore[no-any-return]

    return compile_it


@compiled()
def _set_to(sums: Any, factor: Any, row: Any) -> None:
    for at in range(len(sums)):
        sums[at] = factor * row[at]


@compiled()
def _add(sums: Any, factor: Any, row: Any) -> None:
    for at in range(len(sums)):
        sums[at] += factor * row[at]


@compiled()
def _add_four(sums: Any, factors: Any, first: Any, second: Any, third: Any, fourth: Any) -> None:
    one, two, three, four = factors[0], factors[1], factors[2], factors[3]
    for at in range(len(sums)):
        sums[at] += one * first[at] + two * second[at] + (three * third[at] + four * fourth[at])


@compiled()
def _sum_rows(sums: Any, factors: Any, rows: Any, row_of: Any, first: int, last: int) -> None:
    """The weighted sum of rows, from document ``first`` to ``last``."""
    done, needed = 1, len(factors)
    if needed:
        _set_to(sums, factors[0], rows[row_of[0], first:last])
    else:
        sums[:] = 0
    while needed - done >= 4:
        _add_four(
            sums, factors[done:], rows[row_of[done], first:last], rows[row_of[done + 1], first:last],
            rows[row_of[done + 2], first:last], rows[row_of[done + 3], first:last],
        )  # fmt: skip
        done += 4
    for place in range(done, needed):
        _add(sums, factors[place], rows[row_of[place], first:last])


@compiled()
def _scatter(sums: Any, first: int, weight: Any, documents: Any, weights: Any) -> None:
    for at in range(len(documents)):
        # Unsigned, or numba would check every index for being negative.
        sums[np.uint32(documents[at] - first)] += weight * weights[at]


@compiled()
def _block_maxima(bits: Any, maxima: Any) -> None:
    """The largest of every :data:`BLOCK` floats; they are not negative, so their bits order like integers."""
    for block in range(len(maxima)):
        largest = np.int32(0)
        for place in range(BLOCK):
            largest = max(largest, bits[np.uint32(block * BLOCK + place)])
        maxima[block] = largest


@compiled()
def _keep(numbers: Any, scores: Any, count: int, border: Any) -> int:
    kept = 0
    for at in range(count):
        if scores[at] >= border:
            numbers[kept], scores[kept] = numbers[at], scores[at]
            kept += 1
    return kept


@compiled()
def _score(
    starts: Any, documents: Any, weights: Any, places: Any, rows: Any, terms: Any, query: Any, number: int
) -> Any:
    """The dot product of one document, summed in the order of the query as everywhere."""
    total = np.float32(0)
    for entry in range(len(terms)):
        term = terms[entry]
        if places[term] >= 0 and rows[places[term], number] == 0:
            continue
        stop = starts[term + 1]
        place = starts[term] + np.searchsorted(documents[starts[term] : stop], number)
        if place < stop and documents[place] == number:
            total += query[entry] * weights[place]
    return total


@compiled()
def _prune(
    starts: Any, documents: Any, weights: Any, document_count: int, passing: Any,
    places: Any, rows: Any, steps: Any,
    terms: Any, query: Any,
    ids: Any, scores: Any,
    sums: Any, maxima: Any, numbers: Any, bounds: Any,
) -> bool:  # fmt: skip
    """Answer one query into ``ids`` and ``scores``, (depth,); False if everything has to be scored instead. The last
    four arguments are work space."""
    depth, length, room = len(ids), len(terms), len(numbers)
    if length > LONGEST_QUERY:
        return False
    row_of, factors = np.empty(length, np.int64), np.empty(length, np.float32)
    at, end, of_list = np.empty(length, np.int64), np.empty(length, np.int64), np.empty(length, np.float32)
    frequent = lists = 0
    rounding = 0.0
    for entry in range(length):
        term, weight = terms[entry], query[entry]
        if weight < 0:
            return False
        if weight == 0 or starts[term] == starts[term + 1]:
            continue
        if places[term] >= 0:
            factor = weight * steps[places[term]]
            if factor < SMALLEST:
                return False
            row_of[frequent], factors[frequent] = places[term], factor
            rounding += factor
            frequent += 1
        else:
            at[lists], end[lists], of_list[lists] = starts[term], starts[term + 1], weight
            lists += 1
    # A sum in steps is too large by at most one step per row; float32 sums have a relative error.
    rounding *= 1.01
    share = 1.0 - 8.0 * (length + 4) * 2.0**-24
    size = 0
    border = 0.0
    heap: Any = [np.float32(0)] * depth  # the best bounds, the smallest first
    for first in range(0, document_count, WINDOW):
        last = min(first + WINDOW, document_count)
        width = last - first
        _sum_rows(sums[:width], factors[:frequent], rows, row_of, first, last)
        for place in range(lists):
            stop = at[place] + np.searchsorted(documents[at[place] : end[place]], last)
            _scatter(sums, first, of_list[place], documents[at[place] : stop], weights[at[place] : stop])
            at[place] = stop
        blocks = (width + BLOCK - 1) // BLOCK
        sums[width : blocks * BLOCK] = 0
        _block_maxima(sums.view(np.int32), maxima[:blocks])
        highest = maxima.view(np.float32)
        for block in range(blocks):
            if highest[block] <= 0 or highest[block] < border:
                continue
            for document in range(block * BLOCK, (block + 1) * BLOCK):
                score = sums[document]
                if score <= 0 or score < border or (len(passing) and not passing[first + document]):
                    continue
                if size == room:
                    size = _keep(numbers, bounds, size, border)
                    if 2 * size > room:  # too many equal scores
                        return False
                numbers[size], bounds[size] = first + document, score
                size += 1
                heapq.heappushpop(heap, score)
                if share * heap[0] - rounding > max(border, SMALLEST):
                    border = share * heap[0] - rounding
    size = _keep(numbers, bounds, size, border)
    kept = 0
    for candidate in range(size):
        number = numbers[candidate]
        score = _score(starts, documents, weights, places, rows, terms, query, number)
        if kept == depth and score <= scores[depth - 1]:  # of equal scores the lower number, which came before
            continue
        if score <= 0:
            continue
        place = min(kept, depth - 1)
        while place and scores[place - 1] < score:
            ids[place], scores[place] = ids[place - 1], scores[place - 1]
            place -= 1
        ids[place], scores[place] = number, score
        kept = min(kept + 1, depth)
    return True


@compiled()
def _floor(accumulators: Any, depth: int, sample: Any) -> Any:
    """A score that slightly more than ``depth`` accumulators probably reach, estimated from every few of them; the
    smallest positive number where the sample is too small for that."""
    wanted = depth // _STRIDE
    wanted += 3 * int(np.sqrt(wanted)) + 1
    size = 0
    for document in range(0, len(accumulators), _STRIDE):
        sample[size] = accumulators[document]
        size += accumulators[document] > 0
    if size < 2 * wanted:
        return _LEAST
    return np.partition(sample[:size], size - wanted)[size - wanted]


@compiled()
def _keep_best(accumulators: Any, sample: Any, keys: Any, ids: Any, scores: Any) -> None:
    """The largest positive accumulators, best first, into ``ids`` and ``scores`` (which start at -1 and 0).

    A sample of the scores gives a guess of the border; only scores above it are sorted, or all if the guess was too
    high. The sort keys are integers: the bits of a score, which order like positive floats, above the bits of the
    document number, counted down. ``sample`` and ``keys`` are work space.
    """
    depth = len(ids)
    floor = _floor(accumulators, depth, sample)
    bits = accumulators.view(np.uint32)
    while True:
        size = 0
        for document in range(len(accumulators)):
            # Always written, and kept if good: an unpredictable branch takes four times as long.
            keys[size] = np.uint64(bits[document]) << np.uint64(32) | np.uint64(_LARGEST_NUMBER - document)
            size += accumulators[document] >= floor
        if size >= depth or floor == _LEAST:
            break
        floor = _LEAST
    best = np.partition(keys[:size], size - depth)[size - depth :] if size > depth else keys[:size]
    best.sort()
    for rank in range(len(best)):
        number = _LARGEST_NUMBER - np.int64(best[len(best) - 1 - rank] & np.uint64(_LARGEST_NUMBER))
        ids[rank], scores[rank] = number, accumulators[number]


@compiled(nogil=True)
def search_lists(
    starts: Any, documents: Any, weights: Any, document_count: int, passing: Any,
    places: Any, rows: Any, steps: Any, prune: bool,
    query_starts: Any, query_terms: Any, query_weights: Any,
    ids: Any, scores: Any, worker: int, workers: int,
) -> int:  # fmt: skip
    """Fill ``ids`` and ``scores``, both (queries, depth) and -1 and 0 before, for the queries worker, worker + workers,
    and so on: with ``prune`` by pruning where that is possible, and else by scoring every document. Documents that are
    not ``passing`` are left out, if it is not empty. Returns the number of queries answered by pruning."""
    queries, depth = ids.shape
    sums, maxima = np.zeros(WINDOW, np.float32), np.zeros(WINDOW // BLOCK, np.int32)
    room = 16 * depth + 1024
    numbers, bounds = np.empty(room, np.int64), np.empty(room, np.float32)
    accumulators = np.empty(document_count, np.float32)
    sample, keys = np.empty(document_count // _STRIDE + 1, np.float32), np.empty(document_count, np.uint64)
    pruned = 0
    for query in range(worker, queries, workers):
        entries = slice(query_starts[query], query_starts[query + 1])
        terms, factors = query_terms[entries], query_weights[entries]
        if prune and _prune(
            starts, documents, weights, document_count, passing, places, rows, steps, terms, factors,
            ids[query], scores[query], sums, maxima, numbers, bounds,
        ):  # fmt: skip
            pruned += 1
            continue
        accumulators[:] = 0
        for entry in range(len(terms)):
            of_term = slice(starts[terms[entry]], starts[terms[entry] + 1])
            _scatter(accumulators, 0, factors[entry], documents[of_term], weights[of_term])
        if len(passing):
            accumulators *= passing
        _keep_best(accumulators, sample, keys, ids[query], scores[query])
    return pruned
