"""What is wrong with fields of `job` that are given one by one, before a file is whole.

Owns the check of their names and values. Called by `sql.attributes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.problems import did_you_mean
from elasticdl.job.values.checking import Document, find_problems
from elasticdl.job.values.fields import field_at, known_keys
from elasticdl.job.values.positions import Positions


def wrong_path(path: tuple[str, ...]) -> str:
    """Return what is wrong with the path of a field below `job`, or ""."""
    for length in range(1, len(path) + 1):
        if field_at(JobSpec, path[:length]) is not None:
            continue
        known = known_keys(JobSpec, path[: length - 1])
        above = ".".join(("job", *path[: length - 1]))
        if length > 1 and not known:
            # A mapping with free keys (model.params) takes any; a plain value none.
            info = field_at(JobSpec, path[: length - 1])
            if info is not None and "dict" in str(info.annotation):
                return ""
            return f"{above} has no fields; take `.{path[length - 1]}` away"
        hint = did_you_mean(path[length - 1], known)
        return f"there is no field `{path[length - 1]}` in {above}; {hint}"
    return ""


def wrong_values(
    fields: Sequence[tuple[tuple[str, ...], Any]],
) -> dict[tuple[str, ...], str]:
    """Return what fields expect that do not take their values."""
    job: dict[str, Any] = {
        "name": "name",
        "model": {"definition": "a.b"},
        "data": {"training": "training", "validation": "validation"},
    }
    for path, value in fields:
        inner: Any = job
        for key in path[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
        if isinstance(inner, dict):  # else a field above it has a wrong value
            inner[path[-1]] = value
    document = Document({"kind": "job", "job": job}, "", Positions({}, {}), ())
    found: dict[tuple[str, ...], str] = {}
    for problem in find_problems(document):
        for path, _ in fields:
            dotted = ".".join(("job", *path))
            if f"{problem.path}.".startswith(f"{dotted}."):
                found.setdefault(path, problem.expected)
    return found
