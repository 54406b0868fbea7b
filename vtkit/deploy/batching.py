"""Waiting requests are computed together: the next batch gathers while one is computed, on one thread, because models
and engines are not made for several. The event loop stays free to accept, refuse and drop requests."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from vtkit.system.errors import as_exception

Kind = TypeVar("Kind")
Work = TypeVar("Work")
Answer = TypeVar("Answer")


class _Waiting(NamedTuple, Generic[Kind, Work, Answer]):
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
        observe: Callable[[Kind, int], None],
    ) -> None:
        """``compute`` answers a batch of requests of one kind, or returns their errors. ``most`` is a batch's maximum
        cost, which a single request may exceed. ``observe`` records the kind and the number of requests of each
        batch."""
        self._compute, self._most, self._observe = compute, most, observe
        self._queue: list[_Waiting[Kind, Work, Answer]] = []
        self._thread = ThreadPoolExecutor(1, "compute")
        self._running: asyncio.Task[None] | None = None

    def submit(self, kind: Kind, work: Work, cost: int) -> asyncio.Future[Answer]:
        """The coming answer to ``work``. If it is cancelled before its batch begins, nothing is computed for it."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(kind, work, cost, answer))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return answer

    async def _run(self) -> None:
        """Compute batch after batch until nobody waits."""
        while batch := self._next():
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._computed, batch)
            self._observe(batch[0].kind, len(batch))
            for waiting, answer in zip(batch, answers, strict=True):
                if waiting.answer.done():  # cancelled meanwhile
                    continue
                if isinstance(answer, Exception):
                    waiting.answer.set_exception(answer)
                else:
                    waiting.answer.set_result(answer)

    def _next(self) -> list[_Waiting[Kind, Work, Answer]]:
        batch: list[_Waiting[Kind, Work, Answer]] = []
        left: list[_Waiting[Kind, Work, Answer]] = []
        cost = 0
        for waiting in self._queue:
            if not waiting.answer.cancelled():
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
        except BaseException as error:  # a panic of a library must not end the thread
            if len(batch) == 1:
                return [as_exception(error)]
            return [answer for each in batch for answer in self._computed([each])]
