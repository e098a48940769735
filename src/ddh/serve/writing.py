"""Rows that people add and remove, and the pictures they send, kept in the collection's folder."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ddh._core.atomic import write_atomic
from ddh._core.errors import DDHError, InputError
from ddh.images import Limits, decode
from ddh.images.decoding import picture_extensions, picture_formats
from ddh.index import FileStamp, Index, Row
from ddh.index.collection import DIGEST_BYTES
from ddh.serve.encoding import NAME
from ddh.serve.errors import KeyExists, NoSuchKey, NotAllowed
from ddh.serve.items import Item, Pictures
from ddh.serve.search_params import NewFields
from ddh.serve.settings import Settings

UPLOADS = "uploads"  # folder of the collection


@dataclass(frozen=True)
class Upload:
    """A picture that was sent and can be read: its bytes, their digest, and a fitting file name."""

    content: bytes
    digest: str
    name: str


def refuse_unless_writable(settings: Settings) -> None:
    """Nothing changes unless the service was started for it."""
    if not settings.writable:
        raise NotAllowed("this service is read-only: start it with --writable to change rows")


class Rows:
    """Adds and removes rows; one thread uses it at a time."""

    def __init__(
        self, index: Index, pictures: Pictures, changed: Callable[[], None], limits: Limits
    ) -> None:
        self._index, self._pictures = index, pictures
        self._changed, self._limits = changed, limits

    def add(self, row: Row) -> Item:
        """Write a new row; a key that is there already is an error."""
        try:
            self._index.add(
                [row.key], [row.code], paths=[row.path], stamps=[row.stamp], metadata=[row.metadata]
            )
        except InputError:
            if row.key in self._index:
                raise KeyExists(row.key) from None
            raise
        self._changed()
        return self._pictures.item(row)

    def remove(self, key: str) -> None:
        """Remove a row."""
        if not self._index.delete([key]):
            raise NoSuchKey(key)
        self._changed()

    def inspect(self, content: bytes) -> Upload:
        """Look into a picture that was sent; raises `UnreadableImage`.

        Its name is a digest of its bytes, its ending that of its true format.
        """
        if self._pictures.root is None:
            raise NotAllowed("this service knows no folder for pictures: start it with --root")
        decode(content, name=NAME, limits=self._limits)
        with Image.open(io.BytesIO(content), formats=picture_formats()) as image:
            ending = _ending(image.format or "")
        digest = hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()
        return Upload(content, digest, f"{UPLOADS}/{digest}{ending}")

    def add_picture(self, upload: Upload, fields: NewFields, code: NDArray[np.uint8]) -> Item:
        """Keep a picture's file and write its row; nothing stays of one that is refused."""
        key = fields.key or upload.name
        if key in self._index:
            raise KeyExists(key)
        root = self._pictures.root
        assert root is not None
        try:
            file, is_new = self._keep(root, upload)
        except OSError as error:
            raise DDHError(f"the picture cannot be kept: {error}") from error
        try:
            state = file.stat()
            stamp = FileStamp(state.st_mtime_ns, state.st_size, upload.digest)
            return self.add(Row(key, code, upload.name, stamp, fields.metadata or {}))
        except BaseException:
            if is_new:
                file.unlink(missing_ok=True)
            raise

    def _keep(self, root: Path, upload: Upload) -> tuple[Path, bool]:
        """Write the file whole or not at all; a link that leads elsewhere is not followed."""
        folder = root / UPLOADS
        folder.mkdir(exist_ok=True)
        if folder.resolve() != folder:
            raise NotAllowed(f"the folder {UPLOADS} of the collection is a link: nothing is kept")
        file = root / upload.name
        if file.is_file() and not file.is_symlink():
            return file, False
        write_atomic(file, upload.content)
        return file, True


def _ending(kind: str) -> str:
    """A file name ending that `ddh index add` takes for a picture of this format."""
    usual = {"JPEG": ".jpg", "PNG": ".png", "TIFF": ".tif", "MPO": ".jpg"}
    endings: dict[str, Any] = Image.registered_extensions()
    known = sorted(e for e, f in endings.items() if f == kind and e in picture_extensions())
    ending = usual.get(kind) or (known[0] if known else None)
    if ending is None:
        raise InputError(f"pictures of the format {kind} are not kept: send a JPEG or PNG file")
    return ending
