"""Check every instruction set of the native kernel that this processor has. Needs NumPy alone.

    python tests/codes/native_check.py --build    compile the extension first, with cc

The test suite runs the same checks; this is for machines that have no more than Python, NumPy
and a C compiler.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).resolve().parents[2] / "src"

WIDTHS = [1, 2, 3, 4, 5, 8, 9, 12, 16, 24, 31, 32, 33, 64, 100, 512]
ROWS = [1, 5, 63, 64, 65, 130, 1000, 3000]


def build() -> None:
    """Compile the extension where Python finds it."""
    folder = SOURCE / "ddh" / "codes"
    target = folder / f"_hamming{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(
        [
            *("cc", "-O3", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"),
            f"-I{sysconfig.get_paths()['include']}",
            *(str(folder / "_hamming.c"), "-o", str(target)),
        ],
        check=True,
    )


def distances(queries: np.ndarray, database: np.ndarray) -> np.ndarray:
    """All distances by a product of matrices of bits, which no kernel uses."""
    a = np.unpackbits(queries, axis=1).astype(np.float32)
    b = np.unpackbits(database, axis=1).astype(np.float32)
    return (a @ (1 - b).T + (1 - a) @ b.T).astype(np.int32)


def codes_around(rng: np.random.Generator, centres: np.ndarray, n: int, flips: float) -> np.ndarray:
    """Rows that differ from a random centre in a share of their bits: many ties and duplicates."""
    bits = centres[rng.integers(len(centres), size=n)] ^ (rng.random((n, centres.shape[1])) < flips)
    return np.packbits(bits, axis=1)


def check_search(codes, queries: np.ndarray, database: np.ndarray, ks: list[int]) -> None:
    """Top-k, radius and all distances against the oracle."""
    true = distances(queries, database)
    order = np.argsort(true, axis=1, kind="stable")
    np.testing.assert_array_equal(codes.hamming(queries, database), true)
    for k in ks:
        found = codes.search(queries, database, k)
        np.testing.assert_array_equal(found.indices, order[:, :k])
        np.testing.assert_array_equal(found.distances, np.take_along_axis(true, order[:, :k], 1))
    for radius in {0, int(np.quantile(true, 0.02)), int(np.quantile(true, 0.4)), 8 * 512}:
        found = codes.search_radius(queries, database, radius)
        inside = np.take_along_axis(true, order, 1) <= radius
        np.testing.assert_array_equal(found.limits, np.append(0, inside.sum(1).cumsum()))
        np.testing.assert_array_equal(found.indices, order[inside])


def check_asymmetric(codes, rng: np.random.Generator, database: np.ndarray, ks: list[int]) -> None:
    """The rows of the highest scores; small integers as values give many ties and exact sums."""
    signs = 2.0 * np.unpackbits(database, axis=1) - 1.0
    for values in (
        rng.integers(-3, 4, (20, signs.shape[1])),
        rng.standard_normal((3, signs.shape[1])).astype(np.float32),
    ):
        true = values.astype(np.float64) @ signs.T
        order = np.argsort(-true, axis=1, kind="stable")
        np.testing.assert_array_equal(codes.asymmetric_scores(values, database), true)
        for k in ks:
            found = codes.search_asymmetric(values, database, k)
            np.testing.assert_array_equal(found.indices, order[:, :k])
            np.testing.assert_array_equal(found.scores, np.take_along_axis(true, order[:, :k], 1))


def check_indexes(codes, rng: np.random.Generator) -> int:
    """Buckets that never leave a query to the scan, and all lists of an approximate index."""
    from ddh.codes import multi_index

    before = multi_index.BUCKET, multi_index.row_cost, multi_index.radius_cost
    multi_index.BUCKET = 0.0
    multi_index.row_cost = lambda width: 0.0
    multi_index.radius_cost = lambda *arguments: 0.0
    count = 0
    for bits in [12, 16, 24, 32, 40, 64, 100, 128]:
        centres = rng.integers(0, 2, (60, bits))
        database = codes_around(rng, centres, 12_000, 0.06)
        queries = codes_around(rng, centres, 40, 0.03)
        true = distances(queries, database)
        order = np.argsort(true, axis=1, kind="stable")
        index = codes.MultiIndex(database, bits)
        np.testing.assert_array_equal(index.search(queries, 10).indices, order[:, :10])
        inside = np.take_along_axis(true, order, 1) <= 3
        np.testing.assert_array_equal(index.search_radius(queries, 3).indices, order[inside])
        lists = codes.ApproximateIndex(database, bits)
        found = lists.search(queries, 10, probes=len(lists.centres))
        np.testing.assert_array_equal(found.indices, order[:, :10])
        count += 3
    multi_index.BUCKET, multi_index.row_cost, multi_index.radius_cost = before
    return count


def check(variant: str, seed: int = 0) -> int:
    """Compare one instruction set with the oracle; the number of searches."""
    os.environ["DDH_KERNEL"] = variant
    from ddh import codes

    rng = np.random.default_rng(seed)
    count = 0
    for width in WIDTHS:
        for rows in ROWS:
            for queries, flips in [(3, 0.5), (40, 0.02), (150, 0.3)]:
                if rows * queries * width > 3_000_000:
                    continue
                centres = rng.integers(0, 2, (4, 8 * width))
                database = codes_around(rng, centres, rows, flips)
                ks = sorted({1, min(10, rows), rows})
                check_search(codes, codes_around(rng, centres, queries, flips), database, ks)
                check_asymmetric(codes, rng, database, [*ks, max(1, rows // 20)])
                count += 2
    return count + check_indexes(codes, rng)


def main() -> None:
    if "--build" in sys.argv:
        build()
    sys.path.insert(0, str(SOURCE))
    from ddh.codes import _hamming

    for variant in _hamming.variants():
        print(f"{variant}: {check(variant)} searches agree with the oracle", flush=True)


if __name__ == "__main__":
    main()
