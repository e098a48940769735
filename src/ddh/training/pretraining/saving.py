"""A pretraining on disk: one safetensors file, replaced as a whole: a killed run goes on."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ddh.errors import ModelError

FILE = "pretraining.safetensors"


def write(
    folder: Path,
    modules: dict[str, nn.Module],
    optimiser: torch.optim.SGD,
    more: dict[str, Tensor],
    state: dict[str, Any],
) -> None:
    """Write modules, momenta, further tensors, and a state of plain values."""
    tensors = {f"more.{name}": tensor for name, tensor in more.items()}
    for name, module in modules.items():
        tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    for index, entry in optimiser.state_dict()["state"].items():
        if entry.get("momentum_buffer") is not None:
            tensors[f"momentum.{index}"] = entry["momentum_buffer"]
    tidy = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    temporary = folder / f".{FILE}.{os.getpid()}"
    save_file(tidy, temporary, metadata={"state": json.dumps(state)})
    temporary.replace(folder / FILE)


def read(
    folder: Path,
    modules: dict[str, nn.Module],
    optimiser: torch.optim.SGD,
    expected: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Put a saved run back; its state and its further tensors, or None when there is none.

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
        if state.get(key) != value:
            raise ModelError(
                f"the checkpoint in {folder} was made with {key} = {state.get(key)}, not {value}; "
                "resume with the same images and settings, or delete the folder to start again"
            )
    for name, module in modules.items():
        module.load_state_dict(_below(tensors, f"{name}."))
    momenta = {
        int(index): {"momentum_buffer": tensor}
        for index, tensor in _below(tensors, "momentum.").items()
    }
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": momenta, "param_groups": groups})
    return state, _below(tensors, "more.")


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
