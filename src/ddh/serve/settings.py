"""What one service is told when it starts: where things lie, who may ask, and every limit."""

import os
from dataclasses import dataclass
from pathlib import Path

from ddh._core.errors import InputError

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Settings:
    """Settings of a service; every limit has a value that suits one machine and a few people.

    `hosts` are the names that a request may ask for in its Host header, () for any.
    `root` and `model` stand in for those that the index remembers.
    """

    token: str | None = None
    hosts: tuple[str, ...] = LOOPBACK
    writable: bool = False
    root: Path | None = None
    model: Path | None = None
    device: str = "auto"
    cache: Path | None = None

    body_bytes: int = 32 << 20
    body_seconds: float = 20.0
    megapixels: float = 50.0
    answer_seconds: float = 30.0
    most_results: int = 1000
    deepest_result: int = 100_000
    waiting_queries: int = 1024
    waiting_images: int = 64
    cache_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise InputError(
                f"a token has {SHORTEST_TOKEN} characters or more, this one has {len(self.token)}: "
                'make one with `python -c "import secrets; print(secrets.token_urlsafe())"`'
            )
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise InputError("a token is made of printable ASCII characters")
        limits = {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for name, value in limits.items():
            if not value > 0:
                raise InputError(f"{name.replace('_', ' ')} is a positive number, not {value}")

    def cache_folder(self) -> Path:
        """Where thumbnails and maps are kept between runs: DDH_CACHE, or the user's cache."""
        given = os.environ.get("DDH_CACHE")
        if self.cache is not None or given:
            return Path(self.cache or given or "")
        home = os.environ.get("XDG_CACHE_HOME")
        return (Path(home) if home else Path.home() / ".cache") / "ddh"
