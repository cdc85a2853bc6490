"""A real Prometheus reads metrics that are encrypted, as a job's PodMonitor says."""

from elasticdl.job.names import Role
from elasticdl.metrics.server import MetricsServer
from elasticdl.rpc.tls.certificates import Authority
from elasticdl.rpc.tls.https import secure_metrics
from elasticdl.rpc.tls.identity import Identity
from elasticdl.rpc.tls.peer_name import PeerName
from prometheus_client import CollectorRegistry, Gauge

from tests.prometheus.server import Prometheus

NAME = PeerName("ml", "digits", Role.WORKER, 3, 1)


def scrape(job, port, ca, server_name=NAME.metrics_host, token="of metrics"):
    """What the operator makes of an endpoint of a PodMonitor."""
    return {
        "job_name": job,
        "scheme": "https",
        "authorization": {"credentials": token},
        "tls_config": {"ca_file": str(ca), "server_name": server_name},
        "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
    }


def test_a_real_prometheus_reads_them_with_authority_name_and_token(tmp_path):
    authority, other = Authority.new(), Authority.new()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    (tmp_path / "other.crt").write_bytes(other.pem)
    registry = CollectorRegistry()
    Gauge("elasticdl_worker_test", "A number.", registry=registry).set(7)
    shown = authority.own(NAME, hours=1)
    server = MetricsServer(
        registry,
        ready=lambda: True,
        healthy=lambda: True,
        secure=secure_metrics(Identity(shown, lambda: shown), "of metrics"),
    )
    scrapes = [
        scrape("right", server.port, tmp_path / "ca.crt"),
        scrape("authority", server.port, tmp_path / "other.crt"),
        scrape("name", server.port, tmp_path / "ca.crt", "metrics.wide.ml.elasticdl"),
        scrape("token", server.port, tmp_path / "ca.crt", token="another"),
    ]
    try:
        with Prometheus(tmp_path / "prometheus", rules="", scrapes=scrapes) as one:

            def read() -> dict[str, float]:
                found = {about["job"]: up for about, up in one.series("up")}
                return found if len(found) == 4 and found["right"] else {}

            found = one.wait_until(read, "a scrape")
            assert found == {"right": 1, "authority": 0, "name": 0, "token": 0}
            ((about, value),) = one.series("elasticdl_worker_test")
            assert (about["job"], value) == ("right", 7)
    finally:
        server.close()
