"""A map of codes: points in the plane, near each other where their codes are.

The neighbour graph of the codes is drawn by attraction along its edges and repulsion between random
pairs, with the gradients of UMAP's cross-entropy (McInnes, Healy, Melville 2018, eq. 17-18) for
a = b = 1, all points at once and in NumPy. The start are the two principal components, so that the
large shape is that of the data; the same codes give the same map.

Memory: for n laid out codes about 500 n bytes for edges and forces; the kernels add none of n x n.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ddh.codes import search

Codes = NDArray[np.uint8]
Points = NDArray[np.float32]
Progress = Callable[[float], None]

LAID_OUT = 100_000  # different codes; more are placed by their nearest among these
NEIGHBOURS = 15
EPOCHS = 200
REPELLED = 5  # random others a point and epoch
REPULSION = 2.0  # for each attraction
STEP, LONGEST_STEP = 1.0, 4.0
PLACED_BY = 3
START_SPAN = 10.0
JITTER = 0.002  # of the span, between points of equal codes
EDGE = 0.999  # share of points within the map before the outermost are drawn in


def layout(codes: Codes, progress: Progress = lambda done: None, seed: int = 0) -> Points:
    """Points (n, 2) within [-1, 1] for packed codes; `progress` is called with 0 to 1.

    An exception of `progress` stops the work.
    """
    rng = np.random.default_rng(seed)
    whole = np.ascontiguousarray(codes).view(f"V{codes.shape[1]}").ravel()
    values, member = np.unique(whole, return_inverse=True)
    distinct = values.view(np.uint8).reshape(-1, codes.shape[1])
    if len(distinct) <= 2:
        few = np.array([(-0.5, 0), (0.5, 0)], np.float32)
        return _spread(few[member], member, rng)
    order = rng.permutation(len(distinct))
    laid, placed = np.sort(order[:LAID_OUT]), np.sort(order[LAID_OUT:])
    points: Points = np.empty((len(distinct), 2), np.float32)
    points[laid] = _optimise(distinct[laid], progress, rng)
    if len(placed):
        points[placed] = _place(distinct[placed], distinct[laid], points[laid], rng)
    progress(1.0)
    return _spread(_framed(points)[member], member, rng)


def principal_components(codes: Codes) -> Points:
    """The codes' bits on the two directions in which they vary most."""
    bits = np.unpackbits(codes, axis=1).astype(np.float32)
    bits -= bits.mean(axis=0, dtype=np.float64).astype(np.float32)
    _, directions = np.linalg.eigh((bits.T @ bits).astype(np.float64))
    plane = directions[:, -2:][:, ::-1].astype(np.float32)
    # eigh leaves the sign open: the largest entry of each direction is positive.
    plane *= np.sign(plane[np.abs(plane).argmax(axis=0), [0, 1]])
    return bits @ plane


def _graph(codes: Codes) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Edges i < j of the neighbour graph and their weights, 0 to 1.

    A neighbour counts by exp(-(d - d1) / s), where d1 is the distance of the nearest one and s the
    mean of d - d1; the two directions of an edge are joined as UMAP joins them.
    """
    n = len(codes)
    k = min(NEIGHBOURS, n - 1)
    distances, nearest = search(codes, codes, k + 1)
    apart = distances[:, 1:].astype(np.float32)  # codes differ, so the first is the row itself
    apart -= apart[:, :1]
    apart /= np.maximum(apart.mean(axis=1, keepdims=True), 1)
    rows = np.repeat(np.arange(n, dtype=np.int32), k)
    one_way = sparse.csr_array(
        (np.exp(-apart).ravel(), (rows, nearest[:, 1:].ravel().astype(np.int32))), shape=(n, n)
    )
    both = one_way + one_way.T - one_way * one_way.T
    upper = sparse.triu(both, k=1, format="coo")
    return upper.row, upper.col, upper.data


def _optimise(codes: Codes, progress: Progress, rng: np.random.Generator) -> Points:
    """Attraction along the edges, repulsion between random pairs, in steps that grow smaller."""
    progress(0.0)
    first, second, weight = _graph(codes)
    n = len(codes)
    points = principal_components(codes)
    points *= START_SPAN / max(float(np.abs(points).max()), 1e-6)
    points += rng.normal(0, 1e-2, points.shape).astype(np.float32)
    for epoch in range(EPOCHS):
        progress(0.05 + 0.95 * epoch / EPOCHS)
        taken = rng.random(len(weight), np.float32) < weight
        i, j = first[taken], second[taken]
        apart = points[i] - points[j]
        pull = apart * (np.float32(-2) / (1 + _squared(apart)))  # gradient of log 1 / (1 + d^2)
        degree = np.bincount(i, minlength=n) + np.bincount(j, minlength=n)
        force = _summed(i, pull, n) - _summed(j, pull, n)
        others = rng.integers(n, size=(REPELLED, n), dtype=np.int32)
        push = sum(_repulsion(points - points[other]) for other in others)
        force += push * (REPULSION / REPELLED * degree[:, None]).astype(np.float32)
        force *= STEP * (1 - epoch / EPOCHS) / np.maximum(degree, 1)[:, None].astype(np.float32)
        points += np.clip(force, -LONGEST_STEP, LONGEST_STEP)
    return points


def _repulsion(apart: Points) -> Points:
    """2 d / ((eps + d^2) (1 + d^2)): the gradient of log (1 - 1 / (1 + d^2)), bounded near 0."""
    squared = _squared(apart)
    return apart * (np.float32(2) / ((np.float32(0.001) + squared) * (1 + squared)))


def _squared(apart: Points) -> Points:
    return (apart[:, 0] ** 2 + apart[:, 1] ** 2)[:, None]


def _summed(rows: NDArray[np.int32], forces: Points, n: int) -> Points:
    sums = [np.bincount(rows, weights=forces[:, axis], minlength=n) for axis in (0, 1)]
    return np.stack(sums, axis=1).astype(np.float32)


def _place(codes: Codes, laid: Codes, points: Points, rng: np.random.Generator) -> Points:
    """Put codes between their nearest ones that have a place."""
    distances, nearest = search(codes, laid, min(PLACED_BY, len(laid)))
    share = 1 / (1 + distances.astype(np.float32))
    share /= share.sum(axis=1, keepdims=True)
    middle: Points = (points[nearest] * share[:, :, None]).sum(axis=1)
    return middle + rng.normal(0, 0.05, middle.shape).astype(np.float32)


def _framed(points: Points) -> Points:
    """Scaled to fill [-1, 1], the few outermost points drawn in to the edge."""
    centred = points - np.median(points, axis=0)
    reach = float(np.quantile(np.abs(centred).max(axis=1), EDGE))
    return np.clip(centred / max(reach, 1e-6), -1, 1).astype(np.float32)


def _spread(points: Points, member: NDArray[np.int64], rng: np.random.Generator) -> Points:
    """Rows of equal codes a little apart, so that each can be seen."""
    copies = np.bincount(member)[member] > 1
    points[copies] += rng.normal(0, JITTER, (int(copies.sum()), 2)).astype(np.float32)
    return np.clip(points, -1, 1)
