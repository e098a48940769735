"""Make the model that `ddh add` begins with: a head on the default network, and its features.

    python tools/default_model.py PICTURES src/ddh/hashers/default.ddh

PICTURES is a folder, or a .npy file of features that the default network has given.
"""

import sys
from pathlib import Path

import numpy as np

from ddh.backbones import OnnxNetwork
from ddh.cli.add import COMPONENTS, TRANSFORM
from ddh.hashers import DDH
from ddh.images import open_images
from ddh.index.features import FeatureTransform
from ddh.train.features import Extractor

BITS = 64


def main(pictures: str, target: str) -> None:
    backbone = OnnxNetwork()
    if pictures.endswith(".npy"):
        features = np.load(pictures)
    else:
        batches = Extractor(backbone).stream(open_images(pictures))
        features = np.concatenate([batch.features for batch in batches])
    transform = FeatureTransform.fit(features, COMPONENTS)
    components = transform.decode(transform.encode(features))
    model = DDH(BITS, random_state=0).fit(components)
    model.before(transform.projection, backbone).save(target)
    transform.save(Path(target) / TRANSFORM)


if __name__ == "__main__":
    main(*sys.argv[1:])
