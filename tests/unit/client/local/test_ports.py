"""The master's port."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from elasticdl.client.local.ports import master_port
from elasticdl.errors import PlatformError


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_port_in_use_is_a_clear_error(busy: int) -> None:
    with pytest.raises(PlatformError, match=rf"job.master.port: port {busy} is in use"):
        master_port(busy, lambda n: 0)


def test_a_busy_port_is_not_picked(busy: int) -> None:
    picks = iter([busy - 20_000, busy - 19_999, busy - 19_998, busy - 19_997])
    assert master_port(0, lambda n: next(picks)) != busy


def test_no_free_port_is_a_clear_error(busy: int) -> None:
    with pytest.raises(PlatformError, match="no free port found"):
        master_port(0, lambda n: busy - 20_000)


def test_a_wanted_free_port_is_taken(busy: int) -> None:
    port = master_port(0, lambda n: 77)
    assert master_port(port, lambda n: 0) == port
