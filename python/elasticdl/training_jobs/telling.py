"""The status of a TrainingJob: what is shown by `kubectl get`, and its conditions.

Owns how a decision and what the job's master says become one. Pure: called by
`training_jobs.controller`, which writes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from elasticdl.client.cluster.objects import (
    JobObjects,
    master_trouble,
    newest,
    stop_reason,
)
from elasticdl.client.cluster.training_jobs import owner_of
from elasticdl.job.names import (
    ANNOTATION_MESSAGE,
    ANNOTATION_STATE,
    LABEL_JOB,
    LABEL_ROLE,
    Role,
)
from elasticdl.job.spec.job import JobSpec, Strategy
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.words import JobState, ReplicaState
from elasticdl.training_jobs.reconcile import told
from elasticdl.training_jobs.resource import Json, Made, Seen, TrainingJob
from elasticdl.training_jobs.verdicts import Reason, Refused

# States of a job that has no master yet which could say one.
WAITING = "waiting"
REFUSED = "refused"
# What changes with each step of a job: written now and then.
SOFT = ("loss", "epoch", "recordsDone")
_LONGEST_MESSAGE = 1000
# A status that is too large is kept by no API server.
_LONGEST_OF_CONDITION = 20_000
_OVER = tuple(state for state in JobState if state.ended)


@dataclass(frozen=True)
class Outcome:
    """How a decision ended: what is made now, or why not."""

    made: Made
    refused: Refused | None = None
    values: ValuesFile | None = None  # None where they cannot be read


def status_of(job: TrainingJob, seen: Seen, outcome: Outcome, *, now: str) -> Json:
    """Return the status that a TrainingJob has now."""
    seen = _of_this(job, seen)
    status, report = told(seen)
    state, message = _state(job, seen, outcome, status, report)
    over = state in _OVER
    notice = outcome.refused.message if outcome.refused else message
    shown: Json = {
        "observedGeneration": job.generation,
        "state": state,
        "message": notice[:_LONGEST_MESSAGE],
        "replicas": 0 if over else _there(status),
        "selector": f"{LABEL_JOB}={job.name},{LABEL_ROLE}={Role.WORKER}",
        "workers": _workers(job, outcome, status, over=over),
        "made": outcome.made.document(),
        "conditions": _conditions(job, outcome, state, message, now),
    }
    loss = report.last_loss if report else status.last_loss if status else None
    if loss is not None and math.isfinite(loss):
        shown["loss"] = f"{loss:.4g}"
    if status is not None and report is None:
        shown["epoch"] = status.progress.epoch
        shown["recordsDone"] = status.progress.records_done
    elif report is not None:
        shown["epoch"], shown["recordsDone"] = report.epochs, report.records
    return shown


def _of_this(job: TrainingJob, seen: Seen) -> Seen:
    """Return what is there of this job: another one of its name may be there."""

    def ours(thing: Json | None) -> bool:
        return thing is not None and (owner_of(thing) or {}).get("uid") == job.uid

    return replace(
        seen,
        config_map=seen.config_map if ours(seen.config_map) else None,
        masters=tuple(filter(ours, seen.masters)),
    )


def patch_of(before: Mapping[str, object], after: Json) -> Json | None:
    """Return the merge patch from one status to another; None for no change."""
    patch: Json = {key: None for key in before if key not in after}
    patch |= {key: value for key, value in after.items() if before.get(key) != value}
    return {"status": patch} if patch else None


def is_soft(patch: Json) -> bool:
    """Whether a patch has nothing but what changes with each step."""
    return set(patch["status"]) <= set(SOFT)


def _state(
    job: TrainingJob,
    seen: Seen,
    outcome: Outcome,
    status: JobStatus | None,
    report: JobReport | None,
) -> tuple[str, str]:
    if report is not None:
        return str(report.status), report.message
    # A master that is given up says nothing of it: its last status stays.
    given_up = _given_up(seen)
    if given_up is not None and not (status is not None and status.state.ended):
        return str(JobState.FAILED), given_up
    # Nor does it when its Job is cleaned up.
    cleaned = seen.config_map is not None and not seen.masters
    if cleaned and job.was_told_ended(outcome.made.run):
        return _end_without_words(job, seen, outcome)
    if status is not None:
        return str(status.state), status.message
    if _has_turned(seen, "Complete") is not None:
        return _end_without_words(job, seen, outcome)
    return _before_it_began(seen, outcome)


def _before_it_began(seen: Seen, outcome: Outcome) -> tuple[str, str]:
    refused = outcome.refused
    if refused is not None and seen.config_map is None:
        waits = refused.reason is Reason.WAITING
        return (WAITING if waits else REFUSED), refused.message
    master = newest(seen.masters) or {}
    if seen.config_map is not None and master.get("spec", {}).get("suspend"):
        if stop_reason(seen.config_map):
            return str(JobState.STOPPED), "it was stopped before it began"
        there = JobObjects(seen.config_map, master_job=master)
        return WAITING, master_trouble(there, [])
    return WAITING, "its master has not begun yet"


def _given_up(seen: Seen) -> str | None:
    """Return why Kubernetes starts the master no more; None if it does."""
    failed = _has_turned(seen, "Failed")
    if seen.config_map is None or failed is None:
        return None
    return f"its master failed: {failed.get('message') or failed.get('reason')}"


def _has_turned(seen: Seen, kind: str) -> Json | None:
    """Return a condition of the newest master's Job, if it holds."""
    for one in (newest(seen.masters) or {}).get("status", {}).get("conditions") or []:
        if one.get("type") == kind and one.get("status") == "True":
            return dict(one)
    return None


