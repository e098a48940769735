"""Weights on disk: found in a pip package or a local file, checked by digest, read without code.

A file that is a pickle (`.pth`) is opened with torch's weights-only reader, which runs nothing.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ddh._core.atomic import atomic_path
from ddh._core.errors import ModelError


def read_state(path: Path) -> dict[str, Tensor]:
    """Tensors by name from a `.safetensors` or a torch file."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ModelError(f"{path} cannot be read as a weights file: {error}") from error
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        raise ModelError(f"{path} holds no table of tensors by name")
    return dict(state)


def load_exactly(
    network: torch.nn.Module, state: Mapping[str, Tensor], *, ignore: tuple[str, ...], source: str
) -> None:
    """Load a state; every tensor must find its place (`ignore`: prefixes of names to drop)."""
    wanted = network.state_dict()
    given = {k: v for k, v in state.items() if not k.startswith(ignore)}
    missing = sorted(k for k in wanted.keys() - given.keys() if "num_batches" not in k)
    surplus = sorted(given.keys() - wanted.keys())
    shapes = sorted(k for k in wanted.keys() & given.keys() if wanted[k].shape != given[k].shape)
    if missing or surplus or shapes:
        problems = [
            f"{title}: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
            for title, names in (
                ("missing", missing), ("not known", surplus), ("of another shape", shapes)
            )
            if names
        ]  # fmt: skip
        raise ModelError(f"{source} does not fit the network ({'; '.join(problems)})")
    network.load_state_dict(given, strict=False)


def write_weights(path: Path, state: Mapping[str, Tensor], description: dict[str, Any]) -> None:
    """Weights in half precision, half as large, as a safetensors file that describes itself."""
    tensors = {
        name: (tensor.half() if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in state.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, metadata={"ddh": json.dumps(description)})


def description_of(path: Path) -> dict[str, Any] | None:
    """What a file of `write_weights` says about itself; None for a file of another origin."""
    if path.suffix != ".safetensors" or not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            described = (file.metadata() or {}).get("ddh")
    except SafetensorError as error:
        raise ModelError(f"{path} cannot be read as a weights file: {error}") from error
    return None if described is None else json.loads(described)
