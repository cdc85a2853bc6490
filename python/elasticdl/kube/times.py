"""Times as Kubernetes writes them.

Owns their format. Called by whoever reads objects or makes them. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime


def unix_seconds(time: str | None) -> float:
    """Return the Unix seconds of `2026-11-21T10:00:00Z`; 0 for none."""
    return datetime.fromisoformat(time).timestamp() if time else 0.0


def now() -> str:
    """Return the present time, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
