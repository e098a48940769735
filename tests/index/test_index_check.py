"""`ddh index check`: damage is found and named, and a repair keeps every sound row."""

import json
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from index_oracle import random_codes

import ddh.index
from ddh._core.errors import DDHError, InputError
from ddh.cli import cli
from ddh.index import FileStamp
from ddh.index.check import check

ROWS = 400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "photos.index"
    codes = random_codes(np.random.default_rng(0), ROWS, 64)
    with ddh.index.open(folder, bits=64, model_id="m") as index:
        keys = [f"k{i:04d}" for i in range(ROWS)]
        stamps = [FileStamp(10**18 + i, i, None) for i in range(ROWS)]
        metadata = [{"mark": f"mark {i:04d}"} for i in range(ROWS)]
        index.add(keys, codes, paths=keys, stamps=stamps, metadata=metadata)
        index.delete(keys[::7])
        index.upsert(keys[:5], codes[:5], metadata=[{"again": True}] * 5)
        index.set_setting(model="photos.ddh")
    with closing(sqlite3.connect(folder / "rows.sqlite")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder


def rows_of(folder: Path) -> dict:
    with ddh.index.open(folder) as index:
        return {
            row.key: (row.code.tobytes(), row.path, row.stamp, row.metadata)
            for row in index.items()
        }


def change(folder: Path, before: bytes, after: bytes, name: str = "rows.sqlite") -> None:
    content = (folder / name).read_bytes()
    assert content.count(before) == 1
    (folder / name).write_bytes(content.replace(before, after))


def test_a_sound_index_has_no_problems(folder):
    expected = len(rows_of(folder))
    for _ in range(2):
        found = check(folder)
        assert (found.rows, found.problems, found.lost) == (expected, [], [])
        with ddh.index.open(folder) as index:
            index.compact()
    assert check(folder, repair=True).damaged_copy is None


def test_metadata_that_was_changed_is_found_and_its_row_dropped(folder):
    before = rows_of(folder)
    change(folder, b"mark 0100", b"mark 0900")
    assert check(folder).lost == ["k0100"]
    found = check(folder, repair=True)
    assert found.damaged_copy == f"{folder}.damaged"
    del before["k0100"]
    assert rows_of(folder) == before
    assert check(folder).problems == []
    with ddh.index.open(folder) as index:
        assert index.settings() == {"model": "photos.ddh"}
        assert index.model_id == "m"
    with pytest.raises(InputError, match="in the way"):
        check(folder, repair=True)


def test_a_code_comes_back_from_the_page_file(folder):
    before = rows_of(folder)
    code = before["k0100"][0]
    change(folder, code, bytes(8))
    found = check(folder, repair=True)
    assert found.lost == []
    assert any("k0100" in problem for problem in found.problems)
    assert rows_of(folder) == before


def test_a_damaged_page_file_is_reported(folder):
    before = rows_of(folder)
    change(folder, before["k0100"][0], bytes(8), "codes-000001.pages")
    assert check(folder).problems == ["damaged blocks of the page file: 1"]
    assert rows_of(folder) == before  # opening rebuilds it
    assert check(folder).problems == []


def test_an_index_of_an_earlier_version_has_no_checksums(folder):
    with closing(sqlite3.connect(folder / "rows.sqlite")) as db:
        db.execute("ALTER TABLE rows DROP COLUMN checksum")
    before = rows_of(folder)
    found = check(folder)
    assert (found.rows, found.unchecked, found.problems) == (len(before), len(before), [])
    with ddh.index.open(folder) as index:
        index.add(["new"], np.zeros((1, 8), np.uint8))
        index.compact()
    assert check(folder).unchecked == len(before)
    assert rows_of(folder).keys() == before.keys() | {"new"}


@pytest.fixture
def with_features(folder: Path) -> Path:
    """The same rows in an index that stores features."""
    found = folder.with_name("features.index")
    rows = rows_of(folder)
    features = np.random.default_rng(1).standard_normal((len(rows), 20)).astype(np.float32)
    codes = np.array([np.frombuffer(row[0], np.uint8) for row in rows.values()])
    with ddh.index.open(found, bits=64, features=12) as index:
        index.add(list(rows), codes, features=features, metadata=[row[3] for row in rows.values()])
        index.delete(list(rows)[3:9])
        index.upsert(list(rows)[:2], codes[:2], features=features[:2])
    with closing(sqlite3.connect(found / "rows.sqlite")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return found


def features_of(folder: Path) -> dict[str, bytes]:
    keys = list(rows_of(folder))
    with ddh.index.open(folder) as index:
        return dict(zip(keys, map(bytes, index.features(keys).view(np.uint8)), strict=True))


def test_a_repair_keeps_features_with_their_rows(with_features):
    rows, features = rows_of(with_features), features_of(with_features)
    assert check(with_features).problems == []
    change(with_features, b"mark 0100", b"mark 0900")
    assert check(with_features, repair=True).lost == ["k0100"]
    del rows["k0100"], features["k0100"]
    assert rows_of(with_features) == rows
    assert features_of(with_features) == features
    assert check(with_features).problems == []


@pytest.mark.parametrize("damage", ["changed", "shorter", "missing", "stray"])
def test_a_row_without_its_features_is_no_sound_row(with_features, damage):
    features = features_of(with_features)
    with closing(sqlite3.connect(with_features / "rows.sqlite")) as db, db:
        (row_id,) = db.execute("SELECT id FROM rows WHERE key = 'k0101'").fetchone()
        if damage in ("changed", "shorter"):
            value = features["k0101"][:-1] + (b"\x01" if damage == "changed" else b"")
            db.execute("UPDATE features SET value = ? WHERE id = ?", (value, row_id))
        elif damage == "missing":
            db.execute("DELETE FROM features WHERE id = ?", (row_id,))
        else:
            db.execute("INSERT INTO features VALUES (9999, ?)", (features["k0101"],))
    if damage == "shorter":
        with ddh.index.open(with_features) as index, pytest.raises(DDHError, match="is damaged"):
            index.features(["k0101"])
    found = check(with_features, repair=True)
    assert found.lost == ([] if damage == "stray" else ["k0101"])
    assert found.problems
    for key in found.lost:
        del features[key]
    assert features_of(with_features) == features
    assert check(with_features).problems == []


def test_features_whose_projection_is_lost_are_beyond_repair(with_features):
    with closing(sqlite3.connect(with_features / "rows.sqlite")) as db, db:
        db.execute("UPDATE settings SET value = 'AAAA' WHERE name LIKE 'features_transform%'")
    with ddh.index.open(with_features) as index, pytest.raises(DDHError, match="projection"):
        index.search(np.zeros((1, 8), np.uint8), 1, features=np.zeros((1, 20), np.float32))
    assert "projection" in check(with_features).problems[0]
    for _ in range(2):  # nothing is left in the way of the next attempt
        with pytest.raises(DDHError, match="projection"):
            check(with_features, repair=True)


def use(folder: Path) -> None:
    """What a service does with an index."""
    with ddh.index.open(folder) as index:
        index.search(np.zeros((1, 8), np.uint8), 500)
        index.search_radius(np.zeros((1, 8), np.uint8), 64)
        index.search(np.zeros((1, 8), np.uint8), 5, where={"again": True})
        list(index.items())
        index.get("k0101")
        index.info()
        features = index.features(["k0101"]) if index.header.features else None
        index.upsert(["k0101"], np.zeros((1, 8), np.uint8), features=features)
        index.compact()


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_is_our_error_and_what_is_recovered_is_true(
    folder, with_features, tmp_path, seed
):
    rng = random.Random(seed)
    folder = with_features if seed % 4 == 3 else folder
    before = rows_of(folder)
    path = folder / "rows.sqlite"
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 8])):
        at = rng.randrange(100, len(content))  # beyond the name of the format
        size = rng.choice([1, 1, 16, 4096])
        content[at : at + size] = rng.choice([bytes(size), rng.randbytes(size)])
    path.write_bytes(content)
    shutil.copytree(folder, tmp_path / "used")
    with suppress(DDHError):
        use(tmp_path / "used")
    try:
        found = check(folder, repair=True)
    except DDHError:
        return  # not even what kind of index it was can be read
    after = rows_of(folder)
    assert check(folder).problems == []
    if found.damaged_copy is None:
        assert after == before
    assert after.items() <= before.items()
    assert len(after) == found.rows


