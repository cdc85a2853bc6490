"""Helm as tests use it, as a library: releases of the chart in one namespace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
from ruamel.yaml import YAML

CHART = Path(__file__).parents[2] / "charts" / "elasticdl"
VALUES = Path(__file__).parents[2] / "values"
Values = dict[str, Any]


def merged(base: Values, changes: Values) -> Values:
    """Return both, as Helm puts one values file over another."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(old, value) if both else value
    return result


def values_file(name: str) -> Values:
    return YAML(typ="safe").load(VALUES / name)


@dataclass(frozen=True)
class Helm:
    """Releases of one namespace."""

    namespace: str
    context: str
    kubeconfig: Path | None
    chart: Path = CHART

    def install(self, release: str, values: Values) -> Values:
        with self._config() as config:
            return config.install(self.chart, release, values)

    def upgrade(self, release: str, values: Values) -> Values:
        with self._config() as config:
            return config.upgrade(self.chart, release, values)

    def uninstall(self, release: str) -> Values:
        with self._config() as config:
            return config.uninstall(release, ignore_not_found=True)

    def values(self, release: str) -> Values:
        """Return what a release was installed with."""
        with self._config() as config:
            return config.get_values(release)

    def _config(self) -> helm_python.Config:
        return helm_python.Config(
            namespace=self.namespace,
            kube_context=self.context or None,
            kubeconfig_path=self.kubeconfig,
        )
