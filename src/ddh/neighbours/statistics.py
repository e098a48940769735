"""Statistics of S: degrees, components, hubs, and precision against known labels."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ddh._core.errors import InputError
from ddh._core.labels import check_labels
from ddh._core.spans import spans
from ddh.neighbours.alg1 import expand_in
from ddh.neighbours.approximate import Approximation
from ddh.neighbours.cosine import cosine_space
from ddh.neighbours.knn import nearest_in
from ddh.neighbours.labels import LabelGroups, label_groups
from ddh.neighbours.overlap import check_lists

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Pairs whose labels are compared at a time.
PAIRS = 1 << 20
TOP_HUBS = 10


@dataclass(frozen=True)
class Hubs:
    """Images that are in very many lists: in-degrees of the first stage (K1 on average)."""

    largest: int
    skewness: float
    top: list[tuple[int, int]]


@dataclass(frozen=True)
class GraphStatistics:
    """Statistics of a neighbourhood graph; what needs lists or labels is None without them.

    `degree_quantiles` belong to `QUANTILES`. Precision is the share of ordered pairs with a
    common label among the pairs of labelled images: `first_precision` of the K1 lists,
    `precision` of S (the paper's Fig. 2).
    """

    images: int
    edges: int
    degree_min: int
    degree_mean: float
    degree_max: int
    degree_quantiles: list[float]
    isolated: int
    components: int
    largest_share: float
    hubs: Hubs | None = None
    first_precision: float | None = None
    precision: float | None = None
    approximation: Approximation | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        quantiles = ", ".join(
            f"{100 * share:g} %: {value:g}"
            for share, value in zip(QUANTILES, self.degree_quantiles, strict=True)
        )
        lines = [
            f"{self.images:,} images, {self.edges:,} similar pairs",
            f"degree       {self.degree_min} to {self.degree_max}, mean {self.degree_mean:.1f}"
            f" ({quantiles})",
            f"isolated     {self.isolated:,}",
            f"components   {self.components:,}, the largest holds {self.largest_share:.1%}",
        ]
        if self.hubs is not None:
            top = ", ".join(f"{image} ({count})" for image, count in self.hubs.top[:5])
            lines.append(
                f"hubs         in up to {self.hubs.largest} lists, skewness "
                f"{self.hubs.skewness:.2f}; most named: {top}"
            )
        if self.first_precision is not None:
            lines.append(f"precision    {self.first_precision:.3f} in the first stage")
        if self.precision is not None:
            lines.append(f"precision    {self.precision:.3f} in S")
        if self.approximation is not None:
            lines.append(str(self.approximation))
        return "\n".join(lines)


@dataclass(frozen=True)
class PrecisionPoint:
    """A point of the paper's Fig. 2: precision of both stages at one K1."""

    k1: int
    first: float | None
    second: float | None
    mean_degree: float


def statistics(
    S: sparse.csr_array,
    labels: ArrayLike | None = None,
    *,
    lists: ArrayLike | None = None,
    approximation: Approximation | None = None,
) -> GraphStatistics:
    """Degrees, components, hubs and precision of a neighbourhood graph.

    Memory: some numbers per image, and PAIRS pairs at a time.

    Parameters
    ----------
    S : csr_array, shape (N, N)
    labels : array-like, optional
        Known classes (N,) or a 0/1 matrix, for the precision.
    lists : array-like of int, shape (N, K1), optional
        Lists of the first stage, for hubs and the precision of that stage.
    approximation : Approximation, optional
        Report of `approximate_labels`, to be carried along.
    """
    S = sparse.csr_array(S)
    images = S.shape[0]
    if images == 0 or S.shape[1] != images:
        raise InputError(f"S is a square matrix, not one of shape {S.shape}")
    degree = np.diff(S.indptr)
    components, component_of = sparse.csgraph.connected_components(S, directed=False)
    first = None if lists is None else check_lists(lists)
    if first is not None and len(first) != images:
        raise InputError(f"{len(first)} lists do not fit a graph of {images} images")
    known = None if labels is None else label_groups(check_labels(labels, images))
    return GraphStatistics(
        images=images,
        edges=S.nnz // 2,
        degree_min=int(degree.min()),
        degree_mean=float(degree.mean()),
        degree_max=int(degree.max()),
        degree_quantiles=np.quantile(degree, QUANTILES).tolist(),
        isolated=int((degree == 0).sum()),
        components=int(components),
        largest_share=float(np.bincount(component_of).max() / images),
        hubs=None if first is None else hubs(first),
        first_precision=None if first is None else _precision(known, graph_of(first)),
        precision=_precision(known, S),
        approximation=approximation,
    )


def graph_of(lists: NDArray[np.integer]) -> sparse.csr_array:
    """S_1 of the paper: the first-stage lists as a (directed) graph."""
    images, k1 = lists.shape
    starts = np.arange(0, lists.size + 1, k1)
    return sparse.csr_array((np.ones(lists.size, np.int8), lists.ravel(), starts), (images, images))


def hubs(lists: NDArray[np.integer]) -> Hubs:
    """How unevenly the lists name images."""
    named = np.bincount(lists.ravel(), minlength=len(lists))
    spread = named.std()
    skewness = float(((named - named.mean()) ** 3).mean() / spread**3) if spread > 0 else 0.0
    top = np.argsort(-named, kind="stable")[:TOP_HUBS]
    return Hubs(int(named.max()), skewness, [(int(i), int(named[i])) for i in top])


def precision_over_k(
    features: ArrayLike,
    labels: ArrayLike,
    ks: Sequence[int] = (5, 10, 15, 20, 30, 50, 100),
    k2: int = 6,
    *,
    centre: bool = False,
    device: Any = None,
) -> list[PrecisionPoint]:
    """The paper's Fig. 2: precision of the first and the second stage for each K1 of `ks`."""
    space = cosine_space(features, centre=centre)
    known = label_groups(check_labels(labels, len(space)))
    if not ks:
        raise InputError("precision_over_k needs at least one value of K1")
    lists, _ = nearest_in(space, max(ks), device=device)
    points = []
    for k1 in ks:
        S = expand_in(space, lists[:, :k1], k2)
        first = _precision(known, graph_of(lists[:, :k1]))
        points.append(PrecisionPoint(k1, first, _precision(known, S), S.nnz / len(space)))
    return points


def _precision(groups: LabelGroups | None, S: sparse.csr_array) -> float | None:
    """Share of the pairs of S with two labelled images that have a label in common."""
    if groups is None:
        return None
    correct = judged = 0
    labelled = groups.labelled()
    owner = np.repeat(np.arange(S.shape[0], dtype=np.int32), np.diff(S.indptr))
    for part in spans(S.nnz, PAIRS):
        i, j = owner[part], S.indices[part]
        correct += int(groups.similar(i, j).sum())
        judged += int((labelled[i] & labelled[j]).sum())
    return correct / judged if judged else None
