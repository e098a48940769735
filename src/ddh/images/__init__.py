"""Pixels in: folders, files, arrays and data sets as one kind of source, read in batches."""

from ddh.images.cifar import cifar10
from ddh.images.decoding import Limits, UnreadableImage, decode
from ddh.images.handwriting import digits
from ddh.images.labelled import LabelledImages
from ddh.images.loading import Batch, Failure, load_batches
from ddh.images.opening import is_images, open_images
from ddh.images.preprocessing import Preprocessing
from ddh.images.sources import ImageArray, ImageFiles, ImageFolder, ImageSource

__all__ = [
    "Batch",
    "Failure",
    "ImageArray",
    "ImageFiles",
    "ImageFolder",
    "ImageSource",
    "LabelledImages",
    "Limits",
    "Preprocessing",
    "UnreadableImage",
    "cifar10",
    "decode",
    "digits",
    "is_images",
    "load_batches",
    "open_images",
]
