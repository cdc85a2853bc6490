"""Metrics and health over HTTP."""

import http.client

import pytest
from elasticdl.errors import PlatformError
from elasticdl.metrics.server import MetricsServer
from prometheus_client import CollectorRegistry, Gauge


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
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
