"""Keeps the lines that TensorFlow's libraries print at import out of a worker's log.

They come from C++ before any logging setting counts (`TF_CPP_MIN_LOG_LEVEL` does not
reach them), twice, and say nothing about the job. Called by main around the first
import. Must not hide anything else: every other line passes at once.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STDERR = 2  # File descriptor of standard error.
_NOISE = (
    b"WARNING: All log messages before absl::InitializeLog() is called",
    b"oneDNN custom operations are on",
    b"This TensorFlow binary is optimized to use available CPU instructions",
    b"To enable the following instructions:",
)
# The filter's thread ends with the pipe; a stuck one must not hold the worker.
_JOIN_SECONDS = 1.0


def is_noise(line: bytes) -> bool:
    """Return whether every import of TensorFlow prints this line."""
    return any(words in line for words in _NOISE)


@contextmanager
def quiet_import() -> Iterator[None]:
    """Filter standard error while TensorFlow is imported."""
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    reading, writing = os.pipe()
    os.dup2(writing, _STDERR)
    os.close(writing)

    def pass_on() -> None:
        with os.fdopen(reading, "rb") as lines, os.fdopen(kept, "wb", 0) as out:
            for line in lines:
                if not is_noise(line):
                    out.write(line)

    back = os.dup(kept)
    thread = threading.Thread(target=pass_on, name="quiet-import", daemon=True)
    thread.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(back, _STDERR)
        os.close(back)
        # A helper that inherited the pipe must not hold this process up.
        thread.join(_JOIN_SECONDS)
