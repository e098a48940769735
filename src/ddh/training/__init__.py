"""Training (2.4): settings and presets, features, the loop, checkpoints."""

from ddh.training.features import Extractor, Features, extract
from ddh.training.fitting import Data, Fitted, fit_hashing
from ddh.training.settings import DEPTHS, PRESETS, Depth, Settings, adapt, settings

__all__ = [
    "DEPTHS",
    "Data",
    "Depth",
    "Extractor",
    "Features",
    "Fitted",
    "PRESETS",
    "Settings",
    "adapt",
    "extract",
    "fit_hashing",
    "settings",
]
