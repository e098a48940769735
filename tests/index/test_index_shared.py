"""What every engine promises, checked on every engine against the oracle."""

import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_oracle import Oracle, pairs, random_codes

import ddh.index
from ddh._core.errors import DDHError, InputError
from ddh.duplicates import find_groups
from ddh.index import FileStamp


def names(n: int, prefix: str = "k") -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]


@pytest.mark.parametrize("bits", [1, 7, 33, 64, 130])
def test_every_answer_equals_the_oracle(engine, bits):
    """Adds, upserts, deletes and compaction in random order, with many ties and equal codes."""
    rng = np.random.default_rng(bits)
    oracle = Oracle(bits)
    with engine.index(bits) as index:
        for step in range(4):
            fresh = names(int(rng.integers(1, 60)), f"step{step}-")
            codes = random_codes(rng, len(fresh), bits, 0.15)
            assert index.add(fresh, codes) == len(fresh)
            oracle.write(fresh, codes)
            again = list(rng.choice(list(oracle.rows), min(7, len(oracle.rows)), replace=False))
            new = [*again, f"upsert{step}"]
            codes = random_codes(rng, len(new), bits, 0.15)
            assert index.upsert(new, codes) == (1, len(again))
            oracle.write(new, codes)
            gone = list(rng.choice(list(oracle.rows), min(5, len(oracle.rows)), replace=False))
            assert index.delete([*gone, "never was"]) == oracle.delete(gone)
            if step == 2:
                index.compact()
            check_answers(index, oracle, random_codes(rng, 3, bits, 0.15))
        assert [group_keys(group) for group in find_groups(index, 0)] == oracle.duplicates(0)
        assert [group_keys(group) for group in find_groups(index, min(bits, 2))] == (
            oracle.duplicates(min(bits, 2))
        )


def test_any_collection_equals_the_oracle(engine):
    """Any length of code, any number of rows down to none, any k and radius."""

    @settings(max_examples=30 if engine.name == "local" else 4, deadline=None, database=None)
    @given(
        bits=st.one_of(st.integers(1, 80), st.sampled_from([128, 255, 1000, 4096])),
        n=st.integers(0, 40),
        spread=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        seed=st.integers(0, 2**32 - 1),
        data=st.data(),
    )
    def check(bits, n, spread, seed, data):
        rng = np.random.default_rng(seed)
        codes, queries = random_codes(rng, n, bits, spread), random_codes(rng, 2, bits, spread)
        oracle = Oracle(bits)
        oracle.write(names(n), codes)
        with engine.index(bits) as index:
            index.add(names(n), codes)
            k = data.draw(st.integers(1, n + 3))
            assert pairs(index.search(queries, k)) == oracle.search(queries, k)
            for radius in {0, bits, data.draw(st.integers(0, bits))}:
                found = pairs(index.search_radius(queries, radius))
                assert found == oracle.search_radius(queries, radius)
            radius = data.draw(st.integers(0, bits))
            found = [group_keys(group) for group in find_groups(index, radius)]
            assert found == oracle.duplicates(radius)

    check()


