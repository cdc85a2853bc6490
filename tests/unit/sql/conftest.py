"""A session on the embedded engine, in which no job is run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elasticdl.sql.data.source import open_source
from elasticdl.sql.registry import Registry
from elasticdl.sql.running.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    def run_job(*_: object) -> Any:
        raise AssertionError("no job is run here")

    source = open_source("", folder=tmp_path)
    yield Session(source, Registry(tmp_path / "models"), run_job, lambda _: None)
    source.close()
