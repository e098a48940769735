"""A picture has one code, whether it comes as a file, as an array or in a training set."""

import numpy as np
import pytest
from PIL import Image

from ddh.hashers import DDH

SETTINGS = {
    "bits": 64, "backbone": "resnet18-tiny", "weights": "random", "k1": 3, "k2": 3, "epochs": 2,
    "device": "cpu",
}  # fmt: skip


def pictures(folder, shape: tuple[int, int], count: int = 24):
    """Smooth random pictures as an array, and the same as a folder of PNG files."""
    rng = np.random.default_rng(7)
    rough = [Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)) for _ in range(count)]
    array = np.stack([np.asarray(image.resize(shape[::-1])) for image in rough])
    for number, pixels in enumerate(array):
        Image.fromarray(pixels).save(folder / f"{number:03d}.png")
    return array


@pytest.mark.parametrize("shape", [(32, 32), (48, 48), (40, 60), (70, 24)])
def test_the_code_of_an_array_is_that_of_its_file(shape, tmp_path):
    array = pictures(tmp_path, shape)
    model = DDH(**SETTINGS).fit(array)
    assert np.array_equal(model.transform(array), model.transform(tmp_path))


@pytest.mark.parametrize("depth", ["head", "network"])
def test_training_on_an_array_is_training_on_its_files(depth, tmp_path):
    array = pictures(tmp_path, (40, 60))
    settings = SETTINGS | {"depth": depth}
    if depth == "network":
        settings |= {"network_epochs": 1, "keep_better": False}  # noise has no better weights
    from_array, from_files = DDH(**settings).fit(array), DDH(**settings).fit(tmp_path)
    assert np.array_equal(from_array.transform(array), from_files.transform(array))
    assert np.array_equal(from_array.hash_weight_, from_files.hash_weight_)


def test_one_pass_gives_codes_outputs_and_features(tmp_path):
    array = pictures(tmp_path, (40, 60))
    model = DDH(**SETTINGS).fit(array)
    values = model.outputs(array)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(np.where(values >= 0, 1, -1), model.transform(tmp_path))
    (batch,) = model.encode_images(array)
    np.testing.assert_array_equal(batch.outputs, values[batch.indices])
    np.testing.assert_array_equal(np.packbits(values[batch.indices] >= 0, axis=1), batch.codes)
    assert batch.features.shape == (len(array), model.n_features_in_)
