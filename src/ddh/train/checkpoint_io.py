"""Checkpoints of a training run: safetensors files, written atomically, plain values in the
header.

Processes that train together each write their rows of sharded tensors beside the one file, under
names that only it knows: the checkpoint counts, and older shards are deleted, when it is in place.
Any number of processes can resume from it.
"""

import json
import zlib
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ddh._core.atomic import atomic_path
from ddh._core.errors import DDHError, ModelError
from ddh.train.distributed import SINGLE, Processes
from ddh.train.identity import check_same_run

Tensors = dict[str, Tensor]
Value = TypeVar("Value")


def collect(modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer) -> Tensors:
    """Everything that a run has learned, by name."""
    tensors: Tensors = {}
    for name, module in modules.items():
        tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    for index, entry in optimiser.state_dict()["state"].items():
        kept = {key: torch.as_tensor(value) for key, value in entry.items() if value is not None}
        tensors |= {f"optimiser.{index}.{key}": value for key, value in kept.items()}
    return tensors


def restore(
    tensors: Tensors, modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer
) -> None:
    """Put back what `collect` has taken."""
    for name, module in modules.items():
        module.load_state_dict(below(tensors, f"{name}."))
    state: dict[int, Tensors] = {}
    for name, tensor in below(tensors, "optimiser.").items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def save(
    path: Path,
    tensors: Tensors,
    state: dict[str, Any],
    sharded: Tensors,
    rows: int,
    processes: Processes = SINGLE,
) -> None:
    """Write a checkpoint; `sharded` are this process's rows of tensors that have `rows` in all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if processes.is_single:
        tensors = tensors | {f"sharded.{name}": tensor for name, tensor in sharded.items()}
    elif sharded:
        shards = {}
        for rank in range(processes.size):
            mine = processes.shard(rows, rank)
            name = f"{path.stem}-shard-{state['step']}-{mine.start}-{mine.stop}.safetensors"
            shards[name] = [mine.start, mine.stop]
            if rank == processes.rank:
                write(path.with_name(name), sharded)
        device = next(iter(sharded.values())).device
        processes.sums([1.0], device)  # every shard is there before the one file is
        state = state | {"shards": shards}
    if processes.is_main:
        write(path, tensors, state)
        for shard in path.parent.glob(f"{path.stem}-shard-*.safetensors"):
            if shard.name not in state.get("shards", {}):
                shard.unlink()


def load(
    path: Path,
    expected: dict[str, Any],
    sharded: Tensors,
    rows: int,
    processes: Processes = SINGLE,
) -> tuple[dict[str, Any], Tensors] | None:
    """State and tensors of a checkpoint, None if there is none; `sharded` gets its rows. A
    checkpoint whose state differs from `expected` is that of another run, and refused."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            state = json.loads((file.metadata() or {})["state"])
            tensors = {name: _sound(file, name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise ModelError(f"the checkpoint {path} is damaged; delete it to start again") from error
    check_same_run(path, state, expected)
    mine = processes.shard(rows)
    for name, target in sharded.items():
        if "shards" not in state:
            target.copy_(tensors[f"sharded.{name}"][mine])
            continue
        for file, (start, stop) in state["shards"].items():
            first, last = max(start, mine.start), min(stop, mine.stop)
            if first < last:
                values = _rows(path.with_name(file), name, slice(first - start, last - start))
                target[first - mine.start : last - mine.start] = values.to(target)
    return state, tensors


def _rows(path: Path, name: str, rows: slice) -> Tensor:
    try:
        with safe_open(path, "pt") as file:
            return _sound(file, name)[rows]
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(
            f"{path} of the checkpoint is missing or damaged; delete the folder to start again"
        ) from error


def _sound(file: Any, name: str) -> Tensor:
    """A tensor of an open file, if it has its checksum; those of version 0.1 have none."""
    tensor = file.get_tensor(name)
    checksums = json.loads((file.metadata() or {}).get("checksums", "{}"))
    if checksums and checksums.get(name) != _checksum(tensor):
        raise ValueError(f"{name} does not have its checksum")
    return tensor


def _checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data)


def write(path: Path, tensors: Tensors, state: dict[str, Any] | None = None) -> None:
    """Write tensors and a state of plain values."""
    tidy = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    checksums = {name: _checksum(tensor) for name, tensor in tidy.items()}
    metadata = {"state": json.dumps(state or {}), "checksums": json.dumps(checksums)}
    with atomic_path(path) as temporary:
        try:
            save_file(tidy, temporary, metadata=metadata)
        except SafetensorError as error:  # what the system says, such as a full disk
            raise DDHError(
                f"the checkpoint {path} cannot be written ({error}); the last one is kept: resume "
                "from it when there is room"
            ) from error


def below(values: dict[str, Value], prefix: str) -> dict[str, Value]:
    """The values whose names begin with a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
