"""Names, dates, details, tags, saved searches, and what only this machine may ask for."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

import ddh._core.jobs
import ddh.index
from ddh._core.errors import InputError
from ddh.index import FileStamp
from ddh.serve import Settings, names
from ddh.serve.catalog import build_catalog
from ddh.serve.find import Finder, Selection, months

ROWS = [
    ("Albums/Lisbon/IMG_1.jpg", {"taken": "2019-05-03T10:00:00", "camera": "Canon 5D"}),
    ("Albums/Paris/IMG_2.jpg", {"taken": "2020-05-31T23:59:59", "camera": "Canon 5D", "stars": 3}),
    ("Phone/ÄRGER.jpg", {"taken": "2020-06-01T00:00:00", "stars": 3.0, "good": True}),
    ("Phone/scan.png", {"taken": "no date", "labels": ["red", "car"]}),
]


@pytest.fixture
def index(tmp_path):
    with ddh.index.open(tmp_path / "n.index", bits=8) as index:
        keys = [key for key, _ in ROWS]
        stamps = [None, None, None, FileStamp(1_500_000_000_000_000_000, 5)]
        codes = np.arange(4, dtype=np.uint8)[:, None]
        index.add(keys, codes, paths=keys, stamps=stamps, metadata=[m for _, m in ROWS])
        yield index


@pytest.fixture
def found(index):
    """The positions of what a selection finds."""
    catalog, finder = build_catalog(index), Finder(index)

    def rows(tags=None, **selection):
        return finder.rows(catalog, Selection(**selection), tags or {}).tolist()

    return rows


def test_every_word_must_be_in_the_name_folder_date_or_metadata(found):
    assert found() == [0, 1, 2, 3]
    assert found(text="IMG canon") == [0, 1]
    assert found(text="lisbon 2019") == [0]
    assert found(text="2020 may") == [1]
    assert found(text="ärger") == found(text="ÄRGER".lower()) == [2]
    assert found(text="car") == [3]
    assert found(text='"canon 5d"') == [0, 1]
    assert found(text='"5d canon"') == []
    assert found(text="img_1 img_2") == []  # of two rows


def test_tags_folders_metadata_and_dates_narrow(found):
    tags = {"best": ["Phone/scan.png", "Albums/Paris/IMG_2.jpg", "gone.jpg"]}
    assert found(tags, text="#best") == [1, 3]
    assert found(tags, text="#best paris") == [1]
    assert found(tags, text="#nobody") == []
    assert found(tags, text="#best best") == []  # one is a tag, the other a word
    assert found(tags, text="# scan") == []  # a word of one sign
    assert found(folder="Albums") == [0, 1]
    assert found(folder="Alb") == []
    assert found(where=(("stars", 3),)) == [1, 2]
    assert found(where=(("good", True),)) == [2]
    assert found(where=(("good", 1),)) == []
    assert found(where=(("taken", "2020-06-01T00:00:00"),)) == [2]  # no category
    assert found(since="2020", until="2020-05") == [1]
    assert found(since="2020-06-01", until="2020-06-01") == [2]
    assert found(until="2017") == [3]  # the camera says no date: the file does
    with pytest.raises(InputError, match="2024-05"):
        found(since="2020-13")


def test_a_value_among_too_many_for_a_category_is_found_exactly(tmp_path):
    with ddh.index.open(tmp_path / "many.index", bits=16) as index:
        keys, codes = [f"{i}.jpg" for i in range(300)], np.zeros((300, 2), np.uint8)
        index.add(keys, codes, metadata=[{"number": i} for i in range(300)])
        catalog = build_catalog(index)
        assert "number" not in catalog.categories
        wanted = Selection(where=(("number", 12),))  # and not 120 to 129
        assert Finder(index).rows(catalog, wanted, {}).tolist() == [12]


def test_orders_by_date_and_name_and_months(index, found):
    assert found(order="newest") == [2, 1, 0, 3]
    assert found(order="oldest") == [3, 0, 1, 2]
    assert found(order="name", folder="Phone") == [3, 2]
    counted = months(build_catalog(index), np.arange(4))
    assert counted == [("2017-07", 1), ("2019-05", 1), ("2020-05", 1), ("2020-06", 1)]


@pytest.mark.parametrize("compiled", [True, False])
def test_packed_texts_are_searched_as_python_does(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(names, "native", None)
    elif names.native is None:
        pytest.skip("the native search is not built")
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcä "), rng.integers(0, 30))) for _ in range(500)]
    packed = names.PackedTexts()
    for text in texts:
        packed.append(text)
    assert list(packed) == texts
    assert packed[3:5] == texts[3:5]
    for _ in range(200):
        words = [
            "".join(rng.choice(list("abcä "), n)) for n in rng.integers(1, 5, rng.integers(1, 4))
        ]
        expected = [i for i, text in enumerate(texts) if all(word in text for word in words)]
        assert packed.rows_with(words).tolist() == expected


def test_find_pages_and_follows_what_is_written(place):
    with place.open(writable=True) as client:
        page = client.get("/find?text=wild&limit=3&order=name").json()
        assert page["total"] == 14
        assert page["next"] == 3
        rest = client.get("/find?text=wild&limit=20&offset=3&order=name").json()
        keys = [item["key"] for item in page["items"] + rest["items"]]
        assert keys == sorted(key for key in place.rows() if "wild" in key)
        assert rest["next"] is None
        row = {"key": "a new wild one", "code": "00000000", "metadata": {"taken": "2001-02-03"}}
        assert client.post("/items", json=row).status_code == 201
        deadline = time.monotonic() + 60
        while client.get("/find?text=wild").json()["total"] != 15:
            assert time.monotonic() < deadline
        months = client.get("/timeline?text=wild").json()["months"]
        assert months[0] == {"month": "2001-02", "rows": 1}
        assert client.get("/find?since=yesterday").status_code == 422


def test_details_read_the_file_and_hide_its_path_from_others(place):
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "Canon", "Canon EOS 5D"
    file = place.photos / "plants" / "00.png"
    Image.open(file).save(file, exif=exif)
    with place.open() as client:
        told = client.get("/details/plants/00.png").json()
        assert (told["width"], told["height"], told["camera"]) == (64, 48, "Canon EOS 5D")
        assert told["file"] == str(file)
        assert told["bytes"] == file.stat().st_size
        keys = {"keys": ["plants/00.png", "no such key"]}
        assert client.post("/paths", json=keys).json() == {"paths": [str(file)]}
        assert client.get("/details/none").status_code == 404
    with place.open(hosts=("localhost", "example.org")) as client:
        assert client.get("/details/plants/00.png").json()["file"] is None
        assert client.post("/paths", json=keys).json() == {"paths": ["plants/00.png"]}


def test_tags_and_searches_stay_with_the_index(place):
    keys = list(place.rows())[:3]
    with place.open(writable=True) as client:
        sent = {"keys": keys, "add": ["#Best ones", "sea"], "remove": []}
        assert client.post("/tags", json=sent).status_code == 204
        client.post("/tags", json={"keys": keys[:1], "remove": ["sea"]})
        assert client.post("/tags", json={"keys": keys, "add": ["#"]}).status_code == 422
        saved = {"name": " by  the sea ", "address": "#/search?q=%23sea"}
        assert client.post("/searches", json=saved).status_code == 200
    with place.open() as client:
        tags = client.get("/tags").json()["tags"]
        assert tags == [{"name": "best-ones", "rows": 3}, {"name": "sea", "rows": 2}]
        assert client.get("/find?text=%23sea").json()["total"] == 2
        assert client.get(f"/details/{keys[0]}").json()["tags"] == ["best-ones"]
        searches = client.get("/searches").json()["searches"]
        assert searches == [{"name": "by the sea", "address": "#/search?q=%23sea"}]
        assert client.post("/tags", json=sent).status_code == 403
        assert client.post("/searches", json=saved).status_code == 403
    with place.open(writable=True) as client:  # a tag counts the rows that there are
        assert client.delete(f"/items/{keys[1]}").status_code == 204
        tags = client.get("/tags").json()["tags"]
        assert tags == [{"name": "best-ones", "rows": 2}, {"name": "sea", "rows": 1}]
        client.delete(f"/items/{keys[2]}")
        assert client.get("/tags").json()["tags"] == [{"name": "best-ones", "rows": 1}]
    with ddh.index.open(place.index) as index:
        assert not any(name.startswith("page_") for name in index.info().settings)
    with place.open(writable=True) as client:
        assert client.post("/searches", json={"name": "by the sea"}).json() == {"searches": []}


@pytest.mark.parametrize(
    ("settings", "status"),
    [({}, 403), ({"writable": True, "hosts": ()}, 403), ({"writable": True}, 404)],
)
def test_this_machine_is_shown_only_to_itself_and_only_if_writable(place, settings, status):
    with place.open(**settings) as client:
        assert client.post("/files/open/none").status_code == status
        assert client.post("/jobs/none/stop").status_code == status
        assert client.delete("/jobs/none").status_code == status
        listed = client.get("/folders", params={"path": str(place.photos)})
        started = client.post("/jobs", json={"folder": "relative"})
        if status == 403:
            assert (listed.status_code, started.status_code) == (403, 403)
        else:
            assert listed.json()["folders"] == ["animals", "copies", "plants"]
            assert started.status_code == 422


def test_only_pictures_are_opened(place, monkeypatch):
    launched = []
    monkeypatch.setattr("click.launch", lambda file, locate: launched.append((file, locate)))
    (place.photos / "evil.desktop").write_text("[Desktop Entry]")
    row = {"key": "evil", "code": "00000000", "path": "evil.desktop"}
    with place.open(writable=True) as client:
        client.post("/items", json=row)
        assert client.post("/files/open/evil").status_code == 422
        assert client.post("/files/open/plants/00.png").status_code == 204
        assert client.post("/files/reveal/plants/00.png").status_code == 204
        assert client.post("/files/run/plants/00.png").status_code == 422
    deadline = time.monotonic() + 60
    while len(launched) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    file = str(place.photos / "plants" / "00.png")
    assert launched == [(file, False), (file, True)]


def test_local_means_that_no_other_name_is_served():
    assert Settings().local
    assert not Settings(hosts=()).local
    assert not Settings(hosts=("localhost", "photos.example.org")).local


JOB = """
import time
from ddh._core.jobs import job
with job("index", "photos"):
    print(flush=True)
    time.sleep(300)
