"""A whole job: a Ray Data pipeline from a listing of images through encoders into a target.

Only the death of a worker loses a batch: Ray Data drops it and goes on with the others. What was
lost is sent once more, and then image by image, until the image that ends its workers is known.
"""

import logging
import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from itertools import chain, islice, repeat, takewhile
from typing import Any

import ddh
from ddh._core.bars import Bar
from ddh._core.errors import DDHError, InputError, optional
from ddh._core.progress import bar
from ddh.cluster.batches import Batch, ImageFile, Outcome, Report, cut
from ddh.cluster.encoder import Encoder, ModelFiles
from ddh.cluster.sources import ImageLocation
from ddh.cluster.targets import Target
from ddh.index.rows import check_text

BATCH_SIZE = 1024
ATTEMPTS = 2  # at a batch that was lost, and then at each of its images
WINDOWS = (64, 256, 1024)  # batches of the first, the second and every further pipeline
STORE_BYTES = 200 << 20  # of a cluster on this machine; it holds the model and little else
KNOCK_S = 10.0
BLOCK_BYTES = 1 << 20  # what Ray Data expects of a result before it has seen one
SPARE_DEATHS = 9  # before the first batch is done


@dataclass(frozen=True)
class Cluster:
    """The address of a Ray cluster, and the workers to start on it.

    By default there is one worker per GPU, or one per CPU on a cluster without GPUs.
    """

    address: str
    actors: int | None = None
    gpus_per_actor: float | None = None
    device: str = "auto"
    batch_size: int = BATCH_SIZE

    def resources(self, available: dict[str, float]) -> tuple[int, float]:
        """How many workers to start, and the GPUs of each, on a cluster that has this much."""
        gpus = self.gpus_per_actor
        if gpus is None:
            gpus = 1.0 if available.get("GPU", 0) and self.device != "cpu" else 0.0
        if self.actors is not None:
            return self.actors, gpus
        number = available.get("GPU", 0) / gpus if gpus else available.get("CPU", 0)
        if number < 1:
            raise InputError(
                f"the cluster has no {'GPU' if gpus else 'CPU'} for a worker: give --actors if it "
                "grows on demand" + (", or --gpus-per-actor 0" if gpus else "")
            )
        return int(number), gpus


