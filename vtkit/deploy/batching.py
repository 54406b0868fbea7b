"""Waiting requests are computed together: the next batch gathers while one is computed, on one thread, because models
and engines are not made for several. The event loop stays free to accept, refuse and drop requests."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

Kind = TypeVar("Kind")
Work = TypeVar("Work")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class _Waiting(Generic[Kind, Work, Answer]):
    kind: Kind
    work: Work
    cost: int
    answer: asyncio.Future[Answer]


class Batcher(Generic[Kind, Work, Answer]):
    """Work of one kind at a time, the longest waiting first, in batches of limited cost."""

    def __init__(
        self,
        compute: Callable[[Kind, Sequence[Work]], Sequence[Answer | Exception]],
        most: int,
        observe: Callable[[Kind, int, float], None],
    ) -> None:
        """``compute`` answers a batch of requests of one kind, or returns their errors. ``most`` is a batch's maximum
        cost, which a single request may exceed. ``observe`` records the kind, the number of requests and the seconds of
        each batch."""
        self._compute, self._most, self._observe = compute, most, observe
        self._queue: deque[_Waiting[Kind, Work, Answer]] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "compute")

    def __len__(self) -> int:
        return len(self._queue)

    async def submit(self, kind: Kind, work: Work, cost: int) -> Answer:
        """The answer to ``work``. Cancelling removes it from the queue."""
        waiting = _Waiting(kind, work, cost, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._arrived.set()
        try:
            answer: Answer = await waiting.answer
            return answer
        except asyncio.CancelledError:
            if waiting in self._queue:
                self._queue.remove(waiting)
            raise

    async def run(self) -> None:
        """Compute batch after batch, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._arrived.wait()
                batch = self._next()
                if not batch:
                    self._arrived.clear()
                    continue
                started = time.monotonic()
                answers = await loop.run_in_executor(self._thread, self._computed, batch)
                self._observe(batch[0].kind, len(batch), time.monotonic() - started)
                for waiting, answer in zip(batch, answers, strict=True):
                    if waiting.answer.done():  # cancelled meanwhile
                        continue
                    if isinstance(answer, Exception):
                        waiting.answer.set_exception(answer)
                    else:
                        waiting.answer.set_result(answer)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _next(self) -> list[_Waiting[Kind, Work, Answer]]:
        batch: list[_Waiting[Kind, Work, Answer]] = []
        left: deque[_Waiting[Kind, Work, Answer]] = deque()
        cost = 0
        for waiting in self._queue:
            fits = not batch or (waiting.kind == batch[0].kind and cost + waiting.cost <= self._most)
            (batch if fits else left).append(waiting)
            cost += waiting.cost if fits else 0
        self._queue = left
        return batch

    def _computed(self, batch: Sequence[_Waiting[Kind, Work, Answer]]) -> Sequence[Answer | Exception]:
        """The answers of a batch. If it fails as a whole, each request is computed alone, so that one bad request does
        not fail the others."""
        try:
            return self._compute(batch[0].kind, [waiting.work for waiting in batch])
        except Exception as error:
            return [error] if len(batch) == 1 else [answer for each in batch for answer in self._computed([each])]
