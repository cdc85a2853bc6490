"""Decides what is to be done about one TrainingJob, from it and what is there.

Owns when a job is submitted, when only its specification is changed, and what is
refused. Pure: called by `training_jobs.controller`, which acts. What the chart renders
is compared in `training_jobs.changes`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from elasticdl.client.cluster.objects import JobObjects, documents, name_of
from elasticdl.client.cluster.training_jobs import owner_of
from elasticdl.errors import SpecError
from elasticdl.job.names import (
    KEY_JOB,
    KEY_PLATFORM,
    master_job_name,
)
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.problems import Problem, got, spec_error
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.values.bounded import load_bounded
from elasticdl.job.values.defaults import (
    CONFIG_MAP,
    PlatformDefaults,
    refused,
    sections_of,
    without_registry,
)
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import dump_values, parse_values
from elasticdl.job.values.training_job import read_manifest
from elasticdl.kube.times import unix_seconds
from elasticdl.master.live_edits import LIVE, compare
from elasticdl.training_jobs.resource import Seen, TrainingJob
from elasticdl.training_jobs.verdicts import (
    Decision,
    Edit,
    Reason,
    Refused,
    Settled,
    Submit,
)

_RELEASE = "meta.helm.sh/release-name"
_RELEASE_NAMESPACE = "meta.helm.sh/release-namespace"


def reconcile(job: TrainingJob, seen: Seen) -> Decision:
    """Return what is to be done about a TrainingJob."""
    if job.leaving:
        return Settled(job.made)  # what belongs to it goes after it
    values, problems = read_manifest(job.manifest)
    if values is None:
        return Refused(Reason.INVALID, str(spec_error(problems)))
    if taken := _taken(job, seen):
        return taken
    made = replace(job.made, **_marks(values))
    if job.made.fixed == made.fixed and _is_there(job, seen, values):
        if job.made == made and _in_force(seen) == values.job:
            return Settled(made)
        text = dump_values(ValuesFile(kind="job", job=values.job))
        of = {"uid": (seen.config_map or {}).get("metadata", {}).get("uid")}
        return Edit(values, made, {"metadata": of, "data": {KEY_JOB: text}})
    return _submission(job, seen, Submit(values, PlatformDefaults(), made))


def _submission(job: TrainingJob, seen: Seen, wanted: Submit) -> Submit | Refused:
    """Return the submission with what the platform says, or why it is refused."""
    values = wanted.values
    try:
        platform = _platform(seen, values)
    except SpecError as error:
        return Refused(Reason.NOT_ALLOWED, str(error))
    problems = _not_allowed(job, platform, values)
    if problems:
        return Refused(Reason.NOT_ALLOWED, str(spec_error(problems)))
    if late := _too_late(job, seen, values):
        return late
    return replace(wanted, platform=platform)


def has_ended(seen: Seen) -> bool:
    """Whether the newest run of a job is over."""
    if seen.config_map is None:
        return False
    status, report = told(seen)
    return report is not None or (status is not None and status.state.ended)


def told(seen: Seen) -> tuple[JobStatus | None, JobReport | None]:
    """Return status and report of the newest run, as far as its master wrote them.

    Both stay from the run before until the next master writes its own.
    """
    if seen.config_map is None:
        return None, None
    status, report = documents(JobObjects(seen.config_map, seen.status_map))
    began = max(
        (unix_seconds(m["metadata"].get("creationTimestamp")) for m in seen.masters),
        default=0.0,
    )
    if report is not None and report.started + report.seconds < began:
        report = None
    if status is not None and status.time < began:
        status = None
    return status, report


def _marks(values: ValuesFile) -> dict[str, Any]:
    """Return run and digests of a specification, as fields of `Made`."""
    job, chart = values.job.document(), values.chart_keys()
    fixed = json.loads(json.dumps(job))
    for path in LIVE:
        _remove(fixed, path.split("."))
    return {
        "run": values.run,
        "whole": _digest({**chart, "job": job}),
        "fixed": _digest({**chart, "job": fixed}),
    }


def _digest(tree: Mapping[str, Any]) -> str:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _remove(tree: dict[str, Any], path: list[str]) -> None:
    """Take out what is at a path, and the sections that are empty without it."""
    key, *rest = path
    inner = tree.get(key)
    if rest and isinstance(inner, dict):
        _remove(inner, rest)
    if not rest or inner == {}:
        tree.pop(key, None)


def _taken(job: TrainingJob, seen: Seen) -> Refused | None:
    """Return why the job's name is not free for this TrainingJob."""
    things = [*([seen.config_map] if seen.config_map else []), *seen.masters]
    for thing in things:
        owner = owner_of(thing)
        if owner is None:
            return Refused(
                Reason.NAME_TAKEN,
                f"namespace `{job.namespace}` has a job `{job.name}` already, from "
                f"{_other_owner(thing)}: choose another metadata.name, or upgrade "
                "that release",
            )
        if owner.get("uid") != job.uid:
            return Refused(
                Reason.WAITING,
                f"objects of an earlier TrainingJob `{owner.get('name')}` are still "
                f"being removed, as {thing.get('kind', 'ConfigMap')} "
                f"{name_of(thing)}; it goes on when they are gone",
            )
    return None


