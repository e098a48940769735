"""Types of the native search for names, see `_names.c` for the arguments."""

from typing import Any

def find(*arguments: Any) -> int: ...
