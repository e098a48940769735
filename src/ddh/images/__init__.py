"""Pixels in: folders, files, arrays and data sets as one kind of source, read in batches."""

from ddh.images.cifar import cifar10
from ddh.images.coco import coco17
from ddh.images.decoding import Limits, UnreadableImage, decode
from ddh.images.flickr import flickr25k
from ddh.images.flowers import Split, flowers17, flowers17_splits
from ddh.images.labelled import LabelledImages, digits, multi_label_list
from ddh.images.loading import Batch, Failure, PictureCache, load_batches, pixel_digest
from ddh.images.nus import nus_wide
from ddh.images.preprocessing import Preprocessing
from ddh.images.sheet import SheetRow, contact_sheet
from ddh.images.sources import (
    ImageArray,
    ImageFiles,
    ImageFolder,
    ImageSource,
    is_images,
    open_images,
)
from ddh.images.split_lists import imagenet100, mscoco

__all__ = [
    "Batch",
    "Failure",
    "ImageArray",
    "ImageFiles",
    "ImageFolder",
    "ImageSource",
    "LabelledImages",
    "Limits",
    "PictureCache",
    "Preprocessing",
    "SheetRow",
    "Split",
    "UnreadableImage",
    "cifar10",
    "coco17",
    "contact_sheet",
    "decode",
    "digits",
    "flickr25k",
    "flowers17",
    "flowers17_splits",
    "imagenet100",
    "is_images",
    "load_batches",
    "mscoco",
    "multi_label_list",
    "nus_wide",
    "open_images",
    "pixel_digest",
]
