"""Storage that is away for a moment, met by a master that begins or ends.

Owns which errors of storage pass by themselves and the waiting for them. Called before
a master serves, when nothing else could be done meanwhile, and when it ends; while it
runs the journal waits in its own way. Must not know what is tried.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from elasticdl.errors import CheckpointError, JournalError

log = logging.getLogger(__name__)

T = TypeVar("T")

# What has to be said at the end is said without a disk that does not answer.
END_SECONDS = 5.0
# Who asks for the report is answered so long; then the job has ended without one.
REPORT_SECONDS = 60.0
_RETRY_SECONDS = 0.5  # Short beside the half hour that storage may be away.
# Nobody mends these by waiting.
_LASTING = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.EEXIST,
        errno.ELOOP,
    }
)


def patiently(
    act: Callable[[], T],
    *,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return what `act` returns, with retries while storage fails. Blocks.

    Raises JournalError and CheckpointError as `act` does: at once if waiting does not
    help.
    """
    until = clock() + seconds
    while True:
        try:
            return act()
        except (JournalError, CheckpointError) as error:
            if not passes(error.__cause__) or clock() >= until:
                raise
            log.warning("%s; trying for %.0f s more", error, until - clock())
        sleep(_RETRY_SECONDS)


def passes(error: BaseException | None) -> bool:
    """Whether a storage error may be gone in a moment, as on a network disk."""
    return isinstance(error, OSError) and error.errno not in _LASTING


async def within(seconds: float, work: Awaitable[T], what: str) -> asyncio.Future[T]:
    """Wait for this, and no longer than so long; return what is to be awaited yet.

    Raises what `work` raises meanwhile.
    """
    task = asyncio.ensure_future(work)
    if (await asyncio.wait([task], timeout=seconds))[0]:
        task.result()
        return task
    log.error(
        "%s: its disk has not answered for %.0f s; going on without", what, seconds
    )
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
