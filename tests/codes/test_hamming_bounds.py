"""The compiled search refuses tables, lists and sizes that would lead it outside memory."""

import numpy as np
import pytest

hamming = pytest.importorskip("ddh.codes._hamming")
VARIANTS = hamming.variants()
N = 40


def table(width: int, bits: int = 4, copied: bool = True) -> dict:
    """The first bits of random codes as one table of an index."""
    rows = np.random.default_rng(0).integers(0, 256, (N, width), dtype=np.uint8)
    padded = {1: 2, 3: 4}.get(width, width)
    keys = (rows[:, 0] >> (8 - bits)).astype(np.uint32)
    offsets, ids = np.empty((1 << bits) + 1, np.uint32), np.empty(N, np.uint32)
    ordered = np.empty((N, padded) if copied else 0, np.uint8)
    hamming.sort_into_buckets(keys, offsets, ids, rows, ordered, width)
    mask = np.zeros(padded if copied else width, np.uint8)
    mask[0] = 256 - (1 << (8 - bits))
    parts = {"bits": bits, "mask": mask, "offsets": offsets, "ids": ids, "rows": ordered}
    return {"codes": rows, "keys": keys, "table": parts}


def search(variant: str, made: dict, tables: int, k: int):
    rows, width = made["codes"], made["codes"].shape[1]
    one = tuple(made["table"].values())
    keys = np.repeat(made["keys"][:3, None], tables, 1).copy()
    options = (made.get("query_keys", keys), [one] * tables, k, 8 * width, 0.0, 0.0)
    return hamming.index_search(variant, rows[:3], rows, width, *options, np.zeros(3, bool))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tables", [1, 2])
@pytest.mark.parametrize(("width", "copied"), [(3, True), (12, False)])
@pytest.mark.parametrize("damage", ["beyond", "falling", "last", "id", "key"])
def test_damaged_tables_of_an_index(variant, tables, width, copied, damage):
    made = table(width, copied=copied)
    search(variant, made, tables, 5)
    offsets, ids = made["table"]["offsets"], made["table"]["ids"]
    if damage == "beyond":
        offsets[1:] = 2**32 - 1
    elif damage == "falling":
        offsets[:] = offsets[::-1].copy()
    elif damage == "last":
        offsets[-1] = N + 1
    elif damage == "id":
        ids[:] = 2**31
        if copied or tables == 1:
            return  # such ids are never followed
    else:
        made["query_keys"] = np.full((3, tables), 16, np.uint32)
    with pytest.raises(ValueError, match=r"of other rows|of no bucket"):
        search(variant, made, tables, 0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_row_that_is_found_twice_does_not_overflow_the_answer(variant):
    rows = np.zeros((N, 8), np.uint8)
    offsets, ids = np.array([0, N]), np.arange(N, dtype=np.uint32)
    lists = (np.zeros((1, 50), np.uint32), offsets, ids)
    with pytest.raises(ValueError, match="probed twice"):
        hamming.list_search(variant, rows[:1], rows, 8, *lists, N)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e308])
def test_values_whose_sums_are_not_finite(value):
    rows, values = np.zeros((N, 1), np.uint8), np.full((1, 8), value)
    scores, indices = np.empty((1, 3)), np.empty((1, 3), np.int64)
    with pytest.raises(ValueError, match="not finite"):
        hamming.rank(VARIANTS[0], values, rows, 1, 3, scores, indices)
    with pytest.raises(ValueError, match="not finite"):
        hamming.scores(values, rows, 1, False, np.empty((1, N)))


def test_a_width_whose_product_wraps_around():
    width = (2**64 + 5) // 3  # three times this is 5
    keys = np.zeros(3, np.uint32)
    out = np.empty(2, np.uint32), np.empty(3, np.uint32)
    with pytest.raises(ValueError, match="another size"):
        hamming.sort_into_buckets(keys, *out, bytes(5), np.empty(5, np.uint8), width)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("damage", ["beyond", "falling", "last", "ids", "masks", "end", "width"])
def test_damaged_tables_of_pairs(variant, damage):
    made = table(8)["table"]
    names = (
        "rows",
        "width",
        "ids",
        "offsets",
        "begin",
        "end",
        "radius",
        "masks",
        "shared",
        "table",
    )
    options = [made["rows"], 8, made["ids"], made["offsets"], 0, N, 64, made["mask"][None], 1, 1]
    given = dict(zip(names, options, strict=True))
    hamming.bucket_pairs(variant, *given.values())
    if damage == "beyond":
        given["offsets"][1:] = 2**32 - 1
    elif damage == "falling":
        given["offsets"][:] = given["offsets"][::-1].copy()
    elif damage == "last":
        given["offsets"][-1] = N + 1
    else:
        wrong = {"ids": given["ids"][1:], "masks": made["mask"][1:], "end": N + 1, "width": 5}
        given[damage] = wrong[damage]
    with pytest.raises(ValueError, match=r"offsets|ids|masks|end|width|rows"):
        hamming.bucket_pairs(variant, *given.values())
