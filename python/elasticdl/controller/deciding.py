"""The controller's loop: look, plan in a thread, write what changed.

Owns when a plan is made and when it is written, and what the last one remembered. Run
by `controller.main`. Must not know how sizes are decided, nor how a cluster is watched.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from elasticdl.controller.jobs import KnownJob
from elasticdl.controller.lease import Leadership
from elasticdl.controller.refusals import Refusals
from elasticdl.controller.showing import PlanAge, hide, show
from elasticdl.controller.standing import Standing
from elasticdl.controller.watching import WatchedCluster
from elasticdl.controller.writing import (
    Write,
    due_writes,
    foreign_jobs,
    renewals_at_once,
)
from elasticdl.job import names
from elasticdl.job.grant import format_grant
from elasticdl.kube.api import MERGE_PATCH, ApiServer
from elasticdl.kube.errors import ApiError
from elasticdl.metrics.registry import ControllerMetrics
from elasticdl.planner.memory import Memory
from elasticdl.planner.outcome import Plan
from elasticdl.planner.view import ClusterView, JobKey, Settings

log = logging.getLogger(__name__)

Planner = Callable[[ClusterView, Memory, Settings, float], Plan]
FIELD_MANAGER = "elasticdl-controller"
_SAY_SECONDS = 60.0


@dataclass(frozen=True)
class Pace:
    """When plans are made; seconds."""

    after_change: float = 0.5  # what happens together is planned together
    at_rest: float = 5.0
    stale: float = 15.0  # nothing is planned on a view of that age


@dataclass(frozen=True)
class Rules:
    """How it is decided, and as whom."""

    plan: Planner
    settings: Settings
    by: str  # what grants are signed with; the same for all candidates of a Lease
    pace: Pace = field(default_factory=Pace)


class Deciding:
    """Plans for a cluster, while it may."""

    def __init__(
        self,
        api: ApiServer,
        cluster: WatchedCluster,
        leadership: Leadership,
        rules: Rules,
        metrics: ControllerMetrics,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a plan."""
        self._api, self._cluster, self._leadership = api, cluster, leadership
        self._settings, self._plan = rules.settings, rules.plan
        self._by, self._pace = rules.by, rules.pace
        self._metrics, self._clock, self._steady = metrics, clock, steady
        self._memory = Memory()
        self._led = False
        self._said_at = float("-inf")
        self._foreign: set[JobKey] = set()
        self._refusals = Refusals(self._pace.at_rest)
        self._plan_age = PlanAge()
        self._standing: Standing | None = None
        self._took = 0.0
        self._viewed = float("-inf")  # when what was last planned for was so
        self._renewed_at = float("-inf")

    async def run(self) -> None:
        """Plan for ever."""
        while True:
            await self._pause()
            if not self._may():
                self._led = False
                continue
            if not self._led:
                # What another one remembered is unknown: the first plan is careful.
                self._led, self._memory, self._standing = True, Memory(), None
            await self._once()

    def update(self) -> None:
        """Set the metrics that are about now."""
        leads = self._leadership.may_write
        self._metrics.leader.set(leads)
        self._metrics.plan_age.set_one(
            self._plan_age.seconds(self._clock(), leads=leads)
        )
        if not leads:
            hide(self._metrics)
        self._metrics.view_age.set_one(self._age())

    def _age(self) -> float | None:
        age = self._cluster.age
        # A watch may be silent because nothing happens; that the server answers is
        # known from the Lease.
        return None if age is None else max(age, self._quiet())

    def _quiet(self) -> float:
        silence = self._leadership.silence
        return 0.0 if silence < self._pace.stale else silence

    def _may(self) -> bool:
        age = self._age()
        fresh = age is not None and age < self._pace.stale
        return fresh and self._leadership.may_write

    def _may_write(self) -> bool:
        """Return whether what was planned for is of now, as is the one that leads."""
        return self._may() and self._steady() - self._viewed < self._pace.stale

    async def _pause(self) -> None:
        """Wait for a change, or for the time at which one is due."""
        self._cluster.changed.clear()
        try:
            async with asyncio.timeout(self._pace.at_rest):
                await self._cluster.changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self._pace.after_change)

    async def _once(self) -> None:
        now = self._clock()
        self._viewed = self._steady() - (self._age() or 0.0)
        jobs = self._cluster.jobs()
        view = self._told(self._cluster.view(jobs), jobs)
        if self._standing is not None and self._standing.holds(view, now):
            standing = self._standing.renewed(view)
        else:
            standing = Standing(await self._planned(view, now), view, now)
        made = standing.plan
        if not self._may_write():
            log.warning(
                "a plan is dropped: it took %.1f s, and the Lease or what was planned "
                "for is too old",
                self._took,
            )
            return
        self._memory, self._standing = made.memory, standing
        self._plan_age.planned(now)
        self._tell_of_others(jobs, now)
        due = due_writes(
            made,
            jobs,
            by=self._by,
            grant_seconds=self._settings.grant_seconds,
            most_renewals=self._most_renewals(len(jobs)),
            now=now,
        )
        steady = self._steady()
        self._refusals.keep(jobs)
        due = self._refusals.in_order(due, steady)
        self._say(made, due)
        show(self._metrics, made, len(self._foreign))
        await self._write(due)

    def _told(self, view: ClusterView, jobs: dict[JobKey, KnownJob]) -> ClusterView:
        """Return a view that says whose grants are refused: nobody waits for them."""
        if not self._refusals:
            return view
        steady = self._steady()
        told = (
            replace(job, refused=True)
            if job.key in jobs
            and self._refusals.stands(job.key, jobs[job.key].uid, steady)
            else job
            for job in view.jobs
        )
        return replace(view, jobs=tuple(told))

    def _most_renewals(self, num_jobs: int) -> int:
        """Return how many grants may be renewed now: a few, at an even pace."""
        now = self._steady()
        if now - self._renewed_at < self._pace.at_rest:
            return 0
        self._renewed_at = now
        return renewals_at_once(
            num_jobs,
            grant_seconds=self._settings.grant_seconds,
            every=self._pace.at_rest,
        )

    async def _planned(self, view: ClusterView, now: float) -> Plan:
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        made = await loop.run_in_executor(
            None, self._plan, view, self._memory, self._settings, now
        )
        self._took = time.perf_counter() - began
        self._metrics.plans.inc()
        self._metrics.plan_seconds.observe(self._took)
        return made

    def _say(self, made: Plan, due: list[Write]) -> None:
        now = self._steady()
        changes = [one for one in due if one.cause == "changed"]
        if changes or now - self._said_at >= _SAY_SECONDS:
            self._said_at = now
            log.info("%s; planned in %.0f ms", made.summary.line(), 1000 * self._took)
        for one in changes:
            log.info(
                "%s: %d workers%s: %s",
                one.key,
                one.grant.workers,
                f", {_names(one.grant.leave)} to leave" if one.grant.leave else "",
                one.grant.why,
            )

    def _tell_of_others(self, jobs: dict[JobKey, KnownJob], now: float) -> None:
        theirs = set(
            foreign_jobs(
                jobs,
                by=self._by,
                now=now,
            )
        )
        for key in theirs - self._foreign:
            grant = jobs[key].grant
            log.warning(
                "%s is left alone: %s decides about it",
                key,
                grant.by if grant else "somebody else",
            )
        self._foreign = theirs

    async def _write(self, due: list[Write]) -> None:
        for one in due:
            if not self._may_write():
                log.info("grants are kept back: the Lease or the view is too old")
                return
            try:
                await self._api.request(
                    "PATCH",
                    f"/api/v1/namespaces/{one.key.namespace}/configmaps/"
                    f"{names.config_map_name(one.key.name)}",
                    query={"fieldManager": FIELD_MANAGER},
                    body={
                        "metadata": {
                            "uid": one.uid,
                            "annotations": {
                                names.ANNOTATION_WORKERS: format_grant(one.grant)
                            },
                        }
                    },
                    content_type=MERGE_PATCH,
                )
            except ApiError as error:
                self._metrics.write_failures.inc()
                if self._refusals.refused(one.key, one.uid, str(error), self._steady()):
                    log.warning(
                        "%s is not granted, and tried again: %s", one.key, error
                    )
                if not error.status:
                    return  # nobody answers: the next plan tries the others
            else:
                self._metrics.grants_written.labels(one.cause).inc()
                self._refusals.taken(one.key)


def _names(indexes: tuple[int, ...]) -> str:
    return ", ".join(f"worker-{index}" for index in indexes)
