"""Calls to the API server of a cluster, as the user's kube context allows them.

Owns the connection and the translation of refusals into words. Called by the rest of
`client.cluster`. The only module of the client that imports the Kubernetes package, and
of that only configuration and transport: the generated classes take seconds to load.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from elasticdl.errors import PlatformError

if TYPE_CHECKING:
    import urllib3

Object = dict[str, Any]

CORE = "/api/v1"
BATCH = "/apis/batch/v1"
MERGE_PATCH = "application/merge-patch+json"
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
_VERBS = {"GET": "read", "POST": "make", "PATCH": "change", "DELETE": "delete"}


@dataclass(frozen=True)
class Where:
    """Which cluster and namespace are meant; empty is what the kube config says."""

    context: str = ""
    namespace: str = ""


class ClusterError(PlatformError):
    """The API server refused a call; `status` is HTTP's, `reason` its one word."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        """Say what was asked and what the API server answered."""
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def absent(self) -> bool:
        """Whether the object is not there."""
        return self.status == 404

    @property
    def forbidden(self) -> bool:
        """Whether the user may not make that call."""
        return self.status == 403


def connect(where: Where) -> Cluster:
    """Return the cluster of a kube context, the current one by default.

    Makes no call. Raises PlatformError when there is no such context, or when the
    Kubernetes package is missing.
    """
    try:
        import yaml
        from kubernetes.client.configuration import Configuration
        from kubernetes.client.rest import RESTClientObject
        from kubernetes.config import ConfigException, kube_config
    except ImportError:
        raise PlatformError(
            "the Kubernetes client is not installed, and jobs in a cluster are reached "
            "through it; install it: pip install 'elasticdl[cluster]'"
        ) from None
    # Not through its constructor: the package keeps a default one for everybody.
    configuration = type.__call__(Configuration)
    reader: Any = kube_config  # it has no types
    try:
        contexts, current = reader.list_kube_config_contexts()
        named = {one["name"]: one for one in contexts}
        if where.context and where.context not in named:
            raise PlatformError(
                f"no kube context {where.context!r}; there are: {', '.join(named)}"
            )
        name = where.context or current["name"]
        reader.load_kube_config(
            context=name, client_configuration=configuration, persist_config=False
        )
    except (ConfigException, OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise PlatformError(
            f"no cluster is configured: {_one_line(str(error))}; write ~/.kube/config "
            "or set KUBECONFIG, as kubectl needs it"
        ) from None
    configuration.retries = 1
    namespace = where.namespace or named[name]["context"].get("namespace") or "default"
    return Cluster(configuration, RESTClientObject(configuration), name, namespace)


class Cluster:
    """One cluster, and the namespace that is meant in it."""

    def __init__(
        self, configuration: Any, transport: Any, context: str, namespace: str
    ) -> None:
        """Take what `connect` has read."""
        self._configuration = configuration
        self._pool: urllib3.PoolManager = transport.pool_manager
        self.context = context
        self.namespace = namespace

    def in_namespace(self, namespace: str) -> Cluster:
        """Return the same cluster with another namespace meant."""
        other = object.__new__(Cluster)
        other.__dict__.update(self.__dict__)
        other.namespace = namespace
        return other

    def path(self, resource: str, name: str = "", *, group: str = CORE) -> str:
        """Return `/api/v1/namespaces/ml/pods/x`."""
        root = f"{group}/namespaces/{self.namespace}/{resource}"
        return f"{root}/{name}" if name else root

    def get(self, path: str, **query: str) -> Object:
        """Return an object or a list. Raises ClusterError."""
        return self._json("GET", path, query)

    def find(self, path: str, **query: str) -> Object | None:
        """Return an object, None where it is not there. Raises ClusterError."""
        try:
            return self.get(path, **query)
        except ClusterError as error:
            if error.absent:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Object]:
        """Return the objects of a list."""
        return list(self.get(path, **query).get("items") or [])

    def create(self, path: str, body: Object, **query: str) -> Object:
        """Make an object; the object as it is then."""
        return self._json("POST", path, query, body)

    def patch(self, path: str, body: Object) -> Object:
        """Lay `body` over an object (merge patch); the object as it is then."""
        return self._json("PATCH", path, {}, body, content=MERGE_PATCH)

    def delete(self, path: str) -> None:
        """Delete an object; not an error if it is gone."""
        try:
            self._json("DELETE", path, {})
        except ClusterError as error:
            if not error.absent:
                raise

    def lines(self, path: str, *, wait: bool, **query: str) -> Iterator[bytes]:
        """Yield lines of a text answer; with `wait` as long as the server sends."""
        import urllib3

        timeout = urllib3.Timeout(
            connect=_CONNECT_SECONDS, read=None if wait else _READ_SECONDS
        )
        response = self._send("GET", path, query, timeout=timeout)
        rest = b""
        try:
            for block in response.stream(64 * 1024):
                *lines, rest = (rest + block).split(b"\n")
                yield from lines
            if rest:
                yield rest
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from None
        finally:
            response.release_conn()

    def _json(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Object | None = None,
        *,
        content: str = "application/json",
    ) -> Object:
        import urllib3

        timeout = urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS)
        response = self._send(
            method, path, query, timeout=timeout, body=body, content=content
        )
        try:
            data = response.read()
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from None
        finally:
            response.release_conn()
        answer = json.loads(data)
        return answer if isinstance(answer, dict) else {}

    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        *,
        timeout: urllib3.Timeout,
        body: Object | None = None,
        content: str = "",
    ) -> urllib3.BaseHTTPResponse:
        import urllib3

        url = f"{self._configuration.host}{path}"
        if query:
            url += f"?{urlencode(query)}"
        headers = {"Accept": "application/json, */*"}
        if content:
            headers["Content-Type"] = content
        # Asked for every time: it renews a token that has run out.
        for setting in self._configuration.auth_settings().values():
            headers[str(setting["key"])] = str(setting["value"])
        try:
            response = self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=timeout,
                preload_content=False,
            )
            if response.status >= 400:
                text = response.read().decode("utf-8", errors="replace")
                response.release_conn()
                raise refusal(method, path, response.status, text)
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from None
        return response

    def _unreachable(self, error: Exception) -> ClusterError:
        cause = getattr(error, "reason", None) or error
        return ClusterError(
            f"the cluster of kube context {self.context!r} does not answer "
            f"({self._configuration.host}): {_plain(cause)}; does `kubectl --context "
            f"{self.context} version` reach it?"
        )


