"""A whole job: pictures of a place through encoders on a Ray cluster into a target."""

import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import ddh
from ddh._core.errors import DDHError, InputError
from ddh._core.progress import Bar, bar
from ddh.cluster.batches import Batch, cut, read_ahead
from ddh.cluster.connection import STORE_BYTES, connect
from ddh.cluster.encoder import Encoder, ModelFiles
from ddh.cluster.pictures import Picture
from ddh.cluster.scheduler import SLOTS, Scheduler, Split
from ddh.cluster.sources import Place
from ddh.cluster.targets import Report, Target
from ddh.index.rows import check_text

BATCH_SIZE = 1024
LISTED_AHEAD = 8  # batches


@dataclass(frozen=True)
class Cluster:
    """Where a job runs: the address of a Ray cluster, and the workers to start on it.

    By default there is a worker for each GPU, or on a cluster without GPUs for each CPU.
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


def encode_on_cluster(place: Place, model: ModelFiles, target: Target, cluster: Cluster) -> Report:
    """Encode the pictures of `place` into `target`; what is there already is left alone.

    Interrupt it at any time: what is done is kept, and the next run goes on from there.
    """
    report = Report()
    place.check()
    listed = read_ahead(cut(_usable(place, report), cluster.batch_size), LISTED_AHEAD)
    try:
        with listed as batches, bar("Encoding", total=None, unit="image") as progress:
            _count(place, progress)
            left = _left(batches, target, report, progress)
            first = next((batch for batch in left if batch is not None), None)
            if first is not None:  # Ray is slow to start: not for nothing
                store_bytes = STORE_BYTES + 2 * len(model.arrays)
                with connect(cluster.address, store_bytes=store_bytes) as ray:
                    scheduler = _scheduler(ray, model, place, target, cluster)
                    _take(scheduler, chain([first], left), target, report, progress)
        if not report.rows and not report.skipped:
            raise InputError(f"no images in {place.location}")
        target.finish()
    finally:
        target.close()
    return report


def _scheduler(
    ray: Any, model: ModelFiles, place: Place, target: Target, cluster: Cluster
) -> Scheduler:
    actors, gpus = cluster.resources(ray.cluster_resources())
    device = "cpu" if cluster.device == "auto" and not gpus else cluster.device
    sent = ray.put(model)
    writer = None if target.writes_here else target.writer
    remote = ray.remote(Encoder).options(
        num_cpus=1, num_gpus=gpus, max_concurrency=SLOTS, scheduling_strategy="SPREAD"
    )

    def start() -> tuple[Any, Any]:
        actor = remote.remote()
        return actor, actor.prepare.remote(ddh.__version__, sent, device, place, writer)

    return Scheduler(ray, start, actors)


def _usable(place: Place, report: Report) -> Iterator[Picture]:
    """The pictures whose names can be keys; the others are reported."""
    for picture in place.pictures():
        try:
            check_text(picture.key, "a file's name")
        except InputError as error:
            report.skipped.append({"name": picture.key, "reason": str(error)})
        else:
            yield picture


def _left(
    batches: Iterator[Batch | None], target: Target, report: Report, progress: Bar
) -> Iterator[Batch | None]:
    """The batches that are not done yet; the others are counted."""
    for batch in batches:
        if batch is None:
            yield None
            continue
        left = target.left(batch, report)
        progress.update(len(batch) - sum(map(len, left)))
        yield from left


def _take(
    scheduler: Scheduler,
    batches: Iterator[Batch | None],
    target: Target,
    report: Report,
    progress: Bar,
) -> None:
    with closing(scheduler.run(batches)) as results:
        for result in results:
            if isinstance(result, Split):
                target.split(result.batch)
                continue
            if not report.workers:
                _start_clock(progress)
            target.done(result.batch, result.outcome)
            report.add(result.outcome)
            report.workers, report.lost = max(report.workers, scheduler.ready), scheduler.lost
            progress.set_postfix(workers=scheduler.ready, lost=scheduler.lost, refresh=False)
            progress.update(len(result.batch))


def _start_clock(progress: Bar) -> None:
    """Keep what was found, and the start of the workers, out of the bar's rate."""
    before = progress.n
    progress.reset()
    progress.n = progress.initial = progress.last_print_n = before


def _count(place: Place, progress: Bar) -> None:
    """Tell the bar how many pictures there are, once a listing of its own has counted them."""

    def count() -> None:
        with suppress(DDHError):  # which the other listing will meet as well
            progress.expect(sum(1 for _ in place.pictures()))

    threading.Thread(target=count, name="ddh-count", daemon=True).start()
