"""A query that is also in the database finds itself first: such a score is refused."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ddh.errors import InputError


def pixel_digests(images: Iterable[Any]) -> list[bytes]:
    """A digest of the pixels of each image: an array, a PIL image, anything NumPy can read."""
    digests = []
    for image in images:
        pixels = np.ascontiguousarray(image)
        state = hashlib.blake2b(f"{pixels.shape}{pixels.dtype.str}".encode(), digest_size=16)
        state.update(pixels.data)
        digests.append(state.digest())
    return digests


def refuse_shared_images(query_images: Iterable[Any], database_images: Iterable[Any]) -> None:
    """Raise InputError when an image stands on both sides, pixel for pixel."""
    database = {digest: row for row, digest in enumerate(pixel_digests(database_images))}
    shared = [
        (row, database[digest])
        for row, digest in enumerate(pixel_digests(query_images))
        if digest in database
    ]
    if shared:
        query, item = shared[0]
        raise InputError(
            f"{len(shared)} query image(s) are also in the database, the first is query {query} = "
            f"item {item}; a query must not find itself, take it out of one side"
        )
