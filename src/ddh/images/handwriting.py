"""The 1,797 handwritten digits that scikit-learn carries: real pictures without a download."""

import numpy as np

from ddh.images.labelled import LabelledImages
from ddh.images.sources import ImageArray


def digits() -> LabelledImages:
    """8 x 8 grey pictures of ten digits; their 17 levels are spread over 0..255."""
    from sklearn.datasets import load_digits  # only here: it takes a second to import

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    classes = tuple(str(name) for name in bunch.target_names)
    return LabelledImages(ImageArray(pixels), labels, "digits", classes)
