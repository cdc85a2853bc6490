"""Makes job/spec/kubernetes_types.json of the schemas of the newest Kubernetes.

Owns what is left out of them and what is made plain. Called by `main`; needs
kubernetes-validate, which has the schemas.
"""

from __future__ import annotations

import json
from typing import Any

from elasticdl.job.spec import kubernetes_types

from docs.generate.kubernetes_rules import ruled

FILE = f"python/elasticdl/job/spec/{kubernetes_types.FILE}"


def types_file() -> str:
    """Return the definitions of Kubernetes' types that a values file may use."""
    from kubernetes_validate import utils as schemas

    version = schemas.major_minor(schemas.latest_version())
    name = f"kubernetes-json-schema/v{version}.0-local-strict/_definitions.json"
    whole = schemas.schema_contents(name, version)["$defs"]
    made = _cut_out(whole, kubernetes_types.marked_names())
    return json.dumps(made, indent=1) + "\n"


def _cut_out(whole: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Return of all definitions of Kubernetes those that are needed, made plain.

    Without descriptions; and with null wherever a key may be left out, as Helm takes a
    key with null away.
    """
    needed = kubernetes_types.closure(whole, names)
    return {
        name: ruled(name, _plain(definition))
        for name, definition in sorted(needed.items())
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if "oneOf" in value:  # a quantity, a port: null would fit twice, which is refused
        kinds = {kind for one in value["oneOf"] for kind in one["type"]}
        return {"type": sorted(kinds)}
    made = {
        key: _plain(inner)
        for key, inner in value.items()
        if not (key in ("description", "format") and isinstance(inner, str))
        and not key.startswith("x-kubernetes")
    }
    if isinstance(made.get("$ref"), str):
        made["$ref"] = "#/definitions/" + made["$ref"].rpartition("/")[2]
    return made
