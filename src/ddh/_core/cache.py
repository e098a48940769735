"""Where files lie that can be made again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """DDH_CACHE, or `ddh` in the user's cache folder."""
    if given := os.environ.get("DDH_CACHE"):
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "ddh"
