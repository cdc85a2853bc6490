"""Progress of commands that read or write records.

Owns when and how it is shown. Called by the verbs of `cli`. Knows only numbers.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

_SHOW_AFTER_SECONDS = 2.0  # Shorter work needs no progress.
_LINE_EVERY_SECONDS = 10.0  # A log gets few lines.
_DRAW_EVERY_SECONDS = 0.1  # Ten times a second looks smooth.


class RecordProgress:
    """Shows long progress: a bar in a terminal, an occasional line elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar: Progress | None = None
        self._began = self._told = time.monotonic()

    def __enter__(self) -> RecordProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int) -> None:
        """Set the progress."""
        now = time.monotonic()
        if now - self._began < _SHOW_AFTER_SECONDS:
            return
        if sys.stderr.isatty():
            self._draw(done, total, now)
        elif now - self._told >= _LINE_EVERY_SECONDS:
            self._told = now
            print(f"{self._what}: {done} of {total} records", file=sys.stderr)

    def _draw(self, done: int, total: int, now: float) -> None:
        if self._bar is None:
            self._bar = _new_bar()
            self._bar.add_task(self._what, total=total)
            self._bar.start()
        if now - self._told >= _DRAW_EVERY_SECONDS or done == total:
            self._told = now
            self._bar.update(self._bar.task_ids[0], completed=done)


def _new_bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
