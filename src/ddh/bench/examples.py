"""Example retrievals for the report: small pictures of some queries and of what they found."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from ddh.bench.retrieval import Task

SIDE = 88
QUALITY = 78


def example_pictures(task: Task, examples: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Queries with their nearest images as data URLs and whether each is right.

    Empty where the pictures are not at hand (ready features).
    """
    images = task.found.images
    if images is None:
        return []
    labels = task.found.labels
    found = []
    for query, nearest in zip(examples["query"], examples["nearest"], strict=True):
        right = [_answers(labels[query], labels[row]) for row in nearest]
        pictures = [picture_url(images.read(row)) for row in nearest]
        found.append({"query": picture_url(images.read(query)), "found": pictures, "right": right})
    return found


def _answers(query: Any, item: Any) -> bool:
    return bool(np.any(query & item)) if np.ndim(query) else bool(query == item)


def picture_url(image: Image.Image) -> str:
    """A JPEG of at most SIDE pixels as a data URL, one to four kilobytes."""
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()
