"""The dashboard page's server: files, dashboards, panels; nothing else is let through.

Owns the HTTP side. Called by the verb `dashboard`. A browser names a panel and what it
chose; the queries are those of the dashboards, so that no other question
gets to Prometheus through here.
"""

from __future__ import annotations

import contextlib
import gzip
import ipaddress
import json
import logging
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from elasticdl.dashboards import choices
from elasticdl.dashboards.board import Board, GridPlace, Panel, places
from elasticdl.dashboards.boards import BOARDS
from elasticdl.dashboards.choices import BoardVariable
from elasticdl.errors import ElasticDLError, NotFoundError, PlatformError, RpcError
from elasticdl.views import pages
from elasticdl.views.dashboard.boards import board_of, panel_of
from elasticdl.views.dashboard.drawing import Sight, drawn
from elasticdl.views.dashboard.prometheus import Prometheus
from elasticdl.views.dashboard.variables import ALL, Window

log = logging.getLogger(__name__)

_FILES = {
    "page.css": "text/css",
    "dashboard.css": "text/css",
    "charts.js": "text/javascript",
    "dashboard.js": "text/javascript",
}
_MOST_VALUES = 50  # of one variable in one request
Query = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class HttpAnswer:
    """An HTTP answer to the browser."""

    body: bytes
    kind: str = "application/json"
    status: HTTPStatus = HTTPStatus.OK
    kept: bool = False  # the browser may keep it
    packed: bool = False  # it is compressed already


class Viewer:
    """Answers requests; `clock` gives Unix seconds."""

    def __init__(self, prometheus: Prometheus, clock: Callable[[], float]) -> None:
        """Take the data source; it is not asked yet."""
        self.prometheus = prometheus
        self._clock = clock

    @cached_property
    def _plotly(self) -> bytes:
        return gzip.compress(pages.plotly_script(), 6)

    def answer(self, path: str, query: Query) -> HttpAnswer:
        """Return the answer to a GET; errors are reported as JSON."""
        try:
            return self._answer(path, query)
        except NotFoundError as error:
            return _error(error, HTTPStatus.NOT_FOUND)
        except (PlatformError, RpcError) as error:
            return _error(error, HTTPStatus.BAD_GATEWAY)
        except ElasticDLError as error:
            return _error(error, HTTPStatus.BAD_REQUEST)

    def _answer(self, path: str, query: Query) -> HttpAnswer:
        match path.strip("/").split("/"):
            case [""]:
                return self._page(next(iter(BOARDS.values())))
            case ["d", uid, *_]:  # Grafana's links end with the title
                return self._page(board_of(uid))
            case ["static", "plotly.min.js"]:
                return HttpAnswer(
                    self._plotly, "text/javascript", kept=True, packed=True
                )
            case ["static", name] if name in _FILES:
                return HttpAnswer(pages.read(name).encode(), _FILES[name])
            case ["api", "boards", uid]:
                return _json(self._board(board_of(uid), query))
            case ["api", "panels", uid, number] if number.isdecimal():
                board = board_of(uid)
                panel = panel_of(board, int(number))
                return _json(drawn(board, panel, self._sight(board, query)))
        raise NotFoundError(f"there is no page {path!r}; the dashboards begin at /")

    def _page(self, board: Board) -> HttpAnswer:
        start = {
            "uid": board.uid,
            "prometheus": self.prometheus.url,
            "boards": [{"uid": one.uid, "title": one.title} for one in BOARDS.values()],
            "panels": [_placed(place) for place in places(board)],
            "time": {"from": choices.BEGIN, "to": choices.END},
            "refresh": choices.REFRESH,
        }
        text = pages.filled(
            "dashboard.html",
            title=pages.escaped(board.title),
            description=pages.escaped(board.description),
            prometheus=pages.escaped(self.prometheus.url),
            start=pages.data(start),
        )
        return HttpAnswer(text.encode(), "text/html")

    def _window(self, query: Query) -> Window:
        return Window.of(
            _one(query, "from", choices.BEGIN),
            _one(query, "to", choices.END),
            now=self._clock(),
            scrape_seconds=self.prometheus.scrape_seconds(),
        )

    def _sight(self, board: Board, query: Query) -> Sight:
        chosen = {
            one.name: values[:_MOST_VALUES]
            for one in choices.variables(board)
            if (values := query.get(f"var-{one.name}"))
        }
        window = self._window(query)
        return Sight(self.prometheus, chosen, window, _zone(_one(query, "zone", "0")))

    def _board(self, board: Board, query: Query) -> dict[str, Any]:
        """Return the variables with their possible and current values."""
        sight = self._sight(board, query)
        chosen = dict(sight.chosen)
        variables = []
        for variable in choices.variables(board):
            # One variable's values hang on those before it.
            options = Sight(sight.prometheus, chosen, sight.window, sight.zone).values(
                variable
            )
            chosen[variable.name] = _choice(variable, options, chosen)
            variables.append(
                {
                    "name": variable.name,
                    "label": variable.title,
                    "multi": variable.several,
                    "options": [ALL, *options] if variable.with_all else options,
                    "chosen": chosen[variable.name],
                }
            )
        return {"variables": variables}


