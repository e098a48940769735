"""What the tests of several processes run in each of them: `torchrun processes_script.py FOLDER`.

The objective over shards against the formula written out, and fits of every kind, whose curves
and codes the tests compare with those of one process.
"""

import json
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from scipy import sparse

from ddh.backbones import ResNet
from ddh.hashers import DDH
from ddh.hashers import ddh as method
from ddh.neighbours import label_groups
from ddh.objective import all_pairs
from ddh.train.distributed import Processes, Shard, job
from ddh.train.sharding import ShardedGraph, ShardedGroups, ShardedMemory

N, L = 23, 6


def narrow(*given):
    """A small residual network with weights drawn from a fixed seed."""
    torch.manual_seed(0)
    return ResNet("resnet18", 8, tiny_stem=True, width=4)


# -- the objective ------------------------------------------------------------------------


def dense(z, batch, U, similar, alpha):
    """1/2 sum_i sum_{j != i} w_ij (z_i.u_j/L - s_ij)^2, written out."""
    signs = torch.where(similar[batch], 1.0, -1.0).double()
    weights = torch.where(similar[batch], alpha, 1.0).double()
    weights[torch.arange(len(batch)), batch] = 0
    return (weights * (z @ U.T / L - signs).square()).sum() / 2


def problem(kind, shard, rng):
    """(positives of the shard, groups, dense similarity)."""
    if kind == "graph":
        upper = np.triu(rng.random((N, N)) < 0.2, 1)
        similar = upper | upper.T
        rows = sparse.csr_array(similar[shard.rows].astype(np.int8))
        return ShardedGraph(rows, shard, "cpu"), None, similar
    y = np.r_[rng.integers(0, 4, N - 1), 4]  # the last group lives in the last shard only
    similar = y[:, None] == y[None]
    np.fill_diagonal(similar, False)
    positives = ShardedGroups(label_groups(y), shard, "cpu")
    return positives, len(positives.sizes), similar


def objective_errors(processes: Processes) -> dict[str, float]:
    """How far loss and gradient over shards are from the dense formula, after many updates."""
    shard, errors = Shard(processes, N), {}
    for kind in ("graph", "groups"):
        rng, generator = np.random.default_rng(7), torch.Generator().manual_seed(3)
        U = torch.from_numpy(rng.standard_normal((N, L)))
        positives, groups, similar = problem(kind, shard, rng)
        memory = ShardedMemory(
            shard, U[shard.rows], positives.group_of, group_grams=True, group_count=groups
        )
        for turn in range(30):
            # of the last batches one is a single image: a process without any rows
            batch = torch.randperm(N, generator=generator)[: 9 if turn < 28 else 1].numpy()
            z = torch.randn(len(batch), L, generator=generator, dtype=torch.float64)
            own = shard.own(batch)
            rows = torch.from_numpy(batch[own] - shard.rows.start)
            mine = z[own].requires_grad_()
            memory.update(rows, mine)
            U[batch] = z
            if turn < 25:
                continue
            for alpha in (1.0, 4.0):
                expected = z.clone().requires_grad_()
                slow = dense(expected, batch, U, torch.from_numpy(similar), alpha)
                (slope,) = torch.autograd.grad(slow, expected)
                fast = all_pairs(mine, rows, positives, memory, alpha)
                (found,) = torch.autograd.grad(fast, mine)
                total = fast.detach().clone()
                processes.all_reduce_(total)
                off = torch.stack([(total - slow.detach()).abs() / slow.detach(), torch.zeros(())])
                if len(own):
                    off[1] = (found - slope[own]).abs().max()
                processes.all_reduce_(off)
                name = f"{kind}, alpha {alpha:g}"
                errors[name] = max(errors.get(name, 0.0), float(off.max()))
            seen = positives.within(rows)
            images, _ = shard.images(rows)
            assert np.array_equal(seen.numpy(), similar[np.ix_(images, images)])
            assert np.array_equal(positives.counts(rows), similar.sum(axis=1)[batch[own]])
    return errors


# -- fits ---------------------------------------------------------------------------------


def features():
    rng = np.random.default_rng(0)
    centres = 3 * rng.standard_normal((5, 24))
    y = rng.integers(0, 5, 401)
    return (centres[y] + rng.standard_normal((401, 24))).astype(np.float32), y


def pictures():
    images = np.random.default_rng(1).integers(0, 256, (51, 8, 8, 3), dtype=np.uint8)
    images[:25] //= 4
    return images


def fits():
    """name -> (model, X, y)."""
    X, y = features()
    head = {"bits": 12, "epochs": 3, "batch_size": 64, "device": "cpu"}
    deep = {"bits": 8, "epochs": 2, "network_epochs": 2, "batch_size": 7, "device": "cpu"}
    return {
        "head": (DDH(**head), X, None),
        "head, weighted": (DDH(preset="paper", **head | {"epochs": 8}, alpha=3.0), X, None),
        "head, pairs of a batch": (DDH(**head, pairs="batch"), X, None),
        "head, labels": (DDH(**head, alpha=2.0), X, y),
        "last stage": (DDH(**deep, depth="last stage", keep_better=False), pictures(), None),
        "last stage, watched": (DDH(**deep, depth="last stage"), pictures(), None),
        "network": (
            DDH(**deep | {"network_epochs": 0}, depth="network", lambda2=1e-3),
            pictures(),
            None,
        ),
    }


def outcome(name, work):
    """The curves and the outputs z of one fit; pictures are seen by the small network."""
    model, X, y = fits()[name]
    with patch.object(method, "create", narrow):
        model.fit(X, y, checkpoint_dir=work)
    z = model._outputs(X) if X.ndim == 2 else model.transform(X)
    names = ("loss", "precision", "stability")  # the last two where a network is watched
    curves = [[entry.get(name, 0.0) for name in names] for entry in model.history_]
    return curves, np.asarray(z, float)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    with job("cpu") as processes:
        errors = objective_errors(processes)
        for number, name in enumerate(fits()):
            curve, z = outcome(name, folder / f"work{number}")
            if processes.is_main:
                np.savez(folder / f"{number}.npz", curve=curve, z=z)
        if processes.is_main:
            (folder / "errors.json").write_text(json.dumps(errors))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
