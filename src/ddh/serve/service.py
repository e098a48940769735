"""What one running service holds: the index, its pictures, its model, and the threads they use."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import ddh.index
from ddh._core.errors import InputError
from ddh.images import Limits
from ddh.index.collection import Collection
from ddh.index.location import split_name
from ddh.serve.batching import Batcher
from ddh.serve.catalog import Surveyor
from ddh.serve.disk_cache import DiskCache
from ddh.serve.duplicates import Duplicates
from ddh.serve.encoding import Code, Encoder, encodes_pictures
from ddh.serve.errors import NotAllowed, TooSlow
from ddh.serve.items import Pictures
from ddh.serve.maps import Maps
from ddh.serve.metrics import Metrics
from ddh.serve.searching import Search, Searcher
from ddh.serve.settings import Settings
from ddh.serve.thumbnails import Thumbnails
from ddh.serve.writing import Rows

SEARCHERS = 2  # while one waits for rows, the other compares codes
SEARCHED_TOGETHER = 64
ENCODED_TOGETHER = 16
PICTURE_THREADS = 2
MAPS_BYTES = 256 << 20

Result = TypeVar("Result")


class Service:
    """One index and everything that is needed to answer for it. `close` ends it.

    Searching, writing and everything else have handles of the index of their own, because calls of
    one handle take turns: a search waits neither for a write to reach the disk nor for another
    search's rows (a Milvus client, which does not make others wait, is shared).
    """

    def __init__(self, location: str, settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.index = ddh.index.open(location, create=False)
        self._handles = [self.index]
        if self.index.engine != "milvus":
            self._handles += [ddh.index.open(location, create=False) for _ in range(1 + SEARCHERS)]
        self.writer, *searching = self._handles[1:] or [self.index] * (1 + SEARCHERS)
        collection = Collection(self.index)
        self.name = index_name(location, self.index.engine)
        self.pictures = Pictures(_folder(settings.root, "root") or collection.root)
        cache = DiskCache(settings.cache_folder() / "thumbnails", settings.cache_bytes)
        self.thumbnails = Thumbnails(cache, Limits())
        self.encoder = self._encoder(settings.model or collection.model)
        self.searcher = Searcher(searching, self.pictures, settings)
        self._threads = {
            name: ThreadPoolExecutor(size, thread_name_prefix=f"ddh-{name}")
            for name, size in (
                ("search", SEARCHERS), ("model", 1), ("write", 1), ("pictures", PICTURE_THREADS),
                ("survey", 1), ("duplicates", 1), ("map", 1),
            )
        }  # fmt: skip
        self.surveyor = Surveyor(self.index)
        self.rows = Rows(self.writer, self.pictures, self.surveyor.changed, self._upload_limits())
        self.duplicates = Duplicates(self.index, self.pictures)
        maps = DiskCache(settings.cache_folder() / "maps", MAPS_BYTES)
        self.maps = Maps(maps, self._threads["map"])
        self._searches: Batcher[Search, bytes] = Batcher(
            self._search,
            self._threads["search"],
            together=SEARCHED_TOGETHER,
            waiting=settings.waiting_queries,
            workers=SEARCHERS,
        )
        self._encodings: Batcher[bytes, Code] | None = None
        if self.encoder is not None:
            self._encodings = Batcher(
                self.encoder.encode,
                self._threads["model"],
                together=ENCODED_TOGETHER,
                waiting=settings.waiting_images,
            )
        self.metrics.watch_rows(lambda: len(self.index))

    def _encoder(self, folder: Path | None) -> Encoder | None:
        if folder is None:
            return None
        if not encodes_pictures(folder, self.index.model_id):
            if self.settings.model is not None:
                raise InputError(
                    f"{folder} is not the model of this index ({self.index.model_id}), or it reads "
                    "features and not pictures: leave --model out to search by codes alone"
                )
            return None
        return Encoder(
            folder,
            self.index.model_id,
            self.settings.device,
            self._upload_limits(),
            self.metrics.encoded,
        )

    def _upload_limits(self) -> Limits:
        return Limits(self.settings.megapixels, self.settings.body_bytes)

    # -- answers -----------------------------------------------------------------------------

    async def search(self, search: Search) -> bytes:
        """The answer of a search as JSON."""
        return await self._in_time(self._searches.ask(search))

    def _search(self, searches: Sequence[Search]) -> list[bytes | Exception]:
        started = time.perf_counter()
        answers = self.searcher.answer(searches)
        self.metrics.searched(time.perf_counter() - started, len(searches))
        return answers

    async def encode(self, picture: bytes) -> Code:
        """The code of a picture file."""
        if self._encodings is None:
            raise NotAllowed(
                "this service cannot encode pictures: it has no model that does; "
                "start it with --model, or search by a code or a key"
            )
        return await self._in_time(self._encodings.ask(picture))

    async def in_thread(self, kind: str, work: Callable[[], Result]) -> Result:
        """Do something that blocks in the threads of its kind."""
        loop = asyncio.get_running_loop()
        return await self._in_time(loop.run_in_executor(self._threads[kind], work))

    async def _in_time(self, answer: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(self.settings.answer_seconds):
                return await answer
        except TimeoutError:
            raise TooSlow(
                f"no answer within {self.settings.answer_seconds:g} s: ask again later"
            ) from None

    # -- the end -----------------------------------------------------------------------------

    async def finish(self) -> None:
        """Answer what was asked, then close."""
        await self._searches.finish()
        if self._encodings is not None:
            await self._encodings.finish()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Let go of threads and of the index; closing twice is fine."""
        self.maps.stop()
        for threads in self._threads.values():
            threads.shutdown(wait=True, cancel_futures=True)
        for handle in self._handles:
            handle.close()


def _folder(path: Path | None, option: str) -> Path | None:
    if path is not None and not path.is_dir():
        raise InputError(f"--{option} {path} is not a folder")
    return path


def index_name(location: str, engine: str) -> str:
    """The index's own name, nothing of where it lies."""
    return Path(location).resolve().name if engine == "local" else split_name(location)[1]
