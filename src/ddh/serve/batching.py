"""Questions that wait together are answered together: a queue in front of one worker thread."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

from ddh._core.errors import DDHError

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Busy(DDHError):
    """More questions wait than the service will hold."""


class Batcher(Generic[Question, Answer]):
    """Collects what is asked while all workers are busy, then works on all of it at once.

    `work` runs in `executor`, in up to `workers` batches side by side, and gives one answer for
    each question, in their order; an answer that is an exception is raised to the one who asked.
    A question that finds a worker free waits for nothing, and a worker takes its share of those
    that wait, so that none is stuck behind all the others. Used from one event loop.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Question]], Sequence[Answer | Exception]],
        executor: Executor,
        *,
        together: int,
        waiting: int,
        workers: int = 1,
    ) -> None:
        self._work, self._executor = work, executor
        self._together, self._most_waiting, self._workers = together, waiting, workers
        self._waiting: deque[tuple[Question, asyncio.Future[Answer]]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def ask(self, question: Question) -> Answer:
        """The answer to one question; raises `Busy` where too many wait already."""
        if len(self._waiting) >= self._most_waiting:
            raise Busy("too many questions are waiting: ask again in a moment")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if len(self._running) < self._workers:
            worker = asyncio.create_task(self._run())
            self._running.add(worker)
        return await answer

    async def _run(self) -> None:
        try:
            while batch := self._next_batch():
                await self._work_on(batch)
        finally:  # at once: a question that comes now must find the worker free
            self._running.discard(asyncio.current_task())  # type: ignore[arg-type]

    async def _work_on(self, batch: list[tuple[Question, "asyncio.Future[Answer]"]]) -> None:
        questions = [question for question, _ in batch]
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self._executor, self._work, questions)
        except Exception as error:
            answers = [error] * len(batch)
        for (_, waits), answer in zip(batch, answers, strict=True):
            if waits.done():  # the one who asked has gone
                continue
            if isinstance(answer, Exception):
                waits.set_exception(answer)
            else:
                waits.set_result(answer)

    def _next_batch(self) -> list[tuple[Question, "asyncio.Future[Answer]"]]:
        batch: list[tuple[Question, asyncio.Future[Answer]]] = []
        share = min(self._together, math.ceil(len(self._waiting) / self._workers))
        while self._waiting and len(batch) < share:
            question, waits = self._waiting.popleft()
            if not waits.done():
                batch.append((question, waits))
        return batch

    async def finish(self) -> None:
        """Wait until everything that was asked has been answered."""
        while self._running:
            await asyncio.wait(self._running)
