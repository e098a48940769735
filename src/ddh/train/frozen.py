"""A frozen backbone of torch, at its fastest.

On a GPU: bfloat16. On a CPU: batch norms folded into the convolutions, and bfloat16 where the
processor has instructions for it.
"""

import copy

import numpy as np
import torch
from numpy.typing import NDArray

from ddh.backbones import Backbone, fold_batch_norm
from ddh.train.augmentation import augment
from ddh.train.device import choose, supports_bfloat16

CPU_BATCH, GPU_BATCH = 32, 256


class FrozenBackbone:
    """A copy of a backbone that gives features, float32, of uint8 (n, h, w, 3)."""

    def __init__(self, backbone: Backbone, device: str | torch.device = "auto") -> None:
        self.device = choose(str(device))
        self.half = supports_bfloat16(self.device)
        network = copy.deepcopy(backbone).eval().requires_grad_(False)
        fold_batch_norm(network)
        self.network: Backbone = network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.batch_size = GPU_BATCH if self.device.type == "cuda" else CPU_BATCH

    @property
    def precision(self) -> str:
        return "bfloat16" if self.half else "float32"

    @torch.inference_mode()
    def __call__(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        values = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))
        x = self.network.normalise(values.to(self.device, non_blocking=True))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            return self.network(x).float().cpu().numpy()


@torch.inference_mode()
def random_views(pixels: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """A random crop of each picture, mirrored or not, as pixels again."""
    values = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))
    views = augment(values.permute(0, 3, 1, 2).float(), seed)
    return views.round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous().numpy()
