"""What a platform says for its jobs, and how it meets what a job says.

Owns the merge, where each value of it comes from, and the refusal of what a platform
fixes. Pure. Used by `elasticdl validate --cluster`, by submissions and by masters. The
chart's `_defaults.tpl` does the same while it renders; tests/chart/test_defaults.py
compares both. Must not know how either side gets a platform's words.

| chart | platform | job | result |
|---|---|---|---|
| d | nothing, null, "" | j | j |
| d | p | d | p |
| d | p | j | j |
| d | p | null | nothing: the job took it out |
| mapping | mapping | mapping | the same for each key of the platform's |
| [] | [p] | [j] | [p, j] for lists of `pods.<role>` and pull secrets, else [j] |
| any | fixed | anything else than the platform's result | refused |
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from pydantic import BaseModel

from elasticdl.errors import SpecError
from elasticdl.job.chart.defaults import JobDefaults
from elasticdl.job.chart.values import ChartValues
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.problems import Problem
from elasticdl.job.values.document import ValuesFile

Tree = dict[str, Any]
Path = tuple[str, ...]

# The ConfigMap of a platform, and the key in it. No job's own can be called so.
CONFIG_MAP = "elasticdl.defaults"
KEY = "jobs.yaml"
ROLES = ("master", "ps", "worker")
_JOINED = re.compile(r"^\.(pods\.[a-z]+\.[A-Za-z]+|images\.pullSecrets)$")
_OF_ROLE = re.compile(r"^(pods\.(?:master|ps|worker))(?:\.|$)")
# Below all other environment of a pod, so not a part of the job's.
_ENV = re.compile(r"^\.pods\.[a-z]+\.env$")


class ValueOrigin(StrEnum):
    """Who sets a value."""

    CHART = "chart"
    PLATFORM = "platform"
    JOB = "job"
    BOTH = "platform and job"


@dataclass(frozen=True)
class PlatformDefaults:
    """The defaults and fixed paths of a namespace's platform."""

    defaults: Tree = field(default_factory=dict)
    fixed: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str, *, source: str) -> PlatformDefaults:
        """Return the platform in a ConfigMap's text. Raises SpecError."""
        from ruamel.yaml.error import YAMLError

        from elasticdl.job.values.bounded import load_bounded

        try:
            # Not by JobDefaults: a platform may be newer, and know more sections.
            tree = load_bounded(text) or {}
            defaults, fixed = tree.get("defaults") or {}, tree.get("fixed") or []
            return PlatformDefaults(dict(defaults), tuple(map(str, fixed)))
        except (
            YAMLError, AttributeError, RecursionError, TypeError, ValueError,
        ) as error:  # fmt: skip
            raise SpecError(
                f"{source}: got what is no `jobs:` of a platform ({error}), expected "
                "its `defaults` and `fixed`; upgrade the platform's release"
            ) from error


@dataclass(frozen=True)
class Line:
    """One value of a merged tree: its path, and who sets it."""

    path: str
    value: Any
    origin: ValueOrigin


def merged(platform: PlatformDefaults, given: Tree) -> Tree:
    """Return the sections that a platform may set, merged as the chart renders them."""
    return laid_over(chart_sections(), platform.defaults, given)


def origins(platform: PlatformDefaults, given: Tree) -> list[Line]:
    """Return each value that differs from the chart's default, with who sets it."""
    chart = chart_sections()
    lines = []
    for path, value in _leaves(laid_over(chart, platform.defaults, given)):
        theirs, own = _at(platform.defaults, path), _at(given, path)
        if own == value and value == _at(chart, path):
            continue
        origin = ValueOrigin.JOB if own == value else ValueOrigin.PLATFORM
        if isinstance(value, list) and own and theirs and own != value:
            origin = ValueOrigin.BOTH
        lines.append(Line(".".join(path), value, origin))
    lines += [
        Line(place, env, ValueOrigin.PLATFORM) for place, env in _environments(platform)
    ]
    return lines


def unlike(one: PlatformDefaults, other: PlatformDefaults, given: Tree) -> list[str]:
    """Return the paths at which a job's values differ under two platforms."""
    first, second = merged(one, given), merged(other, given)
    paths = {path for tree in (first, second) for path, _ in _leaves(tree)}
    found = [path for path in paths if _at(first, path) != _at(second, path)]
    there = {".".join(path) for path in found}
    mine, theirs = dict(_environments(one)), dict(_environments(other))
    there |= {path for path in {*mine, *theirs} if mine.get(path) != theirs.get(path)}
    return sorted(there)


def _environments(platform: PlatformDefaults) -> Iterator[tuple[str, Any]]:
    for place in ("common", *ROLES):
        env = _at(platform.defaults, ("pods", place, "env"))
        if env:
            yield f"pods.{place}.env", env


def refused(
    platform: PlatformDefaults, given: Tree, job: JobSpec, *, namespace: str
) -> list[Problem]:
    """Return the problems of a job that sets paths fixed by its platform."""
    chart = chart_sections()
    base = laid_over(chart, platform.defaults, chart)
    now = laid_over(chart, platform.defaults, given)
    base["job"], now["job"] = _plain_job(), _plain(job)
    then = (
        f"the platform of namespace `{namespace}` fixes it for its jobs: take it out, "
        "or ask who installs that platform (`jobs.fixed` in its values)"
    )
    problems = []
    for fixed in platform.fixed:
        paths = [fixed]
        if fixed == "pods.common" or fixed.startswith("pods.common."):
            paths += [fixed.replace("common", role, 1) for role in ROLES]
        elif found := _OF_ROLE.match(fixed):
            # What is said of all roles is said of this one.
            paths.append(f"pods.common{fixed[found.end(1) :]}")
        for path in paths:
            keys = tuple(path.split("."))
            got, expected = _shown(now, keys), _shown(base, keys)
            if got != expected:
                problems.append(Problem(path, got, expected, then))
        if fixed in ("images", "images.registry") and base["images"]["registry"]:
            problems += _foreign_images(base, now, then)
    return problems


