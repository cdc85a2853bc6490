"""What the platform of a job's namespace says, compared with what the job was made by.

Owns the refusal of a run whose pods lack what the platform says, and of what a platform
fixes. Called by `master.pod` before a run begins, never for a job that runs. The merge
is in `job.values.defaults`; pods were rendered by the chart, and are left as they are:
the master's own could not be mended any more.
"""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

from elasticdl.errors import PlatformError, SpecError
from elasticdl.job import names
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.problems import spec_error
from elasticdl.job.values.defaults import (
    KEY,
    PlatformDefaults,
    Tree,
    chart_sections,
    refused,
    unlike,
)


def check(config_dir: Path, job: JobSpec, *, namespace: str) -> None:
    """Check the job of a new run against its namespace's platform.

    `config_dir` is the job's ConfigMap as files; that of the platform is beside it,
    where there is one.

    Raises SpecError for what the platform fixes, PlatformError where the job's pods
    were rendered without what the platform says: that may be mended on either side.
    """
    says = _read(config_dir.with_name(config_dir.name + names.PLATFORM_SUFFIX) / KEY)
    given = chart_sections() | _tree(config_dir / names.KEY_VALUES)
    problems = refused(says, given, job, namespace=namespace)
    if problems:
        raise spec_error(problems)
    if (config_dir / names.KEY_PLATFORM).exists():
        return  # the platform's words as they were when the run was made
    paths = unlike(says, PlatformDefaults(), given)
    if paths:
        raise PlatformError(
            f"the pods of job {job.name} were rendered without what the platform of "
            f"namespace {namespace} says of {', '.join(paths)}: give the job the "
            "platform's file with `jobs:` as the last of its values files, or submit "
            "it by helm install or elasticdl train, which ask the cluster"
        )


def _read(file: Path) -> PlatformDefaults:
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    try:
        return PlatformDefaults.parse(text, source=str(file))
    except SpecError as error:
        raise PlatformError(str(error)) from error


def _tree(file: Path) -> Tree:
    if not file.exists():
        return {}
    tree = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    return dict(tree or {})
