"""The parts of a running service: the index, its pictures, its model, and their threads."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from starlette.exceptions import HTTPException

import ddh.index
from ddh._core.errors import InputError
from ddh.images import Preprocessing
from ddh.index.collection import Collection
from ddh.index.location import split_name
from ddh.serve.batching import Batcher
from ddh.serve.catalog import CatalogCache
from ddh.serve.desktop import Adding
from ddh.serve.disk_cache import DiskCache
from ddh.serve.duplicates import Duplicates
from ddh.serve.encoding import Decoders, Encoder, Encoding, Pixels, picture_preprocessing
from ddh.serve.find import Finder
from ddh.serve.items import Pictures
from ddh.serve.maps import Maps
from ddh.serve.metrics import Metrics
from ddh.serve.notes import Notes
from ddh.serve.search import Query, Searcher, SearchParams
from ddh.serve.settings import Settings
from ddh.serve.text_search import TextSearch
from ddh.serve.thumbnails import Thumbnails
from ddh.serve.writing import Rows

SEARCH_THREADS = 2  # while one waits for rows, the other compares codes
THREADS = {
    "search": SEARCH_THREADS, "decode": 2, "model": 1, "write": 1, "pictures": 2, "catalog": 1,
    "duplicates": 1, "map": 1, "text": 1, "notes": 1,
}  # fmt: skip
LOOK_SECONDS = 1.0  # between looks at whether the rows have other codes
MAX_SEARCH_BATCH = 64
MAX_IMAGE_BATCH = 16
MAP_CACHE_BYTES = DUPLICATES_CACHE_BYTES = CATALOG_CACHE_BYTES = 256 << 20

LOG = logging.getLogger("ddh.serve")
Result = TypeVar("Result")


class Service:
    """One index and everything that is needed to answer for it.

    Searching, writing and everything else have index handles of their own, because calls of one
    handle take turns: a search waits neither for a write to reach the disk nor for the rows of
    another search (a Milvus client, which does not block other calls, is shared).
    """

    def __init__(self, location: str, settings: Settings) -> None:
        self.settings, self.index = settings, ddh.index.open(location, create=False)
        self.metrics = Metrics(self.index.__len__)
        more = 0 if self.index.engine == "milvus" else 1 + SEARCH_THREADS
        self._handles = [self.index, *(ddh.index.open(location, create=False) for _ in range(more))]
        writer, *searching = self._handles[1:] or [self.index] * (1 + SEARCH_THREADS)
        collection = Collection(self.index)
        # The index's own name, without where it lies.
        local = self.index.engine == "local"
        self.name = Path(location).resolve().name if local else split_name(location)[1]
        if settings.root is not None and not settings.root.is_dir():
            raise InputError(f"--root {settings.root} is not a folder")
        self.pictures = Pictures(settings.root or collection.roots)
        self._threads = {
            name: ThreadPoolExecutor(size, thread_name_prefix=f"ddh-{name}")
            for name, size in THREADS.items()
        }
        cache = settings.cache_folder()
        kept = DiskCache(cache / "thumbnails", settings.cache_bytes)
        self.thumbnails = Thumbnails(kept, settings.decode_seconds, THREADS["pictures"])
        self.maps = Maps(DiskCache(cache / "maps", MAP_CACHE_BYTES), self._threads["map"])
        kept = DiskCache(cache / "catalogs", CATALOG_CACHE_BYTES)
        self.catalogs = CatalogCache(self.index, kept)
        remembered = DiskCache(cache / "duplicates", DUPLICATES_CACHE_BYTES)
        self.duplicates = Duplicates(location, self.index, writer, self.pictures, remembered)
        self.rows = Rows(writer, self.pictures, self.catalogs.invalidate)
        self.finder, self.notes = Finder(self.index), Notes(writer)
        self.adding = Adding(location)
        self.searcher = Searcher(searching, self.pictures, settings)
        self._searches: Batcher[Query, bytes] = Batcher(
            self.searcher.answer,
            self._threads["search"],
            max_batch=MAX_SEARCH_BATCH,
            max_queue=settings.max_queued_searches,
            workers=SEARCH_THREADS,
            cost=lambda query: query.cost,
            on_batch=self.metrics.searched,
        )
        self.words: TextSearch | None = None
        if settings.text_model is not None:
            cache = settings.cache_folder() / "text"
            self.words = TextSearch(
                settings.text_model, cache, self.index, self.pictures, self.catalogs
            )
        self._decoders: Decoders | None = None
        self._looked, self._following = time.monotonic(), asyncio.Lock()
        folder = settings.model or collection.model
        preprocessing = picture_preprocessing(folder, self.index.model_id) if folder else None
        if preprocessing is None and settings.model is not None:
            raise InputError(
                f"{folder} is not the model of this index ({self.index.model_id}), or it reads "
                "features and not pictures: leave --model out to search by codes alone"
            )
        if folder is not None and preprocessing is not None:
            self._set_up_encoding(folder, preprocessing)

    def _set_up_encoding(self, folder: Path, preprocessing: Preprocessing) -> None:
        model_id, settings = self.index.model_id, self.settings
        if self._decoders is None or self._decoders.preprocessing != preprocessing:
            if self._decoders is not None:
                self._decoders.close()
            self._decoders = Decoders(preprocessing, settings, THREADS["decode"])
            self._decodings: Batcher[bytes, Pixels] = Batcher(
                self._decoders.decode,
                self._threads["decode"],
                max_batch=1,
                max_queue=settings.max_queued_images,
                workers=THREADS["decode"],
            )
        self._encodings: Batcher[Pixels, Encoding] = Batcher(
            Encoder(folder, model_id, settings.device).encode,
            self._threads["model"],
            max_batch=MAX_IMAGE_BATCH,
            max_queue=settings.max_queued_images,
            on_batch=self.metrics.encoded,
        )

    async def follow(self, *, at_once: bool = False) -> None:
        """Go on with the codes that another process has given the rows, with their own model.

        Looks at most once in LOOK_SECONDS unless `at_once`.
        """
        if not at_once and time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        async with self._following:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._threads["notes"], self._follow)
            if found is None:
                return
            self.searcher.follow(self.index)
            folder, preprocessing = found
            if folder is not None and preprocessing is not None:
                self._set_up_encoding(folder, preprocessing)
            elif self._decoders is not None:  # the new model is not where it was, or reads features
                self._decoders.close()
                self._decoders = None

    def _follow(self) -> tuple[Path | None, Preprocessing | None] | None:
        """Where the model of new codes is, and how it reads pictures; None if they are the same."""
        followed = [handle.follow() for handle in self._handles[:2]]  # the others search
        if not any(followed):
            return None
        LOG.info("the index has codes of model %s now", self.index.model_id)
        self.catalogs.invalidate()
        folder = Collection(self.index).model
        return folder, picture_preprocessing(folder, self.index.model_id) if folder else None

    @property
    def encodes_pictures(self) -> bool:
        """Whether pictures can be uploaded."""
        return self._decoders is not None

    async def search(self, query: Query) -> bytes:
        """The response body of a search."""
        return await self._in_time(self._searches.submit(query))

    async def search_text(self, query: Query) -> bytes:
        """The response body of a search by text."""
        words = self.words
        if words is None:
            raise HTTPException(403, "this service reads no texts: start it with --text-model")
        started, where = time.perf_counter(), json.loads(query.filters[0] or "{}")

        def answer() -> bytes:
            found = words.search(query.text, query.filters[1] or "", where)
            return self.searcher.text_body(query, self.index, found, words.covered, started)

        return await self.in_thread("text", answer)

    async def check(self) -> None:
        """Run a small search; raises what keeps the service from answering."""
        code = np.zeros(self.index.code_bytes, np.uint8)
        params = SearchParams.model_validate({"k": 1})
        await self.search(Query(params, ("", None), code, model_id=self.index.model_id))

    async def encode(self, image: bytes) -> Encoding:
        """The code and outputs of an image file."""
        if not self.encodes_pictures:
            raise HTTPException(
                403,
                "this service cannot encode pictures: it has no model that does; "
                "start it with --model, or search by a code or a key",
            )
        return await self._in_time(self._decode_and_encode(image))

    async def _decode_and_encode(self, image: bytes) -> Encoding:
        return await self._encodings.submit(await self._decodings.submit(image))

    async def in_thread(self, kind: str, work: Callable[[], Result]) -> Result:
        """Run something that blocks in the threads of its kind."""
        loop = asyncio.get_running_loop()
        return await self._in_time(loop.run_in_executor(self._threads[kind], work))

    async def _in_time(self, answer: Awaitable[Result]) -> Result:
        seconds = self.settings.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise HTTPException(503, f"no answer within {seconds:g} s: try again later") from None

    async def finish(self) -> None:
        """Answer what was submitted, then close."""
        await self._searches.finish()
        if self.encodes_pictures:
            await self._decodings.finish()
            await self._encodings.finish()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Stop the threads and close the index; closing twice is fine."""
        self.maps.stop()
        self.adding.close()
        self.thumbnails.close()
        if self.words is not None:
            self.words.close()
        self.duplicates.close()
        if self._decoders is not None:
            self._decoders.close()
        for threads in self._threads.values():
            threads.shutdown(wait=True, cancel_futures=True)
        for handle in self._handles:
            handle.close()
