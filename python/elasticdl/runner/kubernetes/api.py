"""The connection to a Kubernetes API server: calls, retries and watches as plain JSON.

Owns the one use of the Kubernetes client: its configuration and its connection pool.
The generated classes are left alone: `CoreV1Api` costs three times the memory of all
the rest of a master. Used by the modules of this package and, where a call may block,
by the CLI. Must not know pods or jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import (
    ConfigException,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)

from elasticdl.errors import PlatformError

log = logging.getLogger(__name__)

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
FIELD_MANAGER = "elasticdl-master"

_THREADS = 8  # calls at once; a burst of pods is made by so many
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 35.0  # an admission webhook may take 30
# The server sends a bookmark about once a minute: silence for longer is a dead peer.
_SILENT_WATCH_SECONDS = 150.0
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 10.0
_AWAY_LOG_SECONDS = 30.0


class ApiError(PlatformError):
    """The API server refused a call, or gave no answer (`status` 0)."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after_seconds: float = 0.0,
        final: bool = False,
    ) -> None:
        """`reason` is the server's word for it, as `AlreadyExists`."""
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        self._final = final

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed a little later."""
        # Quota is counted by compare-and-set: many pods at once meet a conflict.
        conflict = self.status == 409 and self.reason == "Conflict"
        away = self.status in (0, 408, 429) or self.status >= 500
        return not self._final and (away or conflict)


def kube_contexts() -> tuple[dict[str, str], str]:
    """Return the kube config's contexts with their namespaces, and the current one.

    The namespace is "" where a context names none. Raises PlatformError where there is
    no kube config, or one that cannot be read.
    """
    try:
        contexts, current = list_kube_config_contexts()
        named = {
            str(one["name"]): str(one["context"].get("namespace") or "")
            for one in contexts
        }
        return named, str(current["name"])
    except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
        what = " ".join(str(error).split())
        raise PlatformError(
            f"no cluster is configured: {what}; write ~/.kube/config or set "
            "KUBECONFIG, as kubectl needs it"
        ) from error


class Backoff:
    """Growing pauses with jitter, so that many masters do not call in step."""

    def __init__(self, longest_seconds: float = _LONGEST_PAUSE_SECONDS) -> None:
        """Begin with a short one."""
        self._longest = longest_seconds
        self._tries = 0

    def next_seconds(self, least: float = 0.0) -> float:
        """Return how long to wait now; at least what the server asked for."""
        bound = min(_FIRST_PAUSE_SECONDS * 2.0**self._tries, self._longest)
        self._tries = min(self._tries + 1, 16)
        return least + bound * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin again: it worked."""
        self._tries = 0


