"""ddh for ann-benchmarks and benchmarks built like it: the point type is `bit`, the metric Hamming.

Copy this folder to `ann_benchmarks/algorithms/ddh` there. `python run.py` beside this file runs the
same classes without that framework.
"""

import numpy as np

from ddh import codes

try:
    from ..base.module import BaseANN
except ImportError:  # outside of ann-benchmarks

    class BaseANN:  # type: ignore[no-redef]
        """What a benchmark calls."""

        def done(self) -> None:
            """Nothing to close."""


class _Codes(BaseANN):
    def __init__(self, metric: str) -> None:
        if metric != "hamming":
            raise NotImplementedError(f"ddh searches by Hamming distance, not {metric}")
        self._found = np.empty((0, 0), np.int64)

    def query(self, v: np.ndarray, n: int) -> np.ndarray:
        """The n nearest rows of one query, given as bits."""
        return self._search(np.packbits(v)[None], n, 1)[0]

    def batch_query(self, X: np.ndarray, n: int) -> None:
        """The same for many queries at once, with every core."""
        self._found = self._search(np.packbits(X, axis=1), n, None)

    def get_batch_results(self) -> np.ndarray:
        """What `batch_query` found."""
        return self._found

    def __str__(self) -> str:
        return self.name


class DDHScan(_Codes):
    """Exact: every row."""

    name = "DDHScan()"

    def fit(self, X: np.ndarray) -> None:
        """Rows of bits."""
        self._rows = np.packbits(X, axis=1)

    def _search(self, queries: np.ndarray, n: int, threads: int | None) -> np.ndarray:
        return codes.search(queries, self._rows, n, threads).indices


class DDHMultiIndex(_Codes):
    """Exact: buckets of substrings, or every row where that is less work."""

    name = "DDHMultiIndex()"

    def fit(self, X: np.ndarray) -> None:
        """Rows of bits."""
        self._index = codes.MultiIndex(np.packbits(X, axis=1), X.shape[1])

    def _search(self, queries: np.ndarray, n: int, threads: int | None) -> np.ndarray:
        return self._index.search(queries, n, threads).indices


class DDHLists(_Codes):
    """Approximate: inverted lists around centroids; `probes` of them are looked through."""

    def __init__(self, metric: str) -> None:
        super().__init__(metric)
        self._probes: int | None = None

    def fit(self, X: np.ndarray) -> None:
        """Rows of bits."""
        self._index = codes.ApproximateIndex(np.packbits(X, axis=1), X.shape[1])

    def set_query_arguments(self, probes: int) -> None:
        """How many lists; 0 takes what the index measured for a recall of 0.99."""
        self._probes = probes or None

    @property
    def name(self) -> str:
        """With its parameter."""
        return f"DDHLists(probes={self._probes or 'measured'})"

    def _search(self, queries: np.ndarray, n: int, threads: int | None) -> np.ndarray:
        probes = self._probes if self._index.probes else None
        return self._index.search(queries, n, threads, probes).indices
