"""The small parts: batches, the disk cache, settings."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.exceptions import HTTPException

from ddh._core.errors import InputError
from ddh.serve.batching import Batcher
from ddh.serve.disk_cache import DiskCache
from ddh.serve.settings import Settings


def test_what_waits_is_worked_on_together():
    batches, gate = [], threading.Event()

    def work(questions):
        batches.append(list(questions))
        gate.wait(60)
        return [ValueError(str(q)) if q == 13 else q * 2 for q in questions]

    async def main():
        with ThreadPoolExecutor(1) as threads:
            batcher = Batcher(work, threads, max_batch=10, max_queue=25)
            first = asyncio.create_task(batcher.submit(0))
            while not batches:  # until it is being worked on
                await asyncio.sleep(0.001)
            others = [asyncio.create_task(batcher.submit(i)) for i in range(1, 26)]
            await asyncio.sleep(0)
            with pytest.raises(HTTPException):
                await batcher.submit(99)
            others[3].cancel()  # the one who asked has gone
            gate.set()
            answers = await asyncio.gather(first, *others, return_exceptions=True)
            await batcher.finish()
        return answers

    answers = asyncio.run(main())
    assert answers[0] == 0
    assert isinstance(answers[4], asyncio.CancelledError)
    assert isinstance(answers[13], ValueError)
    rest = [i for i in range(26) if i not in (4, 13)]
    assert [answers[i] for i in rest] == [2 * i for i in rest]
    assert batches[0] == [0]
    assert batches[1] == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    assert max(map(len, batches)) == 10


def test_work_that_fails_is_told_to_all_and_ends_nothing():
    def work(questions):
        if "bad" in questions:
            raise RuntimeError("no")
        return questions

    async def main():
        with ThreadPoolExecutor(1) as threads:
            batcher = Batcher(work, threads, max_batch=4, max_queue=10)
            with pytest.raises(RuntimeError):
                await batcher.submit("bad")
            return await batcher.submit("good")

    assert asyncio.run(asyncio.wait_for(main(), 60)) == "good"


def test_costly_items_make_smaller_batches():
    batches, gate = [], threading.Event()

    def work(costs):
        batches.append(list(costs))
        gate.wait(60)
        return costs

    async def main():
        with ThreadPoolExecutor(1) as threads:
            batcher = Batcher(work, threads, max_batch=10, max_queue=25, cost=lambda cost: cost)
            asked = [asyncio.create_task(batcher.submit(c)) for c in (1, 4, 5, 4, 99, 99, 1, 1)]
            while not batches:
                await asyncio.sleep(0.001)
            gate.set()
            await asyncio.gather(*asked)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert batches == [[1, 4, 5], [4, 99], [99], [1, 1]]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_no_question_is_forgotten(workers):
    """Questions that come at every moment, also just when a worker runs out of work."""

    async def main():
        with ThreadPoolExecutor(workers) as threads:
            batcher = Batcher(list, threads, max_batch=2, max_queue=1000, workers=workers)

            async def ask_on(first):
                for question in range(first, first + 200):
                    assert await batcher.submit(question) == question

            await asyncio.gather(*(ask_on(1000 * i) for i in range(5)))
            await batcher.finish()

    asyncio.run(asyncio.wait_for(main(), 120))


def test_the_cache_is_bounded_and_throws_the_oldest_away(tmp_path):
    cache = DiskCache(tmp_path / "cache", 10_000)
    for number in range(30):
        cache.put(f"{number:032x}", bytes([number]) * 1000)
        time.sleep(0.002)
        assert cache.get(f"{0:032x}") == bytes(1000)  # used all the time
        assert (
            sum(path.stat().st_size for path in cache.folder.rglob("*") if path.is_file()) <= 11_000
        )
    assert cache.get(f"{29:032x}") == bytes([29]) * 1000
    assert cache.get(f"{5:032x}") is None
    assert not list(cache.folder.rglob(".*"))


def test_the_cache_survives_threads(tmp_path):
    cache = DiskCache(tmp_path, 5_000)

    def use(number):
        name = f"{number % 20:032x}"
        cache.put(name, bytes([number % 20]) * 500)
        found = cache.get(name)
        return found is None or found == bytes([number % 20]) * 500

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(400)))


@pytest.mark.parametrize(
    "settings",
    [{"token": "short"}, {"token": "x" * 20 + "\n"}, {"token": "é" * 20}, {"body_bytes": 0},
     {"megapixels": -1.0}, {"body_seconds": float("nan")}],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(InputError):
        Settings(**settings)


def test_where_the_cache_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("DDH_CACHE", str(tmp_path / "given"))
    assert Settings(cache=tmp_path).cache_folder() == tmp_path
    assert Settings().cache_folder() == tmp_path / "given"
    monkeypatch.delenv("DDH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Settings().cache_folder() == tmp_path / "ddh"
