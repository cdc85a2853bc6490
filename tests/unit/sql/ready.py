"""What takes a statement up to its job, and runs none, for the tests beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticdl.sql import planning
from elasticdl.sql.registry import ModelVersion
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.train import prepare


def read(text: str) -> Any:
    """Return the one statement of a text."""
    (statement,) = planning.read_statements(text, "duckdb")
    return statement


def train(session: Session, text: str, folder: Path) -> Any:
    """Make the data and the module of a training."""
    version = ModelVersion("m", 1, folder / "version")
    return prepare(session, read(text), text, version)
