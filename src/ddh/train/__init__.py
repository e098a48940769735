"""Training (2.4): settings and presets, features, the Trainer, the hashing head, checkpoints.

What trains a network builds on torch, and is imported when it is first used.
"""

from typing import TYPE_CHECKING

from ddh._core.lazy import lazy_names
from ddh.train.features import Extractor, Features, Pictures, extract
from ddh.train.head import HashingHead, fit_head
from ddh.train.identity import RunIdentity
from ddh.train.settings import DEPTHS, PRESETS, Depth, Settings, adapt, settings

if TYPE_CHECKING:
    from ddh.train.inputs import Inputs as Inputs
    from ddh.train.trainer import Schedule as Schedule
    from ddh.train.trainer import Trainer as Trainer
    from ddh.train.trainer import TrainingTask as TrainingTask

__all__ = [
    "DEPTHS", "PRESETS", "Depth", "Extractor", "Features", "HashingHead", "Inputs", "Pictures",
    "RunIdentity", "Schedule", "Settings", "Trainer", "TrainingTask", "adapt", "extract",
    "fit_head", "settings",
]  # fmt: skip

__getattr__ = lazy_names(
    "ddh.train",
    {
        "Inputs": "inputs",
        "Schedule": "trainer",
        "Trainer": "trainer",
        "TrainingTask": "trainer",
    },
)