def without_registry(
    platform: PlatformDefaults, given: Tree, job: JobSpec
) -> list[Problem]:
    """Return the problem of a job with stock images and no registry.

    Their names alone are those of a public registry, where they may be anybody's.
    """
    roles = (job.master, job.ps, job.worker)
    if job.image or all(role.image for role in roles):
        return []
    if _at(merged(platform, given), ("images", "registry")):
        return []
    return [
        Problem(
            "images.registry",
            "nothing",
            "the registry that the stock images are in",
            "say it once for all jobs in the values of the platform (--set "
            "images.registry=registry.example/team), or in these; `localhost` is for "
            "images that the nodes have already; what has an image of its own "
            "(job.image) needs none",
        )
    ]


def _foreign_images(base: Tree, now: Tree, then: str) -> Iterator[Problem]:
    registry = str(base["images"]["registry"]).rstrip("/")
    job = now["job"]
    images = {"job.image": job.get("image")}
    images |= {
        f"job.{role}.image": (job.get(role) or {}).get("image") for role in ROLES
    }
    platforms = _beside_the_role(base)  # which may be of another registry
    own = _beside_the_role(now).items()
    images |= {path: image for path, image in own if platforms.get(path) != image}
    for path, image in images.items():
        if image and not str(image).startswith(f"{registry}/"):
            expected = f'an image of "{registry}"'
            yield Problem(path, f'"{image}"', expected, then)


def _beside_the_role(tree: Tree) -> dict[str, str | None]:
    """Return the images of containers beside a role's own, by where they stand."""
    return {
        f"pods.{place}.{kind}.{container['name']}": container.get("image")
        for place in ("common", *ROLES)
        for kind in ("initContainers", "sidecars")
        for container in _at(tree, ("pods", place, kind)) or ()
    }


def laid_over(chart: Tree, platform: Mapping[str, Any], job: Tree) -> Tree:
    """Return the job's values over the platform's over the chart's."""
    return _laid_over(chart, platform, job, "")


def _laid_over(chart: Tree, platform: Mapping[str, Any], job: Tree, above: str) -> Tree:
    result = copy.deepcopy(job)
    for key, value in platform.items():
        path = f"{above}.{key}"
        own, plain = job.get(key), chart.get(key)
        is_open = (key in job) == (key in chart) and own == plain
        if value is None or value == "" or _ENV.match(path):
            continue
        if isinstance(value, dict) and (is_open or isinstance(own, dict)):
            result[key] = _laid_over(plain or {}, value, own or {}, path)
        elif (
            isinstance(value, list)
            and (is_open or isinstance(own, list))
            and _JOINED.match(path)
        ):
            names = [_name_of(entry) for entry in own or []]
            kept = [entry for entry in value if _name_of(entry) not in names]
            result[key] = [*copy.deepcopy(kept), *(own or [])]
        elif is_open:
            result[key] = copy.deepcopy(value)
    return result


def _name_of(entry: Any) -> str:
    """Return the key by which entries are equal: a mount path, a name, or all."""
    if isinstance(entry, dict):
        for key in ("mountPath", "name", "ip"):
            if entry.get(key):
                return str(entry[key])
    return repr(entry)


@cache
def _sections() -> Tree:
    keys = {info.alias or name for name, info in JobDefaults.model_fields.items()}
    tree = ChartValues.model_validate({}).model_dump(by_alias=True, mode="json")
    kept = {key: value for key, value in tree.items() if key in keys}
    # In values.yaml a role says nothing, and what it leaves out is that of `common`.
    kept["pods"] |= {role: {} for role in ROLES}
    return kept


def chart_sections() -> Tree:
    """Return the chart's defaults of the sections that a platform may set."""
    return copy.deepcopy(_sections())


def sections_of(values: ValuesFile) -> Tree:
    """Return the sections that Helm makes of the chart's values and of the file."""
    said = {k: v for k, v in values.chart_keys().items() if k in _sections()}
    return _coalesced(chart_sections(), said)


def _coalesced(chart: Tree, said: Tree) -> Tree:
    for key, value in said.items():
        if value is None and key in chart:
            del chart[key]
        elif isinstance(value, dict) and isinstance(chart.get(key), dict):
            chart[key] = _coalesced(chart[key], value)
        else:
            chart[key] = value
    return chart


@cache
def _plain_job() -> Tree:
    """Return the defaults of a job, without its required fields."""
    tree: Tree = {}
    for name, info in JobSpec.model_fields.items():
        if not info.is_required():
            value = info.get_default(call_default_factory=True, validated_data={})
            tree[info.alias or name] = _plain(value)
    return tree


def _plain(value: Any) -> Any:
    """Return a value of a job as plain data, without empty fields."""
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, mode="json", exclude_none=True)
    return value


def _leaves(tree: Tree, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _at(tree: Any, path: Path) -> Any:
    """Return the value at a path; None if there is none."""
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return tree


def _shown(tree: Tree, path: Path) -> str:
    """Return the value at a path as JSON; null in a mapping removes a key."""
    *above, last = path
    around = _at(tree, tuple(above))
    if not isinstance(around, dict) or last not in around:
        return "nothing"
    value = around[last]
    if value in ("", [], {}):
        return "nothing"
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
