"""The local engine: its page file, its deletions, and several processes at once."""

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_oracle import Oracle, pairs, random_codes

import ddh.index
from ddh._core.errors import DDHError, InputError
from ddh.index import scan
from ddh.index.local_store import LocalStore
from ddh.index.pages import BLOCK_ROWS, PageFile

ROWS = 2 * BLOCK_ROWS + 500  # three blocks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "photos.index"


def fill(folder: Path, rows: int = ROWS, bits: int = 24) -> np.ndarray:
    codes = random_codes(np.random.default_rng(0), rows, bits)
    with ddh.index.open(folder, bits=bits) as index:
        index.add([f"k{i}" for i in range(rows)], codes)
    return codes


def page_file(folder: Path) -> Path:
    (only,) = folder.glob("codes-*.pages")
    return only


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)[0]
        stream.seek(at)
        stream.write(bytes([byte ^ 0x10]))


def test_the_page_file_is_the_codes_one_after_the_other(folder):
    codes = fill(folder)
    np.testing.assert_array_equal(np.fromfile(page_file(folder), np.uint8), codes.ravel())


@pytest.mark.parametrize("at", [0, 7, 3 * BLOCK_ROWS - 1, 3 * BLOCK_ROWS, 3 * ROWS - 1])
def test_a_flipped_byte_is_found_and_rebuilt(folder, at):
    codes = fill(folder)
    good = page_file(folder).read_bytes()
    flip(page_file(folder), at)
    row = at // 3
    with ddh.index.open(folder) as index:
        assert index.search(codes[row], 1)[0][0].distance == 0
        assert f"k{row}" in {hit.key for hit in index.search_radius(codes[row], 0)[0]}
    assert page_file(folder).read_bytes() == good


