"""`ddh bench labels`: time and memory of the pairwise labels (paper 2.1), beside simple baselines.

Each part runs in a fresh process, so that its peak memory is its own. The CPU time of all threads
is compared, which stays meaningful on a machine with other load.
"""

from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import InputError
from ddh._core.output import emit, json_option
from ddh.bench.options import quick_option, seed_option
from ddh.bench.results import Table, table_of
from ddh.bench.timing import peak, run_isolated, timed

QUICK = {"images": 4000, "dimensions": 256, "lists": 20_000, "naive": 300}
CLUSTER = 256
BLOCK = 2048


@click.command()
@click.option("--images", default=50_000, help="N of the neighbour search.")
@click.option("--dimensions", default=1280)
@click.option("--k1", default=15)
@click.option("--k2", default=6)
@click.option("--lists", default=1_000_000, help="N of the expansion alone.")
@click.option("--naive", default=2000, help="N of the loop over all pairs.")
@click.option(
    "--features",
    type=click.Path(exists=True, dir_okay=False),
    help="Features in a .npy file, instead of synthetic ones.",
)
@click.option("--device", default="cpu", help="Device of the neighbour search.")
@seed_option
@quick_option
@json_option
def labels(quick: bool, as_json: bool, **settings: Any) -> None:
    """Time and memory of the neighbour lists and of their expansion (Algorithm 1).

    \b
    ddh bench labels                       the sizes of docs/labels.md, some minutes
    ddh bench labels --quick
    ddh bench labels --features photos.npy --device cuda
    """
    settings.update(QUICK if quick else {})
    if min(settings[name] for name in ("images", "lists", "naive")) <= CLUSTER:
        raise InputError(f"the numbers of images must be larger than {CLUSTER}")
    document: dict[str, Any] = {"settings": settings}
    for part in (_from_features, _plain, _from_lists, _naive):
        document.update(run_isolated(part, settings))
    emit(document, _table(document).markdown(), as_json)


def _from_features(
    images: int, dimensions: int, k1: int, k2: int, device: str, seed: int, **other: Any
) -> dict[str, Any]:
    from ddh.neighbours import expand, knn

    X = _features(images, dimensions, seed, other["features"])
    expand(knn(X[:CLUSTER], k1, device=device), k2, X[:CLUSTER])  # imports, starts the device
    lists, nearest = timed(lambda: knn(X, k1, device=device))
    S, expansion = timed(lambda: expand(lists, k2, X))
    return {"knn": nearest, "expansion": {**expansion, "mean degree": S.nnz / len(X)}}


def _plain(
    images: int, dimensions: int, k1: int, device: str, seed: int, **other: Any
) -> dict[str, Any]:
    import torch

    X = torch.from_numpy(_features(images, dimensions, seed, other["features"])).to(device)

    def blocked() -> Any:
        units = torch.nn.functional.normalize(X.float())
        found = []
        for start in range(0, len(units), BLOCK):
            cosines = units[start : start + BLOCK] @ units.T
            rows = torch.arange(len(cosines), device=device)
            cosines[rows, start + rows] = -2
            found.append(cosines.topk(k1, dim=1).indices)
        return torch.cat(found).cpu()

    if device != "cpu":
        blocked()
    return {"plain knn": timed(blocked)[1]}


def _from_lists(lists: int, k1: int, k2: int, seed: int, **_: Any) -> dict[str, Any]:
    from ddh.neighbours import expand
    from ddh.neighbours.overlap import membership

    ready = clustered_lists(lists, k1, np.random.default_rng(seed))
    S, ours = timed(expand, ready, k2)
    found = {"lists": {**ours, "mean degree": S.nnz / len(ready), "peak MB": peak()}}
    del S

    def product() -> None:
        A = membership(ready).matrix(len(ready))
        transposed = A.T.tocsr()
        for start in range(0, len(ready), BLOCK):
            A[start : start + BLOCK] @ transposed

    return {"lists product": timed(product)[1], **found}


