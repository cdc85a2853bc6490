"""Figures that end-to-end tests take on their way: outputs/e2e.json.

They are recorded, not asserted: the machine is shared, and a bound in a test would
measure its load. `make bench` shows them beside its own (bench/cluster.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FILE = Path(__file__).parents[2] / "outputs" / "e2e.json"


def record(name: str, values: float | Sequence[float]) -> None:
    """Put a figure, or all those of one kind, in its place in the file."""
    several = values if isinstance(values, Sequence) else [values]
    there = json.loads(FILE.read_text()) if FILE.exists() else {}
    there[name] = [round(value, 3) for value in several]
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(there, indent=1) + "\n")
