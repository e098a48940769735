"""One picture in words: what its file and its camera say."""

from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from ddh._core.output import escaped
from ddh.images.exif import PhotoFacts, photo_facts


def details(file: Path | None, *, show_path: bool) -> dict[str, Any]:
    """Facts of a row's file, None where there is none; its full path only where that is allowed."""
    found: dict[str, Any] = {"file": None, "bytes": None, "modified": None}
    if file is None:
        return found | asdict(PhotoFacts())
    with suppress(OSError, ValueError, OverflowError):
        state = file.stat()
        found["bytes"] = state.st_size
        found["modified"] = datetime.fromtimestamp(int(state.st_mtime)).isoformat()
    if show_path:
        found["file"] = escaped(file)
    return found | asdict(photo_facts(file))
