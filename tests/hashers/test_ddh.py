"""DDH: images or features in, codes out, models that travel."""

import json
from contextlib import nullcontext
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone

import ddh
from ddh._core.errors import DDHWarning, InputError, ModelError
from ddh.backbones import ResNet, create, save
from ddh.codes import pack, unpack
from ddh.hashers import DDH, ITQ, LSH, storage
from ddh.images import open_images
from ddh.train import Settings
from ddh.train.features import extract


def clusters(n=300, d=24, classes=6, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    X = 3 * rng.standard_normal((classes, d))[y] + rng.standard_normal((n, d))
    return X.astype(np.float32), y


def separation(codes, y):
    """Mean agreement of codes within classes less that between them."""
    agreement = codes.astype(float) @ codes.T / codes.shape[1]
    same = y[:, None] == y[None]
    return agreement[same].mean() - agreement[~same].mean()


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder with 24 real pictures in two kinds, one broken file and one that is no picture."""
    from sklearn.datasets import load_sample_images

    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for kind, array in enumerate(load_sample_images().images):
        picture = Image.fromarray(array)
        (folder / f"kind{kind}").mkdir()
        for number in range(12):
            left, top = (int(rng.integers(0, side - 300)) for side in picture.size)
            crop = picture.crop((left, top, left + 300, top + 300))
            crop.save(folder / f"kind{kind}" / f"{number:02d}.jpg")
    (folder / "broken.jpg").write_bytes((folder / "kind0" / "00.jpg").read_bytes()[:2000])
    (folder / "notes.txt").write_text("not a picture")
    return folder


@pytest.fixture(scope="module")
def photo_model(photos):
    return DDH(bits=16, size=64, k1=4, k2=3, epochs=10, device="cpu").fit(photos)


def test_codes_are_plus_and_minus_one_and_separate_clusters():
    X, y = clusters()
    codes = DDH(bits=24, epochs=10).fit(X).transform(X)
    assert codes.dtype == np.int8
    assert set(np.unique(codes)) == {-1, 1}
    assert separation(codes, y) > separation(LSH(bits=24).fit(X).transform(X), y)


def test_labels_give_the_supervised_variant():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 20)).astype(np.float32)
    y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
    model = DDH(bits=8, epochs=30, lambda1=0.0)
    assert separation(model.fit(X, y).transform(X), y) > 2 * separation(
        model.fit(X).transform(X), y
    )


def test_many_labels_an_image():
    X, y = clusters(classes=4)
    labels = np.eye(4, dtype=int)[y]
    labels[:, 0] |= y == 1
    codes = DDH(bits=16, epochs=10, alpha=2.0).fit(X, labels).transform(X)
    assert separation(codes, np.minimum(y, 2)) > 0.1


def test_encode_packs_the_codes():
    X, _ = clusters(60)
    model = DDH(bits=13, epochs=2).fit(X)
    assert np.array_equal(unpack(model.encode(X), 13), model.transform(X))


def test_saved_and_loaded_model_gives_the_same_codes(tmp_path):
    X, _ = clusters(80)
    model = DDH(bits=20, epochs=2).fit(X)
    model_id = model.save(tmp_path / "m.ddh")
    loaded = ddh.load(tmp_path / "m.ddh")
    assert loaded.model_id == model.model_id == model_id
    assert np.array_equal(loaded.encode(X), model.encode(X))
    assert loaded.get_params() == model.get_params()
    description = json.loads((tmp_path / "m.ddh" / "model.json").read_text())
    assert description["bits"] == 20
    assert description["fitted"]["settings_"] == model.settings_
    assert sorted(p.name for p in (tmp_path / "m.ddh").iterdir()) == [
        "model.json",
        "model.safetensors",
    ]


def test_damaged_models_are_refused(tmp_path):
    X, _ = clusters(40)
    DDH(bits=8, epochs=1).fit(X).save(tmp_path / "m")
    weights = tmp_path / "m" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-10])
    with pytest.raises(ModelError, match="damaged"):
        ddh.load(tmp_path / "m")
    weights.unlink()
    with pytest.raises(ModelError, match="incomplete"):
        ddh.load(tmp_path / "m")
    with pytest.raises(ModelError, match="not a ddh model"):
        ddh.load(tmp_path)
    weights.write_bytes(whole)
    text = (tmp_path / "m" / "model.json").read_text()
    (tmp_path / "m" / "model.json").write_text(text.replace('"format": 1', '"format": 99'))
    with pytest.raises(ModelError, match="format 99"):
        ddh.load(tmp_path / "m")


def test_a_model_is_not_saved_over_other_things(tmp_path):
    (tmp_path / "file").write_text("x")
    model = ITQ(bits=2).fit(np.eye(4))
    with pytest.raises(ModelError, match="is a file"):
        model.save(tmp_path / "file")
    with pytest.raises(ModelError, match="other things"):
        model.save(tmp_path)


def test_folder_of_photographs_from_fit_to_codes(photos, photo_model, tmp_path):
    assert photo_model.images_ == 24
    assert [entry["name"] for entry in photo_model.skipped_] == ["broken.jpg"]
    batches = list(photo_model.encode_images(photos))
    codes = np.concatenate([batch.codes for batch in batches])
    assert codes.shape == (24, 2)
    assert [f.name for batch in batches for f in batch.failures] == ["broken.jpg"]
    kinds = np.arange(24) // 12
    assert separation(unpack(codes, 16), kinds) > 0.5
    photo_model.save(tmp_path / "p.ddh")
    loaded = ddh.load(tmp_path / "p.ddh")
    again = np.concatenate([batch.codes for batch in loaded.encode_images(photos)])
    assert np.array_equal(codes, again)
    # weights that pip carries are named, not copied: the model stays small
    assert sum(file.stat().st_size for file in (tmp_path / "p.ddh").iterdir()) < 200_000


def test_batch_size_changes_no_code(photos, photo_model):
    one = np.concatenate([b.codes for b in photo_model.encode_images(photos, batch_size=1)])
    many = np.concatenate([b.codes for b in photo_model.encode_images(photos, batch_size=64)])
    assert (unpack(one, 16) == unpack(many, 16)).mean() >= 0.995


def test_transform_names_the_file_that_cannot_be_read(photos, photo_model):
    with pytest.raises(InputError, match=r"broken\.jpg"):
        photo_model.transform(photos)
    good = sorted((photos / "kind0").glob("*.jpg"))
    assert photo_model.transform(good).shape == (12, 16)


def test_pictures_for_a_model_of_features_and_the_reverse(photos, photo_model):
    X, _ = clusters(40)
    with pytest.raises(InputError, match="ready features of 24 dimensions"):
        DDH(bits=8, epochs=1).fit(X).transform(photos)
    with pytest.raises(InputError, match="fitted on 1280 dimensions"):
        photo_model.transform(X)


@pytest.mark.parametrize("depth", ["last stage", "network"])
def test_training_deeper_than_the_head(depth, tmp_path, monkeypatch):
    def narrow(*given):
        torch.manual_seed(0)
        return ResNet("resnet18", 16, tiny_stem=True, width=8)

    monkeypatch.setattr("ddh.hashers.ddh.create", narrow)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    images[:20] //= 4
    fixed = {"epochs": 2, "batch_size": 20, "keep_better": False, "device": "cpu"}
    model = DDH(bits=8, depth=depth, **fixed).fit(images)
    assert model._backbone.origin == "trained from random"
    codes = model.transform(images)
    model.save(tmp_path / "m")
    assert np.array_equal(ddh.load(tmp_path / "m").transform(images), codes)
    trained = dict(model._backbone.named_parameters())
    changed = {n for n, p in narrow().named_parameters() if not torch.equal(p, trained[n])}
    assert changed
    if depth == "last stage":
        assert all(name.startswith("layer4") for name in changed)
    else:
        assert "conv1.weight" in changed


def test_the_network_starts_from_what_the_layer_has_learned(monkeypatch):
    """At next to no rate the network's training leaves the codes of the head as they are."""

    def narrow(*given):
        torch.manual_seed(0)
        network = ResNet("resnet18", 16, tiny_stem=True, width=8)
        network.origin = "a file"
        return network

    monkeypatch.setattr("ddh.hashers.ddh.create", narrow)
    images = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    fixed = {"bits": 8, "epochs": 4, "batch_size": 20, "keep_better": False, "device": "cpu"}
    head = DDH(**fixed, encoder="torch").fit(images)
    deep = DDH(**fixed, depth="network", network_epochs=1, backbone_lr_scale=1e-12).fit(images)
    assert np.array_equal(head.transform(images), deep.transform(images))
    assert [entry["epoch"] for entry in deep.history_] == [1, 2, 3, 4, 5]
    together = DDH(**fixed, depth="network", network_epochs=0, backbone_lr_scale=1e-12).fit(images)
    assert len(together.history_) == 4


def kinds_of_pictures(n: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Noisy pictures of six patterns, and which pattern each is."""
    rng = np.random.default_rng(0)
    patterns, kind = rng.integers(0, 256, (6, 4, 4, 3)), rng.integers(0, 6, n)
    pixels = np.kron(patterns[kind], np.ones((1, 4, 4, 1))) + rng.normal(0, noise, (n, 16, 16, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8), kind


def small_network(origin: str):
    def make(*given):
        torch.manual_seed(0)
        network = ResNet("resnet18", 16, tiny_stem=True, width=8)
        network.origin = origin
        return network

    return make


def judge_as(monkeypatch, *means: float | tuple[float, float]) -> None:
    """Let held-out pictures judge so: at first, and at every look; the last value goes on."""
    noise, left = np.random.default_rng(0).random(50) / 100, chain(means, repeat(means[-1]))

    def judge(self):
        return [(mean + noise).tolist() for mean in np.broadcast_to(next(left), 2)]

    monkeypatch.setattr("ddh.train.held_out.Guard._judge", judge)


@pytest.mark.parametrize("settings", [{}, {"epochs": 3, "batch_size": 40}])
def test_a_training_that_harms_leaves_the_network_as_it_was(settings, monkeypatch):
    monkeypatch.setattr("ddh.hashers.ddh.create", small_network("a file"))
    judge_as(monkeypatch, 0.5, 0.4)
    images, _ = kinds_of_pictures(160, 40)
    fixed = {"bits": 40, "device": "cpu", **settings}
    with pytest.warns(DDHWarning, match="held-out"):
        deep = DDH(**fixed, depth="network", network_epochs=4).fit(images)
    assert deep._backbone.origin == "a file"
    looks = [entry["stability"] for entry in deep.history_ if "stability" in entry]
    assert len(looks) == 3  # so many without a gain end the training
    before = small_network("a file")().state_dict()
    after = deep._backbone.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("order", "kept"), [(0.79, True), (0.74, False)])
def test_stable_neighbours_may_cost_some_of_the_order_of_the_first_ones(order, kept, monkeypatch):
    monkeypatch.setattr("ddh.hashers.ddh.create", small_network("a file"))
    judge_as(monkeypatch, (0.9, 0.5), (order, 0.6))
    images, _ = kinds_of_pictures(160, 40)
    with nullcontext() if kept else pytest.warns(DDHWarning, match="held-out"):
        deep = DDH(bits=8, device="cpu", depth="network", network_epochs=1).fit(images)
    assert deep._backbone.origin == ("trained from a file" if kept else "a file")
    assert [entry["order"] for entry in deep.history_ if "order" in entry] == [
        pytest.approx(order, abs=0.01)
    ]


def test_a_training_that_helps_is_kept(monkeypatch):
    monkeypatch.setattr("ddh.hashers.ddh.create", small_network("a file"))
    judge_as(monkeypatch, 0.3, 0.4, 0.6, 0.5)
    images, kind = kinds_of_pictures(240, 80)
    fixed = {"bits": 16, "epochs": 3, "batch_size": 20, "device": "cpu"}
    deep = DDH(**fixed, depth="network", network_epochs=4).fit(images, kind)
    assert deep._backbone.origin == "trained from a file"
    assert max(entry.get("precision", 0) for entry in deep.history_) == pytest.approx(
        0.605, abs=0.01
    )


def test_labels_are_built_anew_before_every_epoch_of_a_network(monkeypatch):
    from ddh.train.graphs import Labelling

    monkeypatch.setattr("ddh.hashers.ddh.create", small_network("a file"))
    images, kind = kinds_of_pictures(90, 60)
    built, build = [], Labelling.build
    monkeypatch.setattr(Labelling, "build", lambda *given: built.append(1) or build(*given))
    fixed = {"bits": 8, "device": "cpu", "depth": "network", "refresh_labels": True}
    DDH(**fixed, epochs=2, network_epochs=3, keep_better=False).fit(images)
    assert len(built) == 3  # the first, and those of two epochs of the network
    with pytest.raises(InputError, match="refresh_labels"):
        DDH(**fixed).fit(images, kind)


def test_network_depth_needs_images():
    with pytest.raises(InputError, match="fit on images"):
        DDH(bits=4, depth="network").fit(np.eye(8))


def test_other_features_for_the_labels():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (16, 8, 8, 3), dtype=np.uint8)
    model = DDH(bits=4, backbone="resnet18-tiny", weights="random", size=8, epochs=1, k1=3, k2=2,
                label_backbone="efficientnet-lite0", device="cpu").fit(images)  # fmt: skip
    assert model.n_features_in_ == 512


@pytest.mark.parametrize("named", [{}, {"label_backbone": "resnet18-tiny"}], ids=["auto", "named"])
def test_weights_of_the_network_for_the_labels(tmp_path, monkeypatch, named):
    import ddh.hashers.ddh as module

    images = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
    torch.manual_seed(5)
    file = tmp_path / "labels.safetensors"
    save(create("resnet18-tiny", "random"), file)
    given = {}

    def fit_head(*arguments, **options):
        given.update(options)
        return real(*arguments, **options)

    real = module.fit_head
    monkeypatch.setattr(module, "fit_head", fit_head)
    fixed = {"bits": 4, "backbone": "resnet18-tiny", "weights": "random", "size": 8, "epochs": 1}
    fixed |= {"k1": 3, "k2": 2, "views": 0, "device": "cpu"}
    DDH(**fixed).fit(images)
    assert given["label_features"] is None
    DDH(**fixed, **named, label_weights=str(file)).fit(images)
    expected = extract(create("auto", file), open_images(images), device="cpu").values
    assert np.array_equal(given["label_features"], expected)
    with pytest.raises(InputError, match=r"there is no weights file .*none\.safetensors"):
        DDH(**fixed, **named, label_weights=str(tmp_path / "none.safetensors")).fit(images)


def test_random_weights_for_the_labels_come_from_the_seed():
    images = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
    fixed = {"bits": 4, "weights": "random", "size": 8, "epochs": 1, "k1": 3, "k2": 2}
    fixed |= {"backbone": "resnet18-tiny", "device": "cpu"}
    other = {"label_backbone": "efficientnet-lite0", "label_weights": "random"}
    first, second = (DDH(**fixed, **other).fit(images).hash_weight_ for _ in range(2))
    assert np.array_equal(first, second)


def test_features_of_pictures_have_unit_length_and_ready_ones_are_left_alone(photo_model):
    X, _ = clusters(60)
    fixed = {"bits": 16, "epochs": 2, "device": "cpu"}
    assert photo_model.settings_["normalize"]
    model = DDH(**fixed).fit(X)
    assert not model.settings_["normalize"]
    unit = DDH(**fixed, normalize=True).fit(X)
    lengths = np.random.default_rng(0).uniform(0.1, 10, (60, 1)).astype(np.float32)
    assert np.array_equal(unit.transform(lengths * X), unit.transform(X))
    again = DDH(**fixed, normalize=True).fit(lengths * X)
    np.testing.assert_allclose(again.hash_weight_, unit.hash_weight_, rtol=1e-3, atol=1e-3)
    zero = unit.transform(np.zeros((1, X.shape[1]), np.float32))  # and no warning
    assert np.array_equal(zero[0], np.where(unit.hash_bias_ >= 0, 1, -1))


class TestViews:
    def test_views_of_pictures_are_learned_from_too(self, photos, tmp_path):
        fixed = {"bits": 8, "size": 64, "k1": 4, "k2": 3, "epochs": 2, "device": "cpu"}
        model = DDH(**fixed, views=2).fit(photos)
        assert model.images_ == 24
        assert [failure["name"] for failure in model.skipped_] == ["broken.jpg"]
        assert model.settings_["views"] == 2
        assert model.label_statistics_["images"] == 72
        again = DDH(**fixed, views=2).fit(photos, checkpoint_dir=tmp_path / "work")
        assert np.array_equal(model.hash_weight_, again.hash_weight_)
        plain = DDH(**fixed).fit(photos)
        assert not np.array_equal(model.hash_weight_, plain.hash_weight_)

    def test_a_picture_and_its_mirror_image_have_one_code(self, photos, tmp_path):
        fixed = {"bits": 64, "size": 64, "k1": 4, "k2": 3, "epochs": 2, "device": "cpu"}
        noise = np.random.default_rng(0).integers(0, 256, (20, 64, 64, 3), dtype=np.uint8)
        mirrored = np.ascontiguousarray(noise[:, :, ::-1])
        model = DDH(**fixed, flip_tta=True).fit(photos)
        codes = model.transform(noise)
        assert np.array_equal(codes, model.transform(mirrored))
        model.save(tmp_path / "model")
        assert np.array_equal(ddh.load(tmp_path / "model").transform(noise), codes)
        plain = DDH(**fixed).fit(photos)
        assert not np.array_equal(plain.transform(noise), plain.transform(mirrored))

    def test_labels_are_those_of_the_pictures(self):
        images = np.random.default_rng(0).integers(0, 256, (16, 8, 8, 3), dtype=np.uint8)
        model = DDH(bits=4, backbone="resnet18-tiny", weights="random", size=8, epochs=1, views=1,
                    device="cpu").fit(images, np.arange(16) % 4)  # fmt: skip
        assert model.label_statistics_["groups"] == 4
        assert model.label_statistics_["mean_degree"] == 7  # 4 pictures and 4 views, less itself

    def test_where_views_have_no_place(self):
        with pytest.raises(InputError, match="views is for pictures"):
            DDH(bits=4, views=2).fit(np.eye(8))
        with pytest.raises(InputError, match="flip_tta is for pictures"):
            DDH(bits=4, flip_tta=True).fit(np.eye(8))
        with pytest.raises(InputError, match="trains on random views anyway"):
            DDH(bits=4, views=2, depth="network").fit(np.zeros((8, 8, 8, 3), np.uint8))


def test_fewer_images_than_neighbours():
    X, _ = clusters(9)
    with pytest.raises(InputError, match="lower"):
        DDH(bits=4, k1=15).fit(X)
    assert DDH(bits=4, epochs=1).fit(X).settings_["k1"] == 3  # a preset adapts
    with pytest.raises(InputError, match="at least 3 images"):
        DDH(bits=4).fit(X[:2])


def test_bad_features():
    X, _ = clusters(30)
    X[7, 3] = np.nan
    with pytest.raises(InputError, match="first is row 7"):
        DDH(bits=4).fit(X)
    with pytest.raises(InputError, match="1 to 4096 bits"):
        DDH(bits=0).fit(np.eye(8))
    with pytest.raises(InputError, match="labels must have 8 rows"):
        DDH(bits=4).fit(np.eye(8), [1, 2])


def test_empty_folder(tmp_path):
    with pytest.raises(InputError, match="no images"):
        DDH(bits=8).fit(tmp_path)


def test_duplicates_get_the_same_code():
    X, _ = clusters(50)
    codes = DDH(bits=16, epochs=2).fit(np.concatenate([X, X])).transform(np.concatenate([X, X]))
    assert np.array_equal(pack(codes[:50]), pack(codes[50:]))


# -- parameters and settings ----------------------------------------------------------------


def test_settings_as_keywords_or_as_a_dict():
    X, _ = clusters(60)
    by_name = DDH(bits=8, epochs=2, k1=5, device="cpu")
    by_dict = DDH(bits=8, settings={"epochs": 2, "k1": 5}, device="cpu")
    assert by_name.get_params() == by_dict.get_params()
    assert by_name.fit(X).model_id == by_dict.fit(X).model_id
    assert by_name.settings_["k1"] == 5
    assert DDH(k1=None).settings is None


def test_scikit_learns_contract_holds_with_settings():
    model = DDH(bits=8, k1=5)
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    assert copied.settings is not model.settings
    assert copied.set_params(k2=4, bits=16).get_params()["settings"] == {"k1": 5, "k2": 4}
    assert copied.bits == 16
    assert model.settings == {"k1": 5}
    assert copied.set_params(k1=None).settings == {"k2": 4}
    with pytest.raises(InputError, match="did you mean 'epochs'"):
        DDH(epoch=3).fit(np.eye(8))
    with pytest.raises(InputError, match="did you mean 'epochs'"):
        DDH(settings={"epoch": 3}).fit(np.eye(8))


def test_help_explains_every_parameter_and_setting():
    text = DDH.__doc__
    for name in [*DDH().get_params(), *Settings.__dataclass_fields__]:
        assert f"\n    {name} : " in text, name


def test_the_venue_is_the_same_everywhere():
    assert "ECML PKDD" in DDH.paper
    sources = [file.read_text() for file in Path(ddh.__file__).parent.rglob("*.py")]
    assert not any("pairwise labels, PCM" in source for source in sources)
    assert sum("ECML PKDD" in source for source in sources) >= 2


def test_a_model_of_version_0_1_still_loads_under_its_id(tmp_path):
    X, _ = clusters(60)
    model = DDH(bits=8, epochs=2, normalize=True, device="cpu").fit(X)
    model.save(tmp_path / "m")
    file = tmp_path / "m" / "model.json"
    description = json.loads(file.read_text())
    old = {"normalize": "unit", "flip_tta": "mirror", "backbone_lr_scale": "network_rate"}
    flat = {old.get(name, name): None for name in Settings.__dataclass_fields__}
    given = description["settings"].pop("settings")
    description["settings"] |= flat | {old.get(k, k): v for k, v in given.items()}
    fitted = description["fitted"]
    fitted["settings_"] = {old.get(k, k): v for k, v in fitted["settings_"].items()}
    del fitted["seed_"]
    description["library"] = "0.1.0"
    file.write_text(json.dumps(description))
    model_id = storage.read(tmp_path / "m")[2]
    loaded = ddh.load(tmp_path / "m")
    assert loaded.model_id == model_id  # an index knows it by that
    assert loaded.settings == given
    assert np.array_equal(loaded.transform(X), model.transform(X))
    again = loaded.save(tmp_path / "again")
    assert ddh.load(tmp_path / "again").model_id == loaded.model_id == again
