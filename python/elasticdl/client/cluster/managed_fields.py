"""Changes of a field that somebody keeps by server-side apply, as Helm 4 does.

Owns the reading of `metadata.managedFields`. Called by `client.cluster.job`. A field
that another manager wrote meanwhile is a conflict for the next `helm upgrade`; so a
change of ours is applied under the name of who has applied the field, which then finds
nothing of anybody else. Pure; must not make calls.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticdl.client.cluster.api import Object


@dataclass(frozen=True)
class Patch:
    """A patch of one resource version: it is refused after a later write."""

    body: Object
    manager: str  # to be applied under this name; "" is a merge patch, as ourselves


def change(thing: Object, path: Sequence[str], value: Any) -> Patch:
    """Return a patch of the field at `path`, in the name of the field's manager."""
    metadata = thing["metadata"]
    version = metadata["resourceVersion"]
    entry = _applier(metadata.get("managedFields") or [], path)
    if entry is None:
        body: Object = {"metadata": {"resourceVersion": version}}
        _set(body, path, value)
        return Patch(body, "")
    # An apply says all that its manager has; what it leaves out would be removed.
    body = _owned(thing, entry["fieldsV1"])
    body |= {"apiVersion": entry["apiVersion"], "kind": thing["kind"]}
    for key in ("name", "namespace", "uid"):
        _set(body, ("metadata", key), metadata[key])
    _set(body, ("metadata", "resourceVersion"), version)
    _set(body, path, value)
    return Patch(body, str(entry["manager"]))


def _applier(entries: Sequence[Object], path: Sequence[str]) -> Object | None:
    """Return the manager of the field, else of its siblings; the latest of several.

    Siblings, since who lost the field to `kubectl edit` wants it back.
    """
    for level in (path, path[:-1]):
        having = [
            entry
            for entry in entries
            if entry.get("operation") == "Apply"
            and not entry.get("subresource")
            and _has(entry.get("fieldsV1") or {}, level)
        ]
        if having:
            return max(having, key=lambda entry: str(entry.get("time", "")))
    return None


def _has(fields: Mapping[str, Any], path: Sequence[str]) -> bool:
    if not path:
        return True
    inner = fields.get(f"f:{path[0]}")
    return inner is not None and _has(inner, path[1:])


def _owned(value: Any, fields: Mapping[str, Any]) -> Any:
    """Return the part of a value that `fields` (FieldsV1) names; a list as a whole."""
    names = [name.removeprefix("f:") for name in fields if name.startswith("f:")]
    if not names:
        return copy.deepcopy(value)
    return {
        name: _owned(value[name], fields[f"f:{name}"])
        for name in names
        if name in value
    }


def _set(body: Object, path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        body = body.setdefault(key, {})
    body[path[-1]] = value
