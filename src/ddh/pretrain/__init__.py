"""Self-supervised training of a backbone on the images themselves, before codes are learned.

`pretrain` trains by one objective, `pretrain_stages` by several in sequence. An objective is a
module with a subclass of `SelfSupervised`, registered in `OBJECTIVES`. All of it builds on torch.
"""

from typing import TYPE_CHECKING

from ddh._core.lazy import lazy_names
from ddh.pretrain.recipe import Stages

if TYPE_CHECKING:
    from ddh.pretrain.pretraining import Pretrained as Pretrained
    from ddh.pretrain.pretraining import pretrain as pretrain
    from ddh.pretrain.pretraining import pretrain_stages as pretrain_stages
    from ddh.pretrain.settings import OBJECTIVES as OBJECTIVES
    from ddh.pretrain.settings import PretrainSettings as PretrainSettings
    from ddh.pretrain.settings import SelfSupervised as SelfSupervised
    from ddh.pretrain.settings import pretrain_settings as pretrain_settings
    from ddh.pretrain.transforms import ViewSettings as ViewSettings
    from ddh.pretrain.transforms import random_view as random_view

__all__ = [
    "OBJECTIVES", "PretrainSettings", "Pretrained", "SelfSupervised", "Stages", "ViewSettings",
    "pretrain", "pretrain_settings", "pretrain_stages", "random_view",
]  # fmt: skip

__getattr__ = lazy_names(
    "ddh.pretrain",
    {
        "OBJECTIVES": "settings",
        "PretrainSettings": "settings",
        "Pretrained": "pretraining",
        "SelfSupervised": "settings",
        "ViewSettings": "transforms",
        "pretrain": "pretraining",
        "pretrain_settings": "settings",
        "pretrain_stages": "pretraining",
        "random_view": "transforms",
    },
)
