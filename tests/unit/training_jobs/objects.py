"""TrainingJobs and what an API server has of them, for tests of their controller."""

import copy
from typing import Any

from elasticdl.job.names import config_map_name, master_job_name
from elasticdl.job.status import JobReport, JobStatus, Progress, ReplicaStatus
from elasticdl.job.values.file import dump_values
from elasticdl.job.values.training_job import read_manifest
from elasticdl.job.words import JobState
from elasticdl.training_jobs.resource import Seen, TrainingJob
from elasticdl.training_jobs.verdicts import Submit

Json = dict[str, Any]
UID = "uid-1"
MAP_UID = "uid-map"
REGISTRY = "defaults:\n  images: {registry: registry.example}\n"
CREATED = "2026-11-24T22:00:00Z"
BEGAN = 1_795_557_600.0  # the same, in Unix seconds


def manifest(name="digits", **spec: Any) -> Json:
    """Return a TrainingJob; `job__worker__max=4` sets a field of its specification."""
    made: Json = {
        "apiVersion": "elasticdl.org/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": UID,
            "generation": 1,
        },
        "spec": {
            "job": {
                "model": {"definition": "a.b"},
                "data": {"training": "data"},
                "worker": {"replicas": 3},
            }
        },
    }
    return changed(made, **spec)


def changed(thing: Json, **spec: Any) -> Json:
    thing = copy.deepcopy(thing)
    for path, value in spec.items():
        *above, last = path.split("__")
        inner = thing["spec"]
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return thing


def training_job(status: Json | None = None, **spec: Any) -> TrainingJob:
    return TrainingJob.of({**manifest(**spec), "status": status or {}})


def owned(name: str, uid: str = UID) -> Json:
    owner = {"kind": "TrainingJob", "name": "digits", "uid": uid, "controller": True}
    return {
        "name": name,
        "uid": MAP_UID,
        "creationTimestamp": CREATED,
        "labels": {"elasticdl-job-name": "digits"},
        "ownerReferences": [owner],
    }


def config_map(job: TrainingJob, **data: str) -> Json:
    values, problems = read_manifest(job.manifest)
    assert values is not None, problems
    text = dump_values(values)
    return {
        "kind": "ConfigMap",
        "metadata": owned(config_map_name(job.name)),
        "data": {"job.yaml": text, **data},
    }


def master(job: TrainingJob, run: int = 1, template: str = "t1") -> Json:
    about = owned(master_job_name(job.name, run))
    about["annotations"] = {"elasticdl.org/master-template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about}


def status_map(*, report: bool = False, **fields: Any) -> Json:
    """Return what a master shows, of the ConfigMap of above."""
    whole: Json = {
        "name": "digits",
        "type": "train",
        "strategy": "parameterServer",
        "state": JobState.RUNNING,
        "started": BEGAN,
        "time": BEGAN + 10,
        "master_generation": 1,
        "workers_wanted": 3,
        "progress": Progress(epoch=1, records_done=500),
        "replicas": [replica("worker", 0, "running"), replica("worker", 1, "pending")],
        "last_loss": 0.123456,
    }
    data = {"status.json": JobStatus(**whole | fields).model_dump_json()}
    if report:
        data["report.json"] = ended(**fields).model_dump_json()
    owner = {"kind": "ConfigMap", "uid": MAP_UID}
    return {"metadata": {"ownerReferences": [owner]}, "data": data}


def ended(**fields: Any) -> JobReport:
    whole: Json = {
        "name": "digits", "type": "train", "strategy": "parameterServer",
        "status": JobState.SUCCEEDED, "message": "", "started": BEGAN, "seconds": 60.0,
        "epochs": 5, "steps": 100, "version": 100, "records": 5000,
        "records_per_second": 500.0, "replayed_records": 0, "replays": [],
        "bad_records": [], "skipped_batches": 0, "lost_updates": 0, "rewinds": 0,
        "master_restarts": 0, "goodput_seconds": {}, "goodput": 1.0, "last_loss": 0.1,
        "metrics": {}, "evaluations": [], "relaunches": [], "checkpoint": "",
        "exports": [],
    }  # fmt: skip
    known = {key: value for key, value in fields.items() if key in whole}
    return JobReport(**whole | known)


def replica(role: str, index: int, state: str) -> ReplicaStatus:
    name = f"{role}-{index}"
    return ReplicaStatus(name=name, role=role, index=index, generation=1, state=state)


def made_by(decision: Submit, *objects: str) -> Json:
    """Return the status of a TrainingJob whose submission was carried out."""
    return {"made": {**decision.made.document(), "objects": list(objects)}}


def there(job: TrainingJob, **fields: Any) -> Seen:
    """Return what is there of a job that was submitted."""
    values: Json = {
        "config_map": config_map(job),
        "masters": (master(job),),
        "platform": REGISTRY,
    }
    return Seen(**values | fields)
