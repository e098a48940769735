"""A training run on disk, so that a killed run goes on where it was.

One safetensors file holds every tensor (hashing layer, trained network, optimiser, memory), its
header holds the rest. It is written beside the old one and moved into place. Order of batches
and augmentation are drawn from (seed, epoch, step), so nothing else needs to be kept, and on
a CPU a resumed run ends with the same weights, bit for bit.
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

FILE = "training.safetensors"


def save(
    folder: Path,
    modules: dict[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    memory: PairMemory,
    state: dict[str, Any],
) -> None:
    """Write the checkpoint of a run; `state` is plain values (epoch, step, history, settings)."""
    tensors: dict[str, Tensor] = {}
    for name, module in modules.items():
        tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    for index, entry in optimiser.state_dict()["state"].items():
        tensors |= {
            f"optimiser.{index}.{key}": torch.as_tensor(value)
            for key, value in entry.items()
            if value is not None
        }
    tensors |= {f"memory.{key}": value for key, value in _memory_tensors(memory).items()}
    tidy = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{FILE}.{os.getpid()}"
    save_file(tidy, temporary, metadata={"state": json.dumps(state)})
    temporary.replace(folder / FILE)


def load(
    folder: Path,
    modules: dict[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    memory: PairMemory,
    expected: dict[str, Any],
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
    for key, target in _memory_tensors(memory).items():
        target.copy_(tensors[f"memory.{key}"])
    return state


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
