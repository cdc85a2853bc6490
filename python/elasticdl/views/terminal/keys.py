"""Keys pressed while a full-screen view is shown.

Owns the terminal's mode meanwhile and gives it back. Called by `cli.top`. Must not know
what a key means.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Any, Self


class Keys:
    """Reads single keys in a `with` block; Ctrl-C stays Ctrl-C."""

    def __init__(self) -> None:
        """Read from standard input, if that is a terminal."""
        self._input = sys.stdin.fileno() if sys.stdin.isatty() else -1
        self._mode: list[Any] = []

    def __enter__(self) -> Self:
        if self._input >= 0:
            self._mode = termios.tcgetattr(self._input)
            tty.setcbreak(self._input)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._input >= 0:
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._mode)

    def pressed(self, timeout_seconds: float) -> str:
        """Return the keys pressed within that time; "" for none."""
        if self._input < 0:
            time.sleep(timeout_seconds)
            return ""
        ready, _, _ = select.select([self._input], [], [], timeout_seconds)
        return os.read(self._input, 64).decode(errors="replace") if ready else ""
