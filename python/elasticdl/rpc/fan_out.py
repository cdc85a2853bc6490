"""One call made to several servers at once.

Owns which of several errors is told. Used by `rpc.ps.calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TypeVar

from elasticdl.errors import RpcError
from elasticdl.rpc.retry import is_transient

T = TypeVar("T")


def call_all(
    pool: ThreadPoolExecutor, numbers: Sequence[int], call: Callable[[int], T]
) -> list[T]:
    """Make all calls concurrently, the first in this thread; wait for all of them.

    Raises the error that matters most, and RpcError once the pool was shut down.
    """
    try:
        futures = [pool.submit(call, number) for number in numbers[1:]]
    except RuntimeError as error:
        raise RpcError(f"this client was closed: {error}") from error
    results: list[T] = []
    problems: list[RpcError] = []
    outcomes: list[Callable[[], T]] = [lambda: call(numbers[0])]
    outcomes += [future.result for future in futures]
    for outcome in outcomes:
        try:
            results.append(outcome())
        except RpcError as error:
            problems.append(error)
        except CancelledError as error:
            raise RpcError("this client was closed") from error
    if problems:
        # That one PS is away matters less than what another one says for good.
        raise min(problems, key=is_transient)
    return results
