"""The folder of a run: ours alone is deleted, nothing stale is used, damage is said."""

import json
import random
from contextlib import suppress

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy import sparse

import ddh
from ddh._core.errors import DDHError, InputError, ModelError
from ddh.images import ImageArray, ImageFolder
from ddh.train import RunIdentity, checkpoint_io, distributed
from ddh.train.graphs import read_graph
from ddh.train.identity import arrays_digest, images_digest
from ddh.train.run_folder import MARKER, NAME, run_folder

FAST = {"bits": 4, "epochs": 2, "device": "cpu"}


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((90, 8)).astype(np.float32)


def interrupted(model, X, folder, monkeypatch, **options):
    """Leave in `folder` what a run has there before its first step."""

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ddh.train.linear.LinearTraining.run", stop)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, checkpoint_dir=folder, **options)


def test_only_our_own_files_are_deleted(X, tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "one.png").write_bytes(b"mine too")
    ddh.DDH(**FAST).fit(X, checkpoint_dir=tmp_path, resume=True)
    interrupted(ddh.DDH(**FAST), X, tmp_path, monkeypatch)
    assert (tmp_path / NAME).is_dir()
    ddh.DDH(**FAST).fit(X, checkpoint_dir=tmp_path, resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "pictures"]
    assert (tmp_path / "pictures" / "one.png").read_bytes() == b"mine too"


def test_two_runs_do_not_share_a_folder(X, tmp_path, monkeypatch):
    interrupted(ddh.DDH(**FAST), X, tmp_path, monkeypatch)
    with run_folder(tmp_path, True, 0), pytest.raises(InputError, match="another run works"):
        ddh.DDH(**FAST).fit(X, checkpoint_dir=tmp_path, resume=True)
    assert not (tmp_path / NAME).exists()  # the first one has ended
    ddh.DDH(**FAST).fit(X, checkpoint_dir=tmp_path, resume=True)


@pytest.mark.parametrize("room", [200, 2000])
def test_a_full_disk_is_our_error_and_the_run_goes_on_later(X, tmp_path, monkeypatch, room):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr("ddh.train.linear.CHECKPOINT_SECONDS", 0.0)
    whole = ddh.DDH(**FAST).fit(X, checkpoint_dir=tmp_path / "whole")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        with pytest.raises(DDHError, match="cannot be written"):
            ddh.DDH(**FAST).fit(X, checkpoint_dir=tmp_path / "work")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    resumed = ddh.DDH(**FAST).fit(X, checkpoint_dir=tmp_path / "work", resume=True)
    assert np.array_equal(whole.hash_weight_, resumed.hash_weight_)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_that_name_that_is_not_ours_is_refused(X, tmp_path):
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not made by ddh"):
        ddh.DDH(**FAST).fit(X, checkpoint_dir=tmp_path, resume=True)
    assert (tmp_path / NAME / "notes.txt").exists()


def test_unfinished_work_is_not_overwritten_silently(X, tmp_path, monkeypatch):
    interrupted(ddh.DDH(**FAST), X, tmp_path / "work", monkeypatch)
    with pytest.raises(InputError, match="interrupted run"):
        ddh.DDH(**FAST).fit(X, checkpoint_dir=tmp_path / "work")


@pytest.mark.parametrize("damage", ["empty", "no metadata", "one bit"])
def test_a_damaged_checkpoint_is_named(X, tmp_path, monkeypatch, damage):
    interrupted(ddh.DDH(**FAST), X, tmp_path, monkeypatch)
    file = tmp_path / NAME / "training.safetensors"
    if damage == "empty":
        file.write_bytes(b"")
    elif damage == "one bit":
        checkpoint_io.write(file, {"layer.weight": torch.zeros(2)})
        content = bytearray(file.read_bytes())
        content[-5] ^= 4
        file.write_bytes(content)
    else:
        save_file({"layer.weight": torch.zeros(2)}, file)
    with pytest.raises(ModelError, match=r"training\.safetensors is damaged"):
        ddh.DDH(**FAST).fit(X, checkpoint_dir=tmp_path, resume=True)


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_damaged_graph_is_named(X, tmp_path, monkeypatch, suffix):
    interrupted(ddh.DDH(**FAST), X, tmp_path, monkeypatch)
    (file,) = (tmp_path / NAME).glob(f"graph-*{suffix}")
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(ModelError, match="damaged; delete it"):
        ddh.DDH(**FAST).fit(X, checkpoint_dir=tmp_path, resume=True)


def test_any_damage_to_a_graph_is_found(tmp_path):
    graph = sparse.random(300, 300, 0.05, format="csr", rng=np.random.default_rng(0))
    sparse.save_npz(tmp_path / "graph.npz", graph)
    good = (tmp_path / "graph.npz").read_bytes()
    rng, found = random.Random(0), 0
    for _ in range(200):
        content = bytearray(good)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (tmp_path / "graph.npz").write_bytes(content)
        try:
            same = read_graph(tmp_path / "graph.npz")
        except ModelError:
            found += 1
        else:
            assert (same != graph).nnz == 0  # it was in a field that nothing reads
    assert found > 150


