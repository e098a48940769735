"""The HTTP service over an index, and the web page that it serves. Searching never imports torch.

>>> from ddh.serve import Settings, create_app
>>> app = create_app("photos.index", Settings())  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddh._core.errors import MissingDependency
from ddh.serve.settings import Settings

if TYPE_CHECKING:
    from ddh.serve.app import create_app
    from ddh.serve.running import run

__all__ = ["Settings", "create_app", "run"]

MODULES = {"create_app": "ddh.serve.app", "run": "ddh.serve.running"}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'ddh.serve' has no attribute {name!r}")
    try:
        return getattr(import_module(MODULES[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("ddh"):
            raise
        raise MissingDependency(
            f'the service and its page need {error.name}: pip install "ddh[serve]"'
        ) from error
