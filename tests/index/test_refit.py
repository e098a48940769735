"""`ddh index refit`: a new model and new codes from stored features, whole or not at all."""

import signal
import subprocess
import sys

import numpy as np
import pytest

import ddh
import ddh.index
from ddh._core.errors import DDHError, InputError
from ddh.hashers import DDH, ITQ
from ddh.index.check import check as check_files
from ddh.index.collection import Collection
from ddh.index.refit import refit


def kinds(n: int, dimensions: int = 48, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 3 * rng.standard_normal((8, dimensions))
    return (centres[rng.integers(0, 8, n)] + rng.standard_normal((n, dimensions))).astype("f4")


def filled(location, features: np.ndarray, model, bits: int, components: int = 32):
    """An open index of these features, some of its rows replaced and deleted."""
    index = ddh.index.open(location, bits=bits, model_id=model.model_id, features=components)
    index.fit_features(features)
    keys = [f"k{i}" for i in range(len(features))]
    codes = model.encode(features)
    places = [f"folder/{key}" for key in keys]
    index.add(keys, codes, features=features, paths=places, metadata=[{"n": 1}] * len(keys))
    index.upsert(keys[:5], codes[:5], features=features[:5])
    index.delete(keys[10:20])
    return index


def codes_fit(index, model) -> bool:
    """Whether every code is that of the model for the row's stored features."""
    transform = index.feature_transform
    rows = list(index.items())
    stored = index.features([row.key for row in rows])
    components = transform.decode(stored)
    weight = model.hash_weight_ @ np.linalg.pinv(transform.projection)
    outputs = components @ weight.T + model.hash_bias_
    right = np.packbits(outputs >= 0, axis=1) == np.stack([row.code for row in rows])
    return right.mean() > 0.999  # outputs of almost zero may round to either side


@pytest.mark.parametrize("bits", [24, 40])
def test_all_rows_get_codes_of_the_new_model(engine, bits, tmp_path):
    features = kinds(300)
    former = ITQ(bits=24).fit(features)
    location = engine.fresh()
    with filled(location, features, former, 24) as index:
        done = refit(index, tmp_path / "new.ddh", bits=bits)
        assert (done.rows, done.fitted_rows, done.bits) == (290, 290, bits)
        assert (done.former_model_id, done.model_id) == (former.model_id, index.model_id)
        keys = [row.key for row in index.items()]
        model = ddh.load(tmp_path / "new.ddh")
        assert codes_fit(index, model)
        own = index.search(model.encode(features[30:31]), 1, keys=["k30"])[0][0]
        assert (own.key, own.path, own.metadata) == ("k30", "folder/k30", {"n": 1})
        index.add(["after"], model.encode(features[:1]), features=features[:1])
    with ddh.index.open(location, bits=bits, model_id=model.model_id) as index:
        assert [row.key for row in index.items()] == [*keys, "after"]
        assert codes_fit(index, model)
        assert Collection(index).model == (tmp_path / "new.ddh").resolve()
        index.compact()
        assert refit(index, tmp_path / "again.ddh").rows == 291


def test_new_pictures_get_the_codes_that_stored_rows_have(tmp_path):
    """Rounding features to a byte moves few outputs to the other side of zero."""
    features = kinds(800, 96)
    with filled(tmp_path / "i", features, ITQ(bits=64).fit(features), 64, 64) as index:
        refit(index, tmp_path / "new.ddh")
        anew = ddh.load(tmp_path / "new.ddh").encode(features[20:])
        stored = np.stack([row.code for row in index.get_many([f"k{i}" for i in range(20, 800)])])
    assert np.bitwise_count(anew ^ stored).sum() < 0.01 * 8 * anew.size


def test_whoever_has_the_index_open_is_told_to_open_it_again(engine, tmp_path):
    features = kinds(120)
    former = ITQ(bits=24).fit(features)
    location = engine.fresh()
    with filled(location, features, former, 24) as index, ddh.index.open(location) as other:
        assert other.search(former.encode(features[:1]), 1)[0]
        refit(index, tmp_path / "new.ddh")
        for use in (
            lambda: other.search(former.encode(features[:1]), 1),
            lambda: other.add(["x"], former.encode(features[:1]), features=features[:1]),
        ):
            with pytest.raises(DDHError):
                use()
        assert len(index) == 110
        model = ddh.load(tmp_path / "new.ddh")
        assert other.follow()
        assert not other.follow()
        assert (other.bits, other.model_id) == (24, model.model_id)
        found = other.search(model.encode(features[40:41]), 1, keys=["k40"])[0][0]
        assert (found.key, found.distance) == ("k40", 0)
        other.add(["x"], model.encode(features[:1]), features=features[:1])
        assert "x" in index


def test_what_cannot_be_refitted_says_why(tmp_path):
    features = kinds(100)
    model = ITQ(bits=16).fit(features)
    with ddh.index.open(tmp_path / "none", bits=16) as index:
        with pytest.raises(InputError, match="--features 128"):
            refit(index, tmp_path / "m")
        with pytest.raises(InputError, match="no features"):
            index.recode(lambda stored: stored, bits=16, model_id=None)
    with filled(tmp_path / "i", features, model, 16) as index:
        with pytest.raises(InputError, match="where to save"):
            refit(index)
        model.save(tmp_path / "photos.ddh")
        Collection(index).set_path("model", tmp_path / "photos.ddh")
        with pytest.raises(InputError, match="present model"):
            refit(index, tmp_path / "photos.ddh")
        before = [row.code.tolist() for row in index.items()]
        with pytest.raises(InputError, match="codes"):
            index.recode(lambda stored: np.zeros((1, 1)), bits=16, model_id=None)
        assert [row.code.tolist() for row in index.items()] == before
        first, second = refit(index), refit(index, bits=8)
        assert [first.model, second.model] == [
            str((tmp_path / f"photos.{n}.ddh").resolve()) for n in (2, 3)
        ]
        DDH(bits=16).fit(features).save(second.model)
        with pytest.raises(InputError, match="is model"):
            refit(index)
    found = check_files(tmp_path / "i")
    assert (found.rows, found.problems) == (90, [])


# Refits in forked children, each of which kills itself at a later call of something that writes.
KILLER = """
import os, signal, sys
import ddh.hashers, ddh.index
from ddh.hashers import DDH, storage
from ddh.index import local_store, pages
from ddh.index.refit import refit

def deadly(owner, name, state):
    plain = getattr(owner, name)
    def call(*arguments, **options):
        for done in (lambda: plain(*arguments, **options), None):
            state["left"] -= 1
            if state["left"] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            result = done() if done else result
        return result
    setattr(owner, name, call)

for kill in range(1000):
    child = os.fork()
    if not child:
        state = {"left": kill}
        deadly(storage, "write_atomic", state)
        for name in ("_recode_rows", "recode"):
            deadly(local_store.Write, name, state)
        for name in ("close", "drop_other_pages"):
            deadly(local_store.LocalStore, name, state)
        deadly(pages.PageFile, "write", state)
        with ddh.index.open(sys.argv[1]) as index:
            refit(index, bits=(16, 40)[kill % 2], random_state=kill)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    print(os.waitstatus_to_exitcode(status), flush=True)
    if status == 0 or sys.stdin.readline() != "go on\\n":
        break
"""


def test_a_kill_leaves_codes_of_the_model_that_the_index_names(tmp_path):
    """At every step of a refit; the next one then goes on with the name of the one cut off."""
    features = kinds(200)
    model = DDH(bits=24).fit(features)
    model.save(tmp_path / "photos.ddh")
    with filled(tmp_path / "i", features, model, 24) as index:
        Collection(index).set_path("model", tmp_path / "photos.ddh")
        keys = [row.key for row in index.items()]
    refits = subprocess.Popen(
        [sys.executable, "-c", KILLER, tmp_path / "i"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    named_ids, ended, kills = [model.model_id], None, 0
    while (ended := int(refits.stdout.readline())) == -signal.SIGKILL:
        kills += 1
        with ddh.index.open(tmp_path / "i") as index:
            named = ddh.load(Collection(index).model)
            assert (named.model_id, named.bits) == (index.model_id, index.bits)
            named_ids.append(named.model_id)
            assert [row.key for row in index.items()] == keys
            codes = np.stack([row.code for row in index.items()])
            anew = named.encode(features[[int(key[1:]) for key in keys]])
            assert np.bitwise_count(codes ^ anew).sum() < 0.03 * 8 * codes.size
            found = index.search(codes[:1], len(keys) + 1)[0]
            assert sorted(hit.key for hit in found) == sorted(keys)
        assert check_files(tmp_path / "i").problems == []
        refits.stdin.write("go on\n")
        refits.stdin.flush()
    refits.communicate()
    assert ended == 0
    assert kills > 10
    assert len(set(named_ids)) > 1, "no kill came after the new codes were there"
    assert len(list((tmp_path / "i").glob("*.pages"))) == 1
