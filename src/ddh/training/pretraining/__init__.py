"""Self-supervised training of a backbone on the pictures themselves, before any code is learned.

`pretrain` is the loop. An objective is one file with one class that derives from `SelfSupervised`
and a line in `OBJECTIVES`.
"""

from ddh.training.pretraining.loop import Pretrained, pretrain
from ddh.training.pretraining.objective import SelfSupervised
from ddh.training.pretraining.settings import OBJECTIVES, PretrainSettings, pretrain_settings
from ddh.training.pretraining.views import ViewSettings, random_view

__all__ = [
    "OBJECTIVES", "PretrainSettings", "Pretrained", "SelfSupervised", "ViewSettings", "pretrain",
    "pretrain_settings", "random_view",
]  # fmt: skip