def _placed(place: GridPlace) -> dict[str, Any]:
    """Return a panel, or a row's headline, for the page."""
    item = place.item
    kind, description = (
        (item.kind, item.description) if isinstance(item, Panel) else ("row", "")
    )
    return {
        "id": place.number,
        "type": kind,
        "title": item.title,
        "description": description,
        "place": {"x": place.x, "y": place.y, "w": place.width, "h": place.height},
    }


def _choice(
    variable: BoardVariable, options: Sequence[str], chosen: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return a variable's value: the chosen one if it exists, or the first."""
    allowed = [ALL, *options] if variable.with_all else list(options)
    wanted = [one for one in chosen.get(variable.name, ()) if one in allowed]
    if ALL in wanted:
        return [ALL]
    return (wanted if variable.several else wanted[:1]) or allowed[:1]


def _one(query: Query, name: str, otherwise: str) -> str:
    return (query.get(name) or [otherwise])[0]


def _zone(minutes: str) -> timezone:
    """Return the browser's time zone from its minutes east of UTC."""
    try:
        return timezone(timedelta(minutes=int(minutes)))
    except ValueError:
        return UTC


def _json(document: object) -> HttpAnswer:
    return HttpAnswer(json.dumps(document, allow_nan=False).encode())


def _error(error: ElasticDLError, status: HTTPStatus) -> HttpAnswer:
    return HttpAnswer(json.dumps({"error": str(error)}).encode(), status=status)


def make_server(viewer: Viewer, *, bind: str, port: int) -> ThreadingHTTPServer:
    """Return a listening server; `serve_forever` answers.

    Raises PlatformError when the port cannot be had.
    """

    class DashboardHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "elasticdl"

        def do_GET(self) -> None:
            host = self.headers.get("Host", "")
            if not _is_ours(host, bind):
                error = NotFoundError(f"this is not {host!r}; use {bind}:{port}")
                return self._send(_error(error, HTTPStatus.MISDIRECTED_REQUEST))
            parts = urllib.parse.urlsplit(self.path)
            query = urllib.parse.parse_qs(parts.query)
            return self._send(viewer.answer(urllib.parse.unquote(parts.path), query))

        def _send(self, answer: HttpAnswer) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(answer.body)))
            if answer.packed:
                self.send_header("Content-Encoding", "gzip")
            kept = "max-age=86400" if answer.kept else "no-store"
            self.send_header("Cache-Control", kept)
            self.send_header("X-Content-Type-Options", "nosniff")
            # Plotly sets styles itself; scripts come from here alone.
            self.send_header(
                "Content-Security-Policy",
                "default-src 'self'; style-src 'self' 'unsafe-inline'; "
                "img-src 'self' data:; frame-ancestors 'none'",
            )
            self.end_headers()
            # A browser that goes on to another page does not wait for this one.
            with contextlib.suppress(ConnectionError):
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            log.debug(format, *args)

    try:
        server = ThreadingHTTPServer((bind, port), DashboardHandler)
    except (OSError, OverflowError) as error:
        raise PlatformError(
            f"--port: {bind}:{port} cannot be had ({error}); give another "
            "one, as --port 8091"
        ) from None
    server.daemon_threads = True
    return server


def _is_ours(host: str, bind: str) -> bool:
    """Whether a request's Host header names this server.

    A page of the web could make a browser ask here under a name of its own that leads
    to this machine (DNS rebinding); an address, or this machine's name, is no such.
    """
    name = urllib.parse.urlsplit(f"//{host}").hostname or ""
    if name in ("localhost", bind):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        # Whoever opens it to others may have given it any name.
        return (
            not ipaddress.ip_address(bind).is_loopback if _is_address(bind) else False
        )
    return True


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
