"""The definition of `TrainingJob` for an API server: columns, scale, structural schema.

Owns what such a schema says otherwise than that of a values file, of which it is made:
no references, no lists of types, no defaults. Called by docs/generate, which writes it
into the chart, and by tests. Must not know any field of a job, but its size.

Unknown keys are refused by the API server itself (`kubectl apply` asks for that). Rules
over several fields, and Kubernetes' largest types, are checked by the controller, in
the words of `elasticdl validate`.
"""

from __future__ import annotations

import json
from typing import Any

from elasticdl.job.spec.job import MAX_NAME_LENGTH, NAME_PATTERN
from elasticdl.job.values.schema import values_schema
from elasticdl.job.values.training_job import GROUP, KIND, NOT_IN_SPEC, PLURAL, VERSION

Schema = dict[str, Any]

_ANYTHING = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
# Of Kubernetes' types these are nine tenths of the schema: with them the definition is
# larger than what `kubectl apply` can keep of an object (256 KiB).
_AS_IN_A_POD = ("Affinity", "Container", "Volume")
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}


def definition() -> Schema:
    """Return the `spec` of the CustomResourceDefinition."""
    return {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "kind": KIND,
            "listKind": f"{KIND}List",
            "plural": PLURAL,
            "singular": KIND.lower(),
            "shortNames": ["tj"],
            "categories": ["all"],
        },
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}, "scale": _scale()},
                "additionalPrinterColumns": _columns(),
                "schema": {"openAPIV3Schema": _schema()},
            }
        ],
    }


