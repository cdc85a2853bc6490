"""Kubernetes' own types, for the keys that a values file hands on to pods as they are.

Owns the definitions (`kubernetes_types.json`, made by docs/generate) and the sentences
about what does not fit them. Used in the models of the chart's keys and by
`job.values.schema`, which gives Helm the same definitions. Must not know which key has
which type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any

from pydantic_core import core_schema

from elasticdl.job.spec.problems import Problem, ProblemsError, did_you_mean, got

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

# Of a field's JSON Schema, until `job.values.schema` puts a reference in its place.
MARK = "x-kubernetes-type"
FILE = "kubernetes_types.json"
_CORE = "io.k8s.api.core.v1."
_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


class KubernetesType:
    """Marks a mapping as a Kubernetes type, which it is validated against."""

    def __init__(self, name: str) -> None:
        """Name the type as Kubernetes does, without group: `Toleration`."""
        group = "" if name.startswith("io.k8s.") else _CORE
        self.name = f"{group}{name}"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Validate after the plain type, so that only mappings arrive here."""
        return core_schema.no_info_after_validator_function(
            self._check, handler(source)
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the reference alone: the definition holds everything else."""
        return {MARK: self.name}

    def _check(self, value: dict[str, Any]) -> dict[str, Any]:
        found = list(problems(self.name, value))
        if found:
            raise ProblemsError(*found)
        return value


Affinity = Annotated[dict[str, Any], KubernetesType("Affinity")]
Container = Annotated[dict[str, Any], KubernetesType("Container")]
DnsConfig = Annotated[dict[str, Any], KubernetesType("PodDNSConfig")]
EnvFromSource = Annotated[dict[str, Any], KubernetesType("EnvFromSource")]
EnvVar = Annotated[dict[str, Any], KubernetesType("EnvVar")]
HostAlias = Annotated[dict[str, Any], KubernetesType("HostAlias")]
Lifecycle = Annotated[dict[str, Any], KubernetesType("Lifecycle")]
NetworkPeer = Annotated[
    dict[str, Any], KubernetesType("io.k8s.api.networking.v1.NetworkPolicyPeer")
]
PodSecurityContext = Annotated[dict[str, Any], KubernetesType("PodSecurityContext")]
ResourceClaim = Annotated[dict[str, Any], KubernetesType("PodResourceClaim")]
ResourceRequirements = Annotated[dict[str, Any], KubernetesType("ResourceRequirements")]
SecurityContext = Annotated[dict[str, Any], KubernetesType("SecurityContext")]
Toleration = Annotated[dict[str, Any], KubernetesType("Toleration")]
TopologySpread = Annotated[dict[str, Any], KubernetesType("TopologySpreadConstraint")]
Volume = Annotated[dict[str, Any], KubernetesType("Volume")]
VolumeMount = Annotated[dict[str, Any], KubernetesType("VolumeMount")]


@cache
def definitions() -> dict[str, Any]:
    """Return the definitions by full name; a reference is `#/definitions/NAME`."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def used_by(names: set[str]) -> dict[str, Any]:
    """Return these definitions and all that they refer to, by name."""
    return closure(definitions(), names)


def problems(name: str, value: Any) -> Iterator[Problem]:
    """Yield the problems of a value; their places are relative to the value."""
    # Only here: a twentieth of a second, for which no role without such keys waits.
    from jsonschema import Draft7Validator

    schema = {"$ref": f"#/definitions/{name}", "definitions": definitions()}
    checker = Draft7Validator(schema, format_checker=Draft7Validator.FORMAT_CHECKER)
    errors = checker.iter_errors(value)
    for error in sorted(errors, key=lambda one: [str(p) for p in one.absolute_path]):
        yield from _told(error)


def _told(error: ValidationError) -> Iterator[Problem]:
    place = tuple(error.absolute_path)
    came: Any = error.instance
    rule: Any = error.validator_value
    if error.validator == "additionalProperties":
        definition: Any = error.schema
        known = list(definition.get("properties", {}))
        for key in sorted(set(came) - set(known)):
            yield _problem(
                (*place, key), "an unknown key", "one of Kubernetes",
                did_you_mean(key, known),
            )  # fmt: skip
    elif error.validator == "required":
        for key in sorted(set(rule) - set(came)):
            yield _problem(
                (*place, key), "nothing", "a value: Kubernetes asks for it",
                f"add the line `{key}: ...`",
            )  # fmt: skip
    elif error.validator == "type":
        kinds = [rule] if isinstance(rule, str) else rule
        words = (
            " or ".join(_WORDS[kind] for kind in kinds if kind != "null") or "nothing"
        )
        step = "correct it, or take it out"
        if words == "text" and isinstance(came, int | float):
            step = f'put it in quotes: "{got(came)}"'
        yield _problem(place, got(came), words, step)
    else:
        expected = f"what Kubernetes takes ({error.message})"
        if isinstance(error.schema, dict):
            expected = error.schema.get("description", expected)
        yield _problem(place, _came(came), expected, "correct it, or take it out")


def _came(value: Any) -> str:
    """Return a value; of a mapping its keys, of which there may be too many."""
    if isinstance(value, dict):
        return ", ".join(f"`{key}`" for key in value) or "nothing"
    return got(value)


def _problem(
    place: tuple[str | int, ...], came: str, expected: str, step: str
) -> Problem:
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place)
    return Problem(text.removeprefix("."), came, expected, step, inside=place)


def marked_names() -> set[str]:
    """Return the full names of all types of this module."""
    found = set()
    for value in globals().values():
        for mark in getattr(value, "__metadata__", ()):
            if isinstance(mark, KubernetesType):
                found.add(mark.name)
    return found


def closure(whole: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Return the named definitions and all that they refer to."""
    found: dict[str, Any] = {}
    wanted = sorted(names)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = whole[name]
            wanted += sorted(_references(whole[name]))
    return found


def _references(value: Any) -> set[str]:
    if isinstance(value, list):
        return {name for inner in value for name in _references(inner)}
    if not isinstance(value, dict):
        return set()
    found = {name for inner in value.values() for name in _references(inner)}
    if isinstance(value.get("$ref"), str):
        found.add(value["$ref"].rpartition("/")[2])
    return found
