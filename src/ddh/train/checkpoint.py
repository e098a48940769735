"""A training run on disk, so that a killed run goes on where it was.

One file (see `checkpoint_io`) holds hashing layer, trained network, optimiser, memory and state.
Order of batches and augmentation are drawn from (seed, epoch, step), so nothing else is kept,
and on a CPU a resumed run ends with the same weights, bit for bit.

Several processes write their shards of the memory beside it, under names that only this
checkpoint knows: it counts when the one file is in place, and then older shards go. Any number
of processes can take it up.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ddh._core.errors import ModelError
from ddh.objective import PairMemory
from ddh.train import checkpoint_io
from ddh.train.distributed import ALONE, Processes

FILE = "training.safetensors"


def save(
    folder: Path,
    modules: dict[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    memory: PairMemory,
    state: dict[str, Any],
    processes: Processes = ALONE,
) -> None:
    """Write the checkpoint of a run; `state` is plain values (epoch, step, history, settings)."""
    folder.mkdir(parents=True, exist_ok=True)
    if not processes.alone:
        state = state | {"shards": _save_shard(folder, memory, state, processes)}
    if processes.first:
        tensors = checkpoint_io.collect(modules, optimiser)
        if processes.alone:
            tensors |= {f"memory.{key}": value for key, value in _memory_tensors(memory).items()}
        checkpoint_io.write(folder / FILE, tensors, state)
        for shard in folder.glob("memory-*.safetensors"):
            if shard.name not in state.get("shards", {}):
                shard.unlink()


def _save_shard(
    folder: Path, memory: PairMemory, state: dict[str, Any], processes: Processes
) -> dict[str, list[int]]:
    """Write this process's rows of U; returns {file: [first row, last row + 1]} of all of them."""
    shards = {}
    for rank in range(processes.size):
        rows = processes.shard(len(memory), rank)
        name = f"memory-{state['epoch']}-{state['step']}-{rows.start}-{rows.stop}.safetensors"
        shards[name] = [rows.start, rows.stop]
        if rank == processes.rank:
            checkpoint_io.write(folder / name, {"outputs": memory.outputs})
    processes.sums([1.0], memory.outputs.device)  # every shard is there before the one file is
    return shards


def load(
    folder: Path,
    modules: dict[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    memory: PairMemory,
    expected: dict[str, Any],
    processes: Processes = ALONE,
) -> dict[str, Any] | None:
    """Put a saved run back into these objects and return its state; None when there is none.

    `expected` are the values of the state that must agree, or the run is another one.
    """
    found = checkpoint_io.read(folder / FILE, expected)
    if found is None:
        return None
    state, tensors = found
    checkpoint_io.restore(tensors, modules, optimiser)
    if processes.alone and "shards" not in state:
        for key, target in _memory_tensors(memory).items():
            target.copy_(tensors[f"memory.{key}"])
    else:
        _load_rows(folder, memory, tensors.get("memory.outputs"), state, processes)
        memory.refresh()
    return state


def _load_rows(
    folder: Path,
    memory: PairMemory,
    whole: Tensor | None,
    state: dict[str, Any],
    processes: Processes,
) -> None:
    """This process's rows of U, from the whole or from the shards that some processes wrote."""
    mine = processes.shard(len(memory))
    if whole is not None:
        memory.outputs.copy_(whole[mine])
        return
    for name, (start, stop) in state["shards"].items():
        first, last = max(start, mine.start), min(stop, mine.stop)
        if first >= last:
            continue
        try:
            with safe_open(folder / name, "pt") as file:
                rows = file.get_slice("outputs")[first - start : last - start]
        except (OSError, SafetensorError) as error:
            raise ModelError(
                f"{folder / name} of the checkpoint is missing or damaged; "
                "delete the folder to start again"
            ) from error
        memory.outputs[first - mine.start : last - mine.start] = rows.to(memory.outputs)


def _memory_tensors(memory: PairMemory) -> dict[str, Tensor]:
    tensors = {"outputs": memory.outputs, "total": memory.all.total, "gram": memory.all.gram}
    if memory.groups is not None:
        tensors |= {"group_total": memory.groups.total, "group_gram": memory.groups.gram}
    return tensors
