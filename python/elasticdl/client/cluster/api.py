"""Calls to a cluster as the user's kube context allows them, in words for people.

Owns which context and namespace are meant, and the translation of refusals. Called by
the rest of `client.cluster`; the calls themselves are `kube.api`'s, which
is loaded only when a cluster is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elasticdl.errors import PlatformError

if TYPE_CHECKING:
    from elasticdl.kube.api import ApiServer
    from elasticdl.kube.errors import ApiError

Object = dict[str, Any]

CORE = "/api/v1"
BATCH = "/apis/batch/v1"
_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML
_VERBS = {"GET": "read", "POST": "make", "PATCH": "change", "DELETE": "delete"}


@dataclass(frozen=True)
class Where:
    """Which cluster and namespace are meant; empty is what the kube config says."""

    context: str = ""
    namespace: str = ""


class ClusterError(PlatformError):
    """A refused call; `status` is HTTP's, `reason` the server's word."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        """Take the message, the HTTP status and the server's reason."""
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def absent(self) -> bool:
        """Whether the object is not there."""
        return self.status == 404

    @property
    def passing(self) -> bool:
        """Whether the same call may be answered soon: nobody refused it."""
        return not self.status or self.status == 429 or self.status >= 500

    @property
    def forbidden(self) -> bool:
        """Whether the user may not make that call."""
        return self.status == 403


def connect(where: Where) -> ClusterClient:
    """Return the client of a kube context; by default the current one.

    Makes no call. Raises PlatformError when there is no such context, or when the
    Kubernetes package is missing.
    """
    try:
        from elasticdl.kube.api import ApiServer, kube_contexts
    except ImportError:
        raise PlatformError(
            "the Kubernetes client is not installed, and jobs in a cluster are reached "
            "through it; install it: pip install 'elasticdl[cluster]'"
        ) from None
    namespaces, current = kube_contexts()
    name = where.context or current
    if name not in namespaces:
        raise PlatformError(
            f"no kube context {name!r}; there are: {', '.join(namespaces)}"
        )
    namespace = where.namespace or namespaces[name] or "default"
    return ClusterClient(ApiServer.from_kubeconfig(context=name), name, namespace)


@dataclass(frozen=True)
class ClusterClient:
    """One cluster and the selected namespace. All calls raise ClusterError."""

    server: ApiServer
    context: str
    namespace: str

    def path(self, resource: str, name: str = "", *, group: str = CORE) -> str:
        """Return `/api/v1/namespaces/ml/pods/x`."""
        root = f"{group}/namespaces/{self.namespace}/{resource}"
        return f"{root}/{name}" if name else root

    def get(self, path: str, **query: str) -> Object:
        """Return an object or a list."""
        return self._call("GET", path, query=query)

    def find(self, path: str) -> Object | None:
        """Return an object, None where it is not there."""
        try:
            return self.get(path)
        except ClusterError as error:
            if error.absent:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Object]:
        """Return the objects of a list."""
        return list(self.get(path, **query).get("items") or [])

    def create(self, path: str, body: Object) -> Object:
        """Create an object; return it as stored."""
        return self._call("POST", path, body=body)

    def patch(self, path: str, body: Object) -> Object:
        """Apply `body` to an object as a merge patch; return the object as stored."""
        return self._call("PATCH", path, body=body, content_type=_MERGE_PATCH)

    def apply(self, path: str, body: Object, *, manager: str) -> Object:
        """Server-side apply everything that `manager` owns of an object.

        What others wrote into these fields is overwritten, and theirs no more.
        """
        query = {"fieldManager": manager, "force": "true"}
        return self._call(
            "PATCH", path, query=query, body=body, content_type=_APPLY_PATCH
        )

    def delete(self, path: str) -> None:
        """Delete an object; not an error if it is gone."""
        try:
            self._call("DELETE", path)
        except ClusterError as error:
            if not error.absent:
                raise

    def lines(self, path: str, *, wait: bool, **query: str) -> Iterator[bytes]:
        """Yield lines of a text answer; with `wait` as long as the server sends."""
        from elasticdl.kube.errors import ApiError

        try:
            yield from self.server.lines(path, query, wait=wait)
        except ApiError as error:
            raise self._in_words("GET", path, error) from None

    def _call(self, method: str, path: str, **arguments: Any) -> Object:
        from elasticdl.kube.errors import ApiError

        try:
            return self.server.call(method, path, **arguments)
        except ApiError as error:
            raise self._in_words(method, path, error) from None

    def _in_words(self, method: str, path: str, error: ApiError) -> ClusterError:
        if error.status:
            message = refusal(method, path, error.status, error.reason, str(error))
            return ClusterError(message, status=error.status, reason=error.reason)
        return ClusterError(
            f"the cluster of kube context {self.context!r} does not answer "
            f"({self.server.address}): {_cause(str(error))}; does `kubectl --context "
            f"{self.context} version` reach it?"
        )


def refusal(method: str, path: str, status: int, reason: str, message: str) -> str:
    """Return a message: what was asked, the API server's own words, and what to do."""
    if status == 401:
        message = f"the credentials of the kube context were refused ({message})"
        hint = "; log in again, as for kubectl"
    elif status == 403 and reason == "Forbidden" and "cannot" in message:
        hint = "; ask for a role that allows it"
        if "/namespaces/" in path:  # else it is about all of them, or none
            hint += ", or name another namespace with -n"
    else:
        hint = ""
    return f"cannot {_VERBS.get(method, method)} {_resource(path)}: {message}{hint}"


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


def _cause(text: str) -> str:
    """Return the last part of a nested error: `...: [Errno 111] Connection refused`."""
    plain = " ".join(text.split())
    return plain.rpartition("[Errno ")[2].partition("] ")[2] or plain
