"""The contract of `ddh.hashers.base`, checked on every method of the registry."""

import inspect
import json
import pickle
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file
from sklearn.exceptions import NotFittedError

import ddh
from ddh._core.errors import DDHError, InputError
from ddh.codes import unpack
from ddh.evaluation import mean_average_precision
from ddh.hashers import create, method, storage
from ddh.hashers.base import Hasher, as_float32
from ddh.hashers.image_hasher import ImageHasher
from ddh.hashers.registry import MODULES

METHODS = [name for name, module in MODULES.items() if find_spec(f"ddh.hashers.{module}")]
CLASSES, PER_CLASS, DIMENSIONS = 4, 35, 16
BITS = 10  # neither a multiple of 8 nor of the bits of a KMH subspace

# Enough to learn something from 140 rows, and no more.
QUICK = {
    "KMH": {"iterations": 10},
    "FastH": {"trees": 5, "block_rows": 20},
    "IMH": {"anchors": 40, "iterations": 250},
}
QUICK_DEEP = {"epochs": 3}

every_method = pytest.mark.parametrize("name", METHODS)


def new(name: str, bits: int = BITS, **settings: object) -> Hasher:
    accepted = inspect.signature(method(name).__init__).parameters
    quick = QUICK_DEEP if "epochs" in accepted or name == "DDH" else QUICK.get(name, {})
    if "device" in accepted:
        quick = {**quick, "device": "cpu"}
    return create(name, bits=bits, **{**quick, **settings})


