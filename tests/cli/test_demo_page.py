"""`ddh demo --page`: a real collection, served by the real service."""

import json
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from installations import installation

from ddh.cli import demo as demo_page

PICTURES = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small form of the demo's collection."""
    out = tmp_path_factory.mktemp("demo")
    demo_page.build(out, PICTURES)
    return out


def test_the_collection_has_pictures_codes_and_labels(made):
    import ddh.index

    assert len(list((made / "digits").glob("?/*.png"))) == PICTURES
    with ddh.index.open(made / "digits.index", create=False) as index:
        assert len(index) == PICTURES
        assert index.bits == demo_page.PAGE_BITS
        assert index.get("3/0003.png").metadata == {"label": "3"}
        near = index.search(index.get("0/0000.png").code, k=5, where={"label": "0"})[0]
        assert {hit.metadata["label"] for hit in near} == {"0"}


def test_a_second_start_keeps_what_is_there_and_a_stopped_one_goes_on(made, monkeypatch):
    import ddh.index

    def refuse(*_):
        raise AssertionError("the work was done again")

    with monkeypatch.context() as patch:
        patch.setattr("ddh.hashers.DDH.fit", refuse)
        patch.setattr("ddh.hashers.DDH.encode_images", refuse)
        assert demo_page.build(made, PICTURES) == made / "digits.index"
    with ddh.index.open(made / "digits.index", create=False) as index:
        index.set_setting(demo="stopped")
        index.delete(["0/0000.png"])
    with monkeypatch.context() as patch:
        patch.setattr("ddh.hashers.DDH.fit", refuse)
        demo_page.build(made, PICTURES)
    with ddh.index.open(made / "digits.index", create=False) as index:
        assert len(index) == PICTURES


def test_the_page_is_served(made):
    pytest.importorskip("fastapi")
    command = [sys.executable, "-m", "ddh", "demo", "--page", "--no-browser", "--port", "0", "-o"]
    with subprocess.Popen(
        [*command, str(made)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/", line)
            assert address, line + process.stdout.read()
            with urllib.request.urlopen(f"{address[0]}health", timeout=30) as answer:
                health = json.load(answer)
            with urllib.request.urlopen(address[0], timeout=30) as answer:
                page = answer.read().decode()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
    assert health["rows"] == PICTURES
    assert health["pictures"]
    assert health["images"]
    assert "<html" in page


def test_without_the_extra_nothing_begins(tmp_path, repository):
    python = installation(tmp_path / "env", repository, ("uvicorn",))
    command = [python, "-m", "ddh", "demo", "--page", "-o", tmp_path / "demo"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == 'ddh: the service and its page need uvicorn: pip install "ddh[serve]"\n'
    assert not (tmp_path / "demo").exists()
