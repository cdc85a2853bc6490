"""From a job's ConfigMap to what the planner knows of the job.

Owns the reading of it, and that a ConfigMap is read again only when it is another one,
and its specification parsed again only when its text has changed. Made by
`controller.watching` and by commands that plan. Pure but for that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ruamel.yaml.error import YAMLError

from elasticdl.controller.reading import placement, resources
from elasticdl.job import names
from elasticdl.job.grant import Grant, parse_grant
from elasticdl.job.names import Role
from elasticdl.job.spec.job import JobSpec, JobType, Strategy
from elasticdl.job.spec.replicas import MOST_WORKERS
from elasticdl.job.values.bounded import load_bounded
from elasticdl.job.values.file import parse_values
from elasticdl.kube.amounts import named_request, quantity
from elasticdl.kube.pods import queue_of
from elasticdl.kube.times import unix_seconds
from elasticdl.planner.view import (
    CPU,
    MEMORY,
    PODS,
    Job,
    JobKey,
    Placement,
    Template,
)

log = logging.getLogger(__name__)

Json = dict[str, Any]
# A living controller renews when a third of a grant's time is over; a bit more for its
# clock, and for an API server that was away.
_LIVING = 0.5
# In thousandths; more the API server has of nothing. Of a text that it never saw, a
# part of the cluster might be more than any float.
_LARGEST = 1000 * (2**63 - 1)
# What texts may cause that nobody checked: the templates, and a platform of another
# version.
_UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    YAMLError,
)


@dataclass(frozen=True)
class Classes:
    """PriorityClasses: the names behind `high` and `low`, and the values of all."""

    names: Mapping[str, str] = field(
        default_factory=lambda: {"high": "elasticdl-high", "low": "elasticdl-low"}
    )
    values: Mapping[str, int] = field(default_factory=dict)

    def value(self, priority: str) -> int:
        """Return the value of a role's `priority`; of a share the lower class's."""
        name = self.names.get(priority, priority)
        if priority.replace(".", "", 1).isdecimal():
            name = self.names["low"]
        return self.values.get(name, 0)


@dataclass(frozen=True)
class KnownJob:
    """A job, as its ConfigMap says it."""

    uid: str
    job: Job
    run: int
    grant: Grant | None  # of the annotation, expired or not


def is_job(item: Json) -> bool:
    """Whether a ConfigMap is that of a job."""
    metadata = item["metadata"]
    name = (metadata.get("labels") or {}).get(names.LABEL_JOB, "")
    has = names.KEY_JOB in (item.get("data") or {})
    return has and metadata["name"] == names.config_map_name(name)


def only_renewed(before: Json, item: Json) -> bool:
    """Whether nothing of a job is new but the time until which its grant is good."""
    old, new = before["metadata"], item["metadata"]
    if old["uid"] != new["uid"] or before.get("data") != item.get("data"):
        return False
    notes, others = dict(old.get("annotations") or {}), new.get("annotations") or {}
    texts = (
        notes.pop(names.ANNOTATION_WORKERS, ""),
        others.get(names.ANNOTATION_WORKERS, ""),
    )
    grants = [parse_grant(text).grant for text in texts]
    if any(others.get(key) != value for key, value in notes.items()):
        return False
    if len(others) != len(notes) + 1 or None in grants:
        return False
    known = [(one.workers, one.leave, one.by) for one in grants if one]
    return known[0] == known[1]


@dataclass(frozen=True)
class Parsed:
    """What the texts of a job's ConfigMap say."""

    key: JobKey
    uid: str
    texts: tuple[str, ...] = field(repr=False)
    spec: JobSpec | None  # None: nobody could run it
    job: Job
    run: int = 1
    error: str = ""  # why, in words


def parse(item: Json) -> Parsed:
    """Return what a ConfigMap says; it takes up to seconds. Logs nothing."""
    key, uid, texts = key_of(item), item["metadata"]["uid"], _texts_of(item)
    nothing = Job(key.namespace, key.name, Template(resources({}, up=True)))
    if refused := item.get("refused"):  # by `controller.keeping`
        return Parsed(key, uid, texts, None, nothing, error=refused)
    try:
        spec, job, error = _parse(key, item["data"])
        run = _run(item["data"])
    except _UNREADABLE as found:
        return Parsed(key, uid, texts, None, nothing, error=_words(found))
    return Parsed(key, uid, texts, spec, job or nothing, run, error)


