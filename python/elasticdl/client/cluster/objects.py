"""What a job in a cluster shows: its objects, read into one view.

Owns what pods, events and the three ConfigMaps say of a job. Called by
`client.cluster.job`. Pure: objects come as the API server's JSON; must not make calls.
"""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from elasticdl.client.cluster.api import Object
from elasticdl.client.handle import JobView
from elasticdl.job import history
from elasticdl.job.folder import Condition
from elasticdl.job.history import History
from elasticdl.job.names import (
    ANNOTATION_STOP,
    KEY_HISTORY,
    KEY_REPORT,
    KEY_STATUS,
    LABEL_INDEX,
    LABEL_ROLE,
    Role,
    replica_name,
)
from elasticdl.job.plain import plain, plain_json
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.words import JobState
from elasticdl.kube.pods import (
    ON_ITS_WAY,
    ended,
    gated,
    phase_of,
    queue_of,
    unscheduled,
    waiting,
)
from elasticdl.kube.times import unix_seconds

_ENDED = {
    JobState.SUCCEEDED: Condition.SUCCEEDED,
    JobState.FAILED: Condition.FAILED,
    JobState.STOPPED: Condition.STOPPED,
}
# A container in these waits for nothing that is wrong.
_IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName")
_MOST_MESSAGE = 400
_ARGO_CD = "argocd.argoproj.io/tracking-id"


@dataclass(frozen=True)
class JobObjects:
    """The objects of one job on the API server."""

    config_map: Object
    status_map: Object | None = None
    master_job: Object | None = None
    pods: Sequence[Object] = field(default_factory=tuple)
    events: Sequence[Object] = field(default_factory=tuple)


def name_of(thing: Object) -> str:
    """Return an object's name."""
    return str(thing.get("metadata", {}).get("name", ""))


def is_by_argo_cd(thing: Object) -> bool:
    """Whether Argo CD manages an object."""
    return _ARGO_CD in (thing.get("metadata", {}).get("annotations") or {})


def stop_reason(config_map: Object) -> str:
    """Return why the job was asked to stop, "" if it was not."""
    annotations = config_map.get("metadata", {}).get("annotations") or {}
    return str(annotations.get(ANNOTATION_STOP, ""))


def replica_of(pod: Object) -> str:
    """Return `worker-3`, `ps-0` or `master`; "" for a pod that is no replica."""
    labels = pod.get("metadata", {}).get("labels") or {}
    role = labels.get(LABEL_ROLE, "")
    if role == Role.MASTER:
        return str(Role.MASTER)
    index = str(labels.get(LABEL_INDEX, ""))
    return replica_name(role, int(index)) if role and index.isdecimal() else ""


def newest(things: Iterable[Object]) -> Object | None:
    """Return the object created last: each run of a job has a Job of its own."""
    return max(
        things,
        key=lambda one: str(one["metadata"].get("creationTimestamp", "")),
        default=None,
    )


def pods_of(pods: Sequence[Object], replica: str) -> list[Object]:
    """Return the pods of one replica, the newest first."""
    wanted = str(Role.MASTER) if replica == "master-0" else replica
    return sorted(
        (pod for pod in pods if replica_of(pod) == wanted),
        key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")),
        reverse=True,
    )


def documents(observed: JobObjects) -> tuple[JobStatus | None, JobReport | None]:
    """Return status and report of this job, as far as they are readable."""
    status_map = observed.status_map
    uid = observed.config_map.get("metadata", {}).get("uid")
    if status_map is None or not _is_owned(status_map, uid):
        return None, None  # of an earlier job of this name, about to be collected
    data = status_map.get("data") or {}
    status, report = None, None
    try:
        if KEY_STATUS in data:
            status = JobStatus.model_validate_json(plain_json(data[KEY_STATUS]))
        if KEY_REPORT in data:
            report = JobReport.model_validate_json(plain_json(data[KEY_REPORT]))
    except ValidationError:
        pass  # of another version; what the objects themselves say is left
    return status, report


def history_of(config_map: Object, history_map: Object | None) -> History:
    """Return the history that the master wrote of this job."""
    uid = config_map.get("metadata", {}).get("uid")
    if history_map is None or not _is_owned(history_map, uid):
        return History()
    packed = (history_map.get("binaryData") or {}).get(KEY_HISTORY, "")
    try:
        text = gzip.decompress(base64.b64decode(packed)).decode(errors="replace")
    except (ValueError, OSError, EOFError, zlib.error):
        return History()  # not what a master writes
    return history.parse(text.splitlines())


def view_of(name: str, observed: JobObjects, *, place: str = "") -> JobView:
    """Return the view of a job: its state, and why it does not run."""
    status, report = documents(observed)
    condition, note = _condition(observed, status, report)
    if report is not None:
        status = None
    began = _seconds(observed.config_map)
    return JobView(name, condition, status, report, note, place, began)


