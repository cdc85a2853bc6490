"""What a cluster of many jobs looks like: what it has, who holds it, sizes and reasons.

Owns the tables and the line of a CSV file. Called by `cli.clusters.cluster`. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from elasticdl.planner.outcome import JobFigures, Plan
from elasticdl.planner.view import CPU, MEMORY, PODS, ClusterView, Holder, Job, JobKey
from elasticdl.views.terminal.tables import make_table

COLUMNS = (
    "TIME", "NODES", "SUBMITTED-JOBS", "PENDING-JOBS", "RUNNING-TRAINERS",
    "GRANTED-TRAINERS", "WAITING-TRAINERS", "CPU-UTILS", "MEMORY-UTILS",
    "SERVING-CPU", "TRAINING-CPU", "CPU-CEILING",
)  # fmt: skip


def cluster_view(
    view: ClusterView, made: Plan, *, nodes: bool = False, notes: Sequence[str] = ()
) -> RenderableType:
    """Return supply, holders and jobs; `nodes`: each node too."""
    summary = made.summary
    parts: list[RenderableType] = [
        Text(f"{summary.supply_nodes} of {summary.nodes} nodes take pods"),
        *(Text(note, style="yellow") for note in notes),
        Text(""),
        _holdings(made),
    ]
    if nodes:
        parts += [Text(""), _nodes(view)]
    jobs = _jobs(view, summary.jobs)
    parts += [Text(""), jobs if summary.jobs else Text("no jobs")]
    return Group(*parts)


def plan_view(
    view: ClusterView, made: Plan, *, notes: Sequence[str] = ()
) -> RenderableType:
    """Return what would be granted, beside what is."""
    table = make_table("JOB", "MIN", "MAX", "NOW", "PLAN", "LEAVE", "WHY")
    named = {job.key: job for job in view.jobs}
    for key, size in sorted(made.sizes.items()):
        job = named[key]
        before = job.replicas if job.granted is None else job.granted
        leave = made.leave.get(key, ())
        table.add_row(
            str(key),
            str(job.floor),
            str(job.max),
            str(before),
            Text(str(size), style="bold" if size != before else ""),
            ", ".join(f"worker-{index}" for index in leave),
            made.reasons.get(key, ""),
        )
    nothing = Text("no job here has a size that may be decided")
    head = [Text(made.summary.line()), *(Text(n, style="yellow") for n in notes)]
    return Group(*head, Text(""), table if made.sizes else nothing)


def csv_row(made: Plan, *, clock: str) -> list[str]:
    """Return the cells of `COLUMNS`."""
    jobs = made.summary.jobs
    held = {one.resource: one for one in made.summary.holdings}
    cpu = held.get(CPU)
    return [
        clock,
        str(made.summary.supply_nodes),
        str(len(jobs)),
        str(sum(not job.running for job in jobs)),
        _each((job.key, job.running) for job in jobs),
        _each((job.key, job.size) for job in jobs),
        str(sum(job.waiting for job in jobs)),
        *(_percent(held[n].used, held[n].supply) if n in held else "0.00"
          for n in (CPU, MEMORY)),
        _percent(cpu.serving, cpu.supply) if cpu else "0.00",
        _percent(cpu.training, cpu.supply) if cpu else "0.00",
        _percent(cpu.limit, cpu.supply) if cpu else "0.00",
    ]  # fmt: skip


def document(view: ClusterView, made: Plan) -> Mapping[str, object]:
    """Return the same as a tree for JSON."""
    named = {job.key: job for job in view.jobs}
    return {
        "nodes": made.summary.nodes,
        "supplyNodes": made.summary.supply_nodes,
        "resources": {
            one.resource: {
                "supply": one.supply,
                "ceiling": one.limit,
                "serving": one.serving,
                "training": one.training,
                "other": one.other,
            }
            for one in made.summary.holdings
        },
        "jobs": [
            {
                "namespace": one.key.namespace,
                "name": one.key.name,
                "min": one.min,
                "max": one.max,
                "granted": named[one.key].granted,
                "planned": made.sizes.get(one.key),
                "leave": list(made.leave.get(one.key, ())),
                "running": one.running,
                "waiting": one.waiting,
                "share": round(one.share, 6),
                "why": made.reasons.get(one.key, one.reason),
            }
            for one in made.summary.jobs
            if one.key in named
        ],
    }


def _holdings(made: Plan) -> RenderableType:
    table = make_table("RESOURCE", "NODES HAVE", "SERVING", "TRAINING", "OTHER", "USED",
                       "CEILING")  # fmt: skip
    for one in made.summary.holdings:
        if not one.supply:
            continue
        shares = (one.serving, one.training, one.other, one.used, one.limit)
        table.add_row(
            one.resource,
            _amount(one.resource, one.supply),
            *(f"{_percent(amount, one.supply)}%" for amount in shares),
        )
    return table


def _nodes(view: ClusterView) -> RenderableType:
    table = make_table("NODE", "STATE", "CPU", "SERVING", "TRAINING", "OTHER", "PODS")
    held: dict[tuple[str, Holder], int] = {}
    pods: dict[str, int] = {}
    for pod in view.pods:
        place = (pod.node, pod.holder)
        held[place] = held.get(place, 0) + pod.request.get(CPU)
        pods[pod.node] = pods.get(pod.node, 0) + 1
    for node in sorted(view.nodes, key=lambda one: one.name):
        state = "ready" if node.ready else "not ready"
        cpu = node.allocatable.get(CPU)
        table.add_row(
            node.name,
            f"{state}, cordoned" if node.cordoned else state,
            _amount(CPU, cpu),
            *(_amount(CPU, held.get((node.name, kind), 0)) for kind in Holder),
            f"{pods.get(node.name, 0)}/{node.allocatable.get(PODS)}",
        )
    return table


def _jobs(view: ClusterView, figures: Sequence[JobFigures]) -> RenderableType:
    table = make_table("JOB", "MIN", "GRANTED", "MAX", "RUNNING", "WAITING", "SHARE",
                       "WHY")  # fmt: skip
    named: Mapping[JobKey, Job] = {job.key: job for job in view.jobs}
    for one in figures:
        job = named.get(one.key)
        granted = "" if job is None or job.granted is None else str(job.granted)
        table.add_row(
            str(one.key),
            str(one.min),
            granted or ("fixed" if not one.max else "none"),
            str(one.max or one.size),
            str(one.running),
            Text(str(one.waiting), style="yellow" if one.waiting else ""),
            f"{one.share:.1%}",
            one.reason,
        )
    return table


def _each(numbers: Iterator[tuple[JobKey, int]]) -> str:
    known = list(numbers)
    names = Counter(key.name for key, _ in known)
    return "|".join(
        f"{key.name if names[key.name] == 1 else key}:{number}" for key, number in known
    )


def _percent(amount: int, whole: int) -> str:
    return f"{100 * amount / whole:.2f}" if whole else "0.00"


def _amount(resource: str, amount: int) -> str:
    if resource == CPU:
        return f"{amount / 1000:g}"
    return f"{amount / 2**30:.1f} GiB" if resource == MEMORY else str(amount)