def check_answers(index, oracle, queries):
    assert len(index) == len(oracle.rows)
    for k in (1, 5, len(oracle.rows), len(oracle.rows) + 3):
        assert pairs(index.search(queries, k)) == oracle.search(queries, k)
        for offset in (1, 7, len(oracle.rows)):
            page = [found[offset:] for found in oracle.search(queries, offset + k)]
            assert pairs(index.search(queries, k, offset=offset)) == page
    for radius in (0, 1, oracle.bits // 2, oracle.bits):
        assert pairs(index.search_radius(queries, radius)) == oracle.search_radius(queries, radius)
    assert [row.key for row in index.items()] == list(oracle.rows)


def group_keys(group):
    return [hit.key for hit in group]


def test_many_rows_at_one_distance_keep_the_order_of_writing(engine):
    rng = np.random.default_rng(0)
    codes = np.repeat(random_codes(rng, 2, 24), 400, axis=0)
    order = rng.permutation(800)
    with engine.index(24) as index:
        index.add([f"k{i}" for i in order], codes[order])
        hits = index.search(codes[:1], 250)[0]
        assert [hit.key for hit in hits] == [f"k{i}" for i in order if i < 400][:250]
        assert len(index.search_radius(codes[:1], 0)[0]) == 400
        index.delete([f"k{i}" for i in range(390)])
        hits = index.search(codes[:1], 10)[0]
        assert [hit.key for hit in hits] == [f"k{i}" for i in order if 390 <= i < 400]


def ranked(oracle, queries, values, k, candidates):
    """(key, distance, score): found by distance, the candidates by score, the rest as found."""
    answers = []
    for query, value in zip(queries, values.astype(np.float64), strict=True):
        found = oracle.ranking(query)[: max(k, candidates)]
        signs = [np.unpackbits(oracle.rows[key], count=oracle.bits) * 2.0 - 1 for key, _ in found]
        hits = [(*hit, float(sign @ value)) for hit, sign in zip(found, signs, strict=True)]
        first = sorted(hits[:candidates], key=lambda hit: -hit[2])  # stable
        answers.append((first + hits[candidates:])[:k])
    return answers


def triples(answers):
    return [[(hit.key, hit.distance, hit.score) for hit in answer] for answer in answers]


@pytest.mark.parametrize("bits", [7, 33, 64])
def test_outputs_order_what_distances_have_found(engine, bits):
    rng = np.random.default_rng(bits)
    values = np.round(4 * rng.standard_normal((3, bits))).astype(np.float32) / 4  # exact sums
    queries = np.packbits(values >= 0, axis=1)
    oracle = Oracle(bits)
    with engine.index(bits) as index:
        codes = random_codes(rng, 450, bits, 0.3)
        index.add(names(450), codes, metadata=[{"even": i % 2 == 0} for i in range(450)])
        oracle.write(names(450), codes)
        for k in (1, 10, 300, 500):
            expected = ranked(oracle, queries, values, k, 1000)
            assert triples(index.search(queries, k, values=values)) == expected
        for k in (5, 40):  # a fixed number of candidates: the longer answer begins as the shorter
            expected = ranked(oracle, queries, values, k, 20)
            assert triples(index.search(queries, k, values=values, candidates=20)) == expected
        whole = index.search(queries, 60, values=values, candidates=20)
        for offset in (1, 15, 19, 20, 33):
            page = index.search(queries, 7, offset=offset, values=values, candidates=20)
            assert triples(page) == [hits[offset : offset + 7] for hits in triples(whole)]
        even = Oracle(bits)
        even.write(names(450)[::2], codes[::2])
        found = index.search(queries, 9, values=values, where={"even": True})
        assert triples(found) == ranked(even, queries, values, 9, 1000)
        assert index.search(queries, 1)[0][0].score is None


def test_the_row_that_is_the_query_comes_first_among_equal_codes(engine):
    codes = np.repeat(np.arange(4, dtype=np.uint8)[:, None], 75, axis=0)
    folders = [f"{'even' if i % 2 == 0 else 'odd'}/k{i}" for i in range(300)]
    values = np.unpackbits(codes, axis=1).astype(np.float32) * 2 - 1
    with engine.index(8) as index:
        index.add(names(300), codes, paths=folders)
        for k in (1, 3, 100):
            # Servers take seconds for 300 queries: without DDH_SLOW only some ask for more hits.
            step = 1 if k == 1 or engine.name == "local" or os.environ.get("DDH_SLOW") else 7
            asked = names(300)[::step]
            for outputs in (None, values[::step]):
                answers = index.search(codes[::step], k, keys=asked, values=outputs)
                assert [hits[0].key for hits in answers] == asked
                assert {len({hit.key for hit in hits}) for hits in answers} == {k}
                assert {hits[0].distance for hits in answers} == {0}
                assert {hits[0].score for hits in answers} == {None if outputs is None else 8.0}
        some = [3, 74, 75, 299]
        for outputs in (None, values[some]):
            options = {"keys": [f"k{i}" for i in some], "values": outputs}
            whole = pairs(index.search(codes[some], 300, **options))
            assert all(sorted(key for key, _ in hits) == sorted(names(300)) for hits in whole)
            for offset in (1, 2, 50, 74, 75, 76, 200, 299, 300):
                page = pairs(index.search(codes[some], 5, offset=offset, **options))
                assert page == [hits[offset : offset + 5] for hits in whole]
        inside, outside = index.search(codes[:2], 2, keys=["k74", "k73"], folder="even")
        assert [hit.key for hit in inside] == ["k74", "k0"]
        assert [hit.key for hit in outside] == ["k0", "k2"]
        unknown, none = index.search(codes[:2], 2, keys=["nobody", None])
        assert [hit.key for hit in unknown] == [hit.key for hit in none] == ["k0", "k1"]


def test_features_order_what_is_found_almost_as_they_would_themselves(engine):
    """Rows keep their features through upserts, deletes, compaction and reopening."""
    rng = np.random.default_rng(2)
    centres = rng.standard_normal((6, 40))
    features = centres[rng.integers(0, 6, 300)] + 0.5 * rng.standard_normal((300, 40))
    features = features.astype(np.float32)
    codes = np.packbits(features[:, :16] >= 0, axis=1)
    location = engine.fresh()
    with ddh.index.open(location, bits=16, features=40) as index:
        with pytest.raises(InputError, match="give features="):
            index.add(names(1), codes[:1])
        index.fit_features(features)
        index.add(names(300), codes, features=features[::-1])
        index.upsert(names(250), codes[:250], features=features[:250])
        index.upsert(names(300)[250:], codes[250:], features=features[250:])
        index.delete(names(20))
        with pytest.raises(InputError, match="already"):
            index.add(["new", "k30"], codes[:2], features=features[:2])
        assert not index.features(["new", "k3"]).any()
        index.compact()
    with ddh.index.open(location, features=40) as index:
        assert index.info().features == 40
        assert not any("features" in name for name in index.info().settings)
        unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        queries = np.arange(20, 300, 40)
        cosines = unit[queries] @ unit[20:].T
        found = index.search(codes[queries], 280, features=features[queries])
        for hits, query, exact in zip(found, queries, cosines, strict=True):
            assert hits[0].key == f"k{query}"
            order = [int(hit.key[1:]) - 20 for hit in hits]
            scores = [hit.score for hit in hits]
            assert scores == sorted(scores, reverse=True)
            assert scores[0] == pytest.approx(1, abs=2e-3)
            best = set(np.argsort(-exact)[:20].tolist())
            assert len(best & set(order[:22])) >= 19
        keys = [f"k{query}" for query in queries]
        by_key = index.search(codes[queries], 280, keys=keys)
        assert [hits[0].key for hits in by_key] == keys
        for hits, same in zip(by_key, found, strict=True):
            top, wanted = {hit.key for hit in hits[:30]}, {hit.key for hit in same[:25]}
            assert len(wanted - top) <= 1
        few = index.search(codes[queries], 9, features=features[queries], candidates=5)
        assert [[hit.score is None for hit in hits] for hits in few] == [
            [False] * 5 + [True] * 4
        ] * 7
        page = index.search(codes[queries], 4, offset=3, features=features[queries], candidates=5)
        assert pairs(page) == [hits[3:7] for hits in pairs(few)]
        outputs = features[queries, :16]
        both = index.search(codes[queries], 9, features=features[queries], values=outputs)
        assert pairs(both) == [hits[:9] for hits in pairs(found)]
        stored = index.features([keys[1], "nobody", keys[0], keys[1]])
        assert stored.dtype == np.int8
        assert not stored[1].any()
        np.testing.assert_array_equal(stored[0], stored[3])
        index.upsert(["copy"], codes[:1], features=stored[:1])  # stored ones pass through
        np.testing.assert_array_equal(index.features(["copy"]), stored[:1])
        for wrong, message in [
            (features[:, :7], "40"), (features[:2], "2 rows of features"),
            (np.full((1, 40), np.nan, np.float32), "NaN"), ([[1] * 40], "real numbers"),
        ]:  # fmt: skip
            with pytest.raises(InputError, match=message):
                index.upsert(["x"], codes[:1], features=wrong)
    with pytest.raises(InputError, match="chosen when an index is made"):
        ddh.index.open(location, features=32)
    engine.drop(location)
    with engine.index(16) as index:
        with pytest.raises(InputError, match="stores no features"):
            index.add(names(1), codes[:1], features=features[:1])
        with pytest.raises(InputError, match="stores no features"):
            index.search(codes[:1], 1, features=features[:1])


def test_an_empty_index_answers_with_nothing(engine):
    with engine.index(12) as index:
        queries = np.zeros((3, 2), np.uint8)
        assert index.search(queries, 5) == [[], [], []]
        assert index.search(queries, 5, values=np.ones((3, 12)), keys=["a"] * 3) == [[], [], []]
        assert index.search_radius(queries, 12) == [[], [], []]
        assert find_groups(index, 3) == []
        assert list(index.items()) == []
        assert len(index) == 0
        assert index.delete(["nobody"]) == 0
        assert index.add([], np.empty((0, 2), np.uint8)) == 0
        assert index.upsert([], []) == (0, 0)
        assert index.search(np.empty((0, 2), np.uint8), 5) == []
        index.compact()
        index.add(["a"], queries[:1])
        index.delete(["a"])
        assert index.search(queries, 5, where={"a": 1}) == [[], [], []]
        assert index.search(queries, 5) == [[], [], []]


def test_rows_come_back_whole_after_reopening(engine):
    location = engine.fresh()
    rng = np.random.default_rng(1)
    codes = random_codes(rng, 5, 20)
    keys = ["plain", "with space/and 'quotes' \"two\"", "Ärger\\n%_", "😀/日本", "tab\there\nline"]
    paths = ["a/b.jpg", None, "a_b/c.jpg", "ä/ö.jpg", "a/b/c.png"]
    stamps = [FileStamp(1, 2, "ff"), None, FileStamp(0, 0), FileStamp(2**62, 2**40, "aa"), None]
    metadata = [{"n": 1}, None, {}, {"deep": {"list": [1, 2.5, None, "ü\n"]}}, {"t": True}]
    with ddh.index.open(location, bits=20, model_id="m1") as index:
        index.add(keys, codes, paths=paths, stamps=stamps, metadata=metadata)
        index.set_setting(root="/photos", model="x.ddh")
        index.set_setting(root="/moved")
    index.close()
    with ddh.index.open(location, create=False) as index:
        assert index.bits == 20
        assert index.model_id == "m1"
        assert index.settings() == {"root": "/moved", "model": "x.ddh"}
        rows = list(index.items())
        assert [row.key for row in rows] == keys
        np.testing.assert_array_equal([row.code for row in rows], codes)
        assert [row.path for row in rows] == paths
        assert [row.stamp for row in rows] == stamps
        assert [row.metadata for row in rows] == [made or {} for made in metadata]
        assert index.get(keys[3]).path == "ä/ö.jpg"
        assert index.get("nobody") is None
        assert keys[2] in index
        assert "nobody" not in index
        hit = index.search(codes[3], 1)[0][0]
        assert (hit.key, hit.distance, hit.path, hit.metadata) == (
            keys[3],
            0,
            "ä/ö.jpg",
            metadata[3],
        )
        info = index.info()
        assert (info.rows, info.bits, info.model_id, info.bit_order) == (5, 20, "m1", "big")
        assert info.engine in ("local", "postgresql", "milvus")
    engine.drop(location)


def test_filters_by_metadata_and_folder(engine):
    rng = np.random.default_rng(2)
    codes = random_codes(rng, 8, 16)
    metadata = [
        {"year": 2020, "who": "ann", "fine": True},
        {"year": 2020.0, "who": "bob", "fine": False},
        {"year": "2020", "who": "ann", "fine": 1},
        {"year": 2021, "who": 'an"n', "odd name": "x"},
        {"who": "ann\\", "fine": "true"},
        None,
        {"year": 2.5, "who": "Ann"},
        {"who": "ann", "year": True, "ö": "ü"},
    ]
    paths = ["a/1", "a/b/2", "ab/3", "a_/4", "a", None, "a%/5", "ä/6"]
    keys = names(8)
    with engine.index(16) as index:
        index.add(keys, codes, paths=paths, metadata=metadata)

        def found(**options):
            near = {hit.key for hit in index.search(codes[0], 8, **options)[0]}
            within = {hit.key for hit in index.search_radius(codes[0], 16, **options)[0]}
            assert near == within == {row.key for row in index.items(**options)}
            return sorted(int(key[1:]) for key in near)

        assert found(where={"year": 2020}) == [0, 1]
        assert found(where={"year": 2020.0}) == [0, 1]
        assert found(where={"year": "2020"}) == [2]
        assert found(where={"year": 2.5}) == [6]
        assert found(where={"fine": True}) == [0]
        assert found(where={"fine": False}) == [1]
        assert found(where={"fine": 1}) == [2]
        assert found(where={"who": "ann"}) == [0, 2, 7]
        assert found(where={"who": 'an"n'}) == [3]
        assert found(where={"who": "ann\\"}) == [4]
        assert found(where={"odd name": "x"}) == [3]
        assert found(where={"ö": "ü"}) == [7]
        assert found(where={"who": "ann", "year": 2020}) == [0]
        assert found(where={"nothing": "x"}) == []
        assert found(folder="a") == [0, 1]
        assert found(folder="a/") == [0, 1]
        assert found(folder="a/b") == [1]
        assert found(folder="a_") == [3]
        assert found(folder="a%") == [6]
        assert found(folder="ä") == [7]
        assert found(folder="a", where={"fine": True}) == [0]
        only = index.search(codes[0], 1, where={"who": "bob"})[0]
        assert [hit.key for hit in only] == ["k1"]
        index.upsert(["copy"], codes[:1], paths=["ab/copy"])
        assert [group_keys(group) for group in find_groups(index, 0, folder="ab")] == []
        assert [group_keys(group) for group in find_groups(index, 0)] == [["k0", "copy"]]


def test_a_key_that_is_there_is_refused_and_nothing_is_added(engine):
    codes = random_codes(np.random.default_rng(3), 4, 9)
    with engine.index(9) as index:
        index.add(["a", "b"], codes[:2])
        with pytest.raises(InputError, match=r"1 of these keys .*\('b'\).*upsert"):
            index.add(["c", "b", "d"], codes[:3])
        assert [row.key for row in index.items()] == ["a", "b"]
        with pytest.raises(InputError, match="'x' comes twice"):
            index.upsert(["x", "y", "x"], codes[:3])
        index.add(["c"], codes[2:3])
        assert pairs(index.search(codes[2], 1)) == [[("c", 0)]]


def test_codes_of_another_kind_are_refused(engine):
    location = engine.fresh()
    with pytest.raises(InputError, match="no index at"):
        ddh.index.open(location, create=False)
    with pytest.raises(InputError, match="give bits="):
        ddh.index.open(location)
    with ddh.index.open(location, bits=12, model_id="right") as index:
        for wrong, message in [
            (np.zeros((1, 3), np.uint8), "12 bits, uint8 rows of 2 bytes"),
            (np.zeros((1, 2), np.int64), "12 bits, uint8 rows of 2 bytes"),
            (np.full((1, 2), 0x0F, np.uint8), "4 spare bits"),
        ]:
            with pytest.raises(InputError, match=message):
                index.add(["a"], wrong)
            with pytest.raises(InputError, match=message):
                index.search(wrong, 1)
        assert len(index) == 0
    with pytest.raises(InputError, match="codes of 12 bits, yours have 16"):
        ddh.index.open(location, bits=16)
    with pytest.raises(InputError, match=r"model right, yours are of model wrong"):
        ddh.index.open(location, model_id="wrong")
    with pytest.raises(InputError, match="bit order 'big', yours are in 'little'"):
        ddh.index.open(location, bit_order="little")
    ddh.index.open(location, bits=12, model_id="right").close()
    engine.drop(location)
    nameless = engine.fresh()
    with ddh.index.open(nameless, bits=8):
        pass
    with pytest.raises(InputError, match="made without a model id"):
        ddh.index.open(nameless, model_id="mine")
    engine.drop(nameless)


def test_bad_arguments_say_what_is_wrong(engine):
    code = np.zeros((1, 1), np.uint8)
    with engine.index(8) as index:
        for keys, message in [
            ("a", "list of strings"),
            ([""], "one character or more"),
            ([3], "not 3"),
            (["a\0b"], "NUL"),
            (["\ud800"], "UTF-8"),
            (["x" * 3000], "at most 2048 bytes"),
            (["a", "b"], "1 codes and 2 keys"),
        ]:
            with pytest.raises(InputError, match=message):
                index.add(keys, code)
        for metadata in ({"x": float("nan")}, {"x": object()}, {"x": ["a\0"]}, {"\ud800": 1}):
            with pytest.raises(InputError, match="metadata"):
                index.add(["a"], code, metadata=[metadata])
        for levels in (64, 900, 990, 5000):  # beside the metadata's own
            deep = []
            for _ in range(levels - 1):
                deep = [deep]
            with pytest.raises(InputError, match="64 levels deep"):
                index.add(["a"], code, metadata=[{"x": deep}])
        index.add(["a"], code, metadata=[{"x": "\\u0000 is only text"}])
        assert index.get("a").metadata == {"x": "\\u0000 is only text"}
        for where in (
            {"x": None},
            {"x": [1]},
            {'q"': 1},
            {"": 1},
            {"x": 2**63},
            {"x": float("inf")},
        ):
            with pytest.raises(InputError, match="metadata"):
                index.search(code, 1, where=where)
        for k in (0, -1, 2.5, True):
            with pytest.raises(InputError, match="k, the number of answers"):
                index.search(code, k)
        for offset in (-1, 2.5, True):
            with pytest.raises(InputError, match="offset"):
                index.search(code, 1, offset=offset)
        for values, message in [
            (np.ones((1, 7)), r"shape \(1, 8\)"),
            (np.ones((2, 8)), r"shape \(1, 8\)"),
            ([[float("nan")] * 8], "NaN or infinity"),
        ]:
            with pytest.raises(InputError, match=message):
                index.search(code, 1, values=values)
        with pytest.raises(InputError, match="candidates"):
            index.search(code, 1, values=np.ones((1, 8)), candidates=0)
        for own in ("a", ["a", "b"]):
            with pytest.raises(InputError, match="one for each query"):
                index.search(code, 1, keys=own)
        for radius in (-1, 9, 1.5):
            with pytest.raises(InputError, match="from 0 to 8"):
                index.search_radius(code, radius)
        with pytest.raises(InputError, match="not a single string"):
            index.delete("a")
        assert isinstance(InputError("x"), DDHError)


def test_two_clients_see_each_other_and_lose_nothing(engine):
    location = engine.fresh()
    rng = np.random.default_rng(4)
    codes = random_codes(rng, 600, 32)
    ddh.index.open(location, bits=32).close()
    failures = []

    def write(first: int) -> None:
        try:
            with ddh.index.open(location) as index:
                for start in range(first, first + 300, 30):
                    part = slice(start, start + 30)
                    index.add([f"k{i}" for i in range(600)[part]], codes[part])
        except Exception as error:
            failures.append(error)

    with ddh.index.open(location) as reader:
        writers = [threading.Thread(target=write, args=(first,)) for first in (0, 300)]
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            for hit in reader.search(codes[:1], 3)[0]:
                expected = np.unpackbits(codes[int(hit.key[1:])] ^ codes[0]).sum()
                assert hit.distance == expected
        assert not failures
        assert sorted(row.key for row in reader.items()) == sorted(names(600))
        assert all(hits[0].distance == 0 for hits in reader.search(codes, 1)), (
            "every row is found by its own code"
        )
    engine.drop(location)


def test_upserts_of_one_key_from_two_clients_leave_one_row(engine):
    location = engine.fresh()
    codes = random_codes(np.random.default_rng(5), 40, 16)
    ddh.index.open(location, bits=16).close()

    def write(mine) -> None:
        with ddh.index.open(location) as index:
            for code in mine:
                index.upsert(["same", "other"], np.stack([code, code]))

    writers = [threading.Thread(target=write, args=(codes[i::2],)) for i in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with ddh.index.open(location) as index:
        assert sorted(row.key for row in index.items()) == ["other", "same"]
    engine.drop(location)


def test_calls_from_several_threads_take_turns(engine):
    codes = random_codes(np.random.default_rng(6), 200, 16)
    failures = []
    with engine.index(16) as index:

        def work(first: int) -> None:
            try:
                for i in range(first, first + 50, 10):
                    index.add([f"k{j}" for j in range(i, i + 10)], codes[i : i + 10])
                    assert index.search(codes[i], 1)[0][0].distance == 0
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(50 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(index) == 200


def test_a_closed_index_says_so(engine):
    with engine.index(8) as index:
        index.close()
        with pytest.raises(DDHError, match="is closed"):
            index.search(np.zeros(1, np.uint8), 1)
        with pytest.raises(DDHError, match="is closed"):
            index.add(["a"], np.zeros((1, 1), np.uint8))


def test_the_repr_tells_size_and_place(engine):
    with engine.index(8) as index:
        index.add(["a"], np.zeros((1, 1), np.uint8))
        assert "1 rows of 8 bits" in repr(index)
