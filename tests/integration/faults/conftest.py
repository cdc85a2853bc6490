"""Faults are tested on processes as they are: not slowed by measuring coverage."""

import pytest


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch):
    """Role processes under faults run without a tracer, which slows their start."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    monkeypatch.delenv("COVERAGE_PROCESS_START", raising=False)
