"""Metrics that count nothing, to see what those of the product cost.

Owns stand-ins with the interface of `metrics.catalogue`. Used by bench/scraping.py and
bench/silent_ps.py alone: the product has no switch for it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from elasticdl.metrics.ps import PsMetrics
from elasticdl.metrics.worker import WorkerMetrics


class Nothing:
    """Takes every value, keeps none."""

    def labels(self, *_: object, **__: object) -> Nothing:
        """Return the only one there is."""
        return self

    def inc(self, _: float = 1) -> None:
        """Forget it."""

    set = observe = set_by = set_one = inc

    def time(self) -> AbstractContextManager[None]:
        """Let a block run."""
        return nullcontext()


class Unmeasured:
    """Makes `Nothing` of whatever is declared; goes before a Catalogue."""

    def gauge(self, *_: object, **__: object) -> Any:
        """Declare nothing."""
        return Nothing()

    counter = histogram = series = gauge


class UnmeasuredWorker(Unmeasured, WorkerMetrics):
    """A worker's metrics, off."""


class UnmeasuredPs(Unmeasured, PsMetrics):
    """A PS's metrics, off."""
