"""Texts of a job without characters that a terminal obeys.

Owns which these are. Called by who reads what a job shows of itself: words of its code,
names of its metrics and the last lines of its logs are in it, and whoever looks at a
job may have more rights than its code. Pure.
"""

from __future__ import annotations

import re

# C0 but tab and line feed, DEL, C1: all that begins a sequence of ECMA-48.
_CONTROLS = [*range(9), *range(11, 32), *range(127, 160)]
_REMOVED = dict.fromkeys(_CONTROLS)
# The same as JSON writes it: an odd number of backslashes begins an escape.
_ESCAPED = re.compile(
    r"(?<!\\)((?:\\\\)*)\\(?:[bfr]|u00(?:0[0-8b-f]|1[0-9a-f]|7f|[89][0-9a-f]))",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """Return a text without control characters but tabs and ends of lines."""
    return text.translate(_REMOVED)


def plain_json(text: str) -> str:
    """Return a JSON document whose texts have none."""
    return plain(_ESCAPED.sub(r"\1", text) if "\\" in text else text)
