"""What a process that crashed said last, out of the end of its log.

Owns which of its lines say why. Called by the platforms of one machine and of a
cluster, so that both tell the same, and by the master, which finds an error in the end
of a pod's log by the same mark. Pure; must not know replicas.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

_TAIL_LINES = 30
_MOST_LINES = 60
_TRACEBACK = "Traceback (most recent call last):"
# What begins an error, as `job.context` writes it: time, level, who, module.
ERROR_LINE = re.compile(r"[-\d]+ [:.\d]+ (?:ERROR|CRITICAL) \S+ \S+: ")
# What `faulthandler` writes when native code crashes: a stack, and a list of modules.
_FATAL = "Fatal Python error: "
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Interrupt)(: |$)")
_MODULES = re.compile(r"^Extension modules: |\(total: \d+\)$")
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python\d")
_PACKAGE = str(Path(__file__).parents[1])
_MOST_FRAMES = 12


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9, and `signal 77` for an unnamed one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_words(log: str, cause: str = "") -> str:
    """Return the last error or traceback of a log, or else what it ends with.

    Args:
        log: Its last lines.
        cause: What is known of the end, such as a signal's name; told first.
    """
    lines = [one for one in log.rstrip().splitlines() if not _MODULES.search(one)]
    errors = [i for i, line in enumerate(lines) if _is_error(line)]
    if errors:
        lines = lines[errors[-1] :]
        lines[0] = ERROR_LINE.sub("", lines[0])
        if lines[0].startswith(_FATAL):
            lines = list(_of_native_code(lines))
    else:
        lines = _end_of(lines[-_TAIL_LINES:])
    if len(lines) > _MOST_LINES:  # the end says what happened
        lines = [lines[0], "  ...", *lines[2 - _MOST_LINES :]]
    words = "\n".join(lines)
    return "; ".join(filter(None, (cause if cause not in words else "", words)))


def _is_error(line: str) -> bool:
    # An indented trace belongs to the message above it.
    caught = line.startswith("    ")
    traced = line.rstrip().endswith(_TRACEBACK) and not caught
    return traced or line.startswith(_FATAL) or ERROR_LINE.match(line) is not None


def _end_of(lines: Sequence[str]) -> list[str]:
    """Return what a log ends with, which may have nothing to do with the crash.

    But for an exception: the beginning of a pod's traceback is often cut off.
    """
    said = [one for one in lines if one.strip()]
    if not said:
        return []
    last = said[-1]
    first = last if _EXCEPTION.match(last) else f"its log ends with: {last}"
    return [first, *(lines if len(said) > 1 else ())]


def _of_native_code(lines: Sequence[str]) -> Iterator[str]:
    """Yield where native code crashed: first the newest line of the user's own code."""
    frames = [found for line in lines if (found := _FRAME.match(line))][:_MOST_FRAMES]
    at = next(filter(_is_users, frames), frames[0] if frames else None)
    what = lines[0].removeprefix(_FATAL)
    yield f"{what} in {at['function']}, {at['file']}:{at['line']}" if at else what
    yield from (one[0] for one in frames)


def _is_users(frame: re.Match[str]) -> bool:
    file = frame["file"]
    return not (_LIBRARY.search(file) or file.startswith(_PACKAGE))