def clusters(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Four classes around four centres, values that float16 holds exactly."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(0, 3, (CLASSES, DIMENSIONS))
    y = np.repeat(np.arange(CLASSES), PER_CLASS)
    X = centres[y] + rng.normal(0, 1, (len(y), DIMENSIONS)) + 5
    order = rng.permutation(len(y))
    return X[order].astype(np.float16).astype(np.float64), y[order]


@cache
def fitted(name: str) -> Hasher:
    """A model on `clusters()`; tests must not change it."""
    return new(name).fit(*clusters())


def assert_codes(codes: NDArray[np.int8], rows: int, bits: int = BITS) -> None:
    assert codes.dtype == np.int8
    assert codes.shape == (rows, bits)
    assert set(np.unique(codes)) <= {-1, 1}


def assert_steady(model: Hasher, X: NDArray[np.floating]) -> None:
    """Codes of rows do not depend on the rows they are encoded with."""
    whole = model.transform(X)
    assert_codes(whole, len(X), model.bits)
    for size in (1, 7, 100):
        parts = [model.transform(X[start : start + size]) for start in range(0, len(X), size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_every_method_is_there():
    assert list(MODULES) == METHODS


@every_method
def test_describes_itself(name: str):
    cls = method(name)
    assert cls.kind.split()[0] in {
        "data-independent",
        "unsupervised",
        "semi-supervised",
        "supervised",
    }
    assert cls.labels in {"none", "optional", "required"}
    assert cls.title
    assert cls.paper
    assert 1990 < cls.year < 2030
    assert str(cls.year) in inspect.getmodule(cls).__doc__.splitlines()[0]


@every_method
def test_codes_are_plus_and_minus_one(name: str):
    X, _ = clusters()
    assert_codes(fitted(name).transform(X), len(X))


@every_method
def test_packed_codes_are_the_same_codes(name: str):
    X, _ = clusters()
    packed = fitted(name).encode(X)
    assert packed.dtype == np.uint8
    assert packed.shape == (len(X), 2)
    np.testing.assert_array_equal(unpack(packed, BITS), fitted(name).transform(X))


@every_method
def test_codes_are_the_signs_of_the_outputs(name: str):
    X, _ = clusters()
    values = fitted(name).outputs(X)
    assert values.dtype == np.float32
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(np.where(values >= 0, 1, -1), fitted(name).transform(X))
    assert len(np.unique(np.abs(values))) > 2  # real values, not the codes again


def test_an_output_that_rounds_to_zero_keeps_its_sign():
    values = as_float32(np.array([-1e-300, 1e-300, -0.0, -2.5]))
    assert values.dtype == np.float32
    assert (values >= 0).tolist() == [False, True, True, False]


@every_method
def test_neighbours_are_found_in_unseen_rows(name: str):
    X, y = clusters()
    queries, labels = clusters(seed=1)
    model = fitted(name)
    found = mean_average_precision(model.transform(queries), model.transform(X), labels, y, k=None)
    assert float(found) > 0.4  # by chance: 0.25


@every_method
def test_same_seed_same_codes(name: str):
    X, y = clusters()
    again = new(name).fit(X, y)
    np.testing.assert_array_equal(again.transform(X), fitted(name).transform(X))
    assert again.model_id == fitted(name).model_id


@every_method
def test_training_rows_encode_the_same_out_of_sample(name: str):
    X, _ = clusters()
    order = np.random.default_rng(3).permutation(len(X))
    alone = fitted(name).transform(np.ascontiguousarray(X[order]))
    np.testing.assert_array_equal(alone, fitted(name).transform(X)[order])
    strided = np.asfortranarray(X)[::2]
    np.testing.assert_array_equal(fitted(name).transform(strided), fitted(name).transform(X)[::2])


@every_method
def test_batch_size_changes_nothing(name: str):
    assert_steady(fitted(name), clusters()[0])


@every_method
def test_one_bit(name: str):
    X, y = clusters()
    assert_codes(new(name, bits=1).fit(X, y).transform(X), len(X), 1)


# one direction a bit, so never more bits than dimensions
LIMITED = {"PCAH", "KMH", "ITQ", "IsoHash", "SSH"}


@every_method
def test_more_bits_than_dimensions(name: str):
    X, y = clusters()
    model = new(name, bits=DIMENSIONS + 5)
    if name in LIMITED:
        with pytest.raises(InputError, match=f"{DIMENSIONS + 5} bits .* have {DIMENSIONS} feature"):
            model.fit(X, y)
    else:
        assert_codes(model.fit(X, y).transform(X), len(X), DIMENSIONS + 5)


@every_method
@pytest.mark.parametrize("bits", [0, -3])
def test_impossible_code_lengths(name: str, bits: int):
    with pytest.raises(InputError):
        new(name, bits=bits).fit(*clusters())


@every_method
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_refuses_what_is_not_finite(name: str, bad: float):
    X, y = clusters()
    X[17, 3] = bad
    with pytest.raises(InputError, match="row 17"):
        new(name).fit(X, y)
    with pytest.raises(InputError, match="row 17"):
        fitted(name).transform(X)


@every_method
def test_constant_columns(name: str):
    X, y = clusters()
    X[:, [0, 5, 6]] = 0.1, 0.0, 1e6
    assert_steady(new(name).fit(X, y), X)


@every_method
def test_more_bits_than_columns_that_vary(name: str):
    X, y = clusters()
    X[:, 8:] = 0.3
    assert_steady(new(name).fit(X, y), X)


@every_method
def test_duplicates(name: str):
    X, y = clusters()
    X, y = np.concatenate([X[:60], X[:60]]), np.concatenate([y[:60], y[:60]])
    model = new(name).fit(X, y)
    codes = model.transform(X)
    np.testing.assert_array_equal(codes[:60], codes[60:])
    assert_steady(model, X)


@every_method
def test_all_rows_equal(name: str):
    X, y = clusters()
    X[:] = X[0]
    codes = new(name).fit(X, y).transform(X)
    np.testing.assert_array_equal(codes, codes[:1].repeat(len(X), axis=0))


@every_method
def test_one_class_only(name: str):
    X, y = clusters()
    assert_steady(new(name).fit(X, np.zeros_like(y)), X)


@every_method
def test_float_types_agree(name: str):
    X, y = clusters()
    expected = fitted(name).transform(X)
    for dtype in (np.float16, np.float32):
        np.testing.assert_array_equal(fitted(name).transform(X.astype(dtype)), expected)
        assert_steady(new(name).fit(X.astype(dtype), y), X.astype(dtype))


@every_method
def test_whole_numbers_are_features_too(name: str):
    X, y = clusters()
    levels = np.round(X * 8).clip(0, 255).astype(np.uint8)
    model = new(name).fit(levels, y)
    np.testing.assert_array_equal(model.transform(levels), model.transform(levels.astype(float)))


@every_method
def test_save_and_load_without_pickle(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model must not be unpickled")

    X, _ = clusters()
    model = fitted(name)
    model_id = model.save(tmp_path / "model")
    assert {file.name for file in (tmp_path / "model").iterdir()} == {
        "model.json",
        "model.safetensors",
    }
    description = json.loads((tmp_path / "model" / "model.json").read_text())
    assert description["method"] == name
    load_file(tmp_path / "model" / "model.safetensors")
    for entry in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, entry, refuse)
    opened = ddh.load(tmp_path / "model")
    assert type(opened) is method(name)
    assert opened.model_id == model_id == model.model_id
    np.testing.assert_array_equal(opened.transform(X), model.transform(X))


@every_method
def test_numpy_numbers_are_settings_too(name: str, tmp_path):
    """As they come out of a parameter grid or an array of seeds."""
    X, y = clusters()
    model = new(name, bits=np.int64(4), random_state=np.int64(3)).fit(X, y)
    assert model.save(tmp_path / "numpy") == new(name, bits=4, random_state=3).fit(X, y).model_id
    np.testing.assert_array_equal(ddh.load(tmp_path / "numpy").transform(X), model.transform(X))


def test_a_model_of_an_earlier_version_keeps_its_id(tmp_path):
    X, _ = clusters()
    fitted("ITQ").save(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text()) | {"library": "0.0.1"}
    (tmp_path / "model.json").write_text(json.dumps(description))
    opened = ddh.load(tmp_path)
    assert opened.model_id == storage.read(tmp_path)[2] != fitted("ITQ").model_id
    np.testing.assert_array_equal(opened.transform(X), fitted("ITQ").transform(X))
    assert opened.fit(X).model_id == fitted("ITQ").model_id


@every_method
def test_damaged_models_are_refused(name: str, tmp_path):
    folder = tmp_path / "model"
    fitted(name).save(folder)
    description = json.loads((folder / "model.json").read_text())
    description["settings"]["no such setting"] = 1
    (folder / "model.json").write_text(json.dumps(description))
    with pytest.raises(DDHError):
        ddh.load(folder)


@every_method
def test_bits_come_first_of_the_parameters(name: str):
    model = new(name, random_state=5)
    parameters = model.get_params()
    assert parameters["bits"] == BITS
    assert parameters["random_state"] == 5
    assert list(inspect.signature(type(model).__init__).parameters)[1] == "bits"


@every_method
def test_not_fitted(name: str, tmp_path):
    X, _ = clusters()
    model = new(name)
    with pytest.raises(NotFittedError, match="fit"):
        model.transform(X)
    with pytest.raises(NotFittedError, match="fit"):
        model.encode(X)
    with pytest.raises(NotFittedError, match="fit"):
        model.save(tmp_path / "model")


@every_method
def test_fitting_again_forgets_the_first_time(name: str):
    X, y = clusters()
    model = new(name).fit(X[:, :-2] * 2, (y + 1) % CLASSES)
    model.fit(X, y)
    np.testing.assert_array_equal(model.transform(X), fitted(name).transform(X))


@every_method
def test_a_fit_that_fails_leaves_the_model_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch):
    X, y = clusters()
    model = new(name).fit(X, y)
    codes, model_id = model.encode(X), model.model_id
    step = "_learn" if isinstance(model, ImageHasher) else "_fit"
    learn = getattr(type(model), step)

    def interrupted(self, *data: object) -> None:
        learn(self, *data)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(model), step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :-2] * 2, (y + 1) % CLASSES)
    np.testing.assert_array_equal(model.encode(X), codes)
    assert model.model_id == model_id


