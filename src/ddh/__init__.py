"""ddh: compact binary codes for pictures, learned without labels, and search with them.

The names below are loaded when they are first used, so that searching never pays for
importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = [
    "DDH", "DDHError", "DDHWarning", "InputError", "MissingDependency", "ModelError",
    "__version__", "default_model", "load",
]  # fmt: skip

if TYPE_CHECKING:
    from ddh._core.errors import DDHError, DDHWarning, InputError, MissingDependency, ModelError
    from ddh.hashers import DDH, default_model, load


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ddh' has no attribute {name!r}")
    home = "ddh.hashers" if name in ("DDH", "default_model", "load") else "ddh._core.errors"
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
