"""Micro-batching: requests that wait together are processed together in worker threads."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

from starlette.exceptions import HTTPException

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Collects items while all workers are busy, then processes them at once.

    `process` runs in `executor`, in up to `workers` batches side by side, and returns one result
    per item, in order; a result that is an exception is raised to its submitter. A batch ends where
    the `cost` of its items reaches `max_batch`; items whose submitters have gone are dropped. An
    item that finds a worker free does not wait, and each worker takes its share of the queue, so
    that no item is stuck behind all the others. `on_batch` is given the seconds and the size of
    each batch. Used from one event loop.
    """

    def __init__(
        self,
        process: Callable[[Sequence[Item]], Sequence[Result | Exception]],
        executor: Executor,
        *,
        max_batch: int,
        max_queue: int,
        workers: int = 1,
        cost: Callable[[Item], int] = lambda item: 1,
        on_batch: Callable[[float, int], None] = lambda seconds, items: None,
    ) -> None:
        self._process, self._executor, self._on_batch = process, executor, on_batch
        self._cost = cost
        self._max_batch, self._max_queue, self._workers = max_batch, max_queue, workers
        self._queue: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> Result:
        """The result of one item; raises status 503 where the queue is full."""
        if len(self._queue) >= self._max_queue:
            raise HTTPException(503, "too many requests are waiting: try again in a moment")
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.append((item, result))
        if len(self._running) < self._workers:
            self._running.add(asyncio.create_task(self._run()))
        return await result

    async def _run(self) -> None:
        try:
            while batch := self._next_batch():
                await self._process_batch(batch)
        finally:  # at once: an item that comes now must find the worker free
            self._running.discard(asyncio.current_task())

    async def _process_batch(self, batch: list[tuple[Item, "asyncio.Future[Result]"]]) -> None:
        items = [item for item, _ in batch]
        loop = asyncio.get_running_loop()
        results: Sequence[Result | Exception]
        started = loop.time()
        try:
            results = await loop.run_in_executor(self._executor, self._process, items)
        except Exception as error:
            results = [error] * len(batch)
        self._on_batch(loop.time() - started, len(batch))
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():  # its submitter has gone
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _next_batch(self) -> list[tuple[Item, "asyncio.Future[Result]"]]:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        share, cost = math.ceil(len(self._queue) / self._workers), 0
        while self._queue and len(batch) < share and cost < self._max_batch:
            item, future = self._queue.popleft()
            if not future.done():
                batch.append((item, future))
                cost += self._cost(item)
        return batch

    async def finish(self) -> None:
        """Wait until everything that was submitted has its result."""
        while self._running:
            await asyncio.wait(self._running)
