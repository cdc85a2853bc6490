"""Amounts of CPU, memory and GPUs, and what a pod asks its node for.

Owns Kubernetes' rule for the effective request of a pod. Called by `kube.inventory`.
Pure. Must not know classes of pods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Json = dict[str, Any]

_GPU_ENDINGS = ("/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
_UNITS: dict[str, str | int] = {
    "n": "1e-9", "u": "1e-6", "m": "1e-3", "": 1,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
    "Ei": 2**60,
}  # fmt: skip


@dataclass(frozen=True)
class Amounts:
    """Cores, bytes and GPUs."""

    cpu: float = 0.0
    memory: float = 0.0
    gpus: float = 0.0

    def __add__(self, other: Amounts) -> Amounts:
        """Return the sum."""
        return Amounts(
            self.cpu + other.cpu, self.memory + other.memory, self.gpus + other.gpus
        )

    def at_least(self, other: Amounts) -> Amounts:
        """Return the larger of each amount."""
        return Amounts(
            max(self.cpu, other.cpu),
            max(self.memory, other.memory),
            max(self.gpus, other.gpus),
        )


def quantity(text: object) -> float:
    """Return a Kubernetes quantity (`250m`, `4Gi`, `1e3`) as a number; 0 if invalid."""
    if not isinstance(text, str | int | float):
        return 0.0
    written = str(text or "0")
    number = written.rstrip("numkKMGTPEi")
    try:
        unit = Decimal(_UNITS[written[len(number) :]])
        amount = float(Decimal(number) * unit)
    except (ArithmeticError, KeyError):
        return 0.0
    return amount if math.isfinite(amount) else 0.0


def amounts(resources: Json | None) -> Amounts:
    """Return the amounts of a resource list, such as a container's `requests`."""
    resources = resources or {}
    return Amounts(
        quantity(resources.get("cpu")),
        quantity(resources.get("memory")),
        sum(
            quantity(value)
            for name, value in resources.items()
            if name.endswith(_GPU_ENDINGS)
        ),
    )


def named_request(spec: Json, status: Json | None = None) -> dict[str, float]:
    """Return what a pod's specification takes from its node, by names of resources.

    By the rule of `effective_request`. A container that is resized in place takes, as
    by the scheduler's rule, the larger of what is asked now and what it still has; what
    its node could never give counts for nothing.
    """
    has = _held_by_containers(status or {})
    never = _never_fits(status or {})

    def takes(container: Json) -> dict[str, float]:
        held = has.get(container.get("name"), {})
        return held if never and held else _larger(_asked(container), held)

    sidecars: dict[str, float] = {}
    starting: dict[str, float] = {}
    for container in spec.get("initContainers") or []:
        asked = takes(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, asked)
            starting = _larger(starting, sidecars)
        else:
            starting = _larger(starting, _sum(sidecars, asked))
    running = sidecars
    for container in spec.get("containers") or []:
        running = _sum(running, takes(container))
    whole = _larger(running, starting)
    for name, amount in ((spec.get("resources") or {}).get("requests") or {}).items():
        whole[name] = quantity(amount)
    overhead = {k: quantity(v) for k, v in (spec.get("overhead") or {}).items()}
    return _sum(whole, overhead)


def _held_by_containers(status: Json) -> dict[object, dict[str, float]]:
    """Return what the node says that each container has, where it says so."""
    found: dict[object, dict[str, float]] = {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(kind) or []:
            now = (one.get("resources") or {}).get("requests") or {}
            given = one.get("allocatedResources") or {}
            found[one.get("name")] = _larger(_quantities(now), _quantities(given))
    return found


def _never_fits(status: Json) -> bool:
    """Whether the node has refused for good what a pod asks for now."""
    pending = [
        one.get("reason")
        for one in status.get("conditions") or []
        if one.get("type") == "PodResizePending" and one.get("status") == "True"
    ]
    return "Infeasible" in (*pending, status.get("resize"))


def _asked(container: Json) -> dict[str, float]:
    resources = container.get("resources") or {}
    # As the API server has it of a pod, and nobody of a template.
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return _quantities(asked)


def _quantities(texts: Json) -> dict[str, float]:
    return {name: quantity(text) for name, text in texts.items()}


def _sum(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {k: one.get(k, 0.0) + other.get(k, 0.0) for k in {**one, **other}}


def _larger(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {k: max(one.get(k, 0.0), other.get(k, 0.0)) for k in {**one, **other}}


def effective_request(spec: Json) -> Amounts:
    """Return what a pod's specification takes from its node.

    The containers and the sidecars run together; before them each init container runs
    beside the sidecars that were started until then. The larger of both counts, and
    what the runtime takes for itself. What is asked for the pod as a whole goes before
    the sums of its containers.
    """
    sidecars = Amounts()
    starting = Amounts()
    for container in spec.get("initContainers") or []:
        asked = _request(container)
        if container.get("restartPolicy") == "Always":
            sidecars += asked
            starting = starting.at_least(sidecars)
        else:
            starting = starting.at_least(sidecars + asked)
    running = sidecars
    for container in spec.get("containers") or []:
        running += _request(container)
    whole = running.at_least(starting)
    of_pod = (spec.get("resources") or {}).get("requests") or {}
    if of_pod:
        asked = amounts(of_pod)
        whole = Amounts(
            asked.cpu if "cpu" in of_pod else whole.cpu,
            asked.memory if "memory" in of_pod else whole.memory,
            whole.gpus,
        )
    return whole + amounts(spec.get("overhead"))


def _request(container: Json) -> Amounts:
    return amounts((container.get("resources") or {}).get("requests"))
