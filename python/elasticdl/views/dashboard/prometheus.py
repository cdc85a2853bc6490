"""Questions to a Prometheus, over its HTTP API.

Owns the calls, their bounds and their errors. Called by
`views.dashboard.drawing` and `server`. Must not know dashboards.
"""

from __future__ import annotations

import json
import math
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticdl.errors import PlatformError, RefusedError, SpecError
from elasticdl.views.dashboard.variables import Window

_ANSWER_SECONDS = 20.0  # Prometheus' own queries may take as long on a large store.
_SCRAPE_SECONDS = 15.0  # Grafana's own guess, where Prometheus does not say
_WHO_ARE_YOU = (401, 403)
# As long as a page's refresh needs the same values of labels again.
_KEPT_SECONDS = 30.0


class _Stays(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: a token is for one server, and a login page is no answer."""

    def redirect_request(self, *_: Any) -> None:
        """Return no other request."""


@dataclass(frozen=True)
class Access:
    """What a Prometheus asks of those who ask it."""

    headers: Mapping[str, str] = field(default_factory=dict)
    authority: Path | None = None  # a file with the certificate that signed its own


@dataclass(frozen=True)
class TimeSeries:
    """A time series: Unix seconds with values, which may be NaN."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]

    @property
    def last(self) -> float:
        """The newest value."""
        return self.points[-1][1] if self.points else math.nan


class Prometheus:
    """A Prometheus server, or one that speaks its API."""

    def __init__(self, url: str, access: Access | None = None) -> None:
        """`url`: as http://localhost:9090. Raises SpecError for an invalid one."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError(
                f"--prometheus: got {url!r}, expected a URL with its scheme, as "
                "http://localhost:9090"
            )
        self.url = url.rstrip("/")
        access = access or Access()
        self._headers = dict(access.headers)
        self._opener = urllib.request.build_opener(
            _Stays, urllib.request.HTTPSHandler(context=_context(access.authority))
        )
        self._scrape: tuple[float, float] | None = None

    def range(self, expression: str, window: Window) -> list[TimeSeries]:
        """Return the values of an expression at each step of a window."""
        result = self._ask(
            "query_range",
            query=expression,
            start=f"{window.start:.3f}",
            end=f"{window.end:.3f}",
            step=f"{window.step:g}",
        )
        return [
            TimeSeries(one["metric"], [_point(pair) for pair in one["values"]])
            for one in _matrix(result)
        ]

    def instant(self, expression: str, when: float) -> list[TimeSeries]:
        """Return the value of an expression at one time."""
        result = self._ask("query", query=expression, time=f"{when:.3f}")
        if result.get("resultType") == "scalar":
            return [TimeSeries({}, [_point(result["result"])])]
        return [
            TimeSeries(one["metric"], [_point(one["value"])]) for one in _matrix(result)
        ]

    def label_values(self, selector: str, label: str, window: Window) -> list[str]:
        """Return the values of a label in a window, sorted."""
        matching = {"match[]": selector} if selector else {}
        found = self._ask(
            f"label/{urllib.parse.quote(label)}/values",
            start=f"{window.start:.3f}",
            end=f"{window.end:.3f}",
            **matching,
        )
        return sorted(str(value) for value in found)

    def check(self) -> None:
        """Raise PlatformError if the server does not answer like Prometheus."""
        self._ask("query", query="vector(1)")

    def scrape_seconds(self) -> float:
        """Return the scrape interval of jobs, if the server reports it."""
        now = time.monotonic()
        if self._scrape is None or now - self._scrape[0] > _KEPT_SECONDS:
            self._scrape = (now, self._asked_scrape_seconds())
        return self._scrape[1]

    def _asked_scrape_seconds(self) -> float:
        try:
            targets = self._ask("targets", state="active")["activeTargets"]
        except RefusedError:
            return _SCRAPE_SECONDS  # Thanos, Mimir and others know no targets
        given = [
            _seconds(target["scrapeInterval"])
            for target in targets
            if "training_job" in target.get("labels", {}) and "scrapeInterval" in target
        ]
        return max(given, default=_SCRAPE_SECONDS)

    def _ask(self, what: str, **params: str) -> Any:
        request = urllib.request.Request(
            f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(params)}",
            headers=self._headers,
        )
        try:
            with self._opener.open(request, timeout=_ANSWER_SECONDS) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            why = getattr(reason, "strerror", None) or reason
            raise PlatformError(
                f"Prometheus at {self.url} does not answer: got {why}, expected its "
                "HTTP API; is it running, and is the URL right? In a cluster: "
                "kubectl port-forward svc/prometheus 9090"
            ) from None
        return self._data(body)

    def _data(self, body: bytes) -> Any:
        try:
            answer = json.loads(body)
            if answer["status"] == "success":
                return answer["data"]
        except (ValueError, TypeError, KeyError):
            pass
        start = body[:60].decode(errors="replace")
        raise PlatformError(
            f"{self.url} is no Prometheus: got {start!r}, expected the JSON of its "
            "HTTP API; give the URL under which /api/v1/query is"
        )

    def _refused(self, error: urllib.error.HTTPError) -> PlatformError | RefusedError:
        try:
            words = str(json.loads(error.read())["error"])
        except (ValueError, TypeError, KeyError):
            if error.code == 404:
                return RefusedError(f"{self.url} does not know this call: got 404")
            help_ = "give the URL under which /api/v1/query is"
            if error.code in _WHO_ARE_YOU or 300 <= error.code < 400:
                help_ += ", and what it asks for: --token-file, --header"
            return PlatformError(
                f"{self.url} answered {error.code} {error.reason}, expected the JSON "
                f"of Prometheus' HTTP API; {help_}"
            )
        return RefusedError(f"Prometheus refused the query: {words}")


def _context(authority: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:  # also one that holds no certificate
        raise SpecError(
            f"--ca-file: got {authority} ({error.strerror or error}), expected a file "
            "with a certificate (PEM)"
        ) from None


def _matrix(result: Any) -> list[dict[str, Any]]:
    return [dict(one) for one in result["result"]]


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


def _seconds(text: str) -> float:
    """`1m30s` -> 90."""
    factors = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
    parts = re.findall(r"(\d+)(ms|s|m|h|d)", text)
    return sum(int(number) * factors[unit] for number, unit in parts)
