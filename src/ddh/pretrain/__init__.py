"""Self-supervised training of a backbone on the images themselves, before codes are learned.

`pretrain` trains by one objective, `pretrain_stages` by several in sequence. An objective is a
module with a subclass of `SelfSupervised`, registered in `OBJECTIVES`.
"""

from ddh.pretrain.pretraining import Pretrained, Stages, pretrain, pretrain_stages
from ddh.pretrain.settings import OBJECTIVES, PretrainSettings, SelfSupervised, pretrain_settings
from ddh.pretrain.transforms import ViewSettings, random_view

__all__ = [
    "OBJECTIVES", "PretrainSettings", "Pretrained", "SelfSupervised", "Stages", "ViewSettings",
    "pretrain", "pretrain_settings", "pretrain_stages", "random_view",
]  # fmt: skip
