"""From a job's ConfigMap to what the planner knows of the job.

Owns the reading of it, and that a ConfigMap is read again only when it is another one,
and its specification parsed again only when its text has changed. Made by
`controller.watching` and by commands that plan. Pure but for that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from elasticdl.controller.reading import placement, resources
from elasticdl.job import names
from elasticdl.job.grant import Grant, parse_grant
from elasticdl.job.names import Role
from elasticdl.job.spec.job import JobSpec, JobType, Strategy
from elasticdl.job.spec.replicas import MOST_WORKERS
from elasticdl.job.values.aliases import too_much
from elasticdl.job.values.file import parse_quickly
from elasticdl.kube.amounts import named_request, quantity
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
# Texts whose brackets nest deeper take seconds to be refused; nothing is planned then,
# for none of the jobs.
_MOST_NESTED = 100
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


class JobReader:
    """Reads jobs' ConfigMaps, and keeps what it parsed."""

    def __init__(self) -> None:
        """Begin with nothing parsed."""
        self._parsed: dict[JobKey, tuple[object, JobSpec | None, Job]] = {}
        self._known: dict[JobKey, tuple[Json, object, KnownJob | None]] = {}
        self._unreadable: dict[JobKey, Json] = {}  # their texts, as they were logged

    def forget(self, key: JobKey) -> None:
        """Drop what is kept of a job that is gone."""
        self._parsed.pop(key, None)
        self._known.pop(key, None)
        self._unreadable.pop(key, None)

    def read(self, item: Json, classes: Classes) -> KnownJob | None:
        """Return the job of a ConfigMap; None for one that nobody could run."""
        metadata = item["metadata"]
        key = JobKey(metadata["namespace"], metadata["labels"][names.LABEL_JOB])
        classed = (tuple(classes.names.items()), tuple(classes.values.items()))
        last = self._known.get(key)
        # At rest all jobs are asked for each few seconds, and none has changed.
        if last is None or last[0] is not item or last[1] != classed:
            known = self._read_or_leave(key, item, classes)
            last = self._known[key] = (item, classed, known)
        return last[2]

    def _read_or_leave(
        self, key: JobKey, item: Json, classes: Classes
    ) -> KnownJob | None:
        """Read one job; what is wrong with it is nothing to the others."""
        try:
            known = self._read(key, item, classes)
        except _UNREADABLE as error:
            if self._unreadable.get(key) != item["data"]:
                what = " ".join(str(error).split())[:200]
                log.warning(
                    "job %s is left alone: its ConfigMap cannot be read: %s: %s",
                    key, type(error).__name__, what,
                )  # fmt: skip
            self._unreadable[key] = item["data"]
            return None
        self._unreadable.pop(key, None)
        return known

    def _read(self, key: JobKey, item: Json, classes: Classes) -> KnownJob | None:
        metadata, data = item["metadata"], item["data"]
        text = tuple(data.get(k, "") for k in _KEYS)
        if key not in self._parsed or self._parsed[key][0] != text:
            _refuse_what_takes_long(text)
            self._parsed[key] = (text, *_parse(key, data))
        _, spec, job = self._parsed[key]
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
                master=job.master
                and _classed(job.master, spec.master.priority, classes),
            ),
            run=_run(data),
            grant=grant,
        )


_KEYS = (names.KEY_JOB, *(names.template_key(role) for role in (Role.PS, Role.WORKER)))


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


def is_foreign(grant: Grant, *, by: str, now: float) -> bool:
    """Whether a grant is another controller's, which lives.

    By what the grant says: another one may be told to give shorter or longer ones.
    """
    if not grant.by or grant.by == by or not grant.in_force(now=now):
        return False
    return now < grant.until - (1 - _LIVING) * grant.lasts


def _refuse_what_takes_long(texts: Iterable[str]) -> None:
    for text in texts:
        if nodes := too_much(text):
            raise ValueError(f"aliases make {nodes:,} entries of it")
        depth = 0
        for bracket in re.findall(r"[\[\]{}]", text):
            depth = max(0, depth + (1 if bracket in "[{" else -1))
            if depth > _MOST_NESTED:
                raise ValueError(f"brackets nest deeper than {_MOST_NESTED} levels")


def _parse(key: JobKey, data: Mapping[str, str]) -> tuple[JobSpec | None, Job]:
    # Without a search for its mistakes: for a large text that takes a minute.
    values = parse_quickly(data[names.KEY_JOB])
    nothing = Job(key.namespace, key.name, Template(resources({}, up=True)))
    if values is None:
        log.warning(
            "job %s is left alone: its %s has mistakes, as `elasticdl validate` tells",
            key,
            names.KEY_JOB,
        )
        return None, nothing
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
        # Its pod is in a batch Job, which nobody here may read; pods of one job share
        # most of where they may be.
        master=_template("", spec.master, ps.placement),
        ps=ps if has_ps else None,
        num_ps=spec.ps.replicas if has_ps else 0,
    )
    return spec, job


def _template(text: str, role: Any, where: Placement | None = None) -> Template:
    """Return what a role's pods ask for: the chart's template, else the values file."""
    pod: Any = None
    if text:
        try:
            pod = YAML(typ="safe").load(text)
        except YAMLError:
            pod = None
    if isinstance(pod, dict) and isinstance(pod.get("spec"), dict):
        spec = pod["spec"]
        return _whole(
            Template(resources(named_request(spec), up=True), placement(spec))
        )
    asked = role.resources
    amounts = {
        CPU: asked.cpu,
        MEMORY: quantity(asked.memory),
        **{name: quantity(amount) for name, amount in asked.extra.items()},
    }
    return Template(resources(amounts, up=True), where or Placement())


def _whole(template: Template) -> Template:
    """Return a template that a plan can be made with. Raises TypeError, ValueError.

    Nobody checked the text, and a plan is about all jobs.
    """
    hash(template)
    for name, amount in template.request.items:
        if not isinstance(name, str) or name == PODS or amount < 0:
            raise ValueError(f"a request of {amount} {name!r} in a template")
    return template


def _classed(template: Template, priority: str, classes: Classes) -> Template:
    return replace(template, priority=classes.value(priority))


def _run(data: Mapping[str, str]) -> int:
    # The chart keeps it where the platform says something; else pods tell.
    text = data.get(names.KEY_PLATFORM, "")
    line = next((one for one in text.splitlines() if one.startswith("run:")), "run: 1")
    number = line.partition(":")[2].strip()
    return int(number) if number.isdecimal() else 1
