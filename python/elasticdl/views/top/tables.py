"""The tables of `elasticdl top`: workers with their step times, PS with their load.

Owns their columns. Called by `views.top.view`. Must not choose who is a straggler or
hot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.console import RenderableType
from rich.text import Text

from elasticdl.job.words import ReplicaState
from elasticdl.views import formatting as text
from elasticdl.views.terminal.bars import bar
from elasticdl.views.terminal.columns import Column, columns_table
from elasticdl.views.terminal.tables import state_text
from elasticdl.views.top.model import Worker
from elasticdl.views.top.ps import Ps

T = TypeVar("T", Worker, Ps)

_BAR = 8  # Cells of a bar in a row of the table.
_FULL = 0.85  # of a memory limit; as the alert
_NEARLY_FULL = 0.7  # Above this share memory is shown in the colour of a warning.
_WORKERS = (
    Column("WORKER", 0),
    Column("STATE", 1),
    Column("STEP TIME", 2),
    Column("LOSS", 5),
    Column("MEMORY", 4),
    Column("DOING", 3),
)
_MEMBERS = (*_WORKERS[:-1], Column("WAIT", 6), Column("SENT", 7), _WORKERS[-1])
_PS = (
    Column("PS", 0),
    Column("STATE", 1),
    Column("LOAD", 2),
    Column("CALL", 4),
    Column("STALE", 7),
    Column("BYTES", 5),
    Column("ROWS", 6),
    Column("MEMORY", 3),
    Column("VERSION", 8),
)


def workers_table(workers: Sequence[Worker], rows: int, width: int) -> RenderableType:
    """Return the head and `rows` lines; a worker with a problem is always shown."""
    slowest = max((worker.step_seconds for worker in workers), default=0.0)
    shown = _shown(
        workers, rows, lambda one: one.straggler or one.state != ReplicaState.RUNNING
    )
    # What others cost a step is known of a group's members alone.
    shared = any(one.step_bytes for one in workers)
    lines = [
        (
            one.name,
            Text("straggler", "yellow") if one.straggler else state_text(one.state),
            _step(one, slowest),
            text.metric(one.loss) if one.loss is not None else "",
            text.size(one.memory_bytes) if one.memory_bytes else "",
            *((_wait(one), text.size(one.step_bytes)) if shared else ()),
            one.doing or f"for {text.duration(one.seconds)}",
        )
        for one in shown
    ]
    columns = _MEMBERS if shared else _WORKERS
    return columns_table(columns, lines, width, left_out=len(workers) - len(shown))


def _wait(worker: Worker) -> str:
    return text.short_duration(worker.wait_seconds) if worker.step_seconds else ""


def _step(worker: Worker, slowest: float) -> Text:
    if not worker.step_seconds:
        return Text()
    style = "yellow" if worker.straggler else "green"
    return Text.assemble(
        (bar(worker.step_seconds / slowest, _BAR), style),
        f" {text.short_duration(worker.step_seconds)}",
    )


def ps_table(ps: Sequence[Ps], rows: int, width: int) -> RenderableType:
    """Return the head and `rows` lines; a hot PS is always shown."""
    shown = _shown(ps, rows, lambda one: one.hot or one.state != ReplicaState.RUNNING)
    lines = []
    for one in shown:
        load = one.load
        latency = load.latency_seconds if load else None
        stale = load.staleness if load else None
        lines.append(
            (
                one.name,
                Text("hot", "red") if one.hot else state_text(one.state),
                _load(one),
                "" if latency is None else text.short_duration(latency),
                "" if stale is None else f"{stale:.1f}",
                text.size(one.parameter_bytes) if one.parameter_bytes else "",
                text.count(one.rows) if one.rows else "",
                _memory(one),
                one.doing or f"v{one.version}",
            )
        )
    return columns_table(_PS, lines, width, left_out=len(ps) - len(shown))


def _load(one: Ps) -> Text:
    if one.share is None:
        return Text()
    return Text.assemble(
        (bar(one.share, _BAR), "red" if one.hot else "green"),
        f" {100 * one.share:.0f}%",
    )


def _memory(one: Ps) -> Text:
    if not one.memory_bytes:
        return Text()
    if not one.memory_limit_bytes:
        return Text(text.size(one.memory_bytes))
    share = one.memory_bytes / one.memory_limit_bytes
    style = "red" if share > _FULL else "yellow" if share > _NEARLY_FULL else ""
    return Text(f"{text.size(one.memory_bytes)} ({100 * share:.0f}%)", style)


def _shown(
    all_of_them: Sequence[T], rows: int, notable: Callable[[T], bool]
) -> list[T]:
    """Return as many items as fit, in order; the last line counts the others."""
    if rows >= len(all_of_them):
        return list(all_of_them)
    order = sorted(
        range(len(all_of_them)), key=lambda n: (not notable(all_of_them[n]), n)
    )
    kept = set(order[: max(0, rows - 1)])
    return [one for number, one in enumerate(all_of_them) if number in kept]
