"""Training batches out of judged pairs: which query, relevant document and hard negatives stand together, in order."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from vtkit.data.documents import text_hash, text_hashes
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.sequences import Ragged, listed
from vtkit.settings.finetune import FinetuneSection
from vtkit.system import console
from vtkit.system.errors import DataError

FRUITLESS_PASSES = 20  # passes over the pairs, each in another order, after which it is given up to find a full batch
MADE_BEFORE = 1000  # batches that are made before training starts: data that cannot fill batches are refused then


Pools = Sequence[Sequence[int]] | Sequence[npt.NDArray[np.int32]]
"""For each query the documents that hard negatives are sampled from."""


@dataclass(frozen=True, eq=False)
class Judged:
    """The judgements of a collection, by number."""

    pairs: npt.NDArray[np.int32]  # query and relevant document, both with a text, (pairs, 2)
    relevant: Ragged
    """For each query all documents that are no negatives of it: the relevant ones, those with the text of one, and the
    query itself where it is a document."""


class TrainingBatches:
    """The batches of a whole run; no batch has a document that is relevant to another of its queries, or has the text
    of such a one, and none leaves a query too few hard negatives: such pairs wait for a later batch.

    A batch follows from the seed and the batches before it: :data:`MADE_BEFORE` are made before the first is used, and
    the others as training comes to them.

    Args:
        seed: of the order and of the hard negatives.
        pools: for each query the documents that hard negatives are sampled from, where there are any.
    """

    def __init__(self, judged: Judged, section: FinetuneSection, seed: int, pools: Pools = ()) -> None:
        self._judged, self._section, self._seed, self._pools = judged, section, seed, pools
        self._refuse_too_few()
        steps = section.steps or max(1, round(section.epochs * len(judged.pairs) / section.batch_size))
        self._rows = np.empty((steps, section.batch_size, 2 + section.hard_negatives), dtype=np.int32)
        self._made = 0
        self._batches = self._in_order()
        self.rows(min(steps, MADE_BEFORE) - 1)

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, step: int) -> npt.NDArray[np.int32]:
        """Query, relevant document and hard negatives of each row of a batch, (batch, 2 + hard negatives)."""
        for number in range(self._made, step + 1):
            self._rows[number] = next(self._batches)
        self._made = max(self._made, step + 1)
        rows: npt.NDArray[np.int32] = self._rows[step]
        return rows

    def _refuse_too_few(self) -> None:
        section, queries, pairs = self._section, np.unique(self._judged.pairs[:, 0]), len(self._judged.pairs)
        if len(queries) == 1:
            raise DataError(
                f"data has only one query with a relevant document in split {section.split}. The other documents "
                "of a batch serve as negatives, so training needs at least two queries. Name another split, or give "
                "more data."
            )
        if pairs < section.batch_size:
            raise DataError(
                f"data has {pairs} relevant pairs in split {section.split}, fewer than one batch of "
                f"{section.batch_size}. Lower batch_size, or give more data."
            )
        negatives = section.hard_negatives
        fewest = min((len(self._pools[query]) for query in queries.tolist()), default=0) if negatives else 0
        if fewest < negatives:
            raise DataError(
                f"hard_negatives = {negatives}, but one query has only {fewest} documents that were judged or "
                "found and are not relevant to it. Lower it."
            )

    def _in_order(self) -> Iterator[list[list[int]]]:
        """Rows of one batch after the other, for ever."""
        size, negatives, pairs = self._section.batch_size, self._section.hard_negatives, self._judged.pairs
        waiting: list[int] = []
        epoch = fruitless = batches = 0
        while True:
            stream = deque([*waiting, *np.random.default_rng([self._seed, epoch]).permutation(len(pairs)).tolist()])
            before = batches
            while True:
                batch, wanted = self._next_batch(stream)
                if len(batch) < size:
                    stream.extendleft(reversed(batch))
                    break
                draw = np.random.default_rng([self._seed, 2, batches])
                rows = pairs[batch].tolist()
                for row in rows if negatives else ():
                    # every document is scored with every query, so none may be relevant to any query of the batch
                    pool = [number for number in listed(self._pools[row[0]]) if number not in wanted]
                    row += draw.choice(pool, size=negatives, replace=False).tolist()
                yield rows
                batches += 1
            epoch += 1
            if batches > before:
                fruitless, waiting = 0, list(islice(stream, len(pairs)))
                continue
            # The pair that waited longest fits into no full batch: let the next pass begin with others.
            fruitless, waiting = fruitless + 1, []
            if fruitless == FRUITLESS_PASSES:
                raise DataError(
                    f"data cannot fill a batch: no {size} queries have relevant documents of their own"
                    + (f", and {negatives} hard negatives that are relevant to none of them" if negatives else "")
                    + ". Lower batch_size."
                )

    def _next_batch(self, stream: deque[int]) -> tuple[list[int], set[int]]:
        """The first pairs of ``stream`` that can stand in one batch, taken out of it; and all documents that are
        relevant to their queries. Fewer than a batch where the stream holds no more."""
        size, negatives = self._section.batch_size, self._section.hard_negatives
        batch, passed, queries = list[int](), list[int](), list[int]()
        documents, wanted = set[int](), set[int]()
        least = 0  # documents that are left in the pool of any query, or fewer
        while stream and len(batch) < size:
            number = stream.popleft()
            query, document = self._judged.pairs[number].tolist()
            relevant = set(self._judged.relevant[query].tolist())
            fits = document not in wanted and documents.isdisjoint(relevant)
            if fits and negatives:
                wider = wanted | relevant
                left = self._left(query, wider)
                least = min(least - len(relevant - wanted), left) if queries else left
                if least < negatives:
                    least = min(self._left(each, wider) for each in (query, *queries))
                fits = least >= negatives
                if not fits and queries:
                    least = min(self._left(each, wanted) for each in queries)
            if not fits:
                passed.append(number)
                continue
            batch.append(number)
            queries.append(query)
            documents.add(document)
            wanted |= relevant
        stream.extendleft(reversed(passed))
        return batch, wanted

    def _left(self, query: int, wanted: set[int]) -> int:
        """Documents of a query's pool that are relevant to no query of the batch."""
        return sum(number not in wanted for number in listed(self._pools[query]))


