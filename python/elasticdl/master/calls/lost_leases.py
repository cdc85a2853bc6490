"""Leases that nobody answers for: their tasks go to other workers.

Owns what happens to the tasks of a worker that was lost and to leases that expire, when
deadlines begin anew because nobody could renew, how long a worker that may hang is
waited for, and when so many workers were lost at one task that the job fails. Called by
`master.course.loop`. Must not know RPC, nor what tasks are given to whom, which is
`master.calls.leasing`'s; deadly tasks end the job through `Job.end`.
"""

from __future__ import annotations

import logging
import math

from elasticdl.errors import ExitCode
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import JobState
from elasticdl.master.job_state import Job
from elasticdl.master.members.member import Member
from elasticdl.master.tasks.kills import LEAST_KILLS, Kills
from elasticdl.master.tasks.queued import QueuedTask
from elasticdl.metrics.registry import MasterMetrics

log = logging.getLogger(__name__)


class LostLeases:
    """Takes tasks back from workers that do not answer for them any more."""

    def __init__(self, job: Job, metrics: MasterMetrics) -> None:
        """Look after the leases of this job."""
        self._job = job
        self._metrics = metrics
        self._parts = job.parts
        self._kills = Kills()

    def take_over(self, *, now: float) -> None:
        """Restart the deadlines of all leases, also of those of an earlier master.

        Nobody could renew while no master answered. Who is gone is found out as such.
        """
        queue = self._parts.ledger.queue
        deadline = now + self._job.spec.tasks.lease_seconds
        if queue is not None:
            queue.renew_all(deadline=deadline)
        self._parts.side.renew_all(deadline=deadline)

    def expire(self, *, now: float) -> None:
        """Put back tasks whose leases have expired."""
        count = len(self._parts.ledger.expire(now)) + self._parts.side.expire(now)
        if count:
            log.warning("%d leases expired", count)
            self._metrics.task_reports.labels("expired").inc(count)
            self._parts.holder.admission.count()
            self._parts.signals.work()

    def recover(self, member: Member, cause: str, *, now: float) -> str:
        """Put back all tasks of a lost worker; return which records may be the cause.

        Those of its tasks that most workers were lost at; "" if it had none.
        """
        index, died = member.key.index, member.fell_at_work
        heir = self._parts.holder.heir(member)
        shared: list[QueuedTask] = []
        if heir is not None:
            # Each member has records of all of them.
            self._parts.ledger.hand_over(heir, now=now, died=died)
            queue = self._parts.ledger.queue
            shared = [one.task for one in queue.leased.values()] if queue else []
        tasks = self._parts.ledger.recover(index, cause=cause, now=now, died=died)
        beside = self._parts.side.held_by(index)
        count = len(tasks) + self._parts.side.recover(index, died=died)
        if count:
            log.info("%d tasks of %s go to others", count, member.name)
        if died:
            self._end_if_deadly([*shared, *tasks])
        elif member.was_killed:
            self._end_if_killed_at([*shared, *tasks], beside)
        self._parts.holder.admission.gone(index)
        self._parts.signals.work()
        held = [*shared, *tasks]
        most = max((task.deaths for task in held), default=0)
        return _listed([task for task in held if task.deaths == most])

    def patience(self, member: Member) -> float:
        """Return by what factor a worker's time limit for a step is extended.

        It doubles with each one that hung in a row, or that hung at what this one
        holds: a step that is slow everywhere has the whole of startSeconds in the end.
        """
        queue = self._parts.ledger.queue
        held = queue.leases_of(member.key.index) if queue else []
        deaths = [queue.leased[i].task.deaths for i in held] if queue else []
        most = max([self._parts.membership.hangs, *deaths])
        return 2.0 ** min(most, 30)

    def _end_if_deadly(self, tasks: list[QueuedTask]) -> None:
        """Fail the job if too many workers were lost at one task."""
        most = most_deaths(self._job.spec)
        deadly = [task for task in tasks if task.deaths >= most]
        if deadly:
            what = _listed(deadly)
        elif self._parts.side.most_deaths() >= most:
            what = "a task beside training"
        else:
            return
        self._job.end(
            JobState.FAILED,
            f"{most} workers hung or crashed with {what} in their hands; look at what "
            "the model module does with these records",
            ExitCode.USER_CODE,
        )

    def _end_if_killed_at(self, tasks: list[QueuedTask], beside: list[int]) -> None:
        """Fail the job if so many workers were killed at one task in a row."""
        holder, kills = self._parts.holder, self._kills
        most = max(LEAST_KILLS, most_deaths(self._job.spec))
        # Where others go on with a task, the model's version says how far they are.
        reached = holder.version if holder.hands_over else 0
        kills.at([*(task.task_id for task in tasks), *beside], reached=reached)
        what = _listed([task for task in tasks if kills.of(task.task_id) >= most])
        if not what and any(kills.of(task_id) >= most for task_id in beside):
            what = "a task beside training"
        if what:
            self._job.end(
                JobState.FAILED,
                f"{most} workers in a row were killed with {what} in their hands, and "
                "none got further; look at what the model module does with these "
                "records, and how much memory it needs for them. If they were killed "
                "for another reason, start the job again: it goes on from its "
                "newest checkpoint",
                ExitCode.USER_CODE,
            )


def _listed(tasks: list[QueuedTask]) -> str:
    return " or ".join(f"{t.source} records {t.start} to {t.end}" for t in tasks[:3])


def most_deaths(spec: JobSpec) -> int:
    """Return how many workers may be lost at one task before the job fails.

    No fewer than have to hang until a step has had the whole of startSeconds.
    """
    worker = spec.worker
    longer = math.ceil(math.log2(max(1.0, worker.start_seconds / worker.hang_seconds)))
    return max(spec.tasks.max_failures, worker.max_restarts + 1, longer + 1)
