"""An event loop asked from another thread: whether it turns, and to do something.

Owns how long that may take. Used by processes that serve `/metrics` and `/healthz` of
what lives in an event loop. Knows nothing of what is asked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from elasticdl.errors import PlatformError

# What an event loop may take to answer before its process counts as hung.
PULSE_SECONDS = 3.0


def answers(loop: asyncio.AbstractEventLoop, seconds: float = PULSE_SECONDS) -> bool:
    """Whether an event loop responds; called from another thread.

    Asked by probes of a pod, as a launcher asks its master for the status.
    """
    turned = threading.Event()
    try:
        loop.call_soon_threadsafe(turned.set)
    except RuntimeError:  # it is closed
        return False
    return turned.wait(seconds)


def in_loop(
    loop: asyncio.AbstractEventLoop,
    act: Callable[[], None],
    seconds: float = PULSE_SECONDS,
) -> None:
    """Run `act` in an event loop from another thread; wait until it is done.

    Raises PlatformError when the loop does not get to it within so many seconds, and
    what `act` raises.
    """

    async def run() -> None:
        act()

    acting = run()
    try:
        future = asyncio.run_coroutine_threadsafe(acting, loop)
    except RuntimeError:
        acting.close()
        raise PlatformError("the process is ending; nothing is measured") from None
    try:
        future.result(seconds)
    except TimeoutError:
        future.cancel()
        raise PlatformError(
            f"the event loop did not answer within {seconds:g} s; it is busy or hangs, "
            "and the process is restarted when it stays so"
        ) from None
