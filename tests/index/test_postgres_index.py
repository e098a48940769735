"""The PostgreSQL engine: its schema, its approximate index, and connections that break."""

import socket
import threading
import time

import numpy as np
import pytest
from index_oracle import Oracle, pairs, random_codes
from index_servers import free_port

import ddh.index
from ddh._core.errors import DDHError, InputError
from ddh.index import connection

psycopg = pytest.importorskip("psycopg")


@pytest.fixture
def url(vector_server, request) -> str:
    """A place of its own for each test."""
    return f"{vector_server.url}#{request.node.name.replace('[', '_').strip(']')[:39]}"


def test_codes_are_stored_as_bit_strings_in_order(url, vector_server):
    codes = random_codes(np.random.default_rng(0), 20, 19)
    with ddh.index.open(url, bits=19) as index:
        index.add([f"k{i}" for i in range(20)], codes)
        table = index._tables.rows_name
    with psycopg.connect(vector_server.url) as db:
        stored = db.execute(f"SELECT code::text FROM {table} ORDER BY id").fetchall()
        plain = db.execute(
            f"SELECT bit_count(code # B'{'1' * 19}') FROM {table} ORDER BY id"
        ).fetchall()
    assert [text for (text,) in stored] == [
        "".join(map(str, bits)) for bits in np.unpackbits(codes, axis=1, count=19)
    ]
    assert [count for (count,) in plain] == (19 - np.unpackbits(codes, axis=1).sum(1)).tolist()


def test_info_says_how_distances_are_taken(url, plain_server):
    with ddh.index.open(url, bits=8) as index:
        assert index.info().details["distance"] == "pgvector <~>"
        assert index.info().disk_bytes > 0
    with ddh.index.open(f"{plain_server}#info", bits=8) as index:
        assert index.info().details["distance"] == "bit_count"
    with pytest.raises(DDHError, match="no pgvector"):
        ddh.index.open(f"{plain_server}#info", approximate=True)


def test_the_approximate_index_is_used_only_when_asked_for(url, vector_server):
    rng = np.random.default_rng(1)
    centres = random_codes(rng, 30, 64)
    noise = np.packbits(rng.random((1500, 64)) < 0.06, axis=1)
    codes = centres[rng.integers(0, 30, 1500)] ^ noise
    queries = codes[:20] ^ noise[20:40]
    keys = [f"k{i}" for i in range(1500)]
    oracle = Oracle(64)
    oracle.write(keys, codes)
    exact = oracle.search(queries, 10)
    with ddh.index.open(url, bits=64) as index:
        index.add(keys, codes, metadata=[{"half": i % 2} for i in range(1500)])
        assert index.info().details["approximate"] == "no"
    with ddh.index.open(url, approximate=True) as index:
        assert index.info().details["approximate"] == "HNSW"
        found = pairs(index.search(queries, 10, approximate=True))
        halves = index.search(queries[:3], 10, approximate=True, where={"half": 1})
    assert [len(answer) for answer in found] == [10] * 20
    assert all(answer == sorted(answer, key=lambda hit: hit[1]) for answer in found)
    near = [
        distance <= right[-1][1]
        for answer, right in zip(found, exact, strict=True)
        for _, distance in answer
    ]
    assert np.mean(near) >= 0.9
    assert all(len(answer) == 10 for answer in halves)
    assert all(hit.metadata == {"half": 1} for answer in halves for hit in answer)
    name = index._tables.hnsw_name.strip('"')
    assert scans_of(vector_server.url, name) >= 20
    before = scans_of(vector_server.url, name)
    with ddh.index.open(url) as index:
        assert pairs(index.search(queries, 10)) == exact
        assert pairs(index.search_radius(queries, 5)) == oracle.search_radius(queries, 5)
    assert scans_of(vector_server.url, name) == before


def scans_of(url: str, name: str) -> int:
    """How often an index was used, as the server counts it when a session ends."""
    with psycopg.connect(url, autocommit=True) as db:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ddh'"
        while db.execute(waiting).fetchone() != (0,):
            time.sleep(0.02)
        statement = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = %s"
        return db.execute(statement, (name,)).fetchone()[0]


