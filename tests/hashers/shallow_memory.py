"""Fit one shallow method after the other and print the peak memory of this process in bytes.

python shallow_memory.py ROWS DIMENSIONS BITS METHOD...
"""

import json
import resource
import sys

import numpy as np

from ddh.hashers import create

QUICK = {"FastH": {"trees": 10}, "KMH": {"iterations": 5}}


def peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def main(rows: int, dimensions: int, bits: int, names: list[str]) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, rows)
    X = rng.standard_normal((rows, dimensions), np.float32)
    X += rng.standard_normal((10, dimensions), np.float32)[y]
    report = {"before": peak_bytes()}
    for name in names:
        create(name, bits=bits, **QUICK.get(name, {})).fit(X, y).transform(X[:10])
        report[name] = peak_bytes()
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