@pytest.mark.parametrize("damage", ["torn", "short", "empty", "gone", "longer", "other"])
def test_a_damaged_page_file_is_rebuilt(folder, damage):
    codes = fill(folder)
    path = page_file(folder)
    good = path.read_bytes()
    if damage == "torn":  # a page of zeros in the middle, as after a power cut
        path.write_bytes(good[:4096] + bytes(4096) + good[8192:])
    elif damage == "short":
        path.write_bytes(good[: len(good) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "gone":
        path.unlink()
    elif damage == "longer":
        path.write_bytes(good + b"left over from a write that was cut off")
    else:
        path.write_bytes(np.random.default_rng(9).bytes(len(good)))
    with ddh.index.open(folder) as index:
        assert pairs(index.search(codes[-1:], 1))[0][0][1] == 0
        index.add(["new"], codes[:1])
        assert "new" in {hit.key for hit in index.search_radius(codes[0], 0)[0]}
    assert path.read_bytes()[: len(good) + 3] == good + codes[0].tobytes()
    with ddh.index.open(folder) as index:
        assert len(index) == ROWS + 1


def test_a_sound_page_file_is_never_rebuilt(folder, monkeypatch):
    def rebuild(*arguments):
        raise AssertionError("a block was rebuilt")

    monkeypatch.setattr(LocalStore, "_rebuild", rebuild)
    rng = np.random.default_rng(5)
    for step, rows in enumerate([1, 7, BLOCK_ROWS - 8, 1, BLOCK_ROWS, 3 * BLOCK_ROWS + 5, 10]):
        codes = random_codes(rng, rows, 24)
        with ddh.index.open(folder, bits=24) as index, ddh.index.open(folder) as other:
            index.add([f"{step}-{i}" for i in range(rows)], codes)
            other.upsert([f"{step}-0", f"new-{step}"], codes[[0, 0]])
            index.delete([f"{step}-{rows - 1}"])
            if step == 4:
                other.compact()
            assert len(index.search(codes[0], 5)[0]) == min(5, len(other))


def test_damage_among_deleted_rows_does_not_bring_them_back(folder):
    codes = fill(folder, 1000)
    with ddh.index.open(folder) as index:
        index.delete([f"k{i}" for i in range(0, 1000, 3)])
    flip(page_file(folder), 0)
    with ddh.index.open(folder) as index:
        found = {row.key for row in index.items()}
        assert found == {f"k{i}" for i in range(1000) if i % 3}
        every = index.search_radius(np.zeros(3, np.uint8), 24)[0]
        assert {hit.key for hit in every} == found
        assert index.search(codes[1], 1)[0][0].distance == 0
    with ddh.index.open(folder) as index:  # the rebuilt block has its new checksum
        assert len(index.search(codes[1], 2000)[0]) == len(found)


def test_a_page_file_that_vanishes_while_open_is_made_again(folder):
    codes = fill(folder, 100)
    with ddh.index.open(folder) as one, ddh.index.open(folder) as other:
        page_file(folder).unlink()
        assert one.search(codes[5], 1)[0][0].key == "k5"  # still mapped
        one.add(["new"], codes[5:6])
        for index in (one, other):
            assert {hit.key for hit in index.search_radius(codes[5], 0)[0]} >= {"k5", "new"}
    assert page_file(folder).stat().st_size == 101 * 3


def test_compaction_keeps_every_answer_and_gives_room_back(folder):
    codes = fill(folder)
    queries = random_codes(np.random.default_rng(1), 4, 24)
    with ddh.index.open(folder) as index, ddh.index.open(folder) as other:
        index.delete([f"k{i}" for i in range(ROWS) if i % 10])
        before = index.search(queries, 50), index.search_radius(queries, 6)
        assert other.search(queries, 50) == before[0]
        large = index.info()
        assert large.deleted == ROWS - len(index)
        index.compact()
        small = index.info()
        assert small.deleted == 0
        assert small.disk_bytes < large.disk_bytes / 4
        assert (index.search(queries, 50), index.search_radius(queries, 6)) == before
        assert other.search(queries, 50) == before[0]
        assert page_file(folder).stat().st_size == 3 * len(index)
        other.add(["after"], codes[:1])
        assert "after" in {hit.key for hit in index.search_radius(codes[0], 0)[0]}
        index.compact()  # nothing to do


def test_a_compaction_that_was_cut_off_leaves_no_trace(folder):
    codes = fill(folder, 1000)
    with ddh.index.open(folder) as index:
        index.delete([f"k{i}" for i in range(500)])
        next_file = index._store.pages(2).path
        next_file.write_bytes(b"half of a new page file")
        index.compact()
        assert next_file.stat().st_size == 500 * 3
    stale = folder / "codes-000001.pages"  # what a kill right after the commit leaves behind
    stale.write_bytes(b"old")
    with ddh.index.open(folder) as index:
        assert index.search(codes[700], 1)[0][0].distance == 0
        assert not stale.exists()


def test_a_page_file_of_a_compaction_that_was_cut_off_goes_when_the_index_is_opened(folder):
    fill(folder, 100)
    left, other = folder / "codes-000002.pages", folder / "codes-mine.pages"
    for path in (left, other):
        path.write_bytes(b"half of a page file")
    with closing(sqlite3.connect(folder / "rows.sqlite", isolation_level=None)) as compacting:
        compacting.execute("BEGIN IMMEDIATE")
        ddh.index.open(folder).close()
        assert left.exists()  # another process may be writing it
    with ddh.index.open(folder) as index:
        assert not left.exists()
        assert other.exists()
        index.add(["new"], np.zeros((1, 3), np.uint8))


def test_a_full_disk_is_an_error_of_ours_and_the_handle_survives(folder):
    """The limit of a file's size stands for the disk; it hits the page file first."""
    resource = pytest.importorskip("resource")
    codes = fill(folder, 100)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ddh.index.open(folder) as index:
        for limit in (150_000, 60_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most[1]))
            try:
                with pytest.raises(DDHError, match=r"cannot be (written|used)"):
                    index.add(
                        [f"n{i}" for i in range(60_000)], np.repeat(codes[:1], 60_000, axis=0)
                    )
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, most)
            assert len(index) == 100
        index.add(["new"], codes[:1])
        assert len(index.search_radius(codes[0], 0)[0]) >= 2
    with ddh.index.open(folder) as index:
        assert len(index) == 101