def _other_owner(thing: Mapping[str, Any]) -> str:
    """As `elasticdl.otherOwner` of the chart says it."""
    notes = thing.get("metadata", {}).get("annotations") or {}
    if release := notes.get(_RELEASE):
        return f"release `{release}` in namespace `{notes.get(_RELEASE_NAMESPACE)}`"
    return "somebody without Helm"


def _is_there(job: TrainingJob, seen: Seen, values: ValuesFile) -> bool:
    """Whether the run has its objects, or has ended and needs none any more."""
    if seen.config_map is None:
        return False
    return (
        _has_master(job.name, seen, values.run)
        or has_ended(seen)
        or job.was_told_ended(values.run)
    )


def _has_master(name: str, seen: Seen, run: int) -> bool:
    wanted = master_job_name(name, run)
    return any(name_of(master) == wanted for master in seen.masters)


def _in_force(seen: Seen) -> JobSpec | None:
    """Return the job in the ConfigMap; None where it holds none."""
    data = (seen.config_map or {}).get("data") or {}
    text = str(data.get(KEY_JOB, ""))
    values, _ = parse_values(text, source=KEY_JOB, bounded=True)
    return values.job if values is not None else None


def _platform(seen: Seen, values: ValuesFile) -> PlatformDefaults:
    """Return what the platform says of this run: a run keeps what it began with.

    Raises SpecError where it says something else.
    """
    data = (seen.config_map or {}).get("data") or {}
    if text := data.get(KEY_PLATFORM):
        began, run = PlatformDefaults.parse(text, source=KEY_PLATFORM), _run_in(text)
        if run == values.run:
            return began
    return PlatformDefaults.parse(seen.platform, source=f"ConfigMap {CONFIG_MAP}")


def _run_in(text: str) -> int:
    """Return the run that a readable text is of; 0 where it says none."""
    tree = load_bounded(text)
    try:
        return int(tree.get("run") or 0) if isinstance(tree, dict) else 0
    except (OverflowError, TypeError, ValueError):
        return 0


def _not_allowed(
    job: TrainingJob, platform: PlatformDefaults, values: ValuesFile
) -> list[Problem]:
    given = sections_of(values)
    problems = refused(platform, given, values.job, namespace=job.namespace)
    return problems + without_registry(platform, given, values.job)


def _too_late(job: TrainingJob, seen: Seen, values: ValuesFile) -> Refused | None:
    """Return the refusal of an edit that the master would refuse, or never read."""
    over = has_ended(seen) or job.was_told_ended(values.run)
    if not _has_master(job.name, seen, values.run) and not (
        over and job.made.run == values.run
    ):
        return None
    before = _in_force(seen)
    status, _ = told(seen)
    then = (
        f"take the change back, or raise `run` to {values.run + 1} with it: then all "
        "of the job starts anew, from its newest checkpoint"
    )
    if over:
        problem = Problem(
            "spec", "a change of a job that has ended", "`run` raised with it",
            f"set `run` to {values.run + 1} to run it again",
        )  # fmt: skip
        return Refused(Reason.IMMUTABLE, str(problem))
    if before is None or status is None:
        return None  # its master has not read it yet
    problems = [
        Problem(
            f"job.{one.path}", got(one.new),
            f"{got(one.old)}: it may not change while the job runs", then,
        )
        for one in compare(before, values.job).refused
    ]  # fmt: skip
    if problems:
        return Refused(Reason.IMMUTABLE, str(spec_error(problems)))
    return None
