"""Metrics and health over HTTP."""

import contextlib
import errno
import http.client
import socket
import threading

import pytest
from elasticdl.errors import PlatformError
from elasticdl.metrics import server as serving
from elasticdl.metrics.server import MAX_CONNECTIONS, MetricsServer
from prometheus_client import CollectorRegistry, Gauge

BOUND_SECONDS = 30.0


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_metrics_health_and_readiness_are_served():
    registry = CollectorRegistry()
    gauge = Gauge("elasticdl_test_version", "A number.", registry=registry)
    state = {"ready": False}
    server = MetricsServer(
        registry,
        ready=lambda: state["ready"],
        healthy=lambda: True,
        refresh=lambda: gauge.set(7),
    )
    try:
        assert get(server.port, "/healthz") == (200, "ok\n")
        assert get(server.port, "/readyz") == (503, "not yet\n")
        state["ready"] = True
        assert get(server.port, "/readyz")[0] == 200
        status, text = get(server.port, "/metrics?x=1")
        assert status == 200
        assert "elasticdl_test_version 7.0" in text
        assert get(server.port, "/other")[0] == 404
    finally:
        server.close()


def test_a_port_in_use_is_a_clear_error():
    registry = CollectorRegistry()
    first = MetricsServer(registry, ready=lambda: True, healthy=lambda: True)
    try:
        with pytest.raises(PlatformError, match=f"127.0.0.1:{first.port}"):
            MetricsServer(
                registry, ready=lambda: True, healthy=lambda: True, port=first.port
            )
    finally:
        first.close()


@contextlib.contextmanager
def served(**settings):
    server = MetricsServer(
        CollectorRegistry(), ready=lambda: True, healthy=lambda: True, **settings
    )
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def connected(port, count, sends=b""):
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", port), BOUND_SECONDS)
            made.append(stack.enter_context(one))
            one.sendall(sends)
        yield made


@pytest.mark.parametrize(
    "sends", [b"", b"GET /metrics HTTP/1.1\r\nHost: a\r\n"], ids=["nothing", "half"]
)
def test_silent_connections_take_a_few_threads_and_keep_no_probe_out(sends):
    before = threading.active_count()
    with served() as server, connected(server.port, 300, sends):
        assert get(server.port, "/healthz") == (200, "ok\n")
        assert get(server.port, "/metrics")[0] == 200
        # One thread may end while the next begins.
        assert threading.active_count() <= before + 1 + 2 * MAX_CONNECTIONS


def test_readers_who_take_nothing_of_the_answer_keep_no_probe_out(monkeypatch):
    """The kubelet ends a process whose probes are not answered."""
    monkeypatch.setattr(serving, "SILENT_SECONDS", BOUND_SECONDS)
    registry = CollectorRegistry()
    long = "x" * 16_000_000  # more than any buffer of a socket
    Gauge("elasticdl_test", "A number.", ["a"], registry=registry).labels(long).set(1)
    server = MetricsServer(registry, ready=lambda: True, healthy=lambda: True)
    asks = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
    try:
        with connected(server.port, MAX_CONNECTIONS, asks) as readers:
            for reader in readers:
                reader.recv(1)  # it is being answered
            assert get(server.port, "/healthz") == (200, "ok\n")
    finally:
        server.close()


def test_a_connection_that_says_nothing_is_ended(monkeypatch):
    monkeypatch.setattr(serving, "SILENT_SECONDS", 0.05)
    with served() as server, connected(server.port, 1) as (peer,):
        assert peer.recv(1) == b""


def test_a_connection_that_asked_once_and_is_silent_then_gives_way_too():
    """As a Prometheus that keeps its connection open between two scrapes."""
    with served() as server:
        asks = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
        with connected(server.port, 3 * MAX_CONNECTIONS, asks):
            assert get(server.port, "/readyz") == (200, "ok\n")


def test_who_is_answered_is_never_ended_for_who_comes_later():
    answers, asked = threading.Event(), threading.Event()

    def refresh():
        asked.set()
        assert answers.wait(BOUND_SECONDS)

    found = []
    with served(refresh=refresh) as server:
        scrape = threading.Thread(
            target=lambda: found.append(get(server.port, "/metrics"))
        )
        scrape.start()
        assert asked.wait(BOUND_SECONDS)
        with connected(server.port, 3 * MAX_CONNECTIONS):
            assert get(server.port, "/healthz") == (200, "ok\n")
            answers.set()
            scrape.join(BOUND_SECONDS)
    assert [status for status, _ in found] == [200]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_two_colons_are_all_addresses_of_both_families(host):
    with served(host="::") as server:
        assert get(server.port, "/healthz", host) == (200, "ok\n")


def test_an_ipv6_address_alone_is_taken_and_named_with_its_brackets():
    with served(host="::1") as server:
        assert get(server.port, "/healthz", "::1") == (200, "ok\n")
        taken = rf"\[::1\]:{server.port} for metrics"
        with (
            pytest.raises(PlatformError, match=taken),
            served(host="::1", port=server.port),
        ):
            pass


def test_on_a_machine_without_ipv6_they_are_all_of_the_other_family(monkeypatch):
    class WithoutIPv6(socket.socket):
        def __init__(self, family=-1, *rest, **more):
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "not supported")
            super().__init__(family, *rest, **more)

    monkeypatch.setattr(socket, "socket", WithoutIPv6)
    with served(host="::") as server:
        assert get(server.port, "/healthz") == (200, "ok\n")
