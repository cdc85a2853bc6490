"""Helm: the program on the PATH, or the library of the `helm` extra.

Owns finding either, and calling it. Called by `client.cluster.submit`. Must not know
what a chart renders.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from elasticdl.client.cluster import helm_library
from elasticdl.client.cluster.api import Where
from elasticdl.errors import PlatformError, SpecError

Values = dict[str, Any]
_KUBE_VERSION = re.compile(
    r"^kubeVersion:[^0-9\n]*([0-9]+\.[0-9]+\.[0-9]+)", re.MULTILINE
)
_SCHEMA_MARK = "values don't meet the specifications of the schema"


class HelmStuckError(PlatformError):
    """Helm gave no answer with the time and memory that it was given."""


class Helm(Protocol):
    """Helm's operations. They raise PlatformError, or SpecError for wrong values."""

    def render(self, chart: Path, release: str, where: Where, values: Values) -> str:
        """Return the manifests that `install` would apply; needs no cluster."""

    def install(
        self,
        chart: Path,
        release: str,
        where: Where,
        values: Values,
        *,
        create_namespace: bool = False,
    ) -> None:
        """Install a release. A failed one leaves objects; it has to be uninstalled."""

    def uninstall(self, release: str, where: Where) -> None:
        """Remove a release; not an error if it is gone."""


def find_helm(search_path: str | None, *, limit_seconds: float | None = None) -> Helm:
    """Return Helm: the program on the PATH, else the library.

    With `limit_seconds` what renders longer, or takes more memory than a chart does, is
    ended, with HelmStuckError. Raises PlatformError when neither is there.
    """
    program = shutil.which("helm", path=search_path)
    if program:
        return HelmProgram(program, limit_seconds)
    try:
        import helm_python  # noqa: F401 - only whether it is there
    except ImportError:
        raise PlatformError(
            "no Helm found: neither `helm` on the PATH nor the Python library; install "
            "one: https://helm.sh/docs/intro/install, or pip install 'elasticdl[helm]'"
        ) from None
    return HelmLibrary(limit_seconds)


@dataclass(frozen=True)
class HelmProgram:
    """Helm as a program, version 3 or 4."""

    program: str
    limit_seconds: float | None = None  # of a call; None for no end

    def render(self, chart: Path, release: str, where: Where, values: Values) -> str:
        """Run `helm template`."""
        words = ["template", release, str(chart), *_options(where), "--values", "-"]
        return self._run([*words, *self._version(chart)], values)

    def install(
        self,
        chart: Path,
        release: str,
        where: Where,
        values: Values,
        *,
        create_namespace: bool = False,
    ) -> None:
        """Run `helm install`."""
        words = ["install", release, str(chart), *_options(where), "--values", "-"]
        if create_namespace:
            words.append("--create-namespace")
        self._run(words, values)

    def uninstall(self, release: str, where: Where) -> None:
        """Run `helm uninstall`."""
        self._run(["uninstall", release, *_options(where), "--ignore-not-found"], None)

    def _version(self, chart: Path) -> list[str]:
        """Return the option for a Kubernetes version that the chart accepts.

        Without a cluster to ask, an older Helm takes one of its own time, for which
        the chart may be too new.
        """
        found = _KUBE_VERSION.search(self._run(["show", "chart", str(chart)], None))
        return ["--kube-version", found[1]] if found else []

    def _run(self, words: Sequence[str], values: Values | None) -> str:
        # The program was found by name, on the user's PATH.
        return _answer([self.program, *words], values, self.limit_seconds, words[0])


@dataclass(frozen=True)
class HelmLibrary:
    """Helm as a library: the `helm` extra, where no program is on the PATH."""

    limit_seconds: float | None = None

    def render(self, chart: Path, release: str, where: Where, values: Values) -> str:
        """Return the manifests, one YAML document each, as `helm template` does."""
        if self.limit_seconds is not None:  # nothing ends a call in this process
            program = [sys.executable, "-P", helm_library.__file__]
            words = [*program, str(chart), release, where.namespace]
            return _answer(words, values, self.limit_seconds, "template")
        import helm_python as helm

        try:
            return helm_library.render(chart, release, where.namespace, values)
        except helm.HelmError as error:
            raise failure(str(error)) from None

    def install(
        self,
        chart: Path,
        release: str,
        where: Where,
        values: Values,
        *,
        create_namespace: bool = False,
    ) -> None:
        """Make a release."""
        import helm_python as helm

        try:
            with self._config(where) as config:
                config.install(
                    chart,
                    release,
                    values,
                    namespace=where.namespace,
                    create_namespace=create_namespace,
                )
        except helm.HelmError as error:
            raise failure(str(error)) from None

    def uninstall(self, release: str, where: Where) -> None:
        """Remove a release."""
        import helm_python as helm

        try:
            with self._config(where) as config:
                config.uninstall(release, ignore_not_found=True)
        except helm.HelmError as error:
            raise failure(str(error)) from None

    def _config(self, where: Where) -> Any:
        import helm_python as helm

        return helm.Config(
            kube_context=where.context or None, namespace=where.namespace
        )


def _answer(
    words: Sequence[str], values: Values | None, limit_seconds: float | None, verb: str
) -> str:
    """Run a program; return what it prints."""
    try:
        done = subprocess.run(
            words,
            input=None if values is None else json.dumps(values),  # JSON is YAML
            stdin=subprocess.DEVNULL if values is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_seconds,
        )
    except subprocess.TimeoutExpired:
        raise HelmStuckError(
            f"no answer from `helm {verb}` in {limit_seconds:g} s; it was ended"
        ) from None
    if done.returncode < 0:
        raise HelmStuckError(
            f"no answer from `helm {verb}`: it was ended by signal {-done.returncode}, "
            "as where values take more memory than it may have"
        )
    if done.returncode:
        raise failure(done.stderr or done.stdout)
    return done.stdout


def failure(text: str) -> PlatformError | SpecError:
    """Return Helm's complaint: SpecError (wrong values) or PlatformError."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("WARNING:", "level="))]
    message = "\n".join(kept or lines) or "Helm failed and said nothing"
    message = message.removeprefix("Error: ").removeprefix("INSTALLATION FAILED: ")
    if _SCHEMA_MARK in message:
        return SpecError(f"the chart refused the values: {message}")
    return PlatformError(f"helm: {message}")


def _options(where: Where) -> list[str]:
    words = ["--namespace", where.namespace]
    return [*words, "--kube-context", where.context] if where.context else words
