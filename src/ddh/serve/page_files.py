"""The files of the page, read once; their addresses hold a version, so that browsers keep them."""

import hashlib
import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "page"
TYPES = {".html", ".css", ".js", ".svg"}
IMPORTED = re.compile(r'^(?:import|\}) .*?from "\./(\w+\.js)";$', re.MULTILINE)
FIRST_MODULE = "app.js"


@cache
def page_files() -> dict[str, bytes]:
    """The content of each file by its name."""
    return {p.name: p.read_bytes() for p in sorted(FOLDER.iterdir()) if p.suffix in TYPES}


@cache
def page_version() -> str:
    """A text that changes with any of the files."""
    digest = hashlib.blake2b(digest_size=8)
    for name, content in page_files().items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


@cache
def page() -> bytes:
    """The page: its files under their version, and all modules of its start named beforehand."""
    folder = f"page/{page_version()}/"
    names = [FIRST_MODULE]
    for name in names:  # which grows meanwhile
        found = IMPORTED.findall(page_files()[name].decode())
        names += [each for each in dict.fromkeys(found) if each not in names]
    links = [f'  <link rel="modulepreload" href="page/{name}">' for name in names[1:]]
    text = page_files()["index.html"].decode()
    text = text.replace("</head>", "\n".join([*links, "</head>"]), 1)
    return text.replace('"page/', f'"{folder}').encode()
