"""Figures that end-to-end tests take on their way: outputs/e2e.json.

They are recorded, not asserted: the machine is shared, and a bound in a test would
measure its load.
"""

from __future__ import annotations

import json
from pathlib import Path

FILE = Path(__file__).parents[3] / "outputs" / "e2e.json"


def record(name: str, value: float) -> None:
    """Put a figure in its place in the file."""
    there = json.loads(FILE.read_text()) if FILE.exists() else {}
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps({**there, name: round(value, 3)}, indent=1) + "\n")
