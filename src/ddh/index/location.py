"""Where a database engine keeps an index: the address, and the name after `#`."""

import re
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
