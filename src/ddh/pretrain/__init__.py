"""Self-supervised training of a backbone on the pictures themselves, before any code is learned.

`pretrain` is the loop, `pretrain_stages` runs it for one objective after another. An objective is
one file with one class that derives from `SelfSupervised`, and a line in `OBJECTIVES`.
"""

from ddh.pretrain.loop import Pretrained, pretrain
from ddh.pretrain.objective import SelfSupervised
from ddh.pretrain.settings import OBJECTIVES, PretrainSettings, pretrain_settings
from ddh.pretrain.stages import Stages, pretrain_stages
from ddh.pretrain.transforms import ViewSettings, random_view

__all__ = [
    "OBJECTIVES", "PretrainSettings", "Pretrained", "SelfSupervised", "Stages", "ViewSettings",
    "pretrain", "pretrain_settings", "pretrain_stages", "random_view",
]  # fmt: skip
