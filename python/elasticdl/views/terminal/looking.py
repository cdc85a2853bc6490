"""Looks again and again beside a view, which so is never held up by a slow answer.

Owns the thread, the newest that was seen and why there is nothing newer. Called by the
full-screen views.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from elasticdl.errors import ElasticDLError, NotFoundError

T = TypeVar("T")


class Looking(Generic[T]):
    """Calls `look` at an interval, within a `with` block."""

    def __init__(self, look: Callable[[], T], first: T, *, every: float) -> None:
        """Start with the result `first`."""
        self._look = look
        self._every = every
        self._newest = first
        self._trouble = ""
        self._fatal: BaseException | None = None
        self._end = threading.Event()
        # A call to a cluster that is gone may take long: nobody waits for its end.
        self._thread = threading.Thread(target=self._run, name="look", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()

    @property
    def newest(self) -> T:
        """The last result. Raises the error that ended the looking."""
        if self._fatal is not None:
            raise self._fatal
        return self._newest

    @property
    def trouble(self) -> str:
        """Why there is no newer result; "" if all is well."""
        return self._trouble

    def _run(self) -> None:
        while not self._end.wait(self._every):
            try:
                self._newest = self._look()
                self._trouble = ""
            except NotFoundError as error:
                self._fatal = error  # the job was removed: that will not change
                return
            except (ElasticDLError, OSError) as error:
                self._trouble = str(error)
            except Exception as error:  # noqa: BLE001 - told by the thread that shows
                self._fatal = error
                return