def test_a_failed_write_changes_nothing(folder, monkeypatch):
    codes = fill(folder, 50)
    with ddh.index.open(folder) as index:
        monkeypatch.setattr(index, "_insert", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            index.add(["x"], codes[:1])
        with pytest.raises(ZeroDivisionError):
            index.upsert(["k1"], codes[:1])
        monkeypatch.undo()
        assert len(index) == 50
        index.add(["y"], ~codes[:1])
        assert pairs(index.search(~codes[:1], 1)) == [[("y", 0)]]
        assert index.get("k1").code.tolist() == codes[1].tolist()
    with ddh.index.open(folder) as index:
        assert [row.key for row in index.items()] == [*(f"k{i}" for i in range(50)), "y"]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_search_past_deleted_rows_equals_the_oracle(data):
    """The scan alone, over any pattern of deleted and chosen slots."""
    bits = data.draw(st.integers(1, 40))
    n = data.draw(st.integers(1, 120))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    codes = random_codes(rng, n, bits, 0.2)
    dead = rng.random(n) < data.draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    queries = random_codes(rng, 3, bits, 0.2)
    k = data.draw(st.integers(1, n + 2))
    radius = data.draw(st.integers(0, bits))
    oracle = Oracle(bits)
    live = np.flatnonzero(~dead)
    oracle.write([str(slot) for slot in live], codes[live])
    out = scan.Tombstones(np.packbits(dead), n, int(dead.sum()))
    found = scan.nearest(queries, codes, k, out)
    assert listed(zip(*found, strict=True)) == oracle.search(queries, k)
    assert listed(scan.within(queries, codes, radius, out)) == oracle.search_radius(queries, radius)
    chunks = np.array_split(live, 3)
    found = scan.nearest_among(queries, codes, k, chunks)
    assert listed(zip(*found, strict=True)) == oracle.search(queries, k)
    found = scan.within_among(queries, codes, radius, chunks)
    assert listed(found) == oracle.search_radius(queries, radius)
    out = scan.Tombstones.of_all_but(live, n)
    assert (out.dead, np.concatenate(list(out.live())).tolist()) == (dead.sum(), live.tolist())


def listed(answers):
    return [
        [(str(slot), int(distance)) for distance, slot in zip(*answer, strict=True)]
        for answer in answers
    ]


def test_a_thousand_deleted_copies_do_not_hide_the_live_one(folder, monkeypatch):
    """Upserts of one key leave dead rows at distance 0; both ways past them are taken."""
    code = np.array([[1, 2, 3]], np.uint8)
    with ddh.index.open(folder, bits=24) as index:
        index.add([f"other{i}" for i in range(3000)], np.repeat(~code, 3000, axis=0))
        for _ in range(300):
            index.upsert(["same"], code)
        index.add(["far"], ~code ^ 1)
        expected = [("same", 0), ("far", 21)]
        assert pairs(index.search(code, 2)) == [expected]
        monkeypatch.setattr(scan, "DEEPEST", 4)
        assert pairs(index.search(code, 2)) == [expected]


def test_two_processes_adding_at_once_lose_nothing(folder):
    ddh.index.open(folder, bits=32).close()
    script = """
import sys, numpy as np, ddh.index
name, folder = sys.argv[1:]
rng = np.random.default_rng(int(name))
with ddh.index.open(folder) as index:
    for batch in range(40):
        keys = [f"{name}-{batch}-{i}" for i in range(25)]
        index.add(keys, np.stack([np.frombuffer(hash_of(k), np.uint8) for k in keys]))
""".replace("hash_of(k)", "__import__('hashlib').blake2b(k.encode(), digest_size=4).digest()")
    writers = [
        subprocess.Popen([sys.executable, "-c", script, name, folder], stderr=subprocess.PIPE)
        for name in "12"
    ]
    for writer in writers:
        assert writer.wait(120) == 0, writer.stderr.read().decode()
    import hashlib

    with ddh.index.open(folder) as index:
        rows = list(index.items())
        assert {row.key for row in rows} == {
            f"{name}-{batch}-{i}" for name in "12" for batch in range(40) for i in range(25)
        }
        for row in rows:
            assert row.code.tobytes() == hashlib.blake2b(row.key.encode(), digest_size=4).digest()
        np.testing.assert_array_equal(
            np.fromfile(page_file(folder), np.uint8).reshape(-1, 4), [row.code for row in rows]
        )


def test_places_that_are_no_index_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        ddh.index.open(tmp_path / "file", bits=8)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "photo.jpg").write_text("x")
    with pytest.raises(InputError, match="other things in it"):
        ddh.index.open(tmp_path / "folder", bits=8)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "rows.sqlite").write_text("this is no database at all" * 100)
    with pytest.raises(DDHError, match="not a sound SQLite database"):
        ddh.index.open(tmp_path / "bad", bits=8)
    with pytest.raises(InputError, match="1 to 4096 bits"):
        ddh.index.open(tmp_path / "new", bits=5000)
    assert not (tmp_path / "new").exists()


