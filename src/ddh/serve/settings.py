"""What a service is started with: locations, who may use it, and every limit."""

from dataclasses import dataclass
from pathlib import Path

from ddh._core.cache import cache_folder
from ddh._core.errors import InputError

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
MIN_TOKEN_LENGTH = 16


@dataclass(frozen=True)
class Settings:
    """Settings of one service. The default limits suit one machine and a few users.

    Parameters
    ----------
    token : str, optional
        Secret that every request must carry, at least 16 printable ASCII characters.
    hosts : tuple of str
        Names that a request may have in its Host header; () allows any.
    writable : bool
        Whether rows may be added and removed.
    root, model : Path, optional
        Folder of the pictures and of the model; the index's own records are used where None.
    text_model : Path, optional
        Folder of a CLIP-style pair of ONNX networks; searches by text then rank by it.
    device : str
        Device that encodes uploaded pictures: "auto", "cpu", "cuda" or "mps".
    cache : Path, optional
        Folder for thumbnails and maps; see `cache_folder` for the default.
    body_bytes, body_seconds : int, float
        Largest request body, and longest time for it (and before it for the head) to arrive.
    megapixels : float
        Largest uploaded picture, checked against its header.
    answer_seconds : float
        Longest time until a response.
    max_results, max_depth : int
        Most results per request, and the largest sum of `offset` and `k`.
    max_queued_searches, max_queued_images : int
        Requests that may wait; more are refused with status 503.
    max_connections, max_connections_per_address : int
        Open connections, in all and from one address (behind a proxy: the proxy's). `run` lowers
        both where the process may open few descriptors.
    decode_seconds : float
        Longest time to decode an uploaded picture.
    cache_bytes : int
        Disk space for thumbnails; the least recently used are deleted first.
    """

    token: str | None = None
    hosts: tuple[str, ...] = LOOPBACK
    writable: bool = False
    root: Path | None = None
    model: Path | None = None
    text_model: Path | None = None
    device: str = "auto"
    cache: Path | None = None

    body_bytes: int = 32 << 20
    body_seconds: float = 20.0
    megapixels: float = 50.0
    answer_seconds: float = 30.0
    max_results: int = 1000
    max_depth: int = 100_000
    max_queued_searches: int = 1024
    max_queued_images: int = 64
    max_connections: int = 1024
    max_connections_per_address: int = 256
    decode_seconds: float = 10.0
    cache_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < MIN_TOKEN_LENGTH:
            raise InputError(
                f"a token has at least {MIN_TOKEN_LENGTH} characters, this one has "
                f"{len(self.token)}: generate one with "
                '`python -c "import secrets; print(secrets.token_urlsafe())"`'
            )
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise InputError("a token consists of printable ASCII characters")
        for name, value in vars(self).items():
            is_limit = isinstance(value, int | float) and not isinstance(value, bool)
            if is_limit and not value > 0:
                raise InputError(f"{name.replace('_', ' ')} is a positive number, not {value}")

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the service, under its own names."""
        return bool(self.hosts) and set(self.hosts) <= set(LOOPBACK)

    def cache_folder(self) -> Path:
        """The folder of thumbnails and maps: `cache`, DDH_CACHE, or `ddh` in the user's cache."""
        return Path(self.cache) if self.cache else cache_folder()
