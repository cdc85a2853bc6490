"""kubectl as tests use it: bounded in time, with what went wrong in the error.

Owns calling it in one namespace, and the dump of a namespace that a failed test shows.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

Json = dict[str, Any]
Names = list[str]  # `list` is a method below
T = TypeVar("T")


def wait_until(what: str, probe: Callable[[], T], *, seconds: float) -> T:
    """Return the probe's first true answer; fail with its last one."""
    end = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds:g} s; last: {answer!r}")
        time.sleep(0.2)


class KubectlError(Exception):
    """kubectl failed; the text is what it said."""


@dataclass(frozen=True)
class Kube:
    """One namespace of a cluster."""

    program: str
    context: str
    namespace: str
    kubeconfig: Path | None = None
    env: dict[str, str] = field(default_factory=dict, repr=False)

    def run(self, *words: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Return what kubectl prints."""
        done = subprocess.run(
            self.command(*words),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def command(self, *words: str) -> list[str]:
        """Return the whole command line."""
        command = [self.program, f"--namespace={self.namespace}"]
        command += [f"--context={self.context}"] if self.context else []
        command += [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        return [*command, *words]

    def apply(self, manifest: Json) -> None:
        self.run("apply", "--filename=-", stdin=json.dumps(manifest))

    def get(self, kind: str, name: str) -> Json | None:
        """Return an object, None if there is none."""
        text = self.run("get", kind, name, "--output=json", "--ignore-not-found")
        return json.loads(text) if text else None

    def list(self, kind: str, selector: str = "") -> list[Json]:
        words = ["get", kind, "--output=json", f"--selector={selector}"]
        return json.loads(self.run(*words))["items"]

    def delete(self, kind: str, name: str, *, wait: bool = False) -> None:
        words = ["--ignore-not-found", f"--wait={str(wait).lower()}"]
        self.run("delete", kind, name, *words, seconds=180)

    def events(self, name: str) -> Names:
        """Return the messages of Events on an object."""
        found = self.list("events")
        return [e["message"] for e in found if e["involvedObject"]["name"] == name]

    def dump(self) -> str:
        """Return what a person would look at first: pods, events, logs."""
        parts = [self._try("get", "pods,jobs,pvc", "--output=wide")]
        parts.append(self._try("get", "events", "--sort-by=.lastTimestamp"))
        try:
            pods = [pod["metadata"]["name"] for pod in self.list("pods")]
        except (KubectlError, subprocess.TimeoutExpired) as error:
            pods = []
            parts.append(str(error))
        parts += [
            f"--- {pod}\n" + self._try("logs", pod, "--tail=30", "--all-containers")
            for pod in pods
        ]
        return "\n".join(parts)

    def _try(self, *words: str) -> str:
        try:
            return self.run(*words, seconds=20)
        except (KubectlError, subprocess.TimeoutExpired) as error:
            return str(error)