class ApiServer:
    """One API server, as one user. Thread-safe; `close` when done."""

    def __init__(self, configuration: Configuration) -> None:
        """Connect lazily. Use `in_cluster` or `from_kubeconfig`."""
        self._configuration = configuration
        configuration.connection_pool_maxsize = 2 * _THREADS
        self._http = RESTClientObject(configuration).pool_manager
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kubernetes")
        self._away_since = 0.0
        self._away_logged = 0.0
        self.calls = 0  # made so far, watches included

    @staticmethod
    def in_cluster() -> ApiServer:
        """Return the connection of a pod, as its service account.

        Raises PlatformError if this is no pod, or one without a token.
        """
        configuration = Configuration()
        try:
            load_incluster_config(client_configuration=configuration)
        except ConfigException as error:
            raise PlatformError(
                f"this process has no access to a Kubernetes API server: {error}; "
                "the master needs the token of its service account: set "
                "automountServiceAccountToken in its pod"
            ) from error
        return ApiServer(configuration)

    @staticmethod
    def from_kubeconfig(
        path: str | None = None, context: str | None = None
    ) -> ApiServer:
        """Return a user's connection; None is the usual file, its current context.

        Raises PlatformError if there is no such file or context.
        """
        configuration = Configuration()
        try:
            load_kube_config(
                config_file=path, context=context, client_configuration=configuration
            )
        except (ConfigException, OSError) as error:
            raise PlatformError(
                f"cannot use the kubeconfig {path or '~/.kube/config'}: {error}; "
                "name another file or context"
            ) from error
        return ApiServer(configuration)

    @property
    def address(self) -> str:
        """The server's address, `https://...`."""
        return str(self._configuration.host)

    # -- calls --------------------------------------------------------------------

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Make one call and wait for the answer. Raises ApiError."""
        response = self._send(method, _url(path, query), body, content_type)
        data = response.data
        if not 200 <= response.status < 300:
            raise _refusal(method, path, response.status, response.headers, data)
        answer: Json = json.loads(data) if data else {}
        return answer

    def lines(
        self, path: str, query: Mapping[str, str], *, wait: bool
    ) -> Iterator[bytes]:
        """Yield lines of a text answer; with `wait` as long as the server sends.

        Raises ApiError.
        """
        response = self._send(
            "GET",
            _url(path, query),
            None,
            "application/json",
            read_seconds=None if wait else _READ_SECONDS,
        )
        rest = b""
        try:
            if response.status != 200:
                headers, data = response.headers, response.data
                raise _refusal("GET", path, response.status, headers, data)
            for block in response.stream(2**16):
                *whole, rest = (rest + block).split(b"\n")
                yield from whole
            if rest:
                yield rest
        except urllib3.exceptions.HTTPError as error:
            raise _unanswered(error) from error
        finally:
            response.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Make one call in a thread. Raises ApiError."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads,
            lambda: self.call(
                method, path, query=query, body=body, content_type=content_type
            ),
        )

    async def insist(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
        on_trouble: Callable[[ApiError], None] = lambda _: None,
    ) -> Json:
        """Call until the server answers, however long it is away.

        `on_trouble` hears of each try that failed. Raises ApiError for a refusal that
        trying again cannot change.
        """
        backoff = Backoff()
        while True:
            try:
                answer = await self.request(
                    method, path, query=query, body=body, content_type=content_type
                )
            except ApiError as error:
                if not error.transient:
                    raise
                self._away(error)
                on_trouble(error)
                await asyncio.sleep(backoff.next_seconds(error.retry_after_seconds))
            else:
                self._back()
                return answer

    def _away(self, error: ApiError) -> None:
        now = time.monotonic()
        self._away_since = self._away_since or now
        if now - self._away_logged > _AWAY_LOG_SECONDS:
            self._away_logged = now
            log.warning("%s; trying again", error)

    def _back(self) -> None:
        if self._away_since:
            seconds = time.monotonic() - self._away_since
            self._away_since = self._away_logged = 0.0
            log.info("the API server answers again after %.1f s", seconds)

    # -- watches ------------------------------------------------------------------

    async def stream(
        self, path: str, query: Mapping[str, str]
    ) -> AsyncGenerator[Json, None]:
        """Yield the events of a watch until the server ends it.

        Raises ApiError if it breaks. To be closed with `contextlib.aclosing`.
        """
        loop = asyncio.get_running_loop()
        response = await loop.run_in_executor(
            self._threads, lambda: self._open(path, query)
        )
        events: asyncio.Queue[Json | ApiError | None] = asyncio.Queue()

        def tell(event: Json | ApiError | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(events.put_nowait, event)

        # A thread of its own, which may wait for ever: nothing has to join it.
        threading.Thread(
            target=_read_events, args=(response, tell), name="watch", daemon=True
        ).start()
        try:
            while (event := await events.get()) is not None:
                if isinstance(event, ApiError):
                    raise event
                yield event
        finally:
            with contextlib.suppress(ValueError, RuntimeError, OSError):
                response.shutdown()

    def _open(self, path: str, query: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        response = self._send(
            "GET",
            _url(path, {**query, "watch": "true"}),
            None,
            "application/json",
            read_seconds=_SILENT_WATCH_SECONDS,
        )
        if response.status != 200:
            data = response.data
            raise _refusal("watch", path, response.status, response.headers, data)
        return response

    # -- below --------------------------------------------------------------------

    def _send(
        self,
        method: str,
        url: str,
        body: Json | None,
        content_type: str,
        *,
        read_seconds: float | None = _READ_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        self.calls += 1
        headers = {"Accept": "application/json", "User-Agent": "elasticdl"}
        # Asked for each call: tokens of pods are renewed every hour.
        for auth in self._configuration.auth_settings().values():
            headers[auth["key"]] = auth["value"]
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            response: urllib3.BaseHTTPResponse = self._http.request(
                method,
                self._configuration.host + url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=read_seconds),
                preload_content=False,
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise _unanswered(error) from error
        return response

    async def close(self) -> None:
        """End the connection; calls that are on their way are waited for."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._threads.shutdown)
        self._http.clear()


def _url(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _read_events(
    response: urllib3.BaseHTTPResponse, tell: Callable[[Json | ApiError | None], None]
) -> None:
    rest = b""
    try:
        for chunk in response.stream(2**16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                tell(json.loads(line))
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        tell(ApiError(f"the watch broke: {error}"))
    else:
        tell(None)
    finally:
        response.close()


def _refusal(
    method: str, path: str, status: int, headers: Mapping[str, str], data: bytes
) -> ApiError:
    """Return what the server said, in its own words."""
    said: Json = {}
    with contextlib.suppress(ValueError):
        parsed = json.loads(data)
        said = parsed if isinstance(parsed, dict) else {}
    details = said.get("details") or {}
    wait = headers.get("Retry-After", "") or str(details.get("retryAfterSeconds", ""))
    return ApiError(
        said.get("message") or f"{method} {path}: HTTP status {status}",
        status=status,
        reason=said.get("reason") or "",
        retry_after_seconds=float(wait) if wait.isdigit() else 0.0,
    )


def _unanswered(error: urllib3.exceptions.HTTPError) -> ApiError:
    cause = error.args[0] if error.args else None
    distrusted = isinstance(cause, ssl.SSLCertVerificationError)
    return ApiError(f"the API server gives no answer: {error}", final=distrusted)
