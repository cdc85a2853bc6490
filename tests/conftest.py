"""Settings for all tests."""

import faulthandler
import sys

import pytest
from hypothesis import HealthCheck, settings

# The machine may be slow and shared: examples are bounded by number, not by time.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
settings.load_profile("default")

# Modules that a test writes twice within a second, as long as before, are not new to
# Python beside what it has kept of the first ones.
sys.dont_write_bytecode = True

# A thread that a test left running would keep the process, all tests done, for ever.
_SECONDS_TO_END = 120


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Have a process that does not end show what its threads do, and fail."""
    faulthandler.dump_traceback_later(_SECONDS_TO_END, exit=True)
