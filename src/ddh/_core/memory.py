"""How much memory this process may use."""

import os
from pathlib import Path

USUAL = 8 << 30  # where the system does not tell
CONTAINER = Path("/sys/fs/cgroup/memory.max")


def memory_bytes() -> int:
    """Bytes of the machine's memory, or of the container's share of it."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        total = USUAL
    try:
        return min(total, int(CONTAINER.read_text()))
    except (OSError, ValueError):  # there is no container, or its limit is "max"
        return total
