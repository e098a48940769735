"""The Milvus engine: Milvus Lite files, lists (IVF), limits on answers, a server that dies."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from index_oracle import Oracle, pairs, random_codes
from index_servers import MilvusServer, free_port, need_milvus

import ddh.index
from ddh._core.errors import DDHError, InputError
from ddh.index import connection


@pytest.fixture(autouse=True)
def _milvus() -> None:
    need_milvus()


def test_an_index_in_a_file_lets_go_of_it(tmp_path):
    """Two users in one process, then another process, one after the other."""
    codes = random_codes(np.random.default_rng(0), 50, 12)
    file = tmp_path / "photos.db"
    with pytest.raises(InputError, match="no index"):
        ddh.index.open(file, create=False)
    assert not file.exists()
    with ddh.index.open(file, bits=12, model_id="m") as one:
        with ddh.index.open(f"{file}#second", bits=12) as two:
            two.add(["a"], codes[:1])
        one.add([f"k{i}" for i in range(50)], codes)
        assert one.search(codes[3], 1)[0][0].distance == 0
        assert one.info().disk_bytes > 0
    script = (
        "import sys, ddh.index\n"
        "with ddh.index.open(sys.argv[1]) as index: print(len(index), index.bits, index.model_id)"
    )
    done = subprocess.run([sys.executable, "-c", script, file], capture_output=True, text=True)
    assert done.stdout.split() == ["50", "12", "m"], done.stderr
    with ddh.index.open(f"{file}#second") as two:
        assert [row.key for row in two.items()] == ["a"]


def test_a_server_without_lists_says_so_and_goes_on(tmp_path):
    code = np.zeros((1, 2), np.uint8)
    with ddh.index.open(tmp_path / "photos.db", bits=16) as index:
        index.add(["a"], code)
        with pytest.raises(DDHError, match="no BIN_IVF_FLAT"):
            ddh.index.open(tmp_path / "photos.db", approximate=True)
        assert pairs(index.search(code, 1, approximate=True)) == [[("a", 0)]]


@pytest.mark.skipif(
    "DDH_MILVUS" not in os.environ,
    reason="Milvus Lite has no BIN_IVF_FLAT: set DDH_MILVUS to the address of a whole Milvus",
)
def test_lists_are_exact_unless_less_is_asked_for():
    rng = np.random.default_rng(1)
    centres = random_codes(rng, 30, 40)
    codes = centres[rng.integers(0, 30, 1500)] ^ random_codes(rng, 1500, 40, 0.05)
    keys = [f"k{i}" for i in range(1500)]
    queries = codes[:10]
    oracle = Oracle(40)
    oracle.write(keys, codes)
    location = f"{os.environ['DDH_MILVUS']}#lists{time.time_ns()}"
    with ddh.index.open(location, bits=40) as index:
        index.add(keys, codes)
        assert index.info().details["vector index"] == "BIN_FLAT"
    with ddh.index.open(location, approximate=True) as index:
        assert index.info().details["vector index"] == "BIN_IVF_FLAT"
        assert pairs(index.search(queries, 10)) == oracle.search(queries, 10)
        assert pairs(index.search_radius(queries, 3)) == oracle.search_radius(queries, 3)
        found = pairs(index.search(queries, 10, approximate=True))
        assert all(answer == sorted(answer, key=lambda hit: hit[1]) for answer in found)
        right = sum(
            len(set(a) & set(b)) for a, b in zip(found, oracle.search(queries, 10), strict=True)
        )
        assert right >= 50


def test_an_idle_channel_sends_no_pings(milvus_server):
    """Milvus Lite closes a channel for "too many pings" after half a minute of pymilvus' own."""
    with ddh.index.open(f"{milvus_server.url}#idle", bits=8) as index:
        options = index._connection._handle._handler._grpc_options
        assert options["grpc.keepalive_time_ms"] > 300_000


def test_more_answers_than_milvus_gives_are_found_here(milvus_server, monkeypatch):
    """Ties beyond its limit, a k beyond it, and a radius with more rows than it."""
    monkeypatch.setattr("ddh.index.milvus.MOST_ANSWERS", 32)
    rng = np.random.default_rng(2)
    codes = np.repeat(random_codes(rng, 3, 16), 50, axis=0)[rng.permutation(150)]
    keys = [f"k{i}" for i in range(150)]
    oracle = Oracle(16)
    oracle.write(keys, codes)
    queries = np.stack([codes[0], codes[1] ^ 1])
    with ddh.index.open(f"{milvus_server.url}#limits", bits=16) as index:
        index.add(keys, codes)
        for k in (1, 20, 31, 32, 33, 100, 200):
            assert pairs(index.search(queries, k)) == oracle.search(queries, k)
        for radius in (0, 8, 16):
            assert pairs(index.search_radius(queries, radius)) == (
                oracle.search_radius(queries, radius)
            )


def test_filters_refuse_what_milvus_cannot_compare(milvus_server):
    with (
        ddh.index.open(f"{milvus_server.url}#breaks", bits=8) as index,
        pytest.raises(InputError, match="line breaks"),
    ):
        index.search(np.zeros(1, np.uint8), 1, where={"a": "b\nc"})


def test_a_server_that_dies_in_the_middle_of_an_add_is_waited_for():
    """kill -9 of the server and a new start while rows are on their way: each is there once."""
    server = MilvusServer()
    try:
        codes = random_codes(np.random.default_rng(3), 18_000, 64)
        keys = [f"k{i}" for i in range(18_000)]
        deaths = []

        def kill_and_start() -> None:
            for _ in range(2):
                time.sleep(0.7)
                server.kill()
                deaths.append(time.monotonic())
                time.sleep(0.3)
                server.start()

        with ddh.index.open(server.url, bits=64) as index:
            killer = threading.Thread(target=kill_and_start)
            killer.start()
            for start in range(0, 18_000, 6_000):
                part = slice(start, start + 6_000)
                assert index.add(keys[part], codes[part]) == 6_000
            finished = time.monotonic()
            killer.join()
            assert deaths[0] < finished, "the server died too late"
            assert len(index) == 18_000
            rows = list(index.items())
            assert [row.key for row in rows] == keys
            np.testing.assert_array_equal([row.code for row in rows], codes)
    finally:
        server.stop()


def test_a_server_that_is_not_there_is_an_error_for_people(monkeypatch):
    monkeypatch.setattr(connection, "ATTEMPTS", 2)
    with pytest.raises(DDHError, match=r"cannot connect to milvus://me:\*\*\*@localhost"):
        ddh.index.open(f"milvus://me:secret@localhost:{free_port()}", bits=8)