def _end_without_words(
    job: TrainingJob, seen: Seen, outcome: Outcome
) -> tuple[str, str]:
    """Return how a job ended whose status is gone: as it was told, if it was."""
    if job.was_told_ended(outcome.made.run):
        # Its message may be about a refused edit; those of conditions are about an end.
        ends = [
            one
            for one in job.status.get("conditions") or []
            if one.get("type") in ("Complete", "Failed") and one.get("status") == "True"
        ]
        message = (ends[0] if ends else job.status).get("message")
        return str(job.status["state"]), str(message or "")
    about = (newest(seen.masters) or {}).get("metadata", {})
    marks = about.get("annotations") or {}
    if marks.get(ANNOTATION_STATE) in _OVER:
        return str(marks[ANNOTATION_STATE]), str(marks.get(ANNOTATION_MESSAGE) or "")
    return (
        str(JobState.STOPPED),
        "its master has ended, and what it said is gone with its ConfigMap",
    )


def _there(status: JobStatus | None) -> int:
    return sum(
        1
        for one in (status.replicas if status else ())
        if one.role == Role.WORKER and one.state != ReplicaState.ENDED
    )


def _workers(
    job: TrainingJob, outcome: Outcome, status: JobStatus | None, *, over: bool
) -> Json:
    before = job.status.get("workers") or {}
    spec = outcome.values.job if outcome.values else None
    wanted = before.get("wanted", 0)
    if spec is not None:
        wanted = 0 if _rests(spec) else spec.worker.replicas
    if over:
        return {"wanted": wanted, "granted": 0, "running": 0}
    granted = wanted if outcome.made.run else 0  # nothing was made yet
    if status is not None:
        paused = status.state is JobState.PAUSED
        # The number in a status is what the job has again when it goes on.
        resting = paused and status.strategy == Strategy.PARAMETER_SERVER
        granted = 0 if resting else status.workers_wanted
    running = sum(
        1
        for one in (status.replicas if status else ())
        if one.role == Role.WORKER and one.state == ReplicaState.RUNNING
    )
    return {"wanted": wanted, "granted": granted, "running": running}


def _rests(spec: JobSpec) -> bool:
    """Whether its workers go home: not where they hold the model."""
    return spec.paused and spec.strategy is Strategy.PARAMETER_SERVER


def _conditions(
    job: TrainingJob, outcome: Outcome, state: str, message: str, now: str
) -> list[Json]:
    refused = outcome.refused
    applied = refused is None or refused.reason is Reason.NOT_APPLIED
    accepted = (
        ("True", "Valid", "")
        if applied or refused is None
        else ("False", str(refused.reason), refused.message)
    )
    in_place = (
        ("True", "Applied", "")
        if refused is None
        else ("False", str(refused.reason), refused.message if applied else "")
    )
    complete = state == JobState.SUCCEEDED
    failed = state == JobState.FAILED
    made = [
        ("Accepted", *accepted),
        ("Applied", *in_place),
        ("Complete", str(complete), state.capitalize(), message if complete else ""),
        ("Failed", str(failed), state.capitalize(), message if failed else ""),
    ]
    return list(_dated(job, made, now))


def _dated(
    job: TrainingJob, made: Iterable[tuple[str, str, str, str]], now: str
) -> Iterable[Json]:
    """Yield conditions; the time of one that has not turned stays."""
    before = {one.get("type"): one for one in job.status.get("conditions") or []}
    for kind, status, reason, text in made:
        message = text
        if len(text) > _LONGEST_OF_CONDITION:
            message = f"{text[:_LONGEST_OF_CONDITION]} ..."
        old = before.get(kind, {})
        same = old.get("status") == status and old.get("lastTransitionTime")
        yield {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": same or now,
            "observedGeneration": job.generation,
        }
