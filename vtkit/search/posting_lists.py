"""Posting lists in blocks of documents, and their compiled search: term at a time, block by block, so that the sums of
a block stay in the cache.

After the first block the k-th best score so far is known. Lists that add little for what they cost to read, all
together no more than a share of that score, are then left out (the non-essential lists of MaxScore; Turtle and Flood,
1995), and the few documents that could still reach it with them are looked up there. The results are those of scoring
everything, bit for bit.
"""

import heapq
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba.core import cgutils, types
from numba.extending import intrinsic

BLOCK = 2**16  # rows of vectors in a block: two bytes number them, and their sums stay in the cache
GROUP = 64  # documents that are skipped together by their largest sum
LEFT_OUT = 0.2  # share of the k-th best score that the lists which are left out can add together
AHEAD = 4  # lists that are fetched from memory before they are needed
LOOKED_UP = 200  # postings that can be read in the time that a document takes to be looked up


class Lists(NamedTuple):
    """The posting lists of a collection's sparse vectors: one a term in each block of :data:`BLOCK` rows that has it,
    term after term and blocks ascending. Their postings are block after block, terms ascending, and rows ascending
    within a list. An entry is 2¹⁶ times the code of a weight, and the number of the row in its block. The weight is the
    code times 2^(e − 15), where 2^e is above the largest weight of the list (:func:`step_of`)."""

    firsts: npt.NDArray[np.int64]  # the first list of each term, and the number of all lists, (vocabulary + 1,)
    blocks: npt.NDArray[np.int32]  # block of each list, (lists,)
    starts: npt.NDArray[np.int64]  # where its postings begin, (lists,)
    sizes: npt.NDArray[np.int32]  # the number of its postings, (lists,)
    largest: npt.NDArray[np.float32]  # of its weights, without sign, (lists,)
    entries: npt.NDArray[np.int32]  # (postings,)


