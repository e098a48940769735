"""`make test-light`: everyday commands of a fresh installation, on two real photographs."""

import json
import re
import subprocess
import urllib.request
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_sample_images


def ddh(*arguments: str) -> dict:
    done = subprocess.run(["ddh", *arguments, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main() -> None:
    photos = Path("photos")
    photos.mkdir()
    for number, pixels in enumerate(load_sample_images().images):
        image = Image.fromarray(pixels)
        image.save(photos / f"{number}.jpg", quality=92)
        image.resize((320, 213)).save(photos / f"{number} small.jpg")
    added = ddh("add", "photos")
    assert (added["rows"], added["new"], added["skipped"]) == (4, 4, []), added
    hits = ddh("search", "photos/0.jpg")["queries"][0]["hits"]
    assert {hit["key"] for hit in hits[:2]} == {"photos/0.jpg", "photos/0 small.jpg"}, hits
    assert len(ddh("dedup")["groups"]) == 2
    command = ["ddh", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            address = re.search(r"http://\S+", service.stdout.readline())
            assert address
            with urllib.request.urlopen(f"{address[0]}health") as answer:
                assert json.load(answer)["rows"] == 4
        finally:
            service.terminate()
    print("add, search, dedup and serve work without torch")


if __name__ == "__main__":
    main()
