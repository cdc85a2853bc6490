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
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
# Descriptions are what the command line says it expected; Helm shows the rule.
_OBJECT = {"pattern": f"^{_SUBDOMAIN}$", "description": "the name of an object"}
_ADDRESS = {
    "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}],
    "description": "an IP address",
}
_OCTET, _WORD = "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])", "[0-9a-fA-F]{1,4}"
_WORDS = f"({_WORD}(:{_WORD}){{0,6}})?"
_CIDR = {
    "pattern": rf"^({_OCTET}(\.{_OCTET}){{3}}/([0-9]|[12][0-9]|3[0-2])"
    rf"|(({_WORD}:){{7}}{_WORD}|{_WORDS}::{_WORDS})"
    r"/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))$",
    "description": "addresses, as `10.0.0.0/8` or `2001:db8::/32`",
}
_HOST = {"pattern": f"^{_SUBDOMAIN}$", "description": "a host's name in small letters"}
_SEARCH = {
    "pattern": r"^(\.|[a-z0-9_]([-a-z0-9_.]*[a-z0-9_])?\.?)$",
    "description": "a domain in small letters",
}
_USER = {"minimum": 0, "maximum": 2147483647}


def _one_of(*words: str) -> dict[str, Any]:
    return {"enum": [*words, None]}


def _is_there(key: str) -> dict[str, Any]:
    """Hold where a key is there with a mapping: null says nothing."""
    return {"required": [key], "properties": {key: {"type": "object"}}}


def _without(*keys: str) -> dict[str, Any]:
    return {"properties": {key: {"type": "null"} for key in keys}}


def _texts(rule: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"items": {"type": ["string", "null"], **rule}, **more}


def _one_key(description: str) -> dict[str, Any]:
    return {"minProperties": 1, "maxProperties": 1, "description": description}


def _amounts() -> dict[str, Any]:
    """Return a rule for quantities by name, of which devices are whole ones."""
    whole = {
        "type": ["number", "string", "null"],
        "pattern": "^[0-9]+([kMGTPE]|[KMGTPE]i)?$",
        "multipleOf": 1,
        "description": "a whole number, since devices are not divided",
    }
    return {"patternProperties": {"/": whole}}


def _named(*keys: str) -> dict[str, Any]:
    """Return a rule for what names an object by the last of these keys."""
    return {"": {"required": list(keys)}, keys[-1]: _OBJECT}


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
    "ConfigMapEnvSource": _named("name"),
    "ConfigMapKeySelector": _named("key", "name"),
    "ConfigMapProjection": _named("name"),
    "ConfigMapVolumeSource": _named("name"),
    "EnvFromSource": {
        "": {
            "if": _is_there("configMapRef"),
            "then": _without("secretRef"),
            "else": {"required": ["secretRef"]},
        },
    },
    "EnvVar": {
        "": {
            "if": _is_there("valueFrom"),
            "then": {
                "properties": {
                    "value": {
                        "enum": ["", None],
                        "description": "nothing beside `valueFrom`",
                    },
                },
            },
        },
        "name": {"pattern": "^[^=]+$"},
    },
    "EnvVarSource": {"": _one_key("one source, as `secretKeyRef`")},
    "HostAlias": {"ip": _ADDRESS, "hostnames": _texts(_HOST)},
    "LifecycleHandler": {"": _one_key("one kind of hook, as `exec`")},
    "NodeSelector": {"nodeSelectorTerms": {"minItems": 1}},
    "NodeSelectorRequirement": {
        "key": {"pattern": _KEY},
        "operator": _one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    },
    "PersistentVolumeClaimVolumeSource": {"claimName": _OBJECT},
    "PodDNSConfig": {
        "nameservers": _texts(_ADDRESS, maxItems=3, description="at most 3"),
        "searches": _texts(_SEARCH, maxItems=32, description="at most 32"),
    },
    "PodDNSConfigOption": {"": {"required": ["name"]}, "name": {"pattern": r"^\S+$"}},
    "PodResourceClaim": {
        "": {
            "minProperties": 2,
            "maxProperties": 2,
            "description": "its name, and that of a claim or of a template",
        },
        "name": _DNS_LABEL,
    },
    "PodSecurityContext": {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER},
    "ResourceRequirements": {"limits": _amounts(), "requests": _amounts()},
    "SeccompProfile": {"type": _one_of("RuntimeDefault", "Unconfined", "Localhost")},
    "SecretEnvSource": _named("name"),
    "SecretKeySelector": _named("key", "name"),
    "SecretProjection": _named("name"),
    "SecretVolumeSource": _named("secretName"),
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
    # Without a source it is an emptyDir. One with null counts too.
    "Volume": {
        "": {"maxProperties": 2, "description": "its name and one source"},
        "name": _DNS_LABEL,
    },
    "VolumeMount": {"mountPath": {"pattern": "^[^:]+$"}, "subPath": _INSIDE},
    "VolumeProjection": {"": {"maxProperties": 1, "description": "one source"}},
    "io.k8s.api.networking.v1.IPBlock": {"cidr": _CIDR, "except": _texts(_CIDR)},
    "io.k8s.api.networking.v1.NetworkPolicyPeer": {
        "": {
            "minProperties": 1,
            "description": "a peer, as `podSelector: {}`",
            "if": _is_there("ipBlock"),
            "then": _without("namespaceSelector", "podSelector"),
        },
    },
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
