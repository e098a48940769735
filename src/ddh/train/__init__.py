"""Training (2.4): settings and presets, features, the Trainer, the hashing head, checkpoints."""

from ddh.train.features import Extractor, Features, extract
from ddh.train.head import HashingHead, fit_head
from ddh.train.identity import RunIdentity
from ddh.train.inputs import Inputs, Pictures
from ddh.train.settings import DEPTHS, PRESETS, Depth, Settings, adapt, settings
from ddh.train.trainer import Schedule, Trainer, TrainingTask

__all__ = [
    "DEPTHS", "PRESETS", "Depth", "Extractor", "Features", "HashingHead", "Inputs", "Pictures",
    "RunIdentity", "Schedule", "Settings", "Trainer", "TrainingTask", "adapt", "extract",
    "fit_head", "settings",
]  # fmt: skip