def test_damage_to_the_log_is_our_error_or_loses_the_last_writes_only(folder, tmp_path):
    with ddh.index.open(folder) as index:
        for i in range(20):
            index.add([f"log{i:02d}"], np.zeros((1, 8), np.uint8))
        shutil.copytree(folder, tmp_path / "copied")
    log = (tmp_path / "copied" / "rows.sqlite-wal").read_bytes()
    rng = random.Random(5)
    for number in range(20):
        copy = tmp_path / str(number)
        shutil.copytree(tmp_path / "copied", copy)
        content = bytearray(log)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (copy / "rows.sqlite-wal").write_bytes(content)
        with suppress(DDHError):
            late = sorted(key for key in rows_of(copy) if key.startswith("log"))
            assert late == [f"log{i:02d}" for i in range(len(late))]
            assert check(copy).problems == []


def test_the_command(folder, tmp_path):
    run = CliRunner().invoke(cli, ["index", "check", str(folder), "--json"])
    assert (run.exit_code, json.loads(run.stdout)["problems"]) == (0, [])
    change(folder, b"mark 0100", b"mark 0900")
    run = CliRunner().invoke(cli, ["index", "check", str(folder)])
    assert run.exit_code == 1
    assert "Lost: k0100" in run.stdout
    run = CliRunner().invoke(cli, ["index", "check", str(folder), "--repair"])
    assert run.exit_code == 0
    assert "Repaired" in run.stdout
    with pytest.raises(InputError, match="not a local index"):
        check(tmp_path / "none")


@pytest.mark.parametrize("stamp", [FileStamp(2**63, 1), FileStamp(1, -(2**63) - 1)])
def test_a_stamp_beyond_64_bits_is_refused(folder, stamp):
    with ddh.index.open(folder) as index, pytest.raises(InputError, match="64 bits"):
        index.upsert(["x"], np.zeros((1, 8), np.uint8), stamps=[stamp])