class JobReader:
    """Reads jobs' ConfigMaps, and keeps what it parsed."""

    def __init__(self) -> None:
        """Begin with nothing parsed."""
        self._parsed: dict[JobKey, Parsed] = {}
        self._known: dict[JobKey, tuple[Json, Parsed, Classes, KnownJob | None]] = {}

    def forget(self, key: JobKey) -> None:
        """Drop what is kept of a job that is gone."""
        self._parsed.pop(key, None)
        self._known.pop(key, None)

    def read(self, item: Json, classes: Classes) -> KnownJob | None:
        """Return the job of a ConfigMap; None for one that nobody could run."""
        if not self.has_read(item):
            self.take(parse(item))
        return self.job_of(item, classes)

    def has_read(self, item: Json) -> bool:
        """Whether the texts of a ConfigMap were parsed.

        Of this one: another job of the name may have the same.
        """
        last = self._parsed.get(key_of(item))
        if last is None or last.uid != item["metadata"]["uid"]:
            return False
        return last.texts == _texts_of(item)

    def take(self, parsed: Parsed) -> None:
        """Keep what was parsed, and tell what is wrong with one job: once."""
        if parsed.error:
            log.warning("job %s is left alone: %s", parsed.key, parsed.error)
        self._parsed[parsed.key] = parsed

    def job_of(self, item: Json, classes: Classes) -> KnownJob | None:
        """Return the job of a ConfigMap by what was parsed of it last.

        None for one of which nothing was, and for one that nobody could run.
        """
        key = key_of(item)
        parsed = self._parsed.get(key)
        if parsed is None or parsed.uid != item["metadata"]["uid"]:
            return None
        last = self._known.get(key)
        # At rest all jobs are asked for each few seconds, and none has changed.
        same = last and last[0] is item and last[1] is parsed and last[2] is classes
        if last is None or not same:
            known = _known_job(item, parsed, classes)
            last = self._known[key] = (item, parsed, classes, known)
        return last[3]


def key_of(item: Json) -> JobKey:
    """Return the job that a ConfigMap is of."""
    metadata = item["metadata"]
    return JobKey(metadata["namespace"], metadata["labels"][names.LABEL_JOB])


def _known_job(item: Json, parsed: Parsed, classes: Classes) -> KnownJob | None:
    metadata, spec, job = item["metadata"], parsed.spec, parsed.job
    if spec is None:
        return None
    annotations = metadata.get("annotations") or {}
    grant = parse_grant(annotations.get(names.ANNOTATION_WORKERS, "")).grant
    return KnownJob(
        uid=metadata["uid"],
        job=replace(
            job,
            arrived=unix_seconds(metadata.get("creationTimestamp")),
            stopped=bool(annotations.get(names.ANNOTATION_STOP)),
            worker=_classed(job.worker, spec.worker.priority, classes),
            ps=job.ps and _classed(job.ps, spec.ps.priority, classes),
            master=job.master and _classed(job.master, spec.master.priority, classes),
        ),
        run=parsed.run,
        grant=grant,
    )


def _words(error: Exception) -> str:
    what = " ".join(str(error).split())[:200]
    return f"its ConfigMap cannot be read: {type(error).__name__}: {what}"


def _texts_of(item: Json) -> tuple[str, ...]:
    return tuple(item["data"].get(key, "") for key in TEXTS)


TEXTS = (
    *(names.KEY_JOB, names.KEY_PLATFORM),
    *(names.template_key(role) for role in (Role.PS, Role.WORKER)),
)


def with_grant(known: KnownJob, *, by: str, now: float) -> Job:
    """Return the job with the grant that is in force.

    A job that another living controller decides about is one of fixed size, within its
    user's bounds, as its master has it.
    """
    job, grant = known.job, known.grant
    if grant is None or not grant.in_force(now=now):
        return job
    if is_foreign(grant, by=by, now=now):
        if not job.takes_part:
            return job
        size = min(max(grant.workers, job.floor), job.max)
        return replace(job, elastic=False, replicas=size)
    return replace(job, granted=grant.workers, leave=grant.leave, until=grant.until)


