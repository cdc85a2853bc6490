"""The JSON Schema of values files, made from the typed models.

Owns what the schema says beyond pydantic's: the chart's two kinds of release and that
an empty key of the job means its default. Called by docs/generate and tests; Helm
reads its output, so it is draft 7 and without `anyOf` where that can be, for legible
errors.
"""

from __future__ import annotations

from typing import Any

from elasticdl.job.spec import kubernetes_types
from elasticdl.job.values.document import ValuesFile

_NEVER_NULL = ("JobSpec", "ModelSpec", "VolumeSpec", "ClaimValues")


def values_schema() -> dict[str, Any]:
    """Return the schema of a values file: one job, or the platform."""
    made = ValuesFile.model_json_schema(
        by_alias=True, ref_template="#/definitions/{model}"
    )
    kubernetes = _refer(made)
    definitions = {
        name: _section(definition, nullable=name not in _NEVER_NULL)
        for name, definition in sorted(made["$defs"].items())
    }
    whole = _section(made, nullable=False)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the ElasticDL chart: one job, or the platform",
        "description": "Made from python/elasticdl/job by `make docs`; the fields of a "
        "job are explained in docs/spec.md, the chart's keys in its README. `elasticdl "
        "validate` checks more.",
        "type": "object",
        "properties": {
            "kind": {
                "enum": ["job", "platform"],
                "description": "What a release is: one job, or the platform.",
            },
            "job": {
                "$ref": "#/definitions/JobSpec",
                "description": "The job's specification.",
            },
            **{
                key: field
                for key, field in whole["properties"].items()
                if key not in ("kind", "job")
            },
        },
        "additionalProperties": False,
        "required": ["kind"],
        "if": {"properties": {"kind": {"const": "job"}}, "required": ["kind"]},
        "then": {"required": ["job"]},
        "definitions": {**definitions, **kubernetes_types.used_by(kubernetes)},
    }


def _refer(value: Any) -> set[str]:
    """Replace Kubernetes types by references; return the names of the types."""
    if isinstance(value, list):
        return {name for inner in value for name in _refer(inner)}
    if not isinstance(value, dict):
        return set()
    found = {name for inner in value.values() for name in _refer(inner)}
    name = value.pop(kubernetes_types.MARK, None)
    if name is not None:
        found.add(name)
        value["$ref"] = f"#/definitions/{name}"
    return found


def _section(definition: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    """Return one model or enumeration without titles, its optional fields nullable."""
    clean: dict[str, Any] = _without_titles(definition)
    required = clean.get("required", [])
    for name, field in clean.get("properties", {}).items():
        _flatten(field)
        if name not in required:
            _allow_null(field)
        if isinstance(field.get("default"), dict | list) or field.get("default") == "":
            field.pop("default")
    if nullable:
        _allow_null(clean)
    return clean


def _flatten(field: dict[str, Any]) -> None:
    """Write `a type, or null` without `anyOf`: Helm reports two mistakes for it."""
    kinds = [kind for kind in field.get("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) == 1 and not {"type", "$ref"}.isdisjoint(kinds[0]):
        del field["anyOf"]
        field.update(kinds[0])


def _allow_null(field: dict[str, Any]) -> None:
    if "anyOf" in field or "$ref" in field:  # the definition itself allows it
        return
    kinds = field.get("type", [])
    if kinds:
        field["type"] = [*([kinds] if isinstance(kinds, str) else kinds), "null"]
    if "enum" in field:
        field["enum"] = [*field["enum"], None]


def _without_titles(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_titles(inner)
            for key, inner in value.items()
            if not (key == "title" and isinstance(inner, str))
        }
    if isinstance(value, list):
        return [_without_titles(inner) for inner in value]
    return value