def _condition(
    observed: JobObjects, status: JobStatus | None, report: JobReport | None
) -> tuple[Condition, str]:
    state = report.status if report else status.state if status else None
    if state is not None and state.ended:
        return _ENDED[state], ""
    masters = pods_of(observed.pods, Role.MASTER)
    failed = _job_failure(observed.master_job)
    if failed is not None:
        return Condition.FAILED, f"its master failed: {last_words(masters) or failed}"
    why = master_trouble(observed, masters)
    if status is not None:
        return Condition.RUNNING, f"its master does not run now: {why}" if why else ""
    if stop_reason(observed.config_map) and _suspended(observed.master_job):
        return Condition.STOPPED, "it was stopped before it began"
    if observed.master_job is None:
        return Condition.INTERRUPTED, why
    return Condition.PENDING, why or "its master starts"


def master_trouble(observed: JobObjects, masters: Sequence[Object]) -> str:
    """Return why the master does not run, "" if it does."""
    job = observed.master_job
    if job is None:
        return "the Job of its master is gone; submit it again"
    live = [pod for pod in masters if phase_of(pod) in ("Pending", "Running")]
    if not live:
        if _suspended(job):
            queue = queue_of(job)
            held = f"has not been admitted by queue {queue}" if queue else "is held"
            return f"its Job {held} (spec.suspend)"
        events = _warnings(observed.events, name_of(job))
        if events:
            return f"the master's pod cannot be made: {events[0]}"
        words = last_words(masters)
        return (
            f"it ended ({words}) and is started again"
            if words
            else "its pod is not there yet"
        )
    return why_pending(live[0], observed.events)


def why_pending(pod: Object, events: Sequence[Object] = ()) -> str:
    """Return why a pod does not run, "" if it does.

    Images that cannot be pulled, containers that cannot be made, no node that fits,
    volumes that cannot be mounted: in the words of kubelet and scheduler.
    """
    if phase_of(pod) == "Running" and not list(waiting(pod)):
        return ""
    for one in waiting(pod):
        container, message = one.container, one.message
        reason = one.reason or "waiting"
        if reason in _IMAGE_REASONS:
            image = _image(pod, container)
            return _said(f"image {image} cannot be pulled ({reason})", message)
        if reason not in ON_ITS_WAY:
            return _said(reason, message)
    if why := _unscheduled(pod):
        return why
    events_of_pod = _warnings(events, name_of(pod))
    if events_of_pod:
        return events_of_pod[0]
    return "its pod starts" if phase_of(pod) == "Pending" else phase_of(pod).lower()


def _unscheduled(pod: Object) -> str:
    """Return why no node was found for a pod; "" if one was, or if unknown."""
    if gates := gated(pod):
        return _said("its pod waits", gates)
    why = unscheduled(pod)
    return _said("no node for its pod", why.message) if why else ""


def last_words(pods: Sequence[Object]) -> str:
    """Return how the newest ended container ended: exit code, reason, message."""
    for pod in pods:
        for end in ended(pod):
            words = f"{end.reason or 'Error'}, exit code {end.exit_code}"
            return plain(end.message).strip() or words
        if reason := pod.get("status", {}).get("reason"):
            return _said(str(reason), str(pod["status"].get("message") or ""))
    return ""


def _job_failure(job: Object | None) -> str | None:
    """Return why Kubernetes gave up the master's Job; None if it did not."""
    for condition in (job or {}).get("status", {}).get("conditions") or []:
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            return _said(
                str(condition.get("reason", "")), str(condition.get("message", ""))
            )
    return None


def _suspended(job: Object | None) -> bool:
    return bool((job or {}).get("spec", {}).get("suspend"))


def _warnings(events: Sequence[Object], name: str) -> list[str]:
    """Return the messages of warnings about an object, the newest first."""
    about = [
        one
        for one in events
        if one.get("type") == "Warning"
        and one.get("involvedObject", {}).get("name") == name
    ]
    about.sort(key=_event_time, reverse=True)
    return [_said("", str(one.get("message", ""))) for one in about]


def _event_time(event: Object) -> str:
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event.get("metadata", {}).get("creationTimestamp")
        or ""
    )


def _is_owned(thing: Object, uid: str | None) -> bool:
    owners = thing.get("metadata", {}).get("ownerReferences") or []
    return any(owner.get("uid") == uid for owner in owners)


def _image(pod: Object, container: str) -> str:
    spec = pod.get("spec", {})
    for one in [*spec.get("containers", []), *spec.get("initContainers", [])]:
        if one.get("name") == container:
            return str(one.get("image", ""))
    return ""


def _said(head: str, message: str) -> str:
    text = plain(" ".join(message.split()))
    if len(text) > _MOST_MESSAGE:
        text = f"{text[:_MOST_MESSAGE]} ..."
    return ": ".join(part for part in (head, text) if part)


def _seconds(thing: Object) -> float:
    """Return the creation time of an object in Unix seconds; 0 if it has none."""
    return unix_seconds(thing.get("metadata", {}).get("creationTimestamp"))