@every_method
def test_labels_are_asked_for_and_checked(name: str):
    X, y = clusters()
    wanted = method(name).labels
    if wanted == "required":
        with pytest.raises(InputError, match="labels"):
            new(name).fit(X)
    else:
        assert_codes(new(name).fit(X).transform(X), len(X))
    if wanted != "none":
        with pytest.raises(InputError, match="rows"):
            new(name).fit(X, y[:-1])


@every_method
@pytest.mark.parametrize("seed", [-1, 1.0, np.random.default_rng(0), np.random.RandomState(0)])
def test_seeds_that_could_not_be_saved_are_refused(name: str, seed: object):
    with pytest.raises(InputError, match="random_state is a whole number"):
        new(name).set_params(random_state=seed).fit(*clusters())


@every_method
def test_names_as_labels_and_many_labels_a_row(name: str):
    if method(name).labels == "none":
        pytest.skip("takes no labels")
    X, y = clusters()
    words = np.array(["ash", "birch", "cedar", "elm"])[y]
    np.testing.assert_array_equal(new(name).fit(X, words).transform(X), fitted(name).transform(X))
    several = np.zeros((len(y), CLASSES + 1), int)
    several[np.arange(len(y)), y] = 1
    several[::5, CLASSES] = 1
    assert_steady(new(name).fit(X, several), X)


@every_method
def test_rows_without_a_label(name: str):
    if method(name).labels == "none":
        pytest.skip("takes no labels")
    X, y = clusters()
    few = y.copy()
    few[len(y) // 2 :] = -1
    assert_codes(new(name).fit(X, few).transform(X), len(X))
    if method(name).labels == "required":
        with pytest.raises(InputError, match="label"):
            new(name).fit(X, np.full_like(y, -1))


@every_method
def test_output_as_a_data_frame(name: str) -> None:
    pandas = pytest.importorskip("pandas")
    model, (X, y) = new(name), clusters()
    codes = fitted(name).transform(X)
    model.fit(X, y).set_output(transform="pandas")
    found = model.transform(X)
    assert isinstance(found, pandas.DataFrame)
    assert list(found.columns) == [f"{type(model).__name__.lower()}{i}" for i in range(BITS)]
    assert list(found.columns) == list(model.get_feature_names_out())
    assert np.array_equal(found.to_numpy(), codes)
    assert np.array_equal(model.encode(X), fitted(name).encode(X))


@pytest.mark.parametrize("bits", ["64", 12.5, 8.0, True, None])
@pytest.mark.parametrize("name", ["DDH", "ITQ"])
def test_bits_are_a_whole_number(name: str, bits: object) -> None:
    with pytest.raises(InputError, match=r"whole number from 1 to 4096, not"):
        create(name, bits=bits).fit(clusters()[0])


def test_bits_may_be_an_integer_of_numpy() -> None:
    assert_codes(new("DDH", np.int64(BITS)).fit(clusters()[0]).transform(clusters()[0]), 140)
