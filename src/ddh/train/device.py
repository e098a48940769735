"""Where to compute: the fastest device there is, unless the user names one."""

import torch
from torch import nn

from ddh._core.errors import InputError
from ddh.train.distributed import current

# From so many steps on a GPU, compiling a network pays for itself.
COMPILED_STEPS = 1000


def choose(device: str = "auto") -> torch.device:
    """ "auto" is a CUDA GPU, else Apple's GPU, else the CPU."""
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


def supports_bfloat16(device: torch.device) -> bool:
    """Whether matrix products in bfloat16 are faster than in float32 there."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    if device.type != "cpu":
        return False
    # x86 with AMX or AVX512-BF16, Arm with the BF16 extension; elsewhere torch emulates slowly.
    capability = torch.backends.cpu.get_cpu_capability()
    if "AVX512" in capability:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return False


def compiled(module: nn.Module, device: torch.device, steps: float) -> nn.Module:
    """The module, compiled if it runs on a GPU for at least `COMPILED_STEPS` steps."""
    if device.type == "cuda" and steps >= COMPILED_STEPS:
        return torch.compile(module)  # type: ignore[return-value]
    return module
