"""A listing cut into batches that stay the same when pictures come or go elsewhere in it."""

import contextlib
import hashlib
import queue
import threading
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ddh.cluster.pictures import Picture

Item = TypeVar("Item")

ID_BYTES = 10


@dataclass(eq=False)
class Batch:
    """Pictures for one call of a worker, and how often it went wrong.

    The `id` is a digest of what the listing says of the pictures, so it names the same work in
    every run.
    """

    pictures: list[Picture]
    deaths: int = 0
    errors: int = 0
    id: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.blake2b(digest_size=ID_BYTES)
        for picture in self.pictures:
            text = f"{picture.key}\0{picture.size}\0{picture.mtime_ns}\n"
            digest.update(text.encode("utf-8", "surrogateescape"))
        self.id = digest.hexdigest()

    def __len__(self) -> int:
        return len(self.pictures)

    def halves(self) -> tuple["Batch", "Batch"]:
        """Two fresh batches, to find the picture that ends its workers."""
        middle = len(self) // 2
        return Batch(self.pictures[:middle]), Batch(self.pictures[middle:])


def cut(pictures: Iterable[Picture], size: int) -> Iterator[Batch]:
    """Batches of `size` pictures at most, about three quarters of it as a rule.

    From half the size on a batch ends at a key with a certain checksum. So a picture more or less
    changes the batch it is in, and those behind soon begin at the same pictures as before.
    """
    batch: list[Picture] = []
    for picture in pictures:
        batch.append(picture)
        marked = zlib.crc32(picture.key.encode("utf-8", "surrogateescape")) % max(1, size // 4) == 0
        if len(batch) == size or (2 * len(batch) >= size and marked):
            yield Batch(batch)
            batch = []
    if batch:
        yield Batch(batch)


@contextlib.contextmanager
def read_ahead(items: Iterable[Item], size: int) -> Iterator[Iterator[Item | None]]:
    """Walk through `items` in a thread, `size` of them ahead; None where the next is not there yet.

    An error of the walk is raised where it would have been met.
    """
    made: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(size)
    stop = threading.Event()

    def put(item: Item | None, error: BaseException | None) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                made.put((item, error), timeout=0.2)
                return

    def walk() -> None:
        try:
            for item in items:
                put(item, None)
                if stop.is_set():
                    return
            put(None, StopIteration())
        except BaseException as error:
            put(None, error)

    def taken() -> Iterator[Item | None]:
        while True:
            try:
                item, error = made.get(timeout=0.05)
            except queue.Empty:
                yield None
                continue
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item

    thread = threading.Thread(target=walk, name="ddh-listing", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stop.set()
        thread.join(1)  # a listing under way cannot be cut short
