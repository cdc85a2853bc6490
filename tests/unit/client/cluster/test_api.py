"""The connection to a cluster: what is told when there is none, or when it refuses."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from elasticdl.client.cluster.api import ClusterError, Where, connect
from elasticdl.errors import PlatformError
from kubernetes.config import kube_config

PATH = "/api/v1/namespaces/ml/configmaps/elasticdl-digits"


@pytest.fixture
def kube(tmp_path, monkeypatch):
    """Write a kube config for a port of this machine; `connect` reads it."""

    def write(port, **context):
        config = {
            "current-context": "here",
            "clusters": [
                {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
            ],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u", **context}}
            ],
        }
        file = tmp_path / "config"
        file.write_text(json.dumps(config))
        # The Kubernetes package reads KUBECONFIG when it is imported.
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))

    return write


class Answer(BaseHTTPRequestHandler):
    """Keeps what was asked; answers with what the test wants."""

    status, body, asked = 200, b"{}", ()

    def do_GET(self):
        Answer.asked = (self.path, self.headers["Authorization"])
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    http = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield http.server_address[1]
    http.shutdown()
    http.server_close()
    thread.join()


def test_the_namespace_is_the_contexts_unless_one_is_named(kube):
    kube(1, namespace="team")
    assert connect(Where()).namespace == "team"
    assert connect(Where(namespace="ml")).path("pods", "x") == (
        "/api/v1/namespaces/ml/pods/x"
    )
    kube(1)
    assert connect(Where()).namespace == "default"


def test_an_unknown_context_names_those_that_are_there(kube):
    kube(1)
    with pytest.raises(PlatformError, match="no kube context 'prod'; there are: here"):
        connect(Where("prod"))


def test_without_a_kube_config_it_is_said_where_one_belongs(tmp_path, monkeypatch):
    nowhere = str(tmp_path / "none")
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", nowhere)
    with pytest.raises(PlatformError, match=r"no cluster is configured.*KUBECONFIG"):
        connect(Where())


def test_a_cluster_that_does_not_answer_is_named_with_its_address(kube):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        kube(port)
        with pytest.raises(PlatformError) as raised:
            connect(Where()).get(PATH)
    assert "kube context 'here' does not answer" in str(raised.value)
    assert f"http://127.0.0.1:{port}" in str(raised.value)
    assert "Connection refused" in str(raised.value)


def test_calls_carry_the_users_token(kube, server):
    kube(server)
    Answer.status, Answer.body = 200, b'{"items": [{"a": 1}]}'
    assert connect(Where()).items(PATH, limit="1") == [{"a": 1}]
    assert Answer.asked == (f"{PATH}?limit=1", "Bearer secret")


def test_what_is_not_there_is_none(kube, server):
    kube(server)
    Answer.status, Answer.body = 404, b'{"message": "x", "reason": "NotFound"}'
    assert connect(Where()).find(PATH) is None


def test_lines_are_whole_however_they_come(kube, server):
    kube(server)
    Answer.status, Answer.body = 200, b"one\ntwo\nthree"
    lines = list(connect(Where()).lines(PATH, wait=False))
    assert lines == [b"one", b"two", b"three"]


def test_a_refusal_is_in_the_api_servers_words_with_the_next_step(kube, server):
    kube(server)
    words = {"message": 'User "u" cannot get x', "reason": "Forbidden"}
    Answer.status, Answer.body = 403, json.dumps(words).encode()
    with pytest.raises(ClusterError) as raised:
        connect(Where()).get(PATH)
    assert raised.value.forbidden
    assert str(raised.value) == (
        'cannot read configmaps/elasticdl-digits in namespace ml: User "u" cannot '
        "get x; ask for a role that allows it, or name another namespace with -n"
    )
    with pytest.raises(ClusterError, match=r"ask for a role that allows it$"):
        connect(Where()).get("/api/v1/nodes")  # of no namespace
    Answer.status = 401
    with pytest.raises(ClusterError, match="log in again"):
        connect(Where()).get(PATH)
