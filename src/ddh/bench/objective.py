"""`ddh bench objective`: the cost of one training step does not grow with the number of images."""

import time
from collections.abc import Callable

import click
import numpy as np

from ddh._core.errors import InputError
from ddh._core.output import emit, json_option

DENSE_LIMIT = 100_000
DENSE_STEPS, STEPS = 3, 50


@click.command()
@click.option("--images", default="10000,100000,1000000", show_default=True, help="Values of N.")
@click.option("--bits", default=64, show_default=True)
@click.option("--degree", default=60, show_default=True, help="Similar images of each image.")
@click.option("--batch", default=128, show_default=True)
@click.option("--seed", default=0, show_default=True)
@json_option
def objective(images: str, bits: int, degree: int, batch: int, seed: int, as_json: bool) -> None:
    """Time of one step (loss, gradient, memory update) by the identity, and by dense products."""
    sizes = [int(part) for part in images.split(",")]
    if min(sizes) <= max(degree, batch):
        raise InputError("N must be larger than the degree and the batch")
    rows = [_measure(n, bits, degree, batch, seed) for n in sizes]
    document = {"bits": bits, "degree": degree, "batch": batch, "seed": seed, "rows": rows}
    emit(document, _table(rows), as_json)


def _measure(n: int, bits: int, degree: int, batch: int, seed: int) -> dict[str, float | None]:
    import torch

    from ddh.objective import GraphPositives, PairMemory, all_pairs

    generator = torch.Generator().manual_seed(seed)
    positives = GraphPositives(random_graph(n, degree, np.random.default_rng(seed)))
    memory = PairMemory(torch.randn(n, bits, generator=generator))
    layer = torch.nn.Linear(bits, bits)
    inputs = torch.randn(batch, bits, generator=generator)

    def exact_step() -> None:
        rows = torch.randint(0, n, (batch,), generator=generator).unique()
        z = layer(inputs[: len(rows)])
        memory.update(rows, z)
        all_pairs(z, rows, positives, memory).backward()  # type: ignore[no-untyped-call]

    def dense_step() -> None:
        rows = torch.randint(0, n, (batch,), generator=generator).unique()
        z = layer(inputs[: len(rows)])
        signs = torch.full((len(rows), n), -1.0)
        owner, columns = positives.graph.entries(rows)
        signs[owner, columns] = 1.0
        (z @ memory.outputs.T / bits - signs).square().sum().backward()

    dense = _seconds(dense_step, DENSE_STEPS) if n <= DENSE_LIMIT else None
    return {"images": n, "step": _seconds(exact_step, STEPS), "dense step": dense}


def random_graph(n: int, degree: int, rng: np.random.Generator):  # type: ignore[no-untyped-def]
    """A random graph in which every image has `degree` similar ones."""
    from scipy import sparse

    columns = np.sort(rng.integers(0, n, (n, degree), dtype=np.int32), axis=1).ravel()
    starts = np.arange(0, n * degree + 1, degree, dtype=np.int64)
    return sparse.csr_array((np.ones(n * degree, np.int8), columns, starts), shape=(n, n))


def _seconds(step: Callable[[], None], repeats: int) -> float:
    """The quickest of the repeats after two to warm up: other work on the machine only adds."""
    step()
    step()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    return min(times)


def _table(rows: list[dict[str, float | None]]) -> str:
    lines = [f"{'images':>10}{'one step':>12}{'dense batch x N':>18}"]
    for row in rows:
        dense = f"{row['dense step'] * 1e3:.1f} ms" if row["dense step"] else "-"
        lines.append(f"{row['images']:>10,}{row['step'] * 1e3:>9.2f} ms{dense:>18}")  # type: ignore[operator]
    return "\n".join(lines)