@contextmanager
def connect(address: str, *, store_bytes: int = STORE_BYTES) -> Iterator[Any]:
    """Ray, connected to a cluster until the end of the block.

    `address` is `auto` (the cluster that this machine belongs to), `local` (a new one on this
    machine, gone at the end), `host:port`, or `ray://host:port` (a cluster reached from outside).
    A connection that is there already is used and left open.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = optional("ray", '--ray needs Ray: pip install "ddh[ray]"')
    # Ray prints the deaths of workers to standard output, which belongs to a command's answer
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):  # noqa: PTH123
        if ray.is_initialized():
            yield ray
            return
        _initialise(ray, address, store_bytes)
        try:
            yield ray
        finally:
            ray.shutdown()


def _initialise(ray: Any, address: str, store_bytes: int) -> None:
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address == "local":
        options |= {"include_dashboard": False, "object_store_memory": store_bytes}
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    try:
        if colon and port.isdigit():  # Ray itself tries for minutes before it gives up
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_S).close()
        ray.init(address=address, **options)
    except (OSError, ray.exceptions.RayError, RuntimeError, ValueError) as error:
        raise DDHError(
            f"there is no Ray cluster to be reached at {address!r}: {error}\n"
            "Start one with `ray start --head`, or use --ray local for this machine alone. If the "
            "cluster asks for a token, put it into RAY_AUTH_TOKEN or ~/.ray/auth_token."
        ) from error


def encode_on_cluster(
    location: ImageLocation, model: ModelFiles, target: Target, cluster: Cluster
) -> Report:
    """Encode the images of `location` into `target`; what an earlier run has done is left alone.

    Interrupt it at any time: what is done is kept, and the next run goes on from there.
    """
    report = Report()
    location.check()
    listing = cut(_usable(location, report), cluster.batch_size)
    with bar("Encoding", total=None, unit="image") as progress:
        _count(location, progress)
        windows = filter(None, (_plan(w, target, report, progress) for w in _ahead(listing)))
        first = next(windows, None)
        if first is not None:  # Ray is slow to start: not for nothing
            store_bytes = STORE_BYTES + 2 * sum(map(len, model.files.values()))
            with connect(cluster.address, store_bytes=store_bytes) as ray:
                actors, gpus = cluster.resources(ray.cluster_resources())
                device = "cpu" if cluster.device == "auto" and not gpus else cluster.device
                encoder = ray.put(model), device, location, ddh.__version__
                driver = _Driver(ray, encoder, actors, gpus, target, report, progress)
                for batches in chain([first], windows):
                    driver.encode(batches)
    if not report.rows and not report.skipped:
        raise InputError(f"no images in {location.location}")
    target.finish()
    return report


def _usable(location: ImageLocation, report: Report) -> Iterator[ImageFile]:
    """The images whose names can be keys; the others are reported."""
    for file in location.files():
        try:
            check_text(file.key, "a file's name")
        except InputError as error:
            report.skipped.append({"name": file.key, "reason": str(error)})
        else:
            yield file


def _ahead(batches: Iterator[Batch]) -> Iterator[list[Batch]]:
    """Windows of a listing; a thread lists the next one while a window is being encoded."""
    stop, pool = threading.Event(), ThreadPoolExecutor(1, "ddh-listing")

    def read(size: int) -> list[Batch]:
        return list(takewhile(lambda _: not stop.is_set(), islice(batches, size)))

    try:
        sizes = chain(WINDOWS, repeat(WINDOWS[-1]))
        following = pool.submit(read, next(sizes))
        while window := following.result():
            following = pool.submit(read, next(sizes))
            yield window
    finally:
        stop.set()
        pool.shutdown()


def _plan(window: list[Batch], target: Target, report: Report, progress: Bar) -> list[Batch]:
    """The batches that are not done yet; the others are counted."""
    left = [target.plan(batch, report) for batch in window]
    todo = [batch for batch in left if batch is not None]
    progress.update(sum(map(len, window)) - sum(map(len, todo)))
    return todo


@dataclass(frozen=True)
class _Driver:
    """Runs pipelines over the batches of a job, and gives what comes of them to the target."""

    ray: Any
    encoder: tuple[Any, ...]
    actors: int
    gpus: float
    target: Target
    report: Report
    progress: Bar

    def encode(self, batches: list[Batch]) -> None:
        """Encode all batches of a window."""
        for _ in range(ATTEMPTS):
            batches = self._attempt(batches, self._finish, calls=2)
            self.report.retried += sum(map(len, batches))
        self._isolate(batches)

    def _finish(self, batch: Batch, outcome: Outcome) -> None:
        written, report = self.target.write(batch, outcome), self.report
        report.new += written.added
        report.changed += written.replaced
        report.skipped += outcome.skipped
        figures = {"workers": len(report.workers), "retried": report.retried}
        self.progress.set_postfix(figures, refresh=False)
        self.progress.update(len(batch))

    def _isolate(self, batches: list[Batch]) -> None:
        """Encode batches image by image, and skip the images that end every worker."""
        merged = {batch.id: Outcome(batch.id) for batch in batches}
        singles = {Batch([file]): merged[batch.id] for batch in batches for file in batch.files}
        lost = list(singles)

        def take(single: Batch, outcome: Outcome) -> None:
            whole = singles[single]
            whole.rows += outcome.rows
            whole.skipped += outcome.skipped

        for _ in range(ATTEMPTS):
            lost = self._attempt(lost, take, calls=1)
        reason = f"each of {2 * ATTEMPTS} workers ended while reading it"
        for single in lost:
            singles[single].skipped.append({"name": single.files[0].key, "reason": reason})
        for batch in batches:
            self._finish(batch, merged[batch.id])

    def _attempt(
        self, batches: list[Batch], take: Callable[[Batch, Outcome], None], *, calls: int
    ) -> list[Batch]:
        """Encode batches, `calls` at a time per worker; return those lost with their worker."""
        todo = {batch.id: batch for batch in batches}
        while todo:  # a pipeline that stops is started again as long as it gets something done
            before, actors = len(todo), min(self.actors, len(todo))
            most_deaths = -1 if self.report.workers else max(SPARE_DEATHS, 3 * actors)
            pool = actors, self.gpus, calls, most_deaths
            try:
                for outcome in self._run((list(todo.values()), self.encoder, *pool)):
                    if outcome.error is not None:
                        raise outcome.error
                    self.report.workers.add(outcome.worker)
                    take(todo.pop(outcome.batch_id), outcome)
                break
            except self.ray.exceptions.RayError as error:
                if len(todo) == before:
                    raise DDHError(
                        "the workers end one after the other and nothing gets done: "
                        f"{str(error).strip().splitlines()[-1]}\nIs ddh installed on all nodes?"
                    ) from error
        return list(todo.values())

    def _run(self, arguments: tuple[Any, ...]) -> Iterator[Outcome]:
        """Run a pipeline here, or in an actor where this machine is only a client."""
        if not self.ray.util.client.ray.is_connected():
            yield from run_pipeline(*arguments)
            return
        # Ray Data needs generators, which a client cannot have
        remote = self.ray.remote(num_cpus=0)(RemotePipeline).remote(arguments)
        while (outcome := self.ray.get(remote.next.remote())) is not None:
            yield outcome


class RemotePipeline:
    """An actor that runs a pipeline and hands out its outcomes one by one."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self._outcomes = run_pipeline(*arguments)

    def next(self) -> Outcome | None:
        """The next outcome, None at the end."""
        return next(self._outcomes, None)


def run_pipeline(
    batches: list[Batch],
    encoder: tuple[Any, ...],
    actors: int,
    gpus: float,
    calls: int,
    most_deaths: int,
) -> Iterator[Outcome]:
    """Send batches through a pool of encoders; those whose worker dies do not come back."""
    import pyarrow as pa
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # deaths are reported by the job
    blocks = [pa.table({"batch": [pickle.dumps(batch)]}) for batch in batches]
    dataset = ray.data.from_blocks(blocks)
    dataset.context.enable_progress_bars = False
    dataset.context.print_on_execution_start = False
    dataset.context.target_max_block_size = BLOCK_BYTES
    dataset.context.max_errored_blocks = most_deaths
    encoded = dataset.map_batches(
        Encoder,
        fn_constructor_args=encoder,
        batch_size=None,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(
            size=actors, max_tasks_in_flight_per_actor=calls, enable_true_multi_threading=True
        ),
        num_cpus=1,
        num_gpus=gpus,
        max_concurrency=calls,
        max_restarts=-1,
        max_task_retries=0,
        scheduling_strategy="SPREAD",
    )
    for table in encoded.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        yield from (pickle.loads(outcome) for outcome in table["outcome"].to_pylist())


def _count(location: ImageLocation, progress: Bar) -> None:
    """Tell the bar how many images there are, once a listing of its own has counted them."""

    def count() -> None:
        with suppress(DDHError):  # which the other listing will meet as well
            progress.expect(sum(1 for _ in location.files()))

    threading.Thread(target=count, name="ddh-count", daemon=True).start()
