"""OpenCV, or an error that says how to get it."""

from typing import Any

from ddh._core.errors import MissingDependency


def opencv() -> Any:
    """The `cv2` module, imported when a descriptor is first used."""
    try:
        import cv2
    except ImportError as error:
        raise MissingDependency(
            'the flower descriptors need OpenCV: pip install "ddh[bench]"'
        ) from error
    return cv2
