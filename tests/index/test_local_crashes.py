"""kill -9 in the middle of writing: every acknowledged row is there afterwards, and no half row.

A child process writes and tells after each call what it has done; it is killed at a random
moment. 12 kills in an ordinary run, 50 with DDH_SLOW=1.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import ddh.index
from ddh.index.check import check as check_files

KILLS = 50 if os.environ.get("DDH_SLOW") else 12
BITS = 128

CHILD = """
import hashlib, json, random, sys
import numpy as np
import ddh.index

folder, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)

def code(key, version):
    made = hashlib.blake2b(f"{key} {version}".encode(), digest_size=16)
    return np.frombuffer(made.digest(), np.uint8)

def tell(**done):
    print(json.dumps(done), flush=True)

with ddh.index.open(folder, bits=128) as index:
    tell(ready=1)
    for step in range(10**6):
        size = rng.choice([1, 10, 1000, 20000])
        keys = [f"{seed}-{step}-{i}" for i in range(size)]
        metadata = [{"version": 0} for _ in keys]
        tell(doing="write", keys=[keys[0], size], version=0)
        index.add(keys, np.stack([code(key, 0) for key in keys]), metadata=metadata)
        tell(done="write", keys=[keys[0], size], version=0)
        some = keys[: 1 + size // 3]
        tell(doing="write", keys=[keys[0], len(some)], version=1)
        codes = np.stack([code(key, 1) for key in some])
        index.upsert(some, codes, metadata=[{"version": 1}] * len(some))
        tell(done="write", keys=[keys[0], len(some)], version=1)
        gone = keys[: 1 + size // 5]
        tell(doing="delete", keys=[keys[0], len(gone)])
        index.delete(gone)
        tell(done="delete", keys=[keys[0], len(gone)])
        if rng.random() < 0.1:
            index.compact()
"""


MAKER = """
import sys
import numpy as np
import ddh.index

print("ready", flush=True)
for number in range(10**6):
    with ddh.index.open(f"{sys.argv[1]}/{number}", bits=8) as index:
        index.add(["a"], np.zeros((1, 1), np.uint8))
"""


def code_of(key: str, version: int) -> bytes:
    return hashlib.blake2b(f"{key} {version}".encode(), digest_size=16).digest()


def names(first: str, size: int) -> list[str]:
    stem = first.rpartition("-")[0]
    return [f"{stem}-{i}" for i in range(size)]


def killed_run(folder: Path, seed: int, seconds: float) -> list[dict]:
    """What a child told before it was killed, `seconds` after it began to write."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, folder, str(seed)], stdout=subprocess.PIPE, text=True
    )
    assert json.loads(child.stdout.readline()) == {"ready": 1}
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    told = child.stdout.read().splitlines()
    assert child.wait() == -signal.SIGKILL
    return [json.loads(line) for line in told if line.endswith("}")]


def apply(state: dict[str, int], told: dict) -> None:
    for key in names(*told["keys"]):
        if "delete" in told.values():
            state.pop(key, None)
        else:
            state[key] = told["version"]


def test_no_acknowledged_row_is_lost_and_no_row_is_half_there(tmp_path):
    folder = tmp_path / "photos.index"
    rng = random.Random(3)
    state: dict[str, int] = {}  # key -> version of everything acknowledged
    cut_off = 0
    for kill in range(KILLS):
        told = killed_run(folder, kill, rng.uniform(0.0, 0.5))
        for line in told:
            if "done" in line:
                apply(state, line)
        last = told[-1] if told and "doing" in told[-1] else None
        cut_off += last is not None
        state = check(folder, state, last)
    print(f"{cut_off} of {KILLS} kills hit a write")
    assert cut_off >= KILLS // 4, "too few kills hit a write"


def check(folder: Path, state: dict[str, int], last: dict | None) -> dict[str, int]:
    """The index holds the acknowledged state, or that with the last write done as a whole."""
    with ddh.index.open(folder) as index:
        rows = {row.key: row for row in index.items()}
        found = {key: row.metadata["version"] for key, row in rows.items()}
        if last is not None and found != state:
            state = dict(state)
            apply(state, last)
        assert found == state
        for key, row in rows.items():
            assert row.code.tobytes() == code_of(key, found[key])
        assert len(index) == len(rows)
        check_pages(folder, index, rows)
    found = check_files(folder)
    assert (found.rows, found.problems) == (len(rows), [])
    return state


def check_pages(folder: Path, index: ddh.index.Index, rows: dict) -> None:
    """The page file finds what the rows say: all of them, and a sample one by one."""
    every = index.search_radius(np.zeros(BITS // 8, np.uint8), BITS)[0]
    distances = {key: int(np.unpackbits(row.code).sum()) for key, row in rows.items()}
    assert {hit.key: hit.distance for hit in every} == distances
    some = list(rows)[:: max(1, len(rows) // 50)]
    if some:
        for key, hits in zip(some, index.search([rows[key].code for key in some], 1), strict=True):
            assert (hits[0].key, hits[0].distance) == (key, 0)


def test_a_kill_while_an_index_is_made_leaves_nothing_to_repair(tmp_path):
    rng = random.Random(4)
    for kill in range(KILLS // 4):
        folder = tmp_path / str(kill)
        child = subprocess.Popen([sys.executable, "-c", MAKER, folder], stdout=subprocess.PIPE)
        child.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.3))
        child.kill()
        child.wait()
        made = sorted(folder.iterdir(), key=lambda path: int(path.name)) if folder.exists() else []
        for path in made:
            with ddh.index.open(path, bits=8) as index:
                assert len(index) == 1 or path == made[-1]
                index.upsert(["a", "b"], np.zeros((2, 1), np.uint8))
                assert len(index.search(np.zeros(1, np.uint8), 5)[0]) == 2
