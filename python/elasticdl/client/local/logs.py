"""Reads a replica's log: its end, and what is added to it.

Owns tail and follow. Called by `client.local.job`. Must not know what a line means.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_BLOCK_BYTES = 64 * 1024  # Enough for the usual tail in one read.
_LOOK_SECONDS = 0.1  # `--follow` looks live.


def read_log(
    file: Path, *, tail: int | None = None, more: Callable[[], bool] | None = None
) -> Iterator[str]:
    """Yield lines without their ends.

    Args:
        file: The log.
        tail: Only so many last lines; None is all.
        more: While it is true, wait for further lines; None ends at the file's end.
    """
    with file.open("rb") as log:
        if tail is not None:
            log.seek(_start_of_tail(log, tail))
        rest = b""
        last_look = False
        while True:
            block = log.read(_BLOCK_BYTES)
            if block:
                *lines, rest = (rest + block).split(b"\n")
                yield from (_text(line) for line in lines)
            elif more is None or last_look:
                break
            elif more():
                time.sleep(_LOOK_SECONDS)
            else:
                last_look = True  # what was written between the read and the end
        if rest:
            yield _text(rest)


def _start_of_tail(log: BinaryIO, lines: int) -> int:
    """Return the byte at which the last `lines` lines begin."""
    if lines <= 0:
        return log.seek(0, os.SEEK_END)
    end = place = log.seek(0, os.SEEK_END)
    wanted = lines + 1  # the newline at the very end closes the last line
    while place > 0:
        size = min(_BLOCK_BYTES, place)
        place -= size
        log.seek(place)
        block = log.read(size)
        if place + size == end and block[-1:] != b"\n":
            wanted -= 1
        found = block.count(b"\n")
        if found >= wanted:
            at = len(block)
            for _ in range(wanted):
                at = block.rindex(b"\n", 0, at)
            return place + at + 1
        wanted -= found
    return 0


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace")
