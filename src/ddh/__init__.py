"""ddh: compact binary codes for pictures, learned without labels, and search with them.

The names below are loaded when they are first used, so that searching never pays for
importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["DDH", "DDHError", "load", "__version__"]

if TYPE_CHECKING:
    from ddh._core.errors import DDHError
    from ddh.hashers import DDH, load

_HOMES = {"DDH": "ddh.hashers", "load": "ddh.hashers", "DDHError": "ddh._core.errors"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ddh' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
