"""The port a local master listens on.

Owns its choice. Called by `client.local.launcher`, once per launch: a restarted master
keeps its address. Must not listen itself.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from elasticdl.errors import PlatformError

# Below the ports that systems give to outgoing connections: while a master is away its
# workers call its port, and a call from the same port would meet itself and keep it.
_FIRST, _COUNT = 20_000, 10_000
_TRIES = 50


def master_port(wanted: int, pick: Callable[[int], int]) -> int:
    """Return a free loopback port: `wanted`, or one by `pick(n)` from 0 to n - 1.

    Raises PlatformError when it is in use.
    """
    if wanted:
        if not _is_free(wanted):
            raise PlatformError(
                f"job.master.port: port {wanted} is in use by another program; choose "
                "another, or 0 for any free one"
            )
        return wanted
    for _ in range(_TRIES):
        port = _FIRST + pick(_COUNT)
        if _is_free(port):
            return port
    raise PlatformError(
        f"no free port found in {_FIRST} to {_FIRST + _COUNT - 1} after {_TRIES} "
        "tries; name one with job.master.port"
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Connections of an earlier master that linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
