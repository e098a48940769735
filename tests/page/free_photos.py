"""Photographs that may be shown: those of GCompris, from Wikimedia Commons, as a folder to index.

`python tests/page/free_photos.py RCC FOLDER`, where RCC is the folder of GCompris' resource files,
as the Debian package gcompris-qt-data has it in usr/share/gcompris-qt/rcc. Only pictures that a
README beside them puts under CC0, CC BY, CC BY-SA or in the public domain are taken; FOLDER.json
gets their authors, licences and sources.
"""

import json
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

FREE = re.compile(r"CC0|CC-BY(-SA)?[ -][1-4]|Public[ -]domain", re.IGNORECASE)
FOLDERS = {  # of a picture's path in the resources: the folder that it gets
    r"categorization/.*/fishes/": "Animals/Fish",
    r"explore_farm_animals/": "Animals/Farm",
    r"(explore_world_animals|erase)/": "Animals/Wild",
    r"explore_monuments/.*/": "Travel/Sights",
    r"categorization/.*/monuments/": "Travel/Monuments",
    r"categorization/.*/windmill": "Travel/Windmills",
    r"categorization/.*/(dam|geothermal)": "Travel/Water",
    r"categorization/.*/solar": "Home/Solar panels",
    r"categorization/.*/tools/": "Home/Workshop",
    r"categorization/.*/others/": "Home/Things",
}
# Buildings of living architects where photographs of these are not free, and a trademark.
LEFT_OUT = {"burj", "bayterek", "jucheTower", "leMusee", "volleyball"}


def resources(data: bytes) -> Iterator[tuple[PurePosixPath, bytes]]:
    """The files in a resource file of Qt: https://doc.qt.io/qt-6/rcc.html, formats 1 to 3."""
    magic, version, tree, contents, names = struct.unpack_from(">4s4I", data)
    if magic != b"qres":
        raise ValueError("not a resource file of Qt")
    node_bytes = 14 if version < 2 else 22

    def walk(node: int, folder: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
        at = tree + node * node_bytes
        name_at, flags, first, second = struct.unpack_from(">IHII", data, at)
        (length,) = struct.unpack_from(">H", data, names + name_at)
        text = data[names + name_at + 6 :][: 2 * length].decode("utf-16-be")
        path = folder / text if node else folder
        if flags & 2:  # a folder: how many, and the first of them
            for child in range(second, second + first):
                yield from walk(child, path)
            return
        start = contents + second
        (size,) = struct.unpack_from(">I", data, start)
        content = data[start + 4 : start + 4 + size]
        yield path, zlib.decompress(content[4:]) if flags & 1 else content

    yield from walk(0, PurePosixPath())


def credits(readme: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The files that a README names, each with what is said of it."""
    for block in re.split(r"\n\s*\n", readme):
        fields = dict(re.findall(r"^(\w+):[ \t]*((?:.*)(?:\n(?!\w+:).+)*)", block, re.MULTILINE))
        if {"Copyright", "License", "Source", "Files"} <= fields.keys():
            said = {
                name.lower(): fields[name].strip() for name in ("Copyright", "License", "Source")
            }
            for file in fields["Files"].split():
                yield file, said


def main(source: Path, target: Path) -> None:
    files = dict(
        pair for rcc in sorted(source.glob("*.rcc")) for pair in resources(rcc.read_bytes())
    )
    taken = {}
    for readme, text in files.items():
        if readme.name != "README":
            continue
        for name, said in credits(text.decode()):
            path = readme.parent / name
            places = [to for at, to in FOLDERS.items() if re.search(f"/activities/{at}", str(path))]
            fit = path.suffix == ".webp" and path in files and path.stem not in LEFT_OUT
            if not (places and fit and FREE.match(said["license"])):
                continue
            key = f"{places[0]}/{path.name}"
            (target / key).parent.mkdir(parents=True, exist_ok=True)
            (target / key).write_bytes(files[path])
            taken[key] = said
    target.with_suffix(".json").write_text(json.dumps(taken, indent=1, ensure_ascii=False))
    print(f"{target}: {len(taken)} pictures")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
