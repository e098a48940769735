"""`ddh_hamming` in SQLite (from Python, and as a loadable extension) and in DuckDB."""

import shutil
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ddh import codes

EXTENSION = Path(__file__).parents[2] / "examples" / "sqlite_hamming.c"
QUERY = "SELECT id FROM photos ORDER BY ddh_hamming(code, ?), id LIMIT 10"


@pytest.fixture
def rows():
    return np.random.default_rng(0).integers(0, 256, (500, 11), dtype=np.uint8)


def fill(db, rows):
    db.execute("CREATE TABLE photos (id INTEGER, code BLOB)")
    db.executemany(
        "INSERT INTO photos VALUES (?, ?)", [(i, r.tobytes()) for i, r in enumerate(rows)]
    )


def test_sqlite(rows):
    db = sqlite3.connect(":memory:")
    codes.register_sqlite(db)
    fill(db, rows)
    found = [row for (row,) in db.execute(QUERY, (rows[3].tobytes(),))]
    assert found == codes.search(rows[3:4], rows, 10).indices[0].tolist()
    assert db.execute("SELECT ddh_hamming(NULL, x'00')").fetchone() == (None,)
    with pytest.raises(sqlite3.OperationalError):
        db.execute("SELECT ddh_hamming(x'0000', x'00')").fetchone()


@pytest.mark.skipif(
    not (
        shutil.which("cc")
        and shutil.which("sqlite3")
        and Path("/usr/include/sqlite3ext.h").exists()
    ),
    reason="needs a C compiler, SQLite's header and its shell",
)
def test_loadable_extension(tmp_path, rows):
    built = tmp_path / "ddh_hamming.so"
    command = ["cc", "-O2", "-Wall", "-Werror", "-fPIC", "-shared", EXTENSION, "-o", built]
    subprocess.run(command, check=True)
    with sqlite3.connect(tmp_path / "photos.db") as db:
        fill(db, rows)

    def ask(sql):
        shell = ["sqlite3", tmp_path / "photos.db", f".load {built}", sql]
        return subprocess.run(shell, capture_output=True, text=True)

    asked = ask(QUERY.replace("?", f"x'{rows[3].tobytes().hex()}'"))
    assert (
        list(map(int, asked.stdout.split()))
        == codes.search(rows[3:4], rows, 10).indices[0].tolist()
    )
    assert ask("SELECT ddh_hamming(NULL, x'00') IS NULL").stdout == "1\n"
    assert "one length" in ask("SELECT ddh_hamming(x'0000', x'00')").stderr


def test_duckdb(rows):
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    db = duckdb.connect()
    codes.register_duckdb(db)
    fill(db, rows)
    found = [row for (row,) in db.execute(QUERY, [rows[3].tobytes()]).fetchall()]
    assert found == codes.search(rows[3:4], rows, 10).indices[0].tolist()
    nothing = "SELECT ddh_hamming(code, NULL::BLOB) FROM photos LIMIT 1"
    assert db.execute(nothing).fetchone() == (None,)
    with pytest.raises(duckdb.Error, match="one length"):
        db.execute("SELECT ddh_hamming(code, ?) FROM photos", [b"0"]).fetchall()
