"""The connection to a Kubernetes API server: calls, retries and watches as plain JSON.

Owns the one use of the Kubernetes client: its configuration and its connection pool.
The generated classes are left alone: `CoreV1Api` costs three times the memory of all
the rest of a master. Used by the runner of a cluster, by the exporter and, where a call
may block, by commands. Must not know pods or jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
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
from elasticdl.kube.errors import (
    ApiError,
    Backoff,
    Json,
    refusal,
    unanswered,
)

log = logging.getLogger(__name__)

MERGE_PATCH = "application/merge-patch+json"
FIELD_MANAGER = "elasticdl-master"

_THREADS = 8  # calls at once; a burst of pods is made by so many
# A server that does not accept a connection in 5 seconds is away.
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 35.0  # an admission webhook may take 30
_AWAY_LOG_SECONDS = 30.0


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

    @property
    def away(self) -> bool:
        """Whether calls made by `insist` go unanswered now."""
        return self._away_since > 0.0

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
        data = _whole(response)
        if not 200 <= response.status < 300:
            raise refusal(method, path, response.status, response.headers, data)
        try:
            answer = json.loads(data) if data else {}
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):  # a page of something before the server
            raise ApiError(f"{method} {path}: the answer is no JSON object")
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
                raise refusal("GET", path, response.status, headers, data)
            for block in response.stream(2**16):
                *whole, rest = (rest + block).split(b"\n")
                yield from whole
            if rest:
                yield rest
        except urllib3.exceptions.HTTPError as error:
            raise unanswered(error) from error
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
        """Repeat a call until the server answers, however long that takes.

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
        self, path: str, query: Mapping[str, str], *, silent_seconds: float
    ) -> AsyncGenerator[Json, None]:
        """Yield the events of a watch until the server ends it.

        Raises ApiError if it breaks, or is silent for so long. To be closed with
        `contextlib.aclosing`.
        """
        loop = asyncio.get_running_loop()
        response = await loop.run_in_executor(
            self._threads, lambda: self._open(path, query, silent_seconds)
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

    def _open(
        self, path: str, query: Mapping[str, str], silent_seconds: float
    ) -> urllib3.BaseHTTPResponse:
        response = self._send(
            "GET",
            _url(path, {**query, "watch": "true"}),
            None,
            "application/json",
            read_seconds=silent_seconds,
        )
        if response.status != 200:
            data = _whole(response)
            raise refusal("watch", path, response.status, response.headers, data)
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
            raise unanswered(error) from error
        return response

    async def close(self) -> None:
        """Close the connection after the calls in progress."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._threads.shutdown)
        self._http.clear()


def _url(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _whole(response: urllib3.BaseHTTPResponse) -> bytes:
    """Return all of an answer. Raises ApiError where it is cut off."""
    try:
        return response.data
    except urllib3.exceptions.HTTPError as error:
        raise unanswered(error) from error


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
