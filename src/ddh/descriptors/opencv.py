"""OpenCV, or an error that says how to get it."""

from typing import Any

from ddh._core.errors import optional


def opencv() -> Any:
    """The `cv2` module, imported when a descriptor is first used."""
    return optional("cv2", "the flower descriptors need OpenCV: pip install opencv-python-headless")
