"""The real-valued flower rows of the paper's Table 6: bags of visual words on the foreground.

Colour, HSV, Shape, Texture, HOG, SIFT-Internal and SIFT-Boundary after Nilsback & Zisserman
(2006, 2008). They need OpenCV: `pip install "ddh[bench]"`.
"""

from ddh._core.errors import InputError
from ddh.descriptors.colour import colour, hsv
from ddh.descriptors.extraction import LocalDescriptor, LocalFeatures, extract
from ddh.descriptors.hog import hog
from ddh.descriptors.photograph import Photograph
from ddh.descriptors.sift import shape, sift_boundary, sift_internal
from ddh.descriptors.texture import texture
from ddh.descriptors.words import Vocabulary

__all__ = [
    "DESCRIPTORS",
    "LocalDescriptor",
    "LocalFeatures",
    "Photograph",
    "Vocabulary",
    "descriptor",
    "extract",
]

#: Name in Table 6 -> descriptor.
DESCRIPTORS: dict[str, LocalDescriptor] = {
    row.name: row
    for row in (
        LocalDescriptor("Colour", 3, 200, colour),
        LocalDescriptor("Shape", 128, 1000, shape),
        LocalDescriptor("Texture", 8, 700, texture),
        LocalDescriptor("HOG", 81, 1000, hog),
        LocalDescriptor("HSV", 3, 500, hsv),
        LocalDescriptor("SIFT-Boundary", 128, 2000, sift_boundary),
        LocalDescriptor("SIFT-Internal", 128, 2000, sift_internal),
    )
}


def descriptor(name: str) -> LocalDescriptor:
    """Return a descriptor by its name in Table 6."""
    if name not in DESCRIPTORS:
        raise InputError(f"there is no descriptor {name!r}; there are: {', '.join(DESCRIPTORS)}")
    return DESCRIPTORS[name]
