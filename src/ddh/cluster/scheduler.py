"""Batches out to workers and results back: bounded in number, and none lost when a worker dies.

- At most `SLOTS` batches a worker are taken from the listing and not yet done.
- A batch whose worker or node died is given to another one. After `MOST_DEATHS` it is cut in
  halves, down to the one picture that ends its workers, which is then left out. A batch that has
  seen a death has its next worker for itself, so that no other batch is blamed.
- A batch that raised is tried again after a pause, `MOST_ERRORS` times; then the job stops.
- Workers are started as batches wait for them, and take part once they have said that they are
  ready, so one that the cluster has no room for holds nothing up.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from ddh._core.errors import DDHError, InputError, MissingDependency, ModelError
from ddh.cluster.batches import Batch
from ddh.cluster.writing import Outcome

SLOTS = 2
MOST_DEATHS = 3
MOST_ERRORS = 4
FIRST_PAUSE_S = 1.0
WAIT_S = 0.2
HOPELESS = (InputError, ModelError, MissingDependency)  # will be so at every attempt


@dataclass(eq=False)
class Worker:
    """An actor and what it has to do."""

    actor: Any
    ready: bool = False
    batches: list[Batch] = field(default_factory=list)

    def has_room(self, batch: Batch) -> bool:
        """Whether the batch may be given to it now."""
        if not self.batches:
            return self.ready
        alone = batch.deaths or self.batches[0].deaths
        return self.ready and not alone and len(self.batches) < SLOTS


@dataclass(frozen=True)
class Done:
    """A batch that was encoded."""

    batch: Batch
    outcome: Outcome


@dataclass(frozen=True)
class Split:
    """A batch that killed its workers and goes on as two."""

    batch: Batch
    halves: tuple[Batch, Batch]


class Scheduler:
    """The workers of one job.

    `start` gives a new actor and the reference that tells when it is ready; its method
    `encode(batch_id, pictures)` does the work. `lost` counts the workers that died.
    """

    def __init__(self, ray: Any, start: Callable[[], tuple[Any, Any]], most_workers: int) -> None:
        self._ray, self._start, self._most = ray, start, most_workers
        self._workers: list[Worker] = []
        self._out: dict[Any, tuple[Worker, Batch | None]] = {}
        self._waiting: deque[Batch] = deque()
        self._paused: list[tuple[float, Batch]] = []
        self._deaths_in_a_row = 0
        self.lost = 0

    def run(self, batches: Iterator[Batch | None]) -> Generator[Done | Split, None, None]:
        """Hand out all batches (None: the next is not there yet) and give back what comes of them.

        Closing the generator, or an error in it, ends the workers.
        """
        more = True
        try:
            while more or self._open():
                while more and self._open() < SLOTS * self._most:
                    batch = next(batches, StopIteration)
                    more = batch is not StopIteration
                    if not isinstance(batch, Batch):
                        break
                    self._waiting.append(batch)
                self._hand_out()
                yield from self._collect()
        finally:
            for worker in self._workers:
                self._ray.kill(worker.actor)

    def _open(self) -> int:
        """Batches that were taken and are not done."""
        out = sum(batch is not None for _, batch in self._out.values())
        return len(self._waiting) + len(self._paused) + out

    @property
    def ready(self) -> int:
        """Workers that take part."""
        return sum(worker.ready for worker in self._workers)

    # -- giving ------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        now = time.monotonic()
        self._waiting.extend(batch for due, batch in self._paused if due <= now)
        self._paused = [entry for entry in self._paused if entry[0] > now]
        for _ in range(len(self._waiting)):
            batch = self._waiting.popleft()
            free = [worker for worker in self._workers if worker.has_room(batch)]
            if free:
                self._give(min(free, key=lambda worker: len(worker.batches)), batch)
            else:
                self._waiting.append(batch)
        while len(self._workers) < self._most and len(self._workers) < self._open():
            self._add_worker()

    def _give(self, worker: Worker, batch: Batch) -> None:
        worker.batches.append(batch)
        self._out[worker.actor.encode.remote(batch.id, batch.pictures)] = worker, batch

    def _add_worker(self) -> None:
        actor, ready = self._start()
        worker = Worker(actor)
        self._workers.append(worker)
        self._out[ready] = worker, None

    # -- taking back -------------------------------------------------------------------------

    def _collect(self) -> Iterator[Done | Split]:
        if not self._out:
            time.sleep(WAIT_S / 10)
            return
        finished, _ = self._ray.wait(list(self._out), timeout=WAIT_S)
        for reference in finished:
            worker, batch = self._out.pop(reference)
            if batch is not None:
                worker.batches.remove(batch)
            try:
                outcome = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:
                self._failed(batch, error.cause)
            except self._ray.exceptions.RayError as error:
                yield from self._died(worker, batch, error)
            else:
                worker.ready = True
                if batch is not None:
                    self._deaths_in_a_row = 0
                    yield Done(batch, outcome)

    def _failed(self, batch: Batch | None, error: BaseException) -> None:
        """A worker raised: try again later, unless there is no hope in it."""
        if batch is None or isinstance(error, HOPELESS):
            raise error if isinstance(error, DDHError) else DDHError(_told(error)) from error
        batch.errors += 1
        if batch.errors >= MOST_ERRORS:
            raise DDHError(
                f"the pictures from {batch.pictures[0].key} on failed {batch.errors} times: "
                f"{_told(error)}\nWhat is done is kept; start again to go on."
            ) from error
        pause = FIRST_PAUSE_S * 2 ** (batch.errors - 1)
        self._paused.append((time.monotonic() + pause, batch))

    def _died(
        self, worker: Worker, batch: Batch | None, error: Exception
    ) -> Iterator[Done | Split]:
        """A worker's process or node is gone; its other batch will be heard of in its turn."""
        if worker in self._workers:
            self._workers.remove(worker)
            self._ray.kill(worker.actor)  # where it was only out of reach
            self.lost += 1
            self._deaths_in_a_row += 1
        if getattr(error, "actor_init_failed", False):
            cause = str(error).strip().splitlines()[-1]
            raise DDHError(f"a worker cannot start: {cause}; is ddh installed on all nodes?")
        if self._deaths_in_a_row > MOST_DEATHS * (self._most + 3):
            raise DDHError(
                f"the workers end one after the other and nothing gets done: {_told(error)}"
            )
        if batch is None:
            return
        batch.deaths += 1
        if batch.deaths < MOST_DEATHS:
            self._waiting.appendleft(batch)
        elif len(batch) > 1:
            halves = batch.halves()
            self._waiting.extendleft(halves)
            yield Split(batch, halves)
        else:
            reason = f"each of {batch.deaths} workers ended while reading it"
            skipped = [{"name": batch.pictures[0].key, "reason": reason}]
            yield Done(batch, Outcome(skipped=skipped))


def _told(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
