"""Training (2.4): settings and presets, features, the loop, checkpoints."""

from ddh.train.features import Extractor, Features, extract
from ddh.train.fitting import Data, Fitted, fit_hashing
from ddh.train.settings import DEPTHS, PRESETS, Depth, Settings, adapt, settings

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
