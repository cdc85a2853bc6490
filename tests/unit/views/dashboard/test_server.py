"""What the dashboard page's server lets through, and what it says of a bad answer."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from elasticdl.errors import PlatformError, RefusedError, SpecError
from elasticdl.views.dashboard.prometheus import Prometheus
from elasticdl.views.dashboard.server import HttpAnswer, Viewer, make_server

NOW = 1_790_000_000.0
NOBODY = "http://127.0.0.1:9"  # the discard port: nobody listens


@contextmanager
def served(server: HTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[str]:
    """Serve something else than a Prometheus."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with served(HTTPServer(("127.0.0.1", 0), Other)) as url:
        yield url


def viewer(url: str = NOBODY) -> Viewer:
    return Viewer(Prometheus(url), lambda: NOW)


def said(answer: HttpAnswer) -> str:
    return str(json.loads(answer.body)["error"])


def test_no_answer_of_prometheus_is_told_in_three_parts() -> None:
    answer = viewer().answer("/api/boards/elasticdl-job", {})
    assert answer.status == 502
    for words in (
        NOBODY,
        "Connection refused",
        "expected its HTTP API",
        "port-forward",
    ):
        assert words in said(answer)


def test_something_else_than_a_prometheus_is_told() -> None:
    with answering(b"<html>hello") as url, pytest.raises(PlatformError) as caught:
        Prometheus(url).check()
    assert "is no Prometheus: got '<html>hello'" in str(caught.value)


def test_a_page_that_is_not_found_is_told() -> None:
    with answering(b"nothing", 404) as url, pytest.raises(RefusedError, match="404"):
        Prometheus(url).check()


def test_what_prometheus_says_of_a_query_is_handed_on() -> None:
    body = b'{"status":"error","error":"parse error"}'
    with (
        answering(body, 400) as url,
        pytest.raises(RefusedError, match="refused the query: parse error"),
    ):
        Prometheus(url).check()


def test_a_url_without_its_scheme_is_refused() -> None:
    with pytest.raises(SpecError, match="got 'localhost:9090', expected a URL"):
        Prometheus("localhost:9090")


@pytest.mark.parametrize(
    "path",
    [
        "/api/panels/elasticdl-job/999",
        "/api/panels/other/1",
        "/api/query",
        "/api/v1/query",
        "/static/../server.py",
        "/static/__init__.py",
        "/d/nothing",
    ],
)
def test_only_files_dashboards_and_their_panels_are_there(path: str) -> None:
    answer = viewer().answer(path, {"query": ["up"]})
    assert answer.status == 404


def test_a_time_that_is_none_is_a_bad_request() -> None:
    with answering(b"", 404) as url:  # knows no targets either
        answer = viewer(url).answer("/api/boards/elasticdl-job", {"from": ["x"]})
    assert answer.status == 400
    assert "got the time 'x', expected now" in said(answer)


def test_another_name_for_this_machine_is_no_way_in() -> None:
    with served(make_server(viewer(), bind="127.0.0.1", port=0)) as url:
        asked = urllib.request.Request(url, headers={"Host": "evil.example:80"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(asked)
        assert caught.value.code == 421
        caught.value.close()
        with urllib.request.urlopen(f"{url}/d/elasticdl-job") as page:
            assert b"ElasticDL / Job" in page.read()
            assert "default-src 'self'" in page.headers["Content-Security-Policy"]


def test_a_port_in_use_is_told() -> None:
    with served(make_server(viewer(), bind="127.0.0.1", port=0)) as url:
        port = int(url.rsplit(":", 1)[1])
        with pytest.raises(PlatformError, match="cannot be had"):
            make_server(viewer(), bind="127.0.0.1", port=port)