"""


def test_jobs_are_stopped_as_by_ctrl_c_and_dismissed(tmp_path, monkeypatch):
    monkeypatch.setenv("DDH_STATE", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", JOB], stdout=subprocess.PIPE)
    process.stdout.readline()
    (job,) = ddh._core.jobs.read_jobs()
    assert not ddh._core.jobs.dismiss_job(job["id"])  # it is running
    assert not ddh._core.jobs.stop_job(f"../{job['id']}")
    assert ddh._core.jobs.stop_job(job["id"])
    assert process.wait(60) in (1, -signal.SIGINT, 130)
    (job,) = ddh._core.jobs.read_jobs()
    assert job["state"] == "stopped"
    assert not ddh._core.jobs.stop_job(job["id"])
    assert ddh._core.jobs.dismiss_job(job["id"])
    assert ddh._core.jobs.read_jobs() == []


def test_a_record_of_another_process_is_never_signalled(tmp_path, monkeypatch):
    monkeypatch.setenv("DDH_STATE", str(tmp_path))
    with ddh._core.jobs.job("fit", "x") as job:
        job.write(now=True)
        assert not ddh._core.jobs.stop_job(job.id)  # this process itself
        record = tmp_path / "jobs" / f"{job.id}.json"
        forged = json.loads(record.read_text())
        forged["process"] |= {"pid": os.getppid(), "born": -1}  # its own may be the same moment
        record.write_text(json.dumps(forged))
        assert not ddh._core.jobs.stop_job(job.id)  # born at another time
