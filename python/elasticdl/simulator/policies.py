"""The policies by name. Owns the list; called by the verb, tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.errors import SpecError
from elasticdl.job.spec.problems import did_you_mean
from elasticdl.simulator.edl import Edl
from elasticdl.simulator.elastic import Elastic
from elasticdl.simulator.policy import Fixed, Gang, Policy

POLICIES: dict[str, Callable[[], Policy]] = {
    Gang.name: Gang,
    Fixed.name: Fixed,
    Edl.name: Edl,
    Elastic.name: Elastic,
}


def new_policy(name: str) -> Policy:
    """Return a policy without a past. Raises SpecError for an unknown name."""
    if name not in POLICIES:
        raise SpecError(
            f"--policy: got {name!r}, expected some of {', '.join(POLICIES)}; "
            f"{did_you_mean(name, POLICIES)}"
        )
    return POLICIES[name]()