def test_a_shard_of_a_checkpoint_has_checksums_too(tmp_path):
    path = tmp_path / "shard.safetensors"
    checkpoint_io.write(path, {"memory": torch.arange(100.0)})
    assert checkpoint_io._rows(path, "memory", slice(3, 5)).tolist() == [3.0, 4.0]
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(content)
    with pytest.raises(ModelError, match="damaged"):
        checkpoint_io._rows(path, "memory", slice(3, 5))


@pytest.mark.parametrize(
    "change", [{"k1": 9}, {"normalize": True}, {"centre": False}], ids=["k1", "normalize", "centre"]
)
def test_a_graph_of_other_settings_is_not_used(X, tmp_path, monkeypatch, change):
    lengths = np.random.default_rng(1).uniform(0.1, 10, (len(X), 1)).astype(np.float32)
    X = X * lengths + 3
    interrupted(ddh.DDH(**FAST, k1=5), X, tmp_path, monkeypatch)
    fixed = FAST | {"k1": 5} | change
    resumed = ddh.DDH(**fixed).fit(X, checkpoint_dir=tmp_path, resume=True)
    assert resumed.model_id == ddh.DDH(**fixed).fit(X).model_id


def test_a_graph_of_other_label_features_is_not_used(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    fixed = FAST | {"backbone": "resnet18-tiny", "weights": "random", "size": 8, "k1": 5}
    interrupted(ddh.DDH(**fixed), images, tmp_path, monkeypatch)
    other = ddh.DDH(**fixed, label_backbone="efficientnet-lite0")
    resumed = other.fit(images, checkpoint_dir=tmp_path, resume=True).model_id
    assert resumed == other.fit(images).model_id


def test_features_of_other_pixels_or_weights_are_not_used(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    fixed = FAST | {"backbone": "resnet18-tiny", "weights": "random", "size": 8}
    interrupted(ddh.DDH(**fixed), images, tmp_path, monkeypatch)
    for pixels, seed in ((images, 1), (255 - images, 0)):
        model = ddh.DDH(**fixed, random_state=seed)
        resumed = model.fit(pixels, checkpoint_dir=tmp_path, resume=True).model_id
        assert resumed == model.fit(pixels).model_id
        interrupted(ddh.DDH(**fixed), images, tmp_path, monkeypatch)
        interrupted(ddh.DDH(**fixed), images, tmp_path, monkeypatch, resume=True)
        (tmp_path / NAME / MARKER).write_text('{"seed": 0}')


class TestSeed:
    def test_none_draws_one_per_fit_and_keeps_it(self, X):
        first, second = (ddh.DDH(**FAST, random_state=None).fit(X) for _ in range(2))
        assert first.seed_ != second.seed_
        again = ddh.DDH(**FAST, random_state=first.seed_).fit(X)
        assert np.array_equal(again.hash_weight_, first.hash_weight_)
        assert ddh.DDH(**FAST, random_state=7).fit(X).seed_ == 7

    def test_a_resumed_run_has_the_seed_of_the_interrupted_one(self, X, tmp_path, monkeypatch):
        model = ddh.DDH(**FAST, random_state=None)
        interrupted(model, X, tmp_path, monkeypatch)
        drawn = json.loads((tmp_path / NAME / MARKER).read_bytes())["seed"]
        assert model.fit(X, checkpoint_dir=tmp_path, resume=True).seed_ == drawn

    def test_processes_of_one_run_agree(self, monkeypatch):
        class Store(dict):
            def set(self, key, value):
                self[key] = value

            def check(self, keys):
                return all(key in self for key in keys)

        seeds, store = [], Store()
        for rank in range(3):
            monkeypatch.setattr(distributed, "_current", distributed.Processes(rank, 3, store))
            with suppress(KeyboardInterrupt), run_folder(None, False, None) as run:
                seeds.append(run.seed)
                raise KeyboardInterrupt  # the end of a run waits for the other processes
        assert seeds[0] == seeds[1] == seeds[2]

    def test_deep_methods_keep_theirs_too(self, X):
        y = np.arange(len(X)) % 3
        model = ddh.hashers.create("HashNet", bits=4, epochs=1, random_state=None, device="cpu")
        seed = model.fit(X, y).seed_
        again = model.set_params(random_state=seed).fit(X, y)
        assert again.seed_ == seed


class TestIdentity:
    def test_content_decides(self, tmp_path):
        from PIL import Image

        a, b = np.zeros((2, 4, 4, 3), np.uint8), np.ones((2, 4, 4, 3), np.uint8)
        assert images_digest(ImageArray(a)) == images_digest(ImageArray(a.copy()))
        assert images_digest(ImageArray(a)) != images_digest(ImageArray(b))
        Image.new("RGB", (4, 4)).save(tmp_path / "one.png")
        before = images_digest(ImageFolder(tmp_path))
        assert before == images_digest(ImageFolder(tmp_path))
        Image.new("RGB", (40, 40), (9, 9, 9)).save(tmp_path / "one.png")
        assert before != images_digest(ImageFolder(tmp_path))

    def test_every_row_counts(self):
        X = np.zeros((20_000, 3), np.float32)
        Y = X.copy()
        Y[12_345, 1] = 1e-3
        assert arrays_digest(X) != arrays_digest(Y)
        assert arrays_digest(X) != arrays_digest(X.astype(np.float64))
        assert RunIdentity.of_arrays(labels=None) != RunIdentity.of_arrays(labels=X)
