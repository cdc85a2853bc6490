"""Trying a call again until it succeeds or the process is told to end.

Called by the loops of workers and PS around master calls. Knows
nothing of what is called.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import TypeVar

from elasticdl.errors import FencedError, NotInitializedError, RefusedError, RpcError
from elasticdl.pauses import growing

log = logging.getLogger(__name__)

T = TypeVar("T")


def is_transient(error: RpcError) -> bool:
    """Return whether the same call may succeed later."""
    return not isinstance(error, FencedError | NotInitializedError | RefusedError)


def retry(
    call: Callable[[], T],
    *,
    stop: threading.Event,
    first: float = 0.05,
    most: float = 1.0,
    jitter: Callable[[], float] = random.random,
) -> T:
    """Return what `call` returns, with retries while the peer is away.

    Raises FencedError, NotInitializedError and RefusedError at once, and the last
    RpcError when `stop` is set.
    """
    attempt = 0
    while True:
        try:
            result = call()
        except RpcError as error:
            if not is_transient(error) or stop.is_set():
                raise
            if attempt == 0:
                log.warning("%s; trying again until it answers", error)
            wait = growing(attempt, first=first, most=most, share=jitter())
            if stop.wait(wait):
                raise
            attempt += 1
        else:
            if attempt:
                log.info("Answered again after %d tries", attempt)
            return result
