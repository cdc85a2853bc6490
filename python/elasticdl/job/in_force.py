"""The specification in force: what a job's replicas read as they start.

Owns that file. The master writes it, every PS and worker reads it. It must be quick to
import: a values file's models, and what reads YAML, are imported only where the file is
of an earlier version or is not there yet.
"""

from __future__ import annotations

import json

from pydantic import ValidationError

from elasticdl.beneath import opened, read_text
from elasticdl.files import write_whole
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec


def put_in_force(job_dir: JobDir, spec: JobSpec) -> None:
    """Write the specification that replicas read from now on. Raises OSError."""
    # JSON is YAML, too: replicas of an earlier version read it as a values file.
    text = json.dumps({"kind": "job", "job": spec.document()}, indent=1)
    write_whole(job_dir.in_force_file, text + "\n", durable=True)


def in_force(job_dir: JobDir) -> JobSpec:
    """Return the specification in force, regardless of later edits of the values file.

    An edit that the master refuses must not reach the replicas that it starts later.
    Raises SpecError.
    """
    taken = job_dir.in_force_file
    try:
        with opened(job_dir.root, root=job_dir.root) as folder:
            folder.stat(taken.name)  # a link is there too, and is refused
    except FileNotFoundError:
        taken = job_dir.spec_file
    else:
        spec = _written_here(job_dir)
        if spec is not None:
            return spec
    from elasticdl.job.values.file import load_values

    return load_values(taken, root=job_dir.root).job


def _written_here(job_dir: JobDir) -> JobSpec | None:
    """Return the specification as `put_in_force` writes it; None where it is not so.

    `load_values` then says what is wrong, and reads what an earlier version wrote.
    """
    try:
        tree = json.loads(read_text(job_dir.in_force_file, root=job_dir.root))
        if not isinstance(tree, dict) or tree.keys() != {"kind", "job"}:
            return None
        return JobSpec.model_validate_json(
            json.dumps(tree["job"]), strict=True, by_alias=True, by_name=False
        )
    except (OSError, RecursionError, ValidationError, ValueError):
        return None
