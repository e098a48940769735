"""A training run on disk, so that a killed run goes on where it was.

One safetensors file holds every tensor (hashing layer, trained network, optimiser, memory), its
header holds the rest. It is written beside the old one and moved into place. Order of batches
and augmentation are drawn from (seed, epoch, step), so nothing else needs to be kept, and on
a CPU a resumed run ends with the same weights, bit for bit.

Several processes write their shards of the memory beside it, under names that only this
checkpoint knows: it counts when the one file is in place, and then older shards go. Any number
of processes can take it up.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ddh.errors import ModelError
from ddh.objective import PairMemory
from ddh.training.processes import ALONE, Processes

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
        tensors = _module_tensors(modules, optimiser)
        if processes.alone:
            tensors |= {f"memory.{key}": value for key, value in _memory_tensors(memory).items()}
        _write(folder / FILE, tensors, {"state": json.dumps(state)})
        for shard in folder.glob("memory-*.safetensors"):
            if shard.name not in state.get("shards", {}):
                shard.unlink()


def _module_tensors(
    modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer
) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, module in modules.items():
        tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    for index, entry in optimiser.state_dict()["state"].items():
        tensors |= {
            f"optimiser.{index}.{key}": torch.as_tensor(value)
            for key, value in entry.items()
            if value is not None
        }
    return tensors


def _write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    tidy = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    save_file(tidy, temporary, metadata=metadata)
    temporary.replace(path)


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
            _write(folder / name, {"outputs": memory.outputs}, {})
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
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            state = json.loads(file.metadata()["state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise ModelError(f"the checkpoint {path} is damaged; delete it to start again") from error
    for key, value in expected.items():
        if state.get(key) != json.loads(json.dumps(value)):
            raise ModelError(
                f"the checkpoint in {folder} was made with {key} = {state.get(key)}, not {value}; "
                "resume with the same images and settings, or delete the folder to start again"
            )
    for name, module in modules.items():
        module.load_state_dict(_below(tensors, f"{name}."))
    _load_optimiser(optimiser, _below(tensors, "optimiser."))
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


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _load_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    optimiser.load_state_dict(
        {"state": state, "param_groups": optimiser.state_dict()["param_groups"]}
    )


def _memory_tensors(memory: PairMemory) -> dict[str, Tensor]:
    tensors = {"outputs": memory.outputs, "total": memory.all.total, "gram": memory.all.gram}
    if memory.groups is not None:
        tensors |= {"group_total": memory.groups.total, "group_gram": memory.groups.gram}
    return tensors
