"""What has to be called so that the objects of a job are those that the chart renders.

Owns the order of the calls, who owns the objects, and the refusal of a change that
Kubernetes does not make. Pure: `training_jobs.controller` makes the calls.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace

from elasticdl.client.cluster.objects import name_of, stop_reason
from elasticdl.job.names import ANNOTATION_STOP, LABEL_MANAGED_BY, master_job_name
from elasticdl.training_jobs.resource import Json, Seen, TrainingJob
from elasticdl.training_jobs.verdicts import (
    Changes,
    Reason,
    Refused,
    Step,
    Submit,
    Verb,
)

FIELD_MANAGER = "elasticdl-training-jobs"
_MASTER_TEMPLATE = "elasticdl.org/master-template"
# Every kind that the chart makes for a job.
_PLURALS = {
    "Certificate": "certificates",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "Job": "jobs",
    "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "PodMonitor": "podmonitors",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
}
# The specification first, which says whose the name is; the master last, which needs
# all the others.
_FIRST, _LAST = "ConfigMap", "Job"


def changes(
    job: TrainingJob,
    seen: Seen,
    wanted: Submit,
    objects: Sequence[Json],
    begun: Iterable[str] = (),
) -> Changes | Refused:
    """Return the steps that make these objects, and remove those of before.

    `begun`: what was made of it and is not in its status, as other calls failed.
    """
    if frozen := _frozen(job, seen, wanted, objects):
        return frozen
    stamped = [_stamped(job, one) for one in sorted(objects, key=_order)]
    if _stops_another_run(job, seen, wanted):
        # Else its master would have to begin first, and a queue may hold that.
        about = next(one for one in stamped if one["kind"] == _FIRST)["metadata"]
        about["annotations"] = {**(about.get("annotations") or {}), ANNOTATION_STOP: ""}
    steps = [
        Step(
            Verb.CREATE if one["kind"] == "Secret" else Verb.APPLY,
            path_of(entry_of(one), job.namespace),
            one,
        )
        for one in stamped
    ]
    entries = tuple(map(entry_of, stamped))
    steps += [
        Step(Verb.DELETE, path_of(entry, job.namespace))
        for entry in _gone((*job.made.objects, *begun), entries)
    ]
    return Changes(tuple(steps), replace(wanted.made, objects=entries))


def _gone(before: Iterable[str], now: Sequence[str]) -> list[str]:
    """Return what is not made any more; a Secret goes with the TrainingJob alone."""
    gone = dict.fromkeys(one for one in before if one not in now)
    return [one for one in gone if "/secrets/" not in one]


def entry_of(thing: Json) -> str:
    """Return an object as `batch/v1/jobs/elasticdl-x-master`."""
    return f"{thing['apiVersion']}/{_PLURALS[thing['kind']]}/{name_of(thing)}"


def path_of(entry: str, namespace: str) -> str:
    """Return the path of an object's calls."""
    version, plural, name = entry.rsplit("/", 2)
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}/{name}"


def _order(thing: Json) -> int:
    kind = thing["kind"]
    return 0 if kind == _FIRST else 2 if kind == _LAST else 1


def _stamped(job: TrainingJob, thing: Json) -> Json:
    """Return an object as this TrainingJob's."""
    stamped = copy.deepcopy(thing)
    about = stamped["metadata"]
    about["namespace"] = job.namespace
    about["ownerReferences"] = [job.reference]
    about.setdefault("labels", {})[LABEL_MANAGED_BY] = FIELD_MANAGER
    return stamped


def _stops_another_run(job: TrainingJob, seen: Seen, wanted: Submit) -> bool:
    """Whether the request to stop was for the run before the one that is made."""
    if seen.config_map is None or not stop_reason(seen.config_map):
        return False
    of_this = master_job_name(job.name, wanted.made.run)
    return of_this not in map(name_of, seen.masters)


def _frozen(
    job: TrainingJob, seen: Seen, wanted: Submit, objects: Sequence[Json]
) -> Refused | None:
    """Return the refusal of another pod for a master that is there already."""
    masters = {name_of(one): _template(one) for one in seen.masters}
    for one in objects:
        if one["kind"] != "Job" or name_of(one) not in masters:
            continue
        if masters[name_of(one)] != _template(one):
            # The chart's own sentence (templates/guards.yaml).
            return Refused(
                Reason.IMMUTABLE,
                f"this changes the pod of the master of job `{job.name}` (its image, "
                "job.master, job.env, job.volumes, state, pods.common or "
                "pods.master), and Kubernetes keeps a Job's pod template as it is. "
                f"Take the change back, or raise `run` to {wanted.values.run + 1} "
                "with it: then all of the job starts anew, from its newest checkpoint",
            )
    return None


def _template(master: Json) -> str:
    notes = master.get("metadata", {}).get("annotations") or {}
    return str(notes.get(_MASTER_TEMPLATE, ""))
