"""A real image registry of a test's own, on loopback, ended by its process number."""

import hashlib
import json
import socket
import subprocess
import urllib.error
import urllib.request

from tests.prometheus.tools import program

_INDEX = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


class Registry:
    """Debian's docker-registry; a context manager."""

    def __init__(self, folder):
        self.folder = folder
        self.process = None

    def __enter__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.host = f"127.0.0.1:{probe.getsockname()[1]}"
        settings = self.folder / "registry.yaml"
        settings.write_text(
            "version: 0.1\nlog: {level: warn, accesslog: {disabled: true}}\n"
            f"storage: {{filesystem: {{rootdirectory: {self.folder / 'content'}}}}}\n"
            f"http: {{addr: '{self.host}'}}\n"
        )
        self.log = self.folder / "registry.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [program("docker-registry"), "serve", settings],
                stdout=log,
                stderr=log,
            )
        while not self._answers():
            assert self.process.poll() is None, self.log.read_text()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=10)

    def _answers(self):
        try:
            with urllib.request.urlopen(f"http://{self.host}/v2/", timeout=1):
                return True
        except urllib.error.URLError:
            return False

    def push_image(self, name, tag, content):
        """Put a small image under NAME:TAG; return its digest."""
        config = json.dumps({"architecture": "amd64", "os": "linux", "of": content})
        manifest = {
            "schemaVersion": 2,
            "mediaType": _INDEX,
            "config": self._blob(name, _CONFIG, config.encode()),
            "layers": [self._blob(name, _LAYER, content.encode())],
        }
        body = json.dumps(manifest).encode()
        self._send("PUT", f"/v2/{name}/manifests/{tag}", body, _INDEX)
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    def digest(self, name, tag):
        """Return what it has under NAME:TAG."""
        answer = self._send("HEAD", f"/v2/{name}/manifests/{tag}", None, "")
        return answer["Docker-Content-Digest"]

    def _blob(self, name, kind, body):
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        place = self._send("POST", f"/v2/{name}/blobs/uploads/", b"", "")["Location"]
        path = place.removeprefix(f"http://{self.host}")
        self._send("PUT", f"{path}&digest={digest}", body, "application/octet-stream")
        return {"mediaType": kind, "digest": digest, "size": len(body)}

    def _send(self, method, path, body, kind):
        request = urllib.request.Request(
            f"http://{self.host}{path}", data=body, method=method
        )
        request.add_header("Accept", _INDEX)
        if kind:
            request.add_header("Content-Type", kind)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.headers