def test_an_index_of_a_later_format_is_refused(folder):
    fill(folder, 1)
    db = sqlite3.connect(folder / "rows.sqlite")
    db.execute("UPDATE facts SET value = '99' WHERE name = 'format'")
    db.commit()
    db.close()
    with pytest.raises(InputError, match="format 99"):
        ddh.index.open(folder)


def test_searching_never_imports_torch(folder):
    fill(folder, 10)
    script = """
import sys
import ddh.index
from ddh.duplicates import find_groups
with ddh.index.open(sys.argv[1]) as index:
    code = next(index.items()).code
    assert index.search(code, 3)[0][0].distance == 0
    assert index.search_radius(code, 0)
    find_groups(index, 2)
assert "torch" not in sys.modules
assert "sklearn" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, folder], check=True)


@pytest.mark.parametrize("raised", [OSError, KeyboardInterrupt])
def test_a_handle_survives_an_error_at_the_start_of_a_transaction(folder, monkeypatch, raised):
    with ddh.index.open(folder, bits=16) as index:
        index.add(["a"], random_codes(np.random.default_rng(0), 1, 16))
        for call in (lambda: len(index), lambda: index.delete(["a"])):
            with monkeypatch.context() as patch:
                patch.setattr(LocalStore, "_look", lambda store: (_ for _ in ()).throw(raised()))
                with pytest.raises(DDHError if raised is OSError else raised):
                    call()
            assert len(index) == 1
            with ddh.index.open(folder) as other:  # no lock is left behind
                other.set_setting(name="value")
        index.add(["b"], random_codes(np.random.default_rng(1), 1, 16))
        assert len(index) == 2


def test_a_relative_path_survives_a_change_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ddh.index.open("a.index", bits=16) as index:
        os.chdir("/")
        index.add(["a"], random_codes(np.random.default_rng(0), 1, 16))
        assert [row.key for row in index.items()] == ["a"]
        assert index.info().disk_bytes > 0
        assert index.location == str(tmp_path / "a.index")


def test_a_missing_index_is_an_error_of_its_own_type(tmp_path):
    with pytest.raises(ddh.index.IndexNotFound, match="there is no index at"):
        ddh.index.open(tmp_path / "a.index", create=False)


def test_a_deep_page_reads_only_its_own_rows(tmp_path, monkeypatch):
    codes = np.random.default_rng(0).integers(0, 256, (1000, 8), dtype=np.uint8)
    with ddh.index.open(tmp_path / "i", bits=64) as index:
        index.add([str(i) for i in range(1000)], codes)
        read = []
        monkeypatch.setattr(ddh.index.local, "read_metadata", lambda stored: read.append(1) or {})
        assert len(index.search(codes[:3], 5, offset=900)[0]) == 5
        assert len(read) == 15


def test_an_index_that_cannot_be_written_is_searched(tmp_path, monkeypatch):
    codes = np.random.default_rng(0).integers(0, 256, (50, 8), dtype=np.uint8)
    with ddh.index.open(tmp_path / "i", bits=64) as index:
        index.add([str(i) for i in range(50)], codes)
        index.delete(["7"])
        expected = pairs(index.search(codes, 5))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    before = sorted((tmp_path / "i").iterdir())
    with ddh.index.open(tmp_path / "i") as index:
        assert pairs(index.search(codes, 5)) == expected
        assert len(list(index.items())) == 49
        assert sorted((tmp_path / "i").iterdir()) == before  # no log, no shared memory
        with pytest.raises(DDHError, match="readonly"):
            index.set_setting(x="y")


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path, monkeypatch):
    def full(self, slot, codes):
        raise OSError(errno.ENOSPC, "No space left on device")

    with ddh.index.open(tmp_path / "i", bits=8) as index:
        index.add(["a"], np.zeros((1, 1), np.uint8))
        with monkeypatch.context() as patch:
            patch.setattr(PageFile, "write", full)
            with pytest.raises(DDHError, match="No space left"):
                index.add(["b"], np.zeros((1, 1), np.uint8))
        index.add(["c"], np.zeros((1, 1), np.uint8))
        assert [row.key for row in index.items()] == ["a", "c"]
