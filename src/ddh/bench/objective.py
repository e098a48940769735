"""`ddh bench objective`: the cost of one training step does not grow with the number of images."""

from typing import Any

import click
import numpy as np

from ddh._core.errors import InputError
from ddh._core.output import emit, json_option
from ddh.bench.options import seed_option, whole_numbers
from ddh.bench.timing import fastest

DENSE_LIMIT = 100_000
DENSE_STEPS, STEPS = 3, 50


@click.command()
@click.option("--images", default="10000,100000,1000000", show_default=True, help="Values of N.")
@click.option("--bits", default=64, show_default=True)
@click.option("--degree", default=60, show_default=True, help="Similar images per image.")
@click.option("--batch", default=128, show_default=True)
@seed_option
@json_option
def objective(images: str, as_json: bool, **settings: int) -> None:
    """Time of one step (loss, gradient, memory update): our identity against dense products."""
    sizes = whole_numbers(images, "numbers of images")
    if min(sizes) <= max(settings["degree"], settings["batch"]):
        raise InputError("N must be larger than the degree and the batch")
    rows = [_measure(n, **settings) for n in sizes]
    lines = [f"{'images':>10}{'one step':>12}{'dense batch x N':>18}"]
    for n, step, dense in (row.values() for row in rows):
        told = f"{dense * 1e3:.1f} ms" if dense else "-"
        lines.append(f"{n:>10,}{step * 1e3:>9.2f} ms{told:>18}")
    emit({**settings, "rows": rows}, "\n".join(lines), as_json)


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
