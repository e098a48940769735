"""Where an index lies: the default, and the address and name of one in a database."""

import os
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from ddh._core.errors import InputError

DEFAULT_NAME = "ddh"


def split_name(location: str) -> tuple[str, str]:
    """`address#name` -> (address, name)."""
    address, _, name = location.partition("#")
    name = name or DEFAULT_NAME
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,39}", name):
        raise InputError(
            f"an index in a database has a name of up to 40 letters, digits and underscores "
            f"that does not begin with a digit, not {name!r}"
        )
    return address, name


def without_password(location: str) -> str:
    """The address as it may be shown."""
    parts = urlsplit(location)
    if not parts.password:
        return location
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}"))


def default_location() -> str:
    """The index of a user who names none: DDH_INDEX, or `photos.index` in the user's data."""
    return os.environ.get("DDH_INDEX") or str(_data_folder() / "photos.index")


def models_folder(location: str) -> Path:
    """Models fitted to an index: beside it, or in the user's data if it is in a database."""
    if "://" in location or "#" in location:
        return _data_folder() / split_name(location)[1]
    return Path(location).resolve().with_suffix("")


def _data_folder() -> Path:
    """The folder of the user's data, by the custom of the system."""
    if sys.platform == "win32":
        home = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        home = Path.home() / "Library" / "Application Support"
    else:
        home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return home / "ddh"
