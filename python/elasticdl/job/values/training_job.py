"""A job as an object of Kubernetes: `TrainingJob`, whose `spec` is a values file.

Owns the object's names, which keys of a values file it has, and the way from one to the
other. Called by `elasticdl convert`, by the controller of these objects and by
`job.values.structural`, which makes their schema. Pure; must not know what any field
means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticdl.job.chart.values import PLATFORM_ONLY
from elasticdl.job.spec.problems import Problem
from elasticdl.job.values.bounded import TooMuchError, check_tree
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import validated

Tree = dict[str, Any]

GROUP = "elasticdl.org"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "TrainingJob"
PLURAL = "trainingjobs"
# Of a values file, and of no TrainingJob: the object says its own kind, `jobs` is what
# the platform of its namespace says, and `global` is for charts around this one.
NOT_IN_SPEC = ("kind", "jobs", "global", *PLATFORM_ONLY)


def is_training_job(tree: Mapping[str, Any]) -> bool:
    """Whether a document is a TrainingJob, of whatever version."""
    return str(tree.get("apiVersion", "")).startswith(f"{GROUP}/")


def manifest_of(values: ValuesFile) -> Tree:
    """Return a job's values as a TrainingJob.

    Its name and namespace stand in the metadata alone.
    """
    job = values.job.document()
    metadata = {"name": job.pop("name")}
    if namespace := job.pop("namespace", ""):
        metadata["namespace"] = namespace
    kept = {k: v for k, v in values.chart_keys().items() if k not in NOT_IN_SPEC}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {"job": job, **kept},
    }


def values_tree(manifest: Mapping[str, Any]) -> Tree:
    """Return the values file's tree of a TrainingJob, whatever is wrong in it."""
    metadata = manifest.get("metadata")
    about = metadata if isinstance(metadata, dict) else {}
    spec = manifest.get("spec")
    tree = {"kind": "job", **(spec if isinstance(spec, dict) else {})}
    job = tree.get("job")
    if isinstance(job, dict):
        known = {k: about[k] for k in ("name", "namespace") if about.get(k)}
        tree["job"] = {**known, **job}
    return tree


def read_manifest(
    manifest: Mapping[str, Any],
) -> tuple[ValuesFile | None, list[Problem]]:
    """Return a TrainingJob's values, or None and all mistakes.

    The mistakes are those of the values file, and have no line: who reads them has the
    object, not the file that it came from.
    """
    problems = list(_of_the_object(manifest))
    if problems:
        return None, problems
    tree = values_tree(manifest)
    try:
        check_tree(tree)
    except TooMuchError as error:
        return None, [Problem("spec", str(error), "less of them", "write it shorter")]
    return validated(tree, source="")


def _of_the_object(manifest: Mapping[str, Any]) -> list[Problem]:
    """Return the mistakes around the values: of the object's kind, name and keys."""
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    if (version, kind) != (API_VERSION, KIND):
        return [
            Problem(
                "kind", f"{kind} of {version}", f"{KIND} of {API_VERSION}",
                "write it with the version of `elasticdl` that reads it",
            )
        ]  # fmt: skip
    metadata, spec = manifest.get("metadata"), manifest.get("spec")
    if not (isinstance(metadata, dict) and metadata.get("name")):
        return [
            Problem("metadata.name", "nothing", "the job's name", "add `name: ...`")
        ]
    if not isinstance(spec, dict):
        return [
            Problem(
                "spec", "nothing", "the job's values, as `job:`", "see docs/spec.md"
            )
        ]
    return [*_foreign_keys(spec), *_other_names(metadata, spec)]


def _foreign_keys(spec: Mapping[str, Any]) -> list[Problem]:
    return [
        Problem(
            f"spec.{key}", "a key that a TrainingJob does not have",
            "those of a job's values file, without its `kind`",
            "take it out; what a platform says is in the platform's values",
        )
        for key in NOT_IN_SPEC
        if key in spec
    ]  # fmt: skip


def _other_names(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Problem]:
    job = spec.get("job")
    said = job if isinstance(job, dict) else {}
    return [
        Problem(
            f"spec.job.{key}", repr(said[key]), f"metadata.{key}, {metadata[key]!r}",
            "take it out: the object's own counts",
        )
        for key in ("name", "namespace")
        if said.get(key) and metadata.get(key) and said[key] != metadata[key]
    ]  # fmt: skip
