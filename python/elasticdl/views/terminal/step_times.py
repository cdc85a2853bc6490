"""Where a step's milliseconds go, from the figures that workers and PS show.

Owns that arithmetic: differences between two looks at a process's metrics, summed over
processes. Called by the verb `profile`. Pure: asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

Figures = Mapping[str, float]

_STEPS = "elasticdl_worker_step_seconds_count"
_STEP = "elasticdl_worker_step_seconds_sum"
_COMPUTE = "elasticdl_worker_compute_seconds_sum"
_CONVERT = "elasticdl_worker_convert_seconds_sum"
_PUSH = "elasticdl_worker_push_seconds_sum"
_PULL = "elasticdl_worker_pull_seconds_sum"
_INPUT = "elasticdl_worker_goodput_seconds_total:waitData"
_WAIT = "elasticdl_worker_goodput_seconds_total:waitPs"
_PEERS = "elasticdl_worker_goodput_seconds_total:waitPeers"
_TRAIN = "elasticdl_worker_goodput_seconds_total:train"
_REPLAY = "elasticdl_worker_goodput_seconds_total:replay"
_APPLY = "elasticdl_ps_apply_seconds_sum"
_APPLIED = "elasticdl_ps_apply_seconds_count"


def figures_of(text: str) -> dict[str, float]:
    """Return the sums, counts and seconds by cause in a process's metrics page."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k != "le"}
            if "le" in sample.labels:
                continue
            found[":".join((sample.name, *labels.values()))] = sample.value
    return found


@dataclass(frozen=True)
class StepPart:
    """One part of a step: its mean milliseconds over steps of all workers."""

    name: str
    milliseconds: float
    what: str


@dataclass(frozen=True)
class StepTimes:
    """A step's parts: consecutive ones, and those that overlap them."""

    steps: int
    milliseconds: float  # of a step with its input; the sum of `line`
    line: list[StepPart] = field(default_factory=list)
    beside: list[StepPart] = field(default_factory=list)


def step_times(
    workers: Iterable[tuple[Figures, Figures]], ps: Iterable[tuple[Figures, Figures]]
) -> StepTimes | None:
    """Return the parts of a mean step between two samples; None without steps.

    Args:
        workers: Per worker, its figures at the first look and at the last.
        ps: The same per PS.
    """
    worker = _differences(workers)
    steps = worker.get(_STEPS, 0.0)
    if steps <= 0:
        return None

    def each(name: str) -> float:
        return 1000 * worker.get(name, 0.0) / steps

    step, wait = each(_STEP), each(_WAIT)
    compute, peers = each(_COMPUTE), each(_PEERS)
    feed = each(_INPUT)
    if peers:
        # Strategy allReduce: a member waits within its step and before it, so that what
        # is left of a step's time is not what it computes; the ledger has that.
        step = max(0.0, step - feed)
        compute, wait = each(_TRAIN) + each(_REPLAY), peers
    elif not compute:
        # Strategy local applies in the same call and waits for nobody.
        compute, wait = step, 0.0
    whom = "for other workers" if peers else "for the last exchange"
    other = max(0.0, step - compute - wait)
    line = [
        StepPart("input", feed, "read, parse, shuffle"),
        StepPart("compute", compute, "forward and backward"),
        StepPart("wait", wait, whom),
        StepPart("other", other, "leases, log, metrics"),
    ]
    beside = [
        StepPart("convert", each(_CONVERT), "pack and unpack"),
        StepPart("push", each(_PUSH), "gradients out, values back"),
        StepPart("pull", each(_PULL), "without a push"),
    ]
    server = _differences(ps)
    applied = server.get(_APPLIED, 0.0)
    if applied:
        mean = 1000 * server[_APPLY] / applied
        beside.append(StepPart("apply", mean, "of push: PS updates"))
    shown = [part for part in beside if part.milliseconds]
    return StepTimes(int(steps), sum(part.milliseconds for part in line), line, shown)


def _differences(looks: Iterable[tuple[Figures, Figures]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for first, last in looks:
        for name, value in last.items():
            total[name] = total.get(name, 0.0) + value - first.get(name, 0.0)
    return total