def cached_njit(**options: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """numba.njit; the machine code is kept on disk if a cache folder is writable."""

    def compile_it(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(cache=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError:
            return numba.njit(**options)(function)  # type: ignore[no-any-return]

    return compile_it


@cached_njit()
def step_of(largest: Any) -> Any:
    """The weight of code 1 in a list: a power of two, so that fifteen bits of its largest weight are kept."""
    return np.float32(math.ldexp(1.0, max(math.frexp(largest)[1] - 15, -126)))


@cached_njit()
def fill_lists(starts: Any, sizes: Any, documents: Any, weights: Any, entries: Any, largest: Any) -> None:
    """Fill ``entries``, (postings,), and ``largest``, (lists,); no code is 0."""
    for one in range(len(largest)):
        postings = range(starts[one], starts[one] + sizes[one])
        of_list = np.float32(0)
        for at in postings:
            of_list = max(of_list, abs(weights[at]))
        step = step_of(of_list)
        most = 0
        for at in postings:
            size = max(1, min(2**15 - 1, np.rint(abs(weights[at]) / step)))
            most = max(most, size)
            entries[at] = np.int32(size if weights[at] > 0 else -size) * BLOCK + documents[at]
        largest[one] = most * step


@cached_njit()
def weights_of(sizes: Any, largest: Any, entries: Any) -> Any:
    """The weights of consecutive lists, (postings,)."""
    weights, at = np.empty(len(entries), np.float32), 0
    for one in range(len(sizes)):
        weights[at : at + sizes[one]] = step_of(largest[one]) * (entries[at : at + sizes[one]] >> 16)
        at += sizes[one]
    return weights


@cached_njit()
def _least_for_its_cost(bounds: Any, costs: Any, most: Any, left_out: Any) -> Any:
    """Mark terms to be ``left_out`` that together add ``most`` to a document; returns their places in the query, those
    that can add least first, what each of them and those before it can add, and the number of their postings."""
    left_out[:] = False
    total = 0.0
    for entry in np.argsort(bounds / costs):
        if total + bounds[entry] > most:
            break
        total += bounds[entry]
        left_out[entry] = True
    places = np.flatnonzero(left_out)
    places = places[np.argsort(bounds[places])]
    return places, np.cumsum(bounds[places]), costs[places].sum()


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(typing: Any, array: Any, place: Any) -> Any:
    """Have ``array[place]`` brought into the cache, without waiting for it."""

    def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        number = cgutils.ir.IntType(32)
        kind = cgutils.ir.FunctionType(cgutils.ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [pointer, number(0), number(3), number(1)])  # to be read, often, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generated


@cached_njit()
def _add_lists(lists: Lists, of_terms: Any, query: Any, left_out: Any, sums: Any, maxima: Any) -> None:
    """The sums of a block's documents, in the order of the query, and the largest of every :data:`GROUP`."""
    sums[:] = 0
    entries = np.flatnonzero((of_terms >= 0) & ~left_out)
    for turn in range(len(entries) + AHEAD):
        if turn < len(entries):
            one = of_terms[entries[turn]]
            for at in range(lists.starts[one], lists.starts[one] + lists.sizes[one], 16):  # 16 are a line of the cache
                _prefetch(lists.entries, at)
        if turn >= AHEAD:
            entry = entries[turn - AHEAD]
            one = of_terms[entry]
            factor = query[entry] * step_of(lists.largest[one])
            for posting in lists.entries[lists.starts[one] : lists.starts[one] + lists.sizes[one]]:
                sums[posting & (BLOCK - 1)] += factor * np.float32(posting >> 16)
    bits = sums.view(np.int32)  # those of floats that are not negative order like integers
    for group in range(len(maxima)):
        largest = np.int32(0)
        for place in range(GROUP):
            largest = max(largest, bits[np.uint32(group * GROUP + place)])
        maxima[group] = largest


@cached_njit()
def _product(lists: Lists, one: int, factor: Any, number: int) -> Any:
    """The part of a list in the score of a document of its block. The list is searched from where the document would be
    if it were even, in steps that double and then halve, which miss the cache once or twice."""
    start, stop, step = lists.starts[one], lists.starts[one] + lists.sizes[one], 1
    place = start + (stop - start) * number // BLOCK
    if lists.entries[place] & (BLOCK - 1) <= number:
        while place + step < stop and lists.entries[place + step] & (BLOCK - 1) <= number:
            place += step
            step *= 2
    else:
        while place > start and lists.entries[place] & (BLOCK - 1) > number:
            place = max(start, place - step)
            step *= 2
    while step > 1:
        step //= 2
        if place + step < stop and lists.entries[place + step] & (BLOCK - 1) <= number:
            place += step
    if lists.entries[place] & (BLOCK - 1) != number:
        return np.float32(0)
    return factor * step_of(lists.largest[one]) * np.float32(lists.entries[place] >> 16)


@cached_njit()
def _answer(
    lists: Lists, share: float, document_count: int, passing: Any, terms: Any, query: Any, ids: Any, scores: Any,
    sums: Any, maxima: Any,
) -> None:  # fmt: skip
    """Answer one query into ``ids`` and ``scores``, (depth,). The last two arguments are work space."""
    depth, length = len(ids), len(terms)
    of_terms, at, left_out = np.empty(length, np.int64), lists.firsts[terms], np.zeros(length, np.bool_)
    bounds, costs = np.zeros(length, np.float64), np.ones(length, np.float64)  # of a term: most it adds; postings
    for entry in range(length):
        for one in range(lists.firsts[terms[entry]], lists.firsts[terms[entry] + 1]):
            bounds[entry] = max(bounds[entry], abs(query[entry]) * lists.largest[one])
            costs[entry] += lists.sizes[one]
    rounding = 8.0 * (length + 4) * 2.0**-24 * bounds.sum()  # of float32 sums, also where weights are below zero
    best = [(np.float32(0), 0)] * depth  # scores, and document numbers below zero, the smallest first
    border: Any = 0.0
    for block in range((document_count + BLOCK - 1) // BLOCK):
        first = block * BLOCK
        width = min(BLOCK, document_count - first)
        groups = (width + GROUP - 1) // GROUP
        highest = maxima[:groups].view(np.float32)
        for entry in range(length):  # the list of each term in the block, -1 for none
            has = at[entry] < lists.firsts[terms[entry] + 1] and lists.blocks[at[entry]] == block
            of_terms[entry] = at[entry] if has else -1
            at[entry] += has
        if block & (block - 1) == 0:  # the border rises ever more slowly
            places, rests, unread = _least_for_its_cost(bounds, costs, share * border, left_out)
        rest = rests[-1] if len(rests) else 0.0
        _add_lists(lists, of_terms, query, left_out, sums, maxima[:groups])
        if LOOKED_UP * (highest >= border - rest).sum() * document_count > unread * width and rest:
            rest = 0.0
            _add_lists(lists, of_terms, query, np.zeros_like(left_out), sums, maxima[:groups])
        least, upper = border - rest, np.inf
        if border == 0:  # the best come first, so that the others have to reach more
            some = highest if groups > depth else sums[:width]
            if len(some) > depth:
                least = max(0.0, np.partition(some, len(some) - depth)[len(some) - depth])
        while True:
            lower = least
            for group in range(groups):
                if highest[group] <= 0 or highest[group] < least:
                    continue
                for number in range(group * GROUP, min((group + 1) * GROUP, width)):
                    score = sums[number]
                    if score <= 0 or score < least or score >= upper or (len(passing) and not passing[first + number]):
                        continue
                    if rest:
                        most = float(score)
                        for last in range(len(places) - 1, -1, -1):
                            if most + rests[last] < border:
                                break
                            if of_terms[places[last]] >= 0:
                                most += _product(lists, of_terms[places[last]], query[places[last]], number)
                        if most < border:
                            continue
                        score = np.float32(0)
                        for entry in range(length):
                            if of_terms[entry] >= 0:
                                score += _product(lists, of_terms[entry], query[entry], number)
                    if (score, -first - number) > best[0] and score > 0:
                        heapq.heapreplace(best, (score, -first - number))
                        border = max(0.0, best[0][0] - rounding)
                        least = max(least, border - rest)
            if lower <= border - rest or lower == 0:
                break
            upper, least = lower, border - rest
    best.sort()
    for rank in range(depth):
        if best[depth - 1 - rank][0] > 0:
            scores[rank], ids[rank] = best[depth - 1 - rank][0], -best[depth - 1 - rank][1]


@cached_njit(nogil=True)
def search_lists(
    lists: Lists, share: float, document_count: int, passing: Any,
    query_starts: Any, query_terms: Any, query_weights: Any,
    ids: Any, scores: Any, worker: int, workers: int,
) -> None:  # fmt: skip
    """Fill ``ids`` and ``scores``, both (queries, depth) and -1 and 0 before, for the queries worker, worker + workers,
    and so on. Lists that can add ``share`` of the k-th best score are left out at first; with 0, none. Documents that
    are not ``passing`` are left out, if it is not empty."""
    sums, maxima = np.zeros(BLOCK, np.float32), np.zeros(BLOCK // GROUP, np.int32)
    for query in range(worker, len(ids), workers):
        of_query = slice(query_starts[query], query_starts[query + 1])
        asked = query_terms[of_query], query_weights[of_query], ids[query], scores[query]
        _answer(lists, share, document_count, passing, *asked, sums, maxima)
