"""Metrics by TLS, to those alone who bring the job's token of metrics."""

import contextlib
import http.client
import socket
import ssl
import threading

import pytest
from elasticdl.job.names import Role
from elasticdl.metrics.server import MAX_CONNECTIONS, MetricsServer
from elasticdl.rpc.tls.certificates import Authority
from elasticdl.rpc.tls.https import secure_metrics
from elasticdl.rpc.tls.identity import Identity
from elasticdl.rpc.tls.peer_name import PeerName
from prometheus_client import CollectorRegistry, Gauge

TOKEN = "of metrics"
WORKER = PeerName("ml", "digits", Role.WORKER, 3, 1)


class Encrypted:
    """A worker that shows its metrics by TLS."""

    def __init__(self) -> None:
        self.authority = Authority.new()
        self.identity = Identity(
            self.authority.own(WORKER, hours=1),
            lambda: self.authority.own(WORKER, hours=1),
        )
        registry = CollectorRegistry()
        Gauge("elasticdl_test", "A number.", registry=registry).set(7)
        self.server = MetricsServer(
            registry,
            ready=lambda: True,
            healthy=lambda: True,
            secure=secure_metrics(self.identity, TOKEN),
        )

    def context(self, authority: Authority | None = None) -> ssl.SSLContext:
        """Whom a reader believes: as Prometheus, by `ca` and `serverName`."""
        pem = (authority or self.authority).pem.decode()
        return ssl.create_default_context(cadata=pem)

    def connected(self, name: str = WORKER.metrics_host, **context) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.server.port), timeout=20)
        return self.context(**context).wrap_socket(plain, server_hostname=name)

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        with self.connected() as connection:
            client = http.client.HTTPConnection("127.0.0.1")
            client.sock = connection
            client.request("GET", path, headers=headers)
            answer = client.getresponse()
            return answer.status, answer.read().decode()


@pytest.fixture
def worker():
    made = Encrypted()
    yield made
    made.server.close()


def test_who_brings_the_token_reads_and_knows_whom_he_reads(worker):
    status, text = worker.get("/metrics", Authorization=f"Bearer {TOKEN}")
    assert status == 200
    assert "elasticdl_test 7.0" in text


@pytest.mark.parametrize("said", [None, "", "Bearer ", "Bearer another", TOKEN])
def test_who_brings_another_token_or_none_reads_nothing(worker, said):
    headers = {} if said is None else {"Authorization": said}
    status, text = worker.get("/metrics", **headers)
    assert status == 401
    assert "elasticdl_test" not in text


def test_probes_need_no_token(worker):
    assert worker.get("/healthz") == (200, "ok\n")
    assert worker.get("/readyz") == (200, "ok\n")


def test_another_authority_or_name_is_not_believed(worker):
    with pytest.raises(ssl.SSLCertVerificationError):
        worker.connected(authority=Authority.new())
    for name in ("metrics.wide.ml.elasticdl", WORKER.host_of(Role.PS, 0)):
        with pytest.raises(ssl.SSLCertVerificationError):
            worker.connected(name)


def test_who_speaks_in_the_clear_is_not_answered(worker):
    client = http.client.HTTPConnection("127.0.0.1", worker.server.port, timeout=20)
    client.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with pytest.raises((http.client.HTTPException, OSError)):
        client.getresponse()
    assert worker.get("/healthz")[0] == 200


def test_a_renewed_certificate_is_shown_to_the_next_reader(worker):
    def serial() -> int:
        with worker.connected() as connection:
            return connection.getpeercert()["serialNumber"]

    before = serial()
    assert serial() == before
    worker.identity._credentials = worker.authority.own(WORKER, hours=1)
    assert serial() != before


def test_silent_strangers_keep_no_reader_out(worker):
    """Neither before a handshake nor after it."""
    with contextlib.ExitStack() as stack:
        for _ in range(2 * MAX_CONNECTIONS):
            place = ("127.0.0.1", worker.server.port)
            stack.enter_context(socket.create_connection(place, timeout=20))
        assert worker.get("/healthz")[0] == 200
        for _ in range(2 * MAX_CONNECTIONS):
            stack.enter_context(worker.connected())
        assert worker.get("/healthz")[0] == 200


def test_who_breaks_off_in_the_middle_leaves_no_trace_in_the_log(worker, capfd):
    for sent in (b"", b"GET /met"):
        connection = worker.connected()
        connection.sendall(sent)
        with socket.socket(fileno=connection.detach()) as plain:
            plain.sendall(b"no record of TLS")
    assert worker.get("/healthz")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_metrics_are_in_the_clear_without_identity_or_token(worker):
    assert secure_metrics(None, TOKEN) is None
    assert secure_metrics(worker.identity, "") is None


def test_many_readers_at_once_are_answered(worker):
    answers = []

    def read() -> None:
        answers.append(worker.get("/metrics", Authorization=f"Bearer {TOKEN}")[0])

    threads = [threading.Thread(target=read) for _ in range(MAX_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * MAX_CONNECTIONS
