"""The real-valued flower rows of the paper's Table 6: bags of visual words on the foreground.

Colour, HSV, Shape, Texture, HOG, SIFT-Internal and SIFT-Boundary after Nilsback & Zisserman
(2006, 2008). They need OpenCV: `pip install "ddh[bench]"`.
"""

from ddh.descriptors.base import DESCRIPTORS, LocalDescriptor, descriptor
from ddh.descriptors.extraction import LocalFeatures, extract
from ddh.descriptors.photograph import Photograph
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