def judged_pairs(data: RetrievalSet) -> Judged:
    """The judgements of ``data``; pairs without a text are left out, and counted."""
    judged = Ragged.of(
        sorted(number for number, grade in data.by_number(data.qrels, query.id).items() if grade > 0)
        for query in data.queries
    )
    hashes, documents = text_hashes(data.documents), judged.values
    queries = np.repeat(np.arange(len(judged), dtype=np.int32), judged.lengths)
    blank = np.array([not query.text.strip() for query in data.queries], dtype=bool)
    usable = ~(blank[queries] | (hashes[documents] == np.frombuffer(text_hash(""), np.uint64)))
    pairs = np.stack([queries, documents], axis=1)[usable]
    if len(pairs) < len(documents):
        console.say(f"  {len(documents) - len(pairs)} pairs with an empty query or document are left out")

    alike = np.flatnonzero(np.isin(hashes, hashes[documents]))  # documents with the text of a relevant one
    with_text: dict[int, list[int]] = {}
    _, place, count = np.unique(hashes[alike], return_inverse=True, return_counts=True)
    for document in alike[count[place] > 1].tolist():
        with_text.setdefault(int(hashes[document]), []).append(document)

    def wider(documents: list[int], own: int) -> list[int]:
        same = {same for each in documents for same in with_text.get(int(hashes[each]), (each,))}
        return sorted(same if own < 0 else same | {own})

    relevant, own = judged, data.own_numbers.tolist()
    if with_text or data.own_documents:
        relevant = Ragged.of(wider(row.tolist(), number) for row, number in zip(judged, own, strict=True))
    repeated = len(relevant.values) - len(documents)
    if repeated and not data.own_documents:
        console.say(
            f"  {repeated} documents have the same text as a relevant one, and are not used as negatives of its query"
        )
    return Judged(pairs, relevant)
