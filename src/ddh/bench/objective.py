"""`ddh bench objective`: the cost of one training step does not grow with the number of images."""

from typing import Any

import click
import numpy as np

from ddh._core.errors import InputError
from ddh._core.output import emit, json_option
from ddh.bench.options import numbers_option, seed_option
from ddh.bench.results import Table
from ddh.bench.timing import fastest

DENSE_LIMIT = 100_000
DENSE_STEPS, STEPS = 3, 50


@click.command()
@numbers_option("--images", "10000,100000,1000000", "Values of N.")
@click.option("--bits", default=64)
@click.option("--degree", default=60, help="Similar images per image.")
@click.option("--batch", default=128)
@seed_option
@json_option
def objective(images: tuple[int, ...], as_json: bool, **settings: int) -> None:
    """Time of one step (loss, gradient, memory update): our identity against dense products."""
    if min(images) <= max(settings["degree"], settings["batch"]):
        raise InputError("N must be larger than the degree and the batch")
    rows = [_measure(n, **settings) for n in images]
    shown = [
        (f"{n:,}", f"{step * 1e3:.2f} ms", f"{dense * 1e3:.1f} ms" if dense else "-")
        for n, step, dense in (row.values() for row in rows)
    ]
    columns = ["images", "one step", "dense batch x N"]
    table = Table("Time of one training step", columns, [list(row) for row in shown])
    emit({**settings, "rows": rows}, table.markdown(), as_json)


def _measure(n: int, bits: int, degree: int, batch: int, seed: int) -> dict[str, Any]:
    import torch

    from ddh.objective import GraphPositives, PairMemory, all_pairs

    generator = torch.Generator().manual_seed(seed)
    positives = GraphPositives(random_graph(n, degree, np.random.default_rng(seed)))
    memory = PairMemory(torch.randn(n, bits, generator=generator))
    layer = torch.nn.Linear(bits, bits)
    inputs = torch.randn(batch, bits, generator=generator)

    def forward() -> tuple[torch.Tensor, torch.Tensor]:
        drawn = torch.randint(0, n, (batch,), generator=generator)
        rows = torch.from_numpy(np.unique(drawn.numpy()))
        return rows, layer(inputs[: len(rows)])

    def exact_step() -> None:
        rows, z = forward()
        memory.update(rows, z)
        torch.autograd.backward(all_pairs(z, rows, positives, memory))

    def dense_step() -> None:
        rows, z = forward()
        signs = torch.full((len(rows), n), -1.0)
        owner, columns = positives.graph.entries(rows)
        signs[owner, columns] = 1.0
        torch.autograd.backward((z @ memory.outputs.T / bits - signs).square().sum())

    dense = None
    if n <= DENSE_LIMIT:
        dense = fastest(dense_step, DENSE_STEPS, "wall")
    return {"images": n, "step": fastest(exact_step, STEPS, "wall"), "dense step": dense}


def random_graph(n: int, degree: int, rng: np.random.Generator) -> Any:
    """A random graph in which every image has `degree` similar ones, as a CSR array."""
    from scipy import sparse

    columns = np.sort(rng.integers(0, n, (n, degree), dtype=np.int32), axis=1).ravel()
    starts = np.arange(0, n * degree + 1, degree, dtype=np.int64)
    return sparse.csr_array((np.ones(n * degree, np.int8), columns, starts), shape=(n, n))
