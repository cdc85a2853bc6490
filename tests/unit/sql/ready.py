"""What takes a statement up to its job, and runs none, for the tests beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticdl.job.values.checking import validate
from elasticdl.job.values.file import dump_values
from elasticdl.sql import planning
from elasticdl.sql.plan import ColumnPlan, Head, Kind, LabelPlan, Schema, Stored
from elasticdl.sql.registry import (
    Description,
    ModelVersion,
    Registry,
    write_description,
)
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


def registry_in(folder: Path) -> Registry:
    """Return a registry with a model `m` of one number, which nobody trained."""
    registry = Registry(folder / "models")
    columns = (ColumnPlan("x", "x", Stored.FLOAT),)
    label = LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1))
    job = {
        "name": "m",
        "model": {"definition": "m.f", "files": {"m.py": ""}},
        "data": {"training": "rows"},
    }
    with registry.adding("m") as version:
        text = dump_values(validate({"kind": "job", "job": job}))
        version.values_file.write_text(text, encoding="utf-8")
        write_description(version, Description(columns, label, Schema(()), "DNN"))
    return registry
