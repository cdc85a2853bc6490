"""What `elasticdl top` looks at: one job, or all jobs here or in a cluster.

Owns which questions are asked how often. Called by `cli.top`. Must not draw: what was
seen knows which view does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from elasticdl import client
from elasticdl.client import Condition, JobHandle, JobView, LocalJob
from elasticdl.client.cluster import (
    ClusterClient,
    ClusterJob,
    cluster_usage,
    cluster_views,
)
from elasticdl.client.usage import Capacity, Usage, machine
from elasticdl.errors import JobError, PlatformError
from elasticdl.job.history import History
from elasticdl.views import formatting as text
from elasticdl.views.terminal.tables import last_words, status_view
from elasticdl.views.top import model as top_model
from elasticdl.views.top.jobs import jobs_view
from elasticdl.views.top.view import Screen, top_view

# All nodes and pods, or a whole history, are much to ask for.
_SELDOM_SECONDS = 10.0
_GOING = (Condition.PENDING, Condition.RUNNING)


class Shown(Protocol):
    """One look at a source: a job, or all jobs."""

    @property
    def over(self) -> bool:
        """Whether nothing will change any more."""

    def frame(self, screen: Screen, now: float, trouble: str) -> RenderableType:
        """Return the drawing; `trouble` says why it is not up to date."""

    def ending(self, now: float) -> RenderableType:
        """Return what stays on the terminal after the end."""


class Source(Protocol):
    """Something that `top` can show: one job, or all jobs of a place."""

    def look(self) -> Shown:
        """Look now. Raises ElasticDLError when there is nothing to show."""


@dataclass(frozen=True)
class OneShown:
    """One job; `status` is its last one, older than `view` while its master is away."""

    view: JobView
    last: JobView
    history: History
    usage: Usage | None
    seen: float  # Unix seconds, of `last`

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.view.condition not in _GOING

    def frame(self, screen: Screen, now: float, trouble: str) -> RenderableType:
        """Return the job on one screen, or how it ended."""
        if self.over:
            return self.ending(now)
        status = self.last.status
        wrong = [Text(text.first_line(trouble), "red")] if trouble else []
        if status is None:
            return Group(status_view(self.view, now=now), *wrong)
        notes = [Text(self.view.note, "yellow")] if self.view.note else []
        notes += wrong
        if notes:
            age = text.duration(max(0.0, now - self.seen))
            notes.append(Text(f"all figures are {age} old", "yellow"))
        shown = top_model.top(status, self.history, now=now, place=self.view.place)
        return top_view(shown, self.usage, screen, notes=notes)

    def ending(self, now: float) -> RenderableType:
        """Return the report, and where more is."""
        view = status_view(self.view, now=now)
        if self.view.report is None:
            return view
        return Group(view, Text(f"job {self.view.name} {last_words(self.view.report)}"))


class OneJob:
    """One job, here or in a cluster."""

    def __init__(self, job: JobHandle) -> None:
        """Show this job."""
        self._job = job
        self._last: JobView | None = None
        self._seen = 0.0
        self._history = History()
        self._usage: Usage | None = None
        self._next = 0.0

    def look(self) -> OneShown:
        """Look now."""
        view = self._job.view()
        now = time.time()
        if view.condition in _GOING and now >= self._next:
            self._next = now + _SELDOM_SECONDS
            self._history = self._job.history()
            if isinstance(self._job, ClusterJob):
                self._usage = cluster_usage(self._job.cluster)
        if isinstance(self._job, LocalJob):
            self._usage = machine(_capacity(self._job) if view.status else None)
        if view.status is not None or self._last is None:
            self._last, self._seen = view, now
        return OneShown(view, self._last, self._history, self._usage, self._seen)


def _capacity(job: LocalJob) -> Capacity | None:
    try:
        return job.capacity()
    except (JobError, PlatformError):
        return None  # it ends just now


@dataclass(frozen=True)
class AllShown:
    """All jobs of a place."""

    views: Sequence[JobView]
    usage: Usage
    nothing: str  # to be said when there is no job
    over: bool = False

    def frame(self, screen: Screen, now: float, trouble: str) -> RenderableType:
        """Return a table of the jobs with its totals."""
        notes = [Text(text.first_line(trouble), "red")] if trouble else []
        if not self.views:
            notes.append(Text(self.nothing))
        return jobs_view(self.views, self.usage, screen, now=now, notes=notes)

    def ending(self, now: float) -> RenderableType:
        """Return nothing: all jobs together never end."""
        del now
        return Text()


class LocalJobs:
    """The jobs of this machine."""

    def __init__(self, jobs_dir: Path) -> None:
        """Show the jobs whose folders are in `jobs_dir`."""
        self._jobs_dir = jobs_dir

    def look(self) -> AllShown:
        """Look now."""
        views = [job.view() for job in client.list_jobs(self._jobs_dir)]
        nothing = f"no jobs in {self._jobs_dir}; `elasticdl top -A`: those of a cluster"
        return AllShown(views, machine(), nothing)


class ClusterJobs:
    """The jobs of a namespace, or of a whole cluster."""

    def __init__(self, cluster: ClusterClient, *, everywhere: bool) -> None:
        """Show the jobs of the cluster's namespace, or of all namespaces."""
        self._cluster = cluster
        self._everywhere = everywhere
        self._usage: Usage | None = None
        self._next = 0.0

    def look(self) -> AllShown:
        """Look now."""
        views = cluster_views(self._cluster, everywhere=self._everywhere)
        now = time.monotonic()
        if self._usage is None or now >= self._next:
            self._next = now + _SELDOM_SECONDS
            self._usage = cluster_usage(self._cluster)
        place = (
            "any namespace"
            if self._everywhere
            else f"namespace {self._cluster.namespace}"
        )
        nothing = f"no jobs in {place} of kube context {self._cluster.context!r}"
        return AllShown(views, self._usage, nothing)
