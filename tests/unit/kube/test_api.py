"""Calls, retries and watches against a small HTTP server that follows a script."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest
from elasticdl.kube.api import ApiServer
from elasticdl.kube.errors import ApiError
from elasticdl.kube.list_and_watch import Listing, WatchEvent, reflect
from elasticdl.runner.kubernetes.publishing import Allowance
from kubernetes.client.configuration import Configuration

Story = Callable[["ApiServer"], Coroutine[Any, Any, None]]


class Script(BaseHTTPRequestHandler):
    """Gives the next answer for each request; remembers what was asked."""

    answers: ClassVar[list[Any]] = []
    asked: ClassVar[list[tuple[str, str, dict[str, str], bytes]]] = []
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.asked.append((self.command, self.path, dict(self.headers), body))
        status, headers, content = self.answers.pop(0)
        if status == 0:
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if isinstance(content, list):
            self.chunks(content)
            return
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def chunks(self, parts: list[str]) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            if part == "BREAK":
                self.close_connection = True
                self.connection.close()
                return
            data = part.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PATCH = do_DELETE = answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server():
    Script.answers, Script.asked = [], []
    one = ThreadingHTTPServer(("127.0.0.1", 0), Script)
    one.daemon_threads = True
    thread = Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield one
    one.shutdown()
    thread.join()
    one.server_close()


@asynccontextmanager
async def connected(server: ThreadingHTTPServer) -> AsyncIterator[ApiServer]:
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.server_port}"
    configuration.api_key = {"authorization": "Bearer secret"}
    api = ApiServer(configuration)
    try:
        yield api
    finally:
        await api.close()


def run(server: ThreadingHTTPServer, story: Story, *answers: Any) -> None:
    Script.answers.extend(answers)

    async def main() -> None:
        async with connected(server) as api:
            await asyncio.wait_for(story(api), 20)

    asyncio.run(main())
    assert Script.answers == []


def refusal(code: int, reason: str, message: str = "no", **details: Any) -> Any:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return code, {}, {**status, "details": details}


def test_a_call_carries_credentials_and_json(server) -> None:
    async def story(api: ApiServer) -> None:
        reply = await api.request(
            "PATCH", "/x", query={"a": "b c"}, body={"n": 1}, content_type="x/json"
        )
        assert reply == {"ok": True}

    run(server, story, (200, {}, {"ok": True}))
    ((method, path, headers, body),) = Script.asked
    assert (method, path, json.loads(body)) == ("PATCH", "/x?a=b+c", {"n": 1})
    assert headers["authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "x/json"


def test_a_refusal_is_told_in_the_servers_words_and_not_repeated(server) -> None:
    async def story(api: ApiServer) -> None:
        with pytest.raises(ApiError, match="exceeded quota: q") as refused:
            await api.insist("POST", "/pods", body={})
        assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
        assert not refused.value.transient

    run(server, story, refusal(403, "Forbidden", "exceeded quota: q"))


@pytest.mark.parametrize(
    "trouble",
    [
        refusal(429, "TooManyRequests", retryAfterSeconds=1),
        (429, {"Retry-After": "1"}, {}),
        refusal(500, "InternalError", "failed calling webhook"),
        refusal(503, "ServiceUnavailable"),
        refusal(504, "Timeout"),
        refusal(409, "Conflict", "Operation cannot be fulfilled on resourcequotas"),
        (0, {}, {}),
        (502, {}, "a proxy speaks HTML"),
        (503, {}, {"details": "a proxy speaks JSON"}),
        (200, {}, b"<html>maintenance</html>"),
        (200, {}, b"\xff\xfe"),
        (200, {}, b"[1]"),
        (200, {}, ['{"ok":', "BREAK"]),
        (503, {}, ['{"kind":', "BREAK"]),
    ],
)
def test_what_passes_is_tried_again_until_it_is_answered(server, trouble) -> None:
    async def story(api: ApiServer) -> None:
        troubles: list[ApiError] = []
        reply = await api.insist("POST", "/x", body={}, on_trouble=troubles.append)
        assert reply == {"ok": True}
        assert len(troubles) == 1

    run(server, story, trouble, (201, {}, {"ok": True}))
    assert len(Script.asked) == 2


def test_the_servers_wish_to_wait_is_known(server) -> None:
    async def story(api: ApiServer) -> None:
        for _ in range(2):
            with pytest.raises(ApiError) as busy:
                await api.request("GET", "/x")
            assert busy.value.retry_after_seconds == 7.0

    told = refusal(429, "TooManyRequests", retryAfterSeconds=7)
    run(server, story, (429, {"Retry-After": "7"}, {}), told)


def test_a_name_that_is_taken_is_no_passing_trouble() -> None:
    assert not ApiError("x", status=409, reason="AlreadyExists").transient
    assert not ApiError("x", final=True).transient
    assert ApiError("nobody listens").transient


def test_a_server_with_a_foreign_certificate_is_not_asked_again(
    server, monkeypatch
) -> None:
    async def story(api: ApiServer) -> None:
        import urllib3

        cause = ssl.SSLCertVerificationError("self-signed certificate")

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise urllib3.exceptions.SSLError(cause)

        monkeypatch.setattr(api._http, "request", refuse)
        with pytest.raises(ApiError, match="self-signed"):
            await api.insist("GET", "/x")

    run(server, story)


# -- watches ----------------------------------------------------------------------


def listing(version: str, *names: str) -> Any:
    items = [{"metadata": {"name": name}} for name in names]
    return 200, {}, {"metadata": {"resourceVersion": version}, "items": items}


def event(kind: str, name: str, version: str) -> str:
    item = {"metadata": {"name": name, "resourceVersion": version}}
    return json.dumps({"type": kind, "object": item}) + "\n"


def gone() -> str:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    return json.dumps({"type": "ERROR", "object": status}) + "\n"


async def seen(api: ApiServer, count: int) -> list[Any]:
    found: list[Any] = []
    shown = reflect(api, "/pods", {"labelSelector": "a=b"})
    async for one in shown:
        if isinstance(one, Listing):
            found.append([item["metadata"]["name"] for item in one.items])
        else:
            assert isinstance(one, WatchEvent)
            found.append((one.item["metadata"]["name"], one.deleted))
        if len(found) == count:
            break
    await shown.aclose()
    return found


def watched_from() -> list[str]:
    return [
        path.partition("resourceVersion=")[2].partition("&")[0]
        for _, path, _, _ in Script.asked
        if "watch=true" in path
    ]


def test_a_watch_goes_on_from_the_list_and_from_bookmarks(server) -> None:
    async def story(api: ApiServer) -> None:
        assert await seen(api, 4) == [
            ["a"],
            ("a", False),
            ("a", True),
            ("b", False),
        ]

    first = event("MODIFIED", "a", "6") + event("DELETED", "a", "7")
    run(
        server,
        story,
        listing("5", "a"),
        # In pieces, as the network cuts them.
        (200, {}, [first[:30], first[30:], event("BOOKMARK", "", "9")]),
        (200, {}, [event("ADDED", "b", "10")]),
    )
    assert watched_from() == ["5", "9"]


def test_a_version_that_is_gone_is_listed_anew(server) -> None:
    async def story(api: ApiServer) -> None:
        assert await seen(api, 3) == [["a"], ["b"], ("c", False)]

    run(
        server,
        story,
        listing("5", "a"),
        (200, {}, [gone()]),
        listing("50", "b"),
        (200, {}, [event("ADDED", "c", "51")]),
    )
    assert watched_from() == ["5", "50"]


def page(rest: str, *names: str) -> Any:
    status, headers, content = listing("5", *names)
    content["metadata"]["continue"] = rest
    return status, headers, content


def test_a_list_is_asked_for_page_by_page(server) -> None:
    async def story(api: ApiServer) -> None:
        assert await seen(api, 1) == [["a", "b", "c"]]

    run(server, story, page("x/y=", "a"), page("z", "b"), listing("5", "c"))
    asked = [path.partition("?")[2].split("&") for _, path, _, _ in Script.asked]
    assert [one[2:] for one in asked[:3]] == [[], ["continue=x%2Fy%3D"], ["continue=z"]]
    assert all(one[1].startswith("limit=") for one in asked[:3])


def test_a_first_list_that_is_too_old_before_its_last_page_begins_anew(server) -> None:
    async def story(api: ApiServer) -> None:
        assert await seen(api, 1) == [["a", "b"]]

    run(server, story, page("x", "a"), refusal(410, "Expired"), listing("9", "a", "b"))


def test_of_what_is_listed_no_more_is_kept_than_is_needed(server) -> None:
    async def story(api: ApiServer) -> None:
        count = 0

        def numbered() -> Callable[[Any], str]:
            nonlocal count
            count += 1
            return lambda item: f"{item['metadata']['name']}{count}"

        shown = reflect(api, "/pods", {}, keep=numbered)
        lists = [await anext(shown), await anext(shown)]
        await shown.aclose()
        kept = [one.items for one in lists if isinstance(one, Listing)]
        assert kept == [["a1", "b1"], ["a2"]]

    run(
        server,
        story,
        *(page("x", "a"), listing("5", "b")),
        (200, {}, [gone()]),
        listing("9", "a"),
    )


@pytest.mark.parametrize(
    "broken",
    [
        (200, {}, [event("ADDED", "x", "6")[:20], "BREAK"]),
        (0, {}, {}),
        refusal(410, "Expired"),
        refusal(403, "Forbidden"),  # the Role went while the job runs
        (503, {}, ['{"kind":', "BREAK"]),
        (200, {}, ["no JSON\n"]),
    ],
)
def test_a_broken_watch_is_listed_anew(server, broken) -> None:
    async def story(api: ApiServer) -> None:
        assert await seen(api, 2) == [["a"], ["b"]]

    run(server, story, listing("5", "a"), broken, listing("7", "b"))


def test_a_first_list_that_is_refused_is_an_error(server) -> None:
    async def story(api: ApiServer) -> None:
        with pytest.raises(ApiError, match="cannot list resource"):
            await seen(api, 1)

    run(server, story, refusal(403, "Forbidden", "cannot list resource pods"))


@pytest.mark.parametrize("code", [401, 403, 404])
def test_a_later_list_that_is_refused_is_an_error_for_who_asks_for_it(
    server, code
) -> None:
    async def story(api: ApiServer) -> None:
        shown = reflect(api, "/pods", {}, until_refused=True)
        with pytest.raises(ApiError, match="taken away"):
            assert [isinstance(one, Listing) async for one in shown] == [True]

    broken = (0, {}, {})
    run(server, story, listing("5"), broken, refusal(code, "", "taken away"))


# -- how many events --------------------------------------------------------------


def test_an_allowance_is_a_burst_and_then_a_rate() -> None:
    allowance = Allowance(3, 5.0)
    assert [allowance.take(now=100.0) for _ in range(4)] == [True, True, True, False]
    assert not allowance.take(now=104.0)
    assert allowance.take(now=105.5)
    assert not allowance.take(now=106.0)
    assert [allowance.take(now=1000.0) for _ in range(4)] == [True, True, True, False]
