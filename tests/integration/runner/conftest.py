"""A platform with scripted roles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl.job.names import JobDir
from elasticdl.testing.scripted import ScriptedStage, staged


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ScriptedStage]:
    with staged(JobDir(tmp_path / "job"), os.environ) as stage:
        yield stage