class Granted:
    """Jobs as they are granted: at rest the same objects each few seconds."""

    def __init__(self, by: str) -> None:
        """Begin with none; `by` is whom this controller's grants are signed with."""
        self._by = by
        self._known: dict[JobKey, tuple[KnownJob, object, Job]] = {}

    def job(self, known: KnownJob, tasks_left: int | None, now: float) -> Job:
        """Return the job with the grant that is in force, and what is left of it."""
        key, grant = known.job.key, known.grant
        holds = grant is not None and grant.in_force(now=now)
        foreign = grant is not None and is_foreign(grant, by=self._by, now=now)
        state = (tasks_left, holds, foreign)
        last = self._known.get(key)
        if last is None or last[0] is not known or last[1] != state:
            job = with_grant(known, by=self._by, now=now)
            last = (known, state, replace(job, tasks_left=tasks_left))
            self._known[key] = last
        return last[2]

    def forget(self, key: JobKey) -> None:
        """Drop a job that is gone."""
        self._known.pop(key, None)


def is_foreign(grant: Grant, *, by: str, now: float) -> bool:
    """Whether a grant is another controller's, which lives.

    By what the grant says: another one may be told to give shorter or longer ones.
    """
    if not grant.by or grant.by == by or not grant.in_force(now=now):
        return False
    return now < grant.until - (1 - _LIVING) * grant.lasts


def _parse(
    key: JobKey, data: Mapping[str, str]
) -> tuple[JobSpec | None, Job | None, str]:
    values, problems = parse_values(data[names.KEY_JOB], source=str(key), bounded=True)
    if values is None:
        return None, None, str(problems[0] if problems else "")
    spec = values.job
    worker = _template(data.get(names.template_key(Role.WORKER), ""), spec.worker)
    ps = _template(data.get(names.template_key(Role.PS), ""), spec.ps)
    has_ps = spec.strategy is Strategy.PARAMETER_SERVER and spec.type is JobType.TRAIN
    job = Job(
        key.namespace,
        key.name,
        worker=worker,
        min=spec.worker.min,
        max=min(spec.worker.max, MOST_WORKERS),
        replicas=spec.worker.replicas,
        elastic=spec.worker.elastic,
        paused=spec.paused,
        keeps_workers=spec.strategy is not Strategy.PARAMETER_SERVER,
        # Its pod is in a batch Job, which nobody here may read; pods of one job share
        # most of where they may be.
        master=_template("", spec.master, ps.placement),
        ps=ps if has_ps else None,
        num_ps=spec.ps.replicas if has_ps else 0,
    )
    return spec, job, ""


def _template(text: str, role: Any, where: Placement | None = None) -> Template:
    """Return what a role's pods ask for: the chart's template, else the values file."""
    pod: Any = None
    if text:
        try:
            pod = load_bounded(text)
        except YAMLError:
            pod = None
    if isinstance(pod, dict) and isinstance(pod.get("spec"), dict):
        spec = pod["spec"]
        return _whole(
            Template(
                resources(named_request(spec), up=True),
                placement(spec),
                queued=bool(queue_of({"metadata": pod.get("metadata") or {}})),
            )
        )
    asked = role.resources
    amounts = {
        CPU: asked.cpu,
        MEMORY: quantity(asked.memory),
        **{name: quantity(amount) for name, amount in asked.extra.items()},
    }
    return _whole(Template(resources(amounts, up=True), where or Placement()))


def _whole(template: Template) -> Template:
    """Return a template that a plan can be made with. Raises TypeError, ValueError.

    Nobody checked the text, and a plan is about all jobs.
    """
    hash(template)
    for name, amount in template.request.items:
        if not isinstance(name, str) or name == PODS or not 0 <= amount <= _LARGEST:
            raise ValueError(f"a request of {amount:.6g} {name!r} for a pod")
    for text in _texts(template.placement):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} in a template, where a text is expected")
    return template


def _texts(where: Placement) -> Iterator[object]:
    """Yield what Kubernetes takes as texts alone."""
    for pair in where.selector:
        yield from pair
    for one in where.tolerations:
        yield from (one.key, one.operator, one.value, one.effect)
    for term in where.affinity:
        for condition in term:
            yield from (condition.key, condition.operator, *condition.values)


def _classed(template: Template, priority: str, classes: Classes) -> Template:
    return replace(template, priority=classes.value(priority))


def _run(data: Mapping[str, str]) -> int:
    # The chart keeps it where the platform says something; else pods tell.
    text = data.get(names.KEY_PLATFORM, "")
    line = next((one for one in text.splitlines() if one.startswith("run:")), "run: 1")
    number = line.partition(":")[2].strip()
    return int(number) if number.isdecimal() else 1