def _naive(naive: int, dimensions: int, k1: int, k2: int, seed: int, **_: Any) -> dict[str, Any]:
    from ddh.neighbours import expand, knn

    X = _features(naive, dimensions, seed, None)
    lists = knn(X, k1)
    S, ours = timed(expand, lists, k2)
    plain, loop = timed(naive_expansion, lists, k2)
    if [set(S.indices[a:b]) for a, b in zip(S.indptr, S.indptr[1:], strict=False)] != plain:
        raise AssertionError("the expansion and the loop over all pairs differ")
    return {"small": ours, "small naive": loop}


def naive_expansion(lists: NDArray[np.int32], k2: int) -> list[set[int]]:
    """Alg. 1 as the paper prints it: every list against every other, with Python's sets."""
    members = [{i, *row} for i, row in enumerate(lists.tolist())]
    S: list[set[int]] = [set() for _ in members]
    for i, mine in enumerate(members):
        overlaps = [(-len(mine & other), j) for j, other in enumerate(members)]
        for _, k in sorted(pair for pair in overlaps if pair[0] < 0)[:k2]:
            for j in members[k] - {i}:
                S[i].add(j)
                S[j].add(i)
    return S


# -- synthetic data ------------------------------------------------------------------------


def _features(images: int, dimensions: int, seed: int, file: str | None) -> NDArray[Any]:
    if file is not None:
        return np.asarray(np.load(file, mmap_mode="r"))
    return clustered_features(images, dimensions, np.random.default_rng(seed))


def clustered_features(
    images: int, dimensions: int, rng: np.random.Generator, out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Features like those of a pooled convolutional layer: clustered, non-negative, with variances
    that decay as a power of their rank. `out` may be a memory-mapped file to fill."""
    scale = (np.arange(1, dimensions + 1) ** -0.6).astype(np.float32)
    mixing = rng.standard_normal((dimensions, dimensions), np.float32) / dimensions**0.5
    centres = rng.standard_normal((max(2, images // CLUSTER), dimensions), np.float32)
    features = np.empty((images, dimensions), np.float32) if out is None else out
    for start in range(0, images, BLOCK):
        part = features[start : start + BLOCK]
        part[:] = rng.standard_normal(part.shape, np.float32)
        part += centres[rng.integers(0, len(centres), len(part))]
        np.maximum((part * scale) @ mixing, 0, out=part)
    return features


def clustered_lists(images: int, k: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Lists of the k nearest among points in clusters of 256, in shuffled order."""
    size = max(CLUSTER, k + 1)
    numbers = rng.permutation(images).astype(np.int32)
    lists = np.empty((images, k), np.int32)
    for start in range(0, images, size):
        # the last cluster is completed from the one before it
        cluster = numbers[max(0, min(start, images - size)) :][:size]
        points = rng.standard_normal((size, 16), np.float32)
        squares = np.square(points).sum(axis=1)
        distances = squares[:, None] + squares - 2 * points @ points.T
        np.fill_diagonal(distances, np.inf)
        lists[cluster] = cluster[np.argpartition(distances, k, axis=1)[:, :k]]
    return lists


def _table(found: dict[str, Any]) -> Table:
    settings = found["settings"]
    sizes = f"{settings['images']:,} x {settings['dimensions']}"
    parts = [
        (f"float32 blocks and top-k, {sizes}", "plain knn", None),
        ("exact neighbours", "knn", "plain knn"),
        ("expansion, with cosines for ties", "expansion", "knn"),
        (f"SciPy's A A^T in blocks, {settings['lists']:,} lists", "lists product", None),
        ("expansion of the lists", "lists", "lists product"),
        (f"loop over all pairs, {settings['naive']:,} lists", "small naive", None),
        ("expansion of the lists", "small", "small naive"),
    ]
    clock = "cpu" if settings["device"] == "cpu" else "wall"
    records = []
    for title, name, base in parts:
        ratio = f"{found[name][clock] / max(found[base][clock], 1e-9):.3f}" if base else ""
        records.append({"part": title, "ratio": ratio, **found[name]})
    columns = {
        "part": "{part}",
        "seconds": "{wall:.2f}",
        "CPU s": "{cpu:.2f}",
        "peak MB": "{peak MB:,.0f}",
        "ratio": "{ratio}",
    }
    title = "K1 = {k1}, K2 = {k2}, seed {seed}, {device}".format_map(settings)
    return table_of(title, records, columns)
