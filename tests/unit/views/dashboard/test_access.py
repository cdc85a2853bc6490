"""A Prometheus that asks who is there: a token, a tenant, an authority of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from elasticdl.cli.dashboard import headers_of
from elasticdl.errors import PlatformError, SpecError
from elasticdl.views.dashboard.prometheus import Access, Prometheus

from tests.unit.views.dashboard.test_server import served

ANSWER = b'{"status":"success","data":{"resultType":"scalar","result":[0,"1"]}}'


@contextmanager
def asking(got: list[dict[str, str]], *, elsewhere: str = "") -> Iterator[str]:
    """Serve one that answers who has the token, or sends everybody elsewhere."""

    class Guarded(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append({name.lower(): v for name, v in self.headers.items()})
            known = self.headers["Authorization"] == "Bearer secret"
            self.send_response(302 if elsewhere else 200 if known else 401)
            if elsewhere:
                self.send_header("Location", elsewhere)
            self.end_headers()
            self.wfile.write(ANSWER if known else b"who are you")

        def log_message(self, *args: object) -> None:
            pass

    with served(HTTPServer(("127.0.0.1", 0), Guarded)) as url:
        yield url


def test_a_token_and_a_tenant_are_sent_with_each_question(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    got: list[dict[str, str]] = []
    headers = headers_of(["X-Scope-OrgID: team: a"], str(token))
    with asking(got) as url:
        Prometheus(url, Access(headers)).check()
    assert got[0]["x-scope-orgid"] == "team: a"


def test_one_that_is_not_let_in_hears_what_to_give() -> None:
    with asking([]) as url, pytest.raises(PlatformError, match=r"401.*--token-file"):
        Prometheus(url).check()


def test_a_token_goes_nowhere_else() -> None:
    other: list[dict[str, str]] = []
    headers = {"Authorization": "Bearer secret"}
    with (
        asking(other) as thief,
        asking([], elsewhere=thief) as url,
        pytest.raises(PlatformError, match="302"),
    ):
        Prometheus(url, Access(headers)).check()
    assert other == []


@pytest.mark.parametrize(
    ("said", "words"),
    [("no colon", "--header: got 'no colon'"), ("a b: c", "--header: got 'a b'"),
     ("A: b\r\nHost: c", "the header A: got a value of more than one line")],
)  # fmt: skip
def test_a_header_that_cannot_be_sent_is_refused(said: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        headers_of([said], None)


@pytest.mark.parametrize("text", ["", "a\nb", "schlüssel"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(SpecError):
        headers_of([], str(file))


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_an_authority_that_is_none_is_refused(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SpecError, match="--ca-file: got"):
        Prometheus("https://localhost:1", Access(authority=file))
