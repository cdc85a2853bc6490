"""How full machine or cluster is, in one line.

Owns its look. Called by `cli.top_view` and `cli.top_jobs`. Must not look itself.
"""

from __future__ import annotations

from rich.text import Text

from elasticdl.cli import format as text
from elasticdl.cli.bars import bar
from elasticdl.cli.shading import shaded
from elasticdl.client.usage import CLASSES, ClusterUsage, Machine, Usage

_BAR = 10
_BUSY = 0.95


def usage_label(usage: Usage) -> str:
    """Return what it is about."""
    return "machine" if isinstance(usage, Machine) else "cluster"


def usage_line(usage: Usage, room: int) -> Text:
    """Return how full it is and with what, in at most `room` cells as far as it can."""
    if isinstance(usage, Machine):
        return _machine(usage)
    if usage.unknown:
        return Text(usage.unknown, "dim")
    return _cluster(usage, room)


def _machine(usage: Machine) -> Text:
    used, there = text.size(usage.used_bytes), text.size(usage.memory_bytes)
    if used.split()[1] == there.split()[1]:
        used = used.split()[0]
    held = ""
    if usage.capacity is not None:
        limit = usage.capacity.limit
        of = "" if limit is None else f" of {limit:g}"
        held = f", workers hold {usage.capacity.held:g}{of}"
    return Text.assemble(
        (bar(usage.busy, _BAR), "red" if usage.busy > _BUSY else "green"),
        f" {100 * usage.busy:.0f}% of {text.plural(usage.cpus, 'CPU')}{held}; "
        f"memory {used} of {there}",
    )


def _cluster(usage: ClusterUsage, room: int) -> Text:
    there = usage.there
    if not there.cpus:
        return Text("no node is ready", "red")
    by_class = {name: usage.held(name) for name in CLASSES}
    asked = sum(amount.cpus for amount in by_class.values())
    whole = max(there.cpus, asked)
    parts = [
        (f"{name} {amount.cpus:.3g}", amount.cpus / whole)
        for name, amount in by_class.items()
    ]
    free = f"free {max(0.0, there.cpus - asked):.3g}"
    tail = f" of {there.cpus:.4g} CPUs"
    if there.gpus:
        gpus = sum(amount.gpus for amount in by_class.values())
        tail += f", {gpus} of {there.gpus} GPUs"
    content = shaded(parts, _BAR, room - len(tail), free)
    return content.append(tail)
