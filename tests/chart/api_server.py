"""As much of a Kubernetes API server as Helm needs to install, upgrade and look up.

Keeps objects in memory, as they are applied: no defaults, no admission, no controllers.
For the chart's guards, which look at what the cluster holds; real clusters are in
tests/e2e.
"""

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import yaml

# Group and version -> resource -> (kind, namespaced).
RESOURCES = {
    "v1": {
        "configmaps": ("ConfigMap", True),
        "namespaces": ("Namespace", False),
        "persistentvolumeclaims": ("PersistentVolumeClaim", True),
        "secrets": ("Secret", True),
        "serviceaccounts": ("ServiceAccount", True),
        "services": ("Service", True),
    },
    "batch/v1": {"jobs": ("Job", True)},
    "networking.k8s.io/v1": {"networkpolicies": ("NetworkPolicy", True)},
    "policy/v1": {"poddisruptionbudgets": ("PodDisruptionBudget", True)},
    "rbac.authorization.k8s.io/v1": {
        "roles": ("Role", True),
        "rolebindings": ("RoleBinding", True),
    },
    "scheduling.k8s.io/v1": {"priorityclasses": ("PriorityClass", False)},
}


class ApiServer:
    """Serves on a free port of this machine; `objects` maps paths to objects."""

    def __init__(self, minor_version):
        """Say that this is Kubernetes 1.`minor_version`."""
        self.objects = {}
        self.listed = set()  # what was asked for as a whole: paths
        self._version = {"major": "1", "minor": str(minor_version)}
        self._version["gitVersion"] = f"v1.{minor_version}.0"
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # 40 ms for each answer otherwise

            def do_GET(self):
                server._answer(self, "GET")

            def do_POST(self):
                server._answer(self, "POST")

            def do_PUT(self):
                server._answer(self, "PUT")

            def do_PATCH(self):
                server._answer(self, "PATCH")

            def do_DELETE(self):
                server._answer(self, "DELETE")

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        serve = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        serve.daemon = True
        serve.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self):
        self._http.shutdown()
        self._http.server_close()

    def add(self, path, **fields):
        """Put an object there that nobody installed by Helm."""
        group, resource, name = _parse(path)
        kind = RESOURCES[group][resource][0]
        about = {"apiVersion": group, "kind": kind, "metadata": {"name": name}}
        self.objects[path] = {**about, **fields}

    def names(self, part):
        """Return the names of all objects whose path holds `part`."""
        return sorted(path.rpartition("/")[2] for path in self.objects if part in path)

    def _answer(self, request, verb):
        url = urlsplit(request.path)
        length = int(request.headers.get("Content-Length") or 0)
        body = request.rfile.read(length)
        with self._lock:
            status, answer = self._handle(verb, url.path, parse_qs(url.query), body)
        # An empty schema, in its binary form: Helm checks nothing by it.
        data = b"" if url.path == "/openapi/v2" else json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _handle(self, verb, path, query, body):
        if path == "/version":
            return 200, self._version
        about = _discovery(path)
        if about is not None:
            return 200, about
        group, resource, name = _parse(path)
        if group is None:
            return _status(404, f"no such path {path}")
        kind = RESOURCES[group][resource][0]
        if not name and verb == "GET":
            self.listed.add(path)
            return 200, self._list(path, group, kind, query)
        sent = yaml.safe_load(body) if body else {}
        path = path if name else f"{path}/{sent['metadata']['name']}"
        known = self.objects.get(path)
        if verb == "POST" and known is not None:
            return _status(409, "already exists", "AlreadyExists")
        if verb in ("GET", "DELETE", "PUT") and known is None:
            return _status(404, f"{resource} {name!r} not found", "NotFound")
        if verb == "GET":
            return 200, known
        if verb == "DELETE":
            return 200, self.objects.pop(path)
        if "dryRun" in query:
            return 200, sent
        meta = {**sent["metadata"]}
        meta["uid"] = (known or {}).get("metadata", {}).get("uid", str(uuid.uuid4()))
        meta["resourceVersion"] = str(len(self.objects) + 1)
        if RESOURCES[group][resource][1]:
            meta["namespace"] = path.split("/namespaces/")[1].split("/")[0]
        self.objects[path] = {
            "apiVersion": group,
            "kind": kind,
            **sent,
            "metadata": meta,
        }
        return 201 if known is None else 200, self.objects[path]

    def _list(self, path, group, kind, query):
        selector = query.get("labelSelector", [""])[0]
        wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
        items = [
            value
            for key, value in self.objects.items()
            if key.rpartition("/")[0] == path
            and wanted.items() <= value["metadata"].get("labels", {}).items()
        ]
        return {
            "apiVersion": group,
            "kind": f"{kind}List",
            "metadata": {},
            "items": items,
        }


def _status(code, message, reason="NotFound"):
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return code, {**status, "code": code, "message": message, "reason": reason}


def _parse(path):
    """Return (group and version, resource, name) of a path, or None three times."""
    for group, resources in RESOURCES.items():
        root = f"/api/{group}/" if group == "v1" else f"/apis/{group}/"
        if not path.startswith(root):
            continue
        parts = path.removeprefix(root).split("/")
        if parts[0] == "namespaces" and len(parts) > 2:
            parts = parts[2:]
        if parts[0] in resources:
            return group, parts[0], parts[1] if len(parts) > 1 else ""
    return None, None, None


def _discovery(path):
    groups = [group for group in RESOURCES if "/" in group]
    if path == "/openapi/v2":
        return {}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        versions = [{"groupVersion": g, "version": g.split("/")[1]} for g in groups]
        items = [
            {"name": g.split("/")[0], "versions": [v], "preferredVersion": v}
            for g, v in zip(groups, versions, strict=True)
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": items}
    group = path.removeprefix("/apis/").removeprefix("/api/")
    if group not in RESOURCES:
        return None
    resources = [
        {
            "name": name,
            "singularName": "",
            "kind": kind,
            "namespaced": namespaced,
            "verbs": ["get", "list", "create", "update", "patch", "delete"],
        }
        for name, (kind, namespaced) in RESOURCES[group].items()
    ]
    return {"kind": "APIResourceList", "groupVersion": group, "resources": resources}