def test_a_session_that_is_ended_in_the_middle_of_a_copy_is_retried(url, vector_server):
    """pg_terminate_backend while the rows are on their way: none is lost, none comes twice."""
    codes = random_codes(np.random.default_rng(2), 60_000, 64)
    keys = [f"k{i}" for i in range(60_000)]
    ended = []
    stop = threading.Event()

    def end_copies() -> None:
        with psycopg.connect(vector_server.url, autocommit=True) as db:
            while not stop.is_set() and len(ended) < 3:
                ended.extend(
                    db.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE state = 'active' AND query LIKE 'COPY%' AND application_name = 'ddh'"
                    ).fetchall()
                )
                time.sleep(0.02)

    with ddh.index.open(url, bits=64) as index:
        killer = threading.Thread(target=end_copies)
        killer.start()
        try:
            assert index.add(keys[:30_000], codes[:30_000]) == 30_000
            assert index.upsert(keys[20_000:], codes[20_000:]) == (30_000, 10_000)
        finally:
            stop.set()
            killer.join()
        assert ended, "no session was ended"
        assert len(index) == 60_000
        assert [row.key for row in index.items()] == keys[:20_000] + keys[20_000:]


class CuttingProxy:
    """Passes bytes on to a server, and cuts the client off right after it has sent COMMIT.

    The server still commits, but the client never hears of it.
    """

    def __init__(self, port: int, cuts: int) -> None:
        self.server_port, self.cuts = port, cuts
        self.listener = socket.create_server(("127.0.0.1", free_port()))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.server_port))
            threading.Thread(target=self._up, args=(client, server), daemon=True).start()
            threading.Thread(target=self._down, args=(server, client), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(65536):
                if b"COMMIT" in data and self.cuts:
                    self.cuts -= 1
                    client.shutdown(socket.SHUT_RDWR)
                    server.sendall(data)
                    client.close()
                    time.sleep(0.3)  # the server works on the commit meanwhile
                    break
                server.sendall(data)
        except OSError:
            pass
        server.close()

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(65536):
                client.sendall(data)
        except OSError:
            pass


def test_a_commit_that_nobody_heard_of_is_not_done_twice(url, vector_server):
    codes = random_codes(np.random.default_rng(3), 100, 32)
    keys = [f"k{i}" for i in range(100)]
    ddh.index.open(url, bits=32).close()
    proxy = CuttingProxy(vector_server.port, 0)
    with ddh.index.open(url.replace(str(vector_server.port), str(proxy.port))) as index:
        proxy.cuts = 1
        assert index.add(keys, codes) == 100
        assert proxy.cuts == 0
        proxy.cuts = 1
        assert index.upsert([*keys[:10], "new"], codes[:11]) == (1, 10)
        assert proxy.cuts == 0
        proxy.cuts = 1
        assert index.delete(keys[50:]) == 50
        assert proxy.cuts == 0
        expected = [*keys[10:50], *keys[:10], "new"]
        assert [row.key for row in index.items()] == expected
        with pytest.raises(InputError, match="already"):
            index.add(["new"], codes[:1])
    proxy.listener.close()


def test_a_server_that_stays_away_is_an_error_for_people(url, vector_server, monkeypatch):
    monkeypatch.setattr(connection, "ATTEMPTS", 2)
    with pytest.raises(DDHError, match=r"to postgresql://me:\*\*\*@127\.0\.0\.1"):
        ddh.index.open(f"postgresql://me:secret@127.0.0.1:{free_port()}/x", bits=8)
    with pytest.raises(InputError, match="letters, digits and underscores"):
        ddh.index.open(f"{vector_server.url}#drop table", bits=8)


def test_two_clients_may_make_the_same_index_at_once(url):
    made = []

    def make() -> None:
        with ddh.index.open(url, bits=16, model_id="m") as index:
            made.append(index.header)

    makers = [threading.Thread(target=make) for _ in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(made) == 4
    assert len(set(made)) == 1
