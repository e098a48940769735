"""Where to compute: the fastest device there is, unless the user names one."""

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ddh._core.errors import DDHError, InputError
from ddh._core.lazy import has_torch, needs_torch
from ddh.train.distributed import current

if TYPE_CHECKING:
    import torch
    from torch import nn

# From so many steps on a GPU, compiling a network pays for itself.
COMPILED_STEPS = 1000
SMALLEST_BATCH = 16  # images, to which a batch is halved for a small GPU
# Linux has one of these files where there is a GPU that torch can use.
GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def device_type(device: str = "auto") -> str:
    """ "cpu", "cuda" or "mps"; torch is imported only where there may be a GPU."""
    if device == "cpu":
        return "cpu"
    if device == "auto":
        no_gpu = sys.platform == "linux" and not any(Path(file).exists() for file in GPU_FILES)
        if no_gpu or not has_torch():
            return "cpu"
    return choose(device).type


def choose(device: str = "auto") -> "torch.device":
    """ "auto" is a CUDA GPU, else Apple's GPU, else the CPU."""
    with needs_torch(f"the device {device}"):
        import torch

    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        # processes that train together cannot exchange what is on Apple's GPU
        if torch.backends.mps.is_available() and current().is_single:
            return torch.device("mps")
        return torch.device("cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"the device {device!r} cannot be used here: {error}") from error
    return chosen


def supports_bfloat16(device: "torch.device") -> bool:
    """Whether matrix products in bfloat16 are faster than in float32 there."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    if device.type != "cpu":
        return False
    # x86 with AMX or AVX512-BF16; elsewhere torch emulates it.
    # (oneDNN itself says yes to every AVX512, and is several times slower than in float32.)
    instructions = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in instructions)


def compiled(module: "nn.Module", device: "torch.device", steps: float) -> "nn.Module":
    """The module, compiled if it runs on a GPU for at least `COMPILED_STEPS` steps."""
    import torch

    if device.type == "cuda" and steps >= COMPILED_STEPS:
        return torch.compile(module)  # type: ignore[return-value]
    return module


def largest_batch(size: int, step: Callable[[int], None], module: "nn.Module") -> int:
    """`size` images, halved until a step with so many fits the memory of the GPU.

    `step` computes gradients of the module, which is left as it was.
    """
    import torch

    before = copy.deepcopy(module.state_dict())

    def fits() -> bool:
        try:
            step(size)
        except torch.cuda.OutOfMemoryError:
            return False
        return True

    while not fits():
        if size < 2 * SMALLEST_BATCH:
            raise DDHError(
                f"the GPU's memory is too small for {size} images at once; "
                "use a smaller size of the images, or a smaller network"
            )
        size //= 2
        torch.cuda.empty_cache()
    module.zero_grad(set_to_none=True)
    module.load_state_dict(before)
    return size
