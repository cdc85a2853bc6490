"""What Kubernetes asks of its types beyond their schemas: closed words, names, bounds.

Its schemas say text where the API server takes three words alone. Owns those rules that
people break, by type and field; put into the definitions by `kubernetes_types`.
"""

from __future__ import annotations

from typing import Any

_LABEL = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = rf"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_LABEL}$"
_DNS_LABEL = {"pattern": r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
# No `..` between slashes, without what Go's expressions do not know.
_PART = r"([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+|\.?)"
_INSIDE = {"pattern": f"^{_PART}(/{_PART})*$"}
_NUMBER, _UNIT = r"([0-9]+\.?[0-9]*|\.[0-9]+)", "([mkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)"
_QUANTITY = {"pattern": f"^{_NUMBER}{_UNIT}?$"}
_PORT = {"minimum": 1, "maximum": 65535}
_USER = {"minimum": 0, "maximum": 2147483647}


def _one_of(*words: str) -> dict[str, Any]:
    return {"enum": [*words, None]}


_SELECTING = _one_of("In", "NotIn", "Exists", "DoesNotExist")
# By type of `io.k8s.api.core.v1`, unless the name is a whole one.
RULES: dict[str, dict[str, dict[str, Any]]] = {
    "Container": {
        # One without an image is for those who write it in later; nobody does here.
        "": {"required": ["name", "image"]},
        "name": _DNS_LABEL,
        "image": {"pattern": r"^\S+$"},
        "imagePullPolicy": _one_of("Always", "IfNotPresent", "Never"),
    },
    "ContainerPort": {
        "containerPort": _PORT,
        "protocol": _one_of("TCP", "UDP", "SCTP"),
    },
    "EmptyDirVolumeSource": {
        "medium": {"pattern": "^(Memory|HugePages(-.+)?)?$"},
    },
    "EnvVar": {"name": {"pattern": "^[^=]+$"}},
    "HostAlias": {
        "ip": {
            "pattern": r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)$"
        },
    },
    "NodeSelector": {"nodeSelectorTerms": {"minItems": 1}},
    "NodeSelectorRequirement": {
        "key": {"pattern": _KEY},
        "operator": _one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    },
    "PodResourceClaim": {"name": _DNS_LABEL},
    "PodSecurityContext": {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER},
    "SeccompProfile": {"type": _one_of("RuntimeDefault", "Unconfined", "Localhost")},
    "SecurityContext": {"runAsUser": _USER, "runAsGroup": _USER},
    "Toleration": {
        "operator": _one_of("Exists", "Equal", "Gt", "Lt", ""),
        "effect": _one_of("NoSchedule", "PreferNoSchedule", "NoExecute", ""),
    },
    "TopologySpreadConstraint": {
        "maxSkew": {"minimum": 1},
        "topologyKey": {"pattern": _KEY},
        "whenUnsatisfiable": _one_of("DoNotSchedule", "ScheduleAnyway"),
    },
    "Volume": {"name": _DNS_LABEL},
    "VolumeMount": {"mountPath": {"pattern": "^[^:]+$"}, "subPath": _INSIDE},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "": _QUANTITY,
    },
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement": {
        "key": {"pattern": _KEY},
        "operator": _SELECTING,
    },
}


def ruled(name: str, definition: dict[str, Any]) -> dict[str, Any]:
    """Return a definition with the rules for its fields in it."""
    rules = RULES.get(name.removeprefix("io.k8s.api.core.v1."), {})
    made = {**definition, **rules.get("", {})}
    for field, rule in rules.items():
        if field:
            properties = made["properties"]
            made["properties"] = {**properties, field: {**properties[field], **rule}}
    return made
