"""How full machine or cluster is, in one line.

Owns its look. Called by `views.top.view` and `views.top.jobs`. Must not look itself.
"""

from __future__ import annotations

from rich.text import Text

from elasticdl.client.usage import ClusterUsage, Machine, Usage
from elasticdl.kube.amounts import Amounts
from elasticdl.kube.inventory import OTHER, SERVING, TRAINING
from elasticdl.views import formatting as text
from elasticdl.views.terminal.bars import bar
from elasticdl.views.terminal.shading import shaded

_BAR = 8  # Cells of the bar of busy CPUs.
_BUSY = 0.95  # From this share on more workers would only share the same CPUs.
_CLASSES = (SERVING, TRAINING, OTHER)


def usage_label(usage: Usage) -> str:
    """Return the name of the machine or cluster."""
    return "machine" if isinstance(usage, Machine) else "cluster"


def usage_line(usage: Usage, room: int) -> Text:
    """Return the use and its parts, in about `room` cells."""
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
    if not there.cpu:
        return Text("no node is ready", "red")
    held = {kind: usage.held.get(kind, Amounts()) for kind in _CLASSES}
    asked = sum(held.values(), Amounts())
    whole = max(there.cpu, asked.cpu)
    parts = [
        (f"{kind} {amount.cpu:.3g}", amount.cpu / whole)
        for kind, amount in held.items()
    ]
    free = f"free {max(0.0, there.cpu - asked.cpu):.3g}"
    tail = f" of {there.cpu:.4g} CPUs"
    if there.gpus:
        tail += f", {asked.gpus:g} of {there.gpus:g} GPUs"
    return shaded(parts, _BAR, room - len(tail), free).append(tail)
