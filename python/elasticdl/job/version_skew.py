"""Which versions of the parts of one job may work together.

Owns the rule. Called by the master: of the chart that made its pod as it starts, of
each replica as it registers. Must not know how a part says its version.

Parts of one job have the same major and minor version: between two of them calls, the
journal and checkpoints may change. Versions that differ in what follows (a correction,
a build) may be mixed, as while images are replaced one by one.
"""

from __future__ import annotations

from elasticdl import __version__

_NUMBERS_COMPARED = 2  # Parts of one minor version fit each other.


def skew(other: str) -> str:
    """Return how another part's version is incompatible with this one; "" if it is not.

    `other` is as in `elasticdl.__version__`; empty where a part does not say it, as
    those of before 1.0.
    """
    if _compared(other) == _compared(__version__):
        return ""
    return (
        f"it is of elasticdl {other or 'before 1.0'}, the master of {__version__}; "
        "parts of one job need the same major and minor version: set images.tag, or a "
        "job's own images, to one release"
    )


def _compared(version: str) -> list[str]:
    return version.split(".")[:_NUMBERS_COMPARED]