def _scale() -> Schema:
    return {
        "specReplicasPath": ".spec.job.worker.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }


def _columns() -> list[Schema]:
    shown = (
        ("State", "string", ".status.state", 0),
        ("Wanted", "integer", ".status.workers.wanted", 0),
        ("Granted", "integer", ".status.workers.granted", 0),
        ("Running", "integer", ".status.workers.running", 0),
        ("Loss", "string", ".status.loss", 0),
        ("Age", "date", ".metadata.creationTimestamp", 0),
        ("Message", "string", ".status.message", 1),
    )
    return [
        {"name": name, "type": kind, "jsonPath": path, "priority": priority}
        for name, kind, path, priority in shown
    ]


def _schema() -> Schema:
    return {
        "type": "object",
        "description": "A training, evaluation or prediction job of ElasticDL.",
        "required": ["spec"],
        "properties": {
            "apiVersion": _TEXT,
            "kind": _TEXT,
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": _status(),
        },
        "x-kubernetes-validations": [
            {
                "rule": f"size(self.metadata.name) <= {MAX_NAME_LENGTH} && "
                f"self.metadata.name.matches('{NAME_PATTERN}')",
                "message": "metadata.name: expected lower case letters, digits and "
                f"dashes, at most {MAX_NAME_LENGTH}, no dash at the ends; choose "
                "another name",
            },
            {
                "rule": "!has(self.spec.job.name) || "
                "self.spec.job.name == self.metadata.name",
                "message": "spec.job.name: expected metadata.name; take it out: the "
                "object's own counts",
            },
        ],
    }


def _spec() -> Schema:
    values = values_schema()
    definitions = values["definitions"]
    paths = [tuple(path.split(".")) for path in NOT_IN_SPEC]
    spec: Schema = {
        "type": "object",
        "description": "The job's values file without its `kind`; docs/spec.md, and "
        "the chart's README for keys beside `job`.",
        "required": ["job"],
        "properties": {
            key: structural(field, definitions)
            for key, field in values["properties"].items()
        },
    }
    for path in paths:
        inner = spec
        for key in path[:-1]:
            inner = inner["properties"][key]
        del inner["properties"][path[-1]]
    job = spec["properties"]["job"]
    job["required"] = [key for key in job["required"] if key != "name"]
    # The scale subresource answers only where its field is: it alone has its default.
    worker = job["properties"]["worker"]
    replicas = _default_of(definitions, "WorkerSpec", "replicas")
    worker["default"] = {}
    worker["properties"]["replicas"]["default"] = replicas
    return spec


def _default_of(definitions: Schema, model: str, key: str) -> Any:
    return definitions[model]["properties"][key]["default"]


def structural(field: Schema, definitions: Schema) -> Schema:
    """Return a field's schema in the form that an API server asks for."""
    whole = _resolved(field, definitions)
    kinds = _kinds(whole) - {"null"}
    made = _about(whole)
    if whole.get(_ANYTHING):
        return {**made, "type": "object", _ANYTHING: True}
    if kinds == {"integer", "string"}:
        return {**made, _INT_OR_STRING: True}
    if len(kinds) != 1:  # a number or a text, which no structural schema can say
        return {**made, _ANYTHING: True}
    (kind,) = kinds
    made |= {"type": kind, **_bounds(whole)}
    if kind == "array":
        made["items"] = structural(whole.get("items", {}), definitions)
    if kind == "object":
        made |= _inside(whole, definitions)
    return made


def _about(whole: Schema) -> Schema:
    """Return what a field means, and whether it may be null."""
    made: Schema = {}
    if text := _described(whole):
        made["description"] = text
    if "null" in _kinds(whole):
        made["nullable"] = True
    return made


def _bounds(whole: Schema) -> Schema:
    """Return what limits the values of a type."""
    made: Schema = {}
    for key in ("pattern", "minLength", "maxLength", "minimum", "maximum", "required"):
        if key in whole:
            made[key] = whole[key]
    if "exclusiveMinimum" in whole:
        made |= {"minimum": whole["exclusiveMinimum"], "exclusiveMinimum": True}
    if "enum" in whole:
        made["enum"] = [word for word in whole["enum"] if word is not None]
    return made


def _inside(whole: Schema, definitions: Schema) -> Schema:
    """Return what an object may hold: its keys, or any keys of one type."""
    if properties := whole.get("properties"):
        return {
            "properties": {
                key: structural(field, definitions) for key, field in properties.items()
            }
        }
    others = whole.get("additionalProperties")
    patterns = whole.get("patternProperties")
    if patterns and not others:  # no structural schema bounds keys
        (others,) = patterns.values()
    if isinstance(others, dict) and others:
        return {"additionalProperties": structural(others, definitions)}
    return {_ANYTHING: True}


def _resolved(field: Schema, definitions: Schema) -> Schema:
    """Return a field with what it refers to; its own words go before those."""
    if "$ref" not in field:
        return field
    name = str(field["$ref"]).rpartition("/")[2]
    own = {key: value for key, value in field.items() if key != "$ref"}
    if name.rpartition(".")[2] in _AS_IN_A_POD:
        text = f"{own.get('description', '')} As in a pod.".strip()
        return {"type": ["object", "null"], **own, "description": text, _ANYTHING: True}
    return {**_resolved(definitions[name], definitions), **own}


def _kinds(whole: Schema) -> set[str]:
    """Return the types that a value may have, `null` among them."""
    found: set[str] = set()
    for one in [whole, *whole.get("anyOf", [])]:
        kind = one.get("type", [])
        found |= {kind} if isinstance(kind, str) else set(kind)
        if isinstance(one.get("const"), str):
            found.add("string")
    return found


def _described(whole: Schema) -> str:
    text = str(whole.get("description", ""))
    default = whole.get("default")
    if default is None:
        return text
    shown = default if isinstance(default, str) else json.dumps(default)
    return f"{text} Default: `{shown}`.".strip()


def _status() -> Schema:
    return {
        "type": "object",
        "description": "What became of it; written by the controller.",
        "properties": {
            "observedGeneration": {
                "type": "integer",
                "description": "Generation of the object that this is about.",
            },
            "state": {
                **_TEXT,
                "description": "State of the job: as `elasticdl status` says it; "
                "`refused`, or `waiting` before its master has begun.",
            },
            "message": {**_TEXT, "description": "Why it is in that state."},
            "replicas": {**_COUNT, "description": "Workers that are there now."},
            "selector": {**_TEXT, "description": "Labels of the workers' pods."},
            "workers": {
                "type": "object",
                "properties": {
                    "wanted": {**_COUNT, "description": "Number in the specification."},
                    "granted": {
                        **_COUNT,
                        "description": "Number that the master goes by.",
                    },
                    "running": {**_COUNT, "description": "Number that run."},
                },
            },
            "loss": {**_TEXT, "description": "The last loss."},
            "epoch": {**_COUNT, "description": "From 0; the oldest that is not done."},
            "recordsDone": {**_COUNT, "description": "Records of all epochs, done."},
            "made": _made(),
            "conditions": _conditions(),
        },
    }


def _made() -> Schema:
    return {
        "type": "object",
        "description": "What the controller made, and of what.",
        "properties": {
            "run": {**_COUNT, "description": "`run` of the specification."},
            "whole": {**_TEXT, "description": "Digest of the specification."},
            "fixed": {
                **_TEXT,
                "description": "Digest of what may not change while it runs.",
            },
            "objects": {
                "type": "array",
                "description": "The objects, as `batch/v1/jobs/elasticdl-x-master`.",
                "items": _TEXT,
            },
        },
    }


def _conditions() -> Schema:
    return {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status"],
            "properties": {
                "type": {
                    **_TEXT,
                    "description": "`Accepted`, `Applied`, `Complete`, `Failed`.",
                },
                "status": {**_TEXT, "enum": ["True", "False", "Unknown"]},
                "reason": _TEXT,
                "message": _TEXT,
                "lastTransitionTime": {**_TEXT, "format": "date-time"},
                "observedGeneration": {"type": "integer"},
            },
        },
    }
