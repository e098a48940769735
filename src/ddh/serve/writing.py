"""Rows added and removed through the service, and the files of uploaded pictures."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from starlette.exceptions import HTTPException

from ddh._core.atomic import write_atomic
from ddh._core.errors import DDHError, InputError
from ddh.images.formats import needs_library, open_header, picture_extensions
from ddh.index import FileStamp, Index, Row
from ddh.index.collection import bytes_digest
from ddh.index.roots import Root
from ddh.index.rows import check_text, recoded
from ddh.serve.bodies import CodeText, Fields, parse_code
from ddh.serve.encoding import Encoding
from ddh.serve.errors import no_such_key
from ddh.serve.items import Item, Pictures

UPLOADS = "uploads"  # folder of the collection


class NewPicture(Fields):
    """The fields beside an uploaded picture."""

    key: str | None = Field(None, description="Its key; the name of its file where left out.")
    metadata: dict[str, Any] | None = Field(None, description="Anything that JSON can hold.")


class NewRow(NewPicture):
    """A row to add."""

    key: str
    code: CodeText
    path: str | None = Field(None, description="Its picture, below the collection's folder.")

    def row(self, bits: int) -> Row:
        """The row, its values checked."""
        path = None if self.path is None else check_text(self.path, "a path")
        code = parse_code(self.code, bits)
        return Row(check_text(self.key, "a key"), code, path, None, self.metadata or {})


class Rows:
    """Adds and removes rows. For one thread at a time."""

    def __init__(self, index: Index, pictures: Pictures, on_change: Callable[[], None]) -> None:
        self._index, self._pictures, self._on_change = index, pictures, on_change

    def add(self, row: Row, features: NDArray[np.float32] | None = None) -> Item:
        """Write a new row; raises status 409 where there is one with its key."""
        stored = None if features is None or not self._index.header.features else features[None]
        try:
            self._index.add(
                [row.key],
                [row.code],
                paths=[row.path],
                stamps=[row.stamp],
                metadata=[row.metadata],
                features=stored,
            )
        except InputError:
            if row.key in self._index:
                raise _key_exists(row.key) from None
            raise
        self._on_change()
        return self._pictures.item(row)

    def remove(self, key: str) -> None:
        """Remove a row."""
        if not self._index.delete([key]):
            raise no_such_key(key)
        self._on_change()

    def add_picture(self, content: bytes, fields: NewPicture, encoding: Encoding) -> Item:
        """Store a picture's file and write its row; the file of a refused row is removed.

        The file's name is a digest of its bytes, with the extension of its actual format.
        """
        root, index = self.upload_root(), self._index
        if encoding.model_id != index.model_id:
            raise recoded(index.location, index.model_id)
        if needs_library(io.BytesIO(content)):  # this process does not decode it
            raise InputError("HEIC, JPEG XL and RAW are not stored: send a JPEG or PNG file")
        with open_header(io.BytesIO(content)) as image:
            extension = _extension(image.format or "")
        digest = bytes_digest(content)
        name = root.key(f"{UPLOADS}/{digest}{extension}")
        key = check_text(fields.key or name, "a key")
        if key in index:
            raise _key_exists(key)
        file = root.path / UPLOADS / f"{digest}{extension}"
        try:
            is_new = self._store(file, content)
        except OSError as error:
            raise DDHError(f"the picture cannot be stored: {error}") from error
        try:
            state = file.stat()
            stamp = FileStamp(state.st_mtime_ns, state.st_size, digest)
            row = Row(key, encoding.code, name, stamp, fields.metadata or {})
            return self.add(row, encoding.features)
        except BaseException:
            if is_new:
                file.unlink(missing_ok=True)
            raise

    def upload_root(self) -> Root:
        """The folder that uploads are stored in; raises status 403 where there is none."""
        root = self._pictures.first
        if root is None:
            raise HTTPException(
                403, "this service knows no folder for pictures: start it with --root"
            )
        return root

    def _store(self, file: Path, content: bytes) -> bool:
        """Write a file atomically unless it is there; a folder that is a link is refused."""
        file.parent.mkdir(exist_ok=True)
        if file.parent.resolve() != file.parent:
            raise HTTPException(403, f"{UPLOADS} in the collection is a link: nothing is stored")
        if file.is_file() and not file.is_symlink():
            return False
        write_atomic(file, content)
        return True


def _key_exists(key: str) -> HTTPException:
    return HTTPException(409, f"the index holds a row with the key {key[:200]!r} already")


def _extension(kind: str) -> str:
    """A file extension that `ddh index add` recognises for this format."""
    usual = {"JPEG": ".jpg", "MPO": ".jpg", "TIFF": ".tif", "JPEG2000": ".jp2", "SUN": ".ras"}
    usual |= {"PIXAR": ".pxr", "FTEX": ".ftc"}
    extension = usual.get(kind, f".{kind.lower()}")
    if extension not in picture_extensions():
        raise InputError(f"pictures of the format {kind} are not stored: send a JPEG or PNG file")
    return extension
