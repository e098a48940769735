"""A training run as one safetensors file: modules and optimiser as tensors, the rest in its header.

A file is written beside the old one and moved into place, so there is always a whole one.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ddh._core.atomic import atomic_path
from ddh._core.errors import ModelError

Tensors = dict[str, Tensor]


def collect(modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer) -> Tensors:
    """Everything that a run has learned, by name."""
    tensors: Tensors = {}
    for name, module in modules.items():
        tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    for index, entry in optimiser.state_dict()["state"].items():
        tensors |= {
            f"optimiser.{index}.{key}": torch.as_tensor(value)
            for key, value in entry.items()
            if value is not None
        }
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


def write(path: Path, tensors: Tensors, state: dict[str, Any] | None = None) -> None:
    """Write tensors and a state of plain values."""
    tidy = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(tidy, temporary, metadata={"state": json.dumps(state or {})})


def read(path: Path, expected: dict[str, Any]) -> tuple[dict[str, Any], Tensors] | None:
    """The state and the tensors of a file, None when it is not there.

    `expected` are the values of the state that must agree, or the run is another one.
    """
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
                f"the checkpoint in {path.parent} was made with {key} = {state.get(key)}, not "
                f"{value}; resume with the same images and settings, or delete the folder to "
                "start again"
            )
    return state, tensors


def below(tensors: Tensors, prefix: str) -> Tensors:
    """The tensors whose names begin with a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
