"""A query that is also in the database finds itself first: such a score is refused."""

from typing import Any

from ddh._core.errors import InputError
from ddh.images import open_images, pixel_digest


def shared_images(query_images: Any, database_images: Any) -> list[tuple[int, int]]:
    """(query, item) for each query whose pixels are also in the database.

    Images are whatever `ddh.images.open_images` takes: an array, a folder, a list of files, a
    data set.
    """
    items = pixel_digest(open_images(database_images))
    database = {digest: row for row, digest in reversed(list(enumerate(items)))}
    queries = pixel_digest(open_images(query_images))
    return [(row, database[digest]) for row, digest in enumerate(queries) if digest in database]


def refuse_shared_images(query_images: Any, database_images: Any) -> None:
    """Raise InputError when an image stands on both sides, pixel for pixel."""
    shared = shared_images(query_images, database_images)
    if shared:
        query, item = shared[0]
        raise InputError(
            f"{len(shared)} query image(s) are also in the database, the first is query {query} = "
            f"item {item}; a query must not find itself, take it out of one side"
        )