def refusal(method: str, path: str, status: int, text: str) -> ClusterError:
    """Return the error of a call that the API server refused, in its own words."""
    try:
        answer = json.loads(text)
        message, reason = str(answer["message"]), str(answer.get("reason", ""))
    except (ValueError, KeyError, TypeError):
        message, reason = _one_line(text) or f"HTTP {status}", ""
    if status == 401:
        message = f"the credentials of the kube context were refused ({message})"
        hint = "; log in again, as for kubectl"
    elif status == 403 and reason == "Forbidden" and "cannot" in message:
        hint = "; ask for a role that allows it, or name another namespace with -n"
    else:
        hint = ""
    what = f"cannot {_VERBS.get(method, method)} {_resource(path)}: "
    return ClusterError(f"{what}{message}{hint}", status=status, reason=reason)


def _resource(path: str) -> str:
    """`/api/v1/namespaces/ml/pods/x/log` -> `pods/x/log in namespace ml`."""
    parts = path.strip("/").split("/")
    if "namespaces" not in parts[:-1]:
        return "/".join(parts[2:] if parts[0] == "api" else parts[3:])
    at = parts.index("namespaces")
    inside = "/".join(parts[at + 2 :])
    if not inside:
        return f"namespace {parts[at + 1]}"
    return f"{inside} in namespace {parts[at + 1]}"


def _plain(cause: object) -> str:
    """`<HTTPSConnection object at 0x..>: Failed to ...: [Errno 111] x` -> `x`."""
    text = _one_line(str(cause))
    return text.rpartition("[Errno ")[2].partition("] ")[2] or text


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
