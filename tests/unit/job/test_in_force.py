"""The specification in force: what replicas read as they start."""

import subprocess
import sys

import pytest
from elasticdl.errors import SpecError
from elasticdl.job.in_force import in_force, put_in_force
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.values.file import load_values

SPEC = JobSpec.model_validate(
    {
        "name": "a",
        "model": {
            "definition": "net.model",
            "params": {"x": 1.0, "y": "1", "z": [None]},
        },
        "data": {"training": "d"},
        "env": {"A": "\x85 é", "B": "no"},
        "training": {"epochs": 2},
        "tasks": {"leaseSeconds": 0.5},
        "worker": {"replicas": 3, "max": 5},
    }
)


@pytest.fixture
def job_dir(tmp_path):
    made = JobDir(tmp_path / "a")
    made.root.mkdir()
    return made


def test_replicas_read_what_the_master_wrote(job_dir):
    put_in_force(job_dir, SPEC)
    assert in_force(job_dir) == SPEC
    # Those of an earlier version read it as a values file.
    assert load_values(job_dir.in_force_file).job == SPEC


def test_what_an_earlier_version_wrote_is_read(job_dir):
    job_dir.in_force_file.write_text(
        "kind: job\njob:\n  name: a\n  model: {definition: net.model}\n"
        "  data: {training: d}\n"
    )
    assert in_force(job_dir).model.definition == "net.model"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"kind": "job", "job": {"name": "a"}}', "job.model"),
        ('{"kind": "job", "job": {"workers": 3}}', "workers"),
        ('{"kind": "job", "jo', "YAML"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_none_is_refused_with_what_is_wrong(job_dir, text, said):
    job_dir.in_force_file.write_text(text)
    with pytest.raises(SpecError, match=said):
        in_force(job_dir)


@pytest.mark.parametrize("role", ["ps", "worker"])
def test_a_replica_starts_without_the_models_of_values_files(role):
    """A sixth of what a PS imports: each start of each replica would wait for it."""
    shown = subprocess.run(
        [sys.executable, "-P", "-c",
         f"import sys, elasticdl.{role}.main; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert "elasticdl.job.in_force" in shown
    assert not [one for one in shown if one.startswith("elasticdl.job.values")]
    assert "ruamel.yaml" not in shown
