"""How metrics are declared: name, type, labels with their values, unit and help.

Owns the one way to make a metric, which remembers what docs/metrics.md shows. Used by
the modules of this package that declare a role's metrics. Knows no metric itself.

`elasticdl_..._total` counts, `_seconds` and `_bytes` are units; a gauge without such an
ending names its unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Summary,
    disable_created_metrics,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

# When each counter was made would be one more series for each of them.
disable_created_metrics()  # type: ignore[no-untyped-call]

_UNITS = (
    ("_timestamp_seconds", "Unix seconds"),
    ("_seconds", "seconds"),
    ("_bytes", "bytes"),
    ("_cores", "cores"),
)
ONE_OR_ZERO = "1 or 0"
Labels = TypeVar("Labels", bound=tuple[str, ...])


@dataclass(frozen=True)
class Declaration:
    """The documentation of a metric: name, text, unit, labels."""

    name: str  # as /metrics has it: `elasticdl_relaunches_total`
    kind: str  # counter, gauge, histogram, summary
    help: str
    unit: str
    labels: Mapping[str, str] = field(default_factory=dict)  # with their values
    optional: bool = False  # without a series while there is nothing to say


class SeriesMetric(Collector):
    """A metric whose series are all replaced at once.

    For what is known elsewhere and only shown here: nothing is added up, no series
    outlives what it tells of, and a scrape sees the old ones or the new ones.
    """

    def __init__(self, declaration: Declaration) -> None:
        """Begin without series."""
        self._declaration = declaration
        self._values: Mapping[tuple[str, ...], float] = {}

    def set(self, values: Mapping[Labels, float]) -> None:
        """Replace all series by these values, by label values."""
        self._values = dict(values.items())

    def set_by(self, values: Mapping[str, float]) -> None:
        """Replace all series of a metric with one label."""
        self._values = {(label,): value for label, value in values.items()}

    def set_one(self, value: float | None) -> None:
        """Set the value of a metric without labels; None removes it."""
        self._values = {} if value is None else {(): value}

    def collect(self) -> list[Metric]:
        """Return the metric family, for the registry."""
        made = self._declaration
        family: CounterMetricFamily | GaugeMetricFamily
        if made.kind == "counter":
            name = made.name.removesuffix("_total")
            family = CounterMetricFamily(name, made.help, labels=list(made.labels))
        else:
            family = GaugeMetricFamily(made.name, made.help, labels=list(made.labels))
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return [family]


class Catalogue:
    """Creates metrics in its own registry and remembers their declarations.

    A registry for each, so that tests may run many roles in one process. `labels` are
    names with a description of their few values: indices, causes, states; never ids of
    tasks or files.
    """

    def __init__(self) -> None:
        """Begin without metrics."""
        self.registry = CollectorRegistry()
        self.declared: list[Declaration] = []

    def gauge(
        self,
        name: str,
        text: str,
        *,
        unit: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Gauge:
        """Declare a value that goes up and down."""
        made = self._declare(name, "gauge", text, unit, labels)
        return Gauge(name, text, list(made.labels), registry=self.registry)

    def counter(
        self,
        name: str,
        text: str,
        *,
        unit: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Counter:
        """Declare a value that only grows while the process lives."""
        made = self._declare(name, "counter", text, unit, labels)
        return Counter(name, text, list(made.labels), registry=self.registry)

    def histogram(
        self,
        name: str,
        text: str,
        buckets: Sequence[float],
        *,
        unit: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Histogram:
        """Declare the distribution of something observed, where a panel draws it.

        Each bucket is a series of each process: what only a mean is drawn of is a
        `summary`.
        """
        made = self._declare(name, "histogram", text, unit, labels)
        return Histogram(
            name, text, list(made.labels), buckets=buckets, registry=self.registry
        )

    def summary(
        self,
        name: str,
        text: str,
        *,
        unit: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Summary:
        """Declare sum and count of something observed, for its mean."""
        made = self._declare(name, "summary", text, unit, labels)
        return Summary(name, text, list(made.labels), registry=self.registry)

    def series(
        self,
        name: str,
        text: str,
        *,
        unit: str = "",
        labels: Mapping[str, str] | None = None,
        optional: bool = True,
    ) -> SeriesMetric:
        """Declare a metric that is set as a whole; `_total` names a counter."""
        kind = "counter" if name.endswith("_total") else "gauge"
        made = self._declare(name, kind, text, unit, labels, optional=optional)
        series = SeriesMetric(made)
        self.registry.register(series)
        return series

    def _declare(
        self,
        name: str,
        kind: str,
        text: str,
        unit: str,
        labels: Mapping[str, str] | None,
        *,
        optional: bool = False,
    ) -> Declaration:
        made = Declaration(
            name, kind, text, unit or _unit(name), dict(labels or {}), optional
        )
        self.declared.append(made)
        return made


def _unit(name: str) -> str:
    stem = name.removesuffix("_total")
    return next((unit for ending, unit in _UNITS if stem.endswith(ending)), "")
