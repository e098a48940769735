"""The HTTP service over an index, and the page that it serves. Searching never imports torch.

from ddh.serve import Settings, create_app

app = create_app("photos.index", Settings())  # any ASGI server runs it
"""

from typing import TYPE_CHECKING, Any

from ddh.errors import MissingDependency
from ddh.serve.settings import Settings

if TYPE_CHECKING:
    from ddh.serve.app import create_app

__all__ = ["Settings", "create_app"]

LIBRARIES = (
    "fastapi",
    "multipart",
    "prometheus_client",
    "python_multipart",
    "starlette",
    "uvicorn",
)


def __getattr__(name: str) -> Any:
    if name != "create_app":
        raise AttributeError(f"module 'ddh.serve' has no attribute {name!r}")
    try:
        from ddh.serve.app import create_app
    except ModuleNotFoundError as error:
        if error.name not in LIBRARIES:
            raise
        raise MissingDependency('the service needs FastAPI: pip install "ddh[serve]"') from error
    return create_app
