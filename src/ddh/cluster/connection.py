"""A connection to Ray, quiet and clear about what is missing; Ray is imported here and not before.

Ray prints the deaths of workers and nodes to standard output, which belongs to a command's answer,
so standard output is closed to it while the connection is open: a job reports such deaths itself.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from ddh._core.errors import DDHError, optional

STORE_BYTES = 200 << 20  # of a cluster on this machine; it holds the model and little else
KNOCK_S = 10.0


@contextmanager
def connect(address: str, *, store_bytes: int = STORE_BYTES) -> Iterator[Any]:
    """Ray, connected to a cluster until the end of the block.

    `address` is `auto` (the cluster that this machine belongs to), `local` (a new one on this
    machine, gone at the end), `host:port`, or `ray://host:port` (a cluster reached from outside).
    A connection that is there already is used and left open.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = optional("ray", '--ray needs Ray: pip install "ddh[ray]"')
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):  # noqa: PTH123
        if ray.is_initialized():
            yield ray
            return
        _initialise(ray, address, store_bytes)
        try:
            yield ray
        finally:
            ray.shutdown()


def _initialise(ray: Any, address: str, store_bytes: int) -> None:
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address == "local":
        options |= {"include_dashboard": False, "object_store_memory": store_bytes}
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    try:
        if colon and port.isdigit():  # Ray itself tries for minutes before it gives up
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_S).close()
        ray.init(address=address, **options)
    except (OSError, ray.exceptions.RayError, RuntimeError, ValueError) as error:
        raise DDHError(
            f"there is no Ray cluster to be reached at {address!r}: {error}\n"
            "Start one with `ray start --head`, or use --ray local for this machine alone. If the "
            "cluster asks for a token, put it into RAY_AUTH_TOKEN or ~/.ray/auth_token."
        ) from error
