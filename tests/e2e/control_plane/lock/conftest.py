"""Two namespaces whose platforms are locked, for all tests of the lock."""

from collections.abc import Iterator

import pytest

from tests.e2e.control_plane.conftest import ControlPlane
from tests.e2e.control_plane.lock.locking import ALLOWED, CLASSES, Locked


@pytest.fixture(scope="session")
def locked(control_plane: ControlPlane, priority_classes: None) -> Iterator[Locked]:
    for name in CLASSES:
        control_plane.kubectl("create", "priorityclass", name, "--value=7")
    one = Locked(control_plane, "locked", {})
    yield one
    one.close()


@pytest.fixture(scope="session")
def lenient(control_plane: ControlPlane, locked: Locked) -> Iterator[Locked]:
    """One whose platform lists what a job may have beside its own."""
    one = Locked(control_plane, "lenient", ALLOWED)
    yield one
    one.close()
