"""What the end-to-end tests measured in a cluster, as rows of the table.

Owns which of their figures have a bar. `make e2e` takes them on real pods and leaves
them in outputs/e2e.json; without that file there is nothing to show here.
"""

from __future__ import annotations

import json
from pathlib import Path

from frame import Benchmark, Row, seconds_row

FILE = Path(__file__).resolve().parent.parent / "outputs" / "e2e.json"

# Name in the file, name of the row, what it is, bar.
_SECONDS = (
    ("relaunch_seconds", "relaunch_k8s",
     "30 of 32 workers deleted: until each one's replacement is created", 5.0),
    ("relaunch_pod_seconds", "relaunch_pod",
     "a worker's pod deleted: until its replacement is created", 5.0),
    ("regrow_seconds", "regrow_k8s",
     "CPUs free: until each preempted worker's process starts", 15.0),
    ("submit_to_first_step_seconds", "submit_to_first_step",
     "job submitted, images on the node: until its first step", 60.0),
    ("second_job_worker_seconds", "second_job",
     "a job beside one that has the node: master's start until a worker's pod", 3.0),
    ("gitops_commit_to_first_step_seconds", "gitops_first_step",
     "commit of a values file: until the job's first step", 90.0),
    ("gitops_commit_to_running_size_seconds", "gitops_resize",
     "commit of another size: until that many workers run", 60.0),
)  # fmt: skip
_MEGABYTES = (
    ("image_master_mb", "image_master", "master's image as it is pulled, MB", 150.0),
    ("image_ps_mb", "image_ps", "PS's image as it is pulled, MB", 220.0),
    ("image_worker_mb", "image_worker", "worker's image as it is pulled, MB", 750.0),
    ("master_500_mib", "master_500", "master of 500 workers, resident MiB", 128.0),
)


def rows() -> list[Row]:
    """Return the rows of those figures that the last run took."""
    there = json.loads(FILE.read_text())
    found = [
        seconds_row(name, what, there[key], bar)
        for key, name, what, bar in _SECONDS
        if key in there
    ]
    found += [
        Row(name, what, value, value, value, bar, "lower", value <= bar)
        for key, name, what, bar in _MEGABYTES
        for value in there.get(key, [])[:1]
    ]
    return found


BENCHMARKS = {"cluster": Benchmark(rows, seconds=0)} if FILE.exists() else {}
