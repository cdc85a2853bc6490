"""Which updates the values of a PS lack, after losses in async mode.

Owns what a hand-over adds to them. Called by `master.model.ps_group`, which keeps the
result in the journal. Pure: knows neither members nor files.

A PS that comes back alone begins with values that a worker pulled at an older version,
and counts on from the version that was lost. So it lacks the updates of the versions
between these two, and the next loss does not lose them once more. Ranges are
(first, last]: disjoint, in ascending order.
"""

from __future__ import annotations

from collections.abc import Sequence

Range = tuple[int, int]


def after_loss(
    missing: Sequence[Range], *, began_at: int, lost_at: int
) -> tuple[list[Range], int]:
    """Return the missing versions after a loss, and the new missing updates.

    Args:
        missing: What the lost PS lacked.
        began_at: Version of the values that the next one began with.
        lost_at: Version that the lost one had reached.
    """
    # Values that are older than a loss were pulled before it, and have what it took.
    now = [one for one in missing if one[1] <= began_at]
    if began_at < lost_at:
        now.append((began_at, lost_at))
    return now, max(0, _size(now) - _size(missing))


def after_rewind(missing: Sequence[Range], *, version: int) -> list[Range]:
    """Return the versions that a checkpoint of `version` lacks."""
    return [one for one in missing if one[1] <= version]


def _size(missing: Sequence[Range]) -> int:
    return sum(last - first for first, last in missing)
