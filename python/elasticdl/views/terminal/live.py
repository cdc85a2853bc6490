"""Live progress of a running job: bars on a terminal, plain lines elsewhere.

Owns the two views. Used by `cli.train` and `status --watch`. Must not ask the job
anything: it is given statuses.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elasticdl.job.names import Role
from elasticdl.job.spec.kinds import JobType, Strategy
from elasticdl.job.status import JobStatus, Progress, ReplicaStatus
from elasticdl.job.words import JobState, ReplicaState
from elasticdl.views import formatting as text
from elasticdl.views.terminal.events import EventCursor, events

if TYPE_CHECKING:
    from elasticdl.job.spec.job import JobSpec

_LINE_EVERY_SECONDS = 5.0  # A log of an hour has 720 lines of progress.
_BAR_WIDTH = 30  # Leaves room for the figures in 80 columns.


class View(Protocol):
    """Shows statuses until the `with` block ends."""

    def __enter__(self) -> Self:
        """Start showing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the screen."""

    def update(self, status: JobStatus | None, notices: Sequence[str]) -> None:
        """Show a status (None: none yet) and other events."""


def choose_view(console: Console, name: str) -> View:
    """Return bars if the terminal can draw them, else lines."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console, name)
    return LineView(console)


class LiveView:
    """A bar and lines redrawn in place; events scroll above them."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._seen = EventCursor()
        self._live = Live(
            Text(f"{name}  starting", style="dim"),
            console=console,
            refresh_per_second=4,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def update(self, status: JobStatus | None, notices: Sequence[str]) -> None:
        lines = list(notices)
        if status is not None:
            new, self._seen = events(self._seen, status)
            lines += new
            self._live.update(live_lines(status))
        for line in lines:
            self._console.print(Text.assemble((_clock(), "dim"), " ", line))


class LineView:
    """A line at every event, and a progress line every few seconds."""

    def __init__(
        self, console: Console, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._clock = clock
        self._seen = EventCursor()
        self._next = 0.0
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def update(self, status: JobStatus | None, notices: Sequence[str]) -> None:
        lines = list(notices)
        if status is not None:
            new, self._seen = events(self._seen, status)
            lines += new
            now = self._clock()
            if now >= self._next and (line := progress_line(status)) != self._last:
                self._next, self._last = now + _LINE_EVERY_SECONDS, line
                lines.append(line)
        for line in lines:
            self._console.print(
                f"{_clock()} {line}", markup=False, highlight=False, soft_wrap=True
            )


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def live_lines(status: JobStatus) -> RenderableType:
    """Return the redrawn lines: bar, figures, roles."""
    progress = status.progress
    total = progress.records_per_epoch * progress.epochs
    bar = Table.grid(padding=(0, 1))
    for is_bar in (False, False, True, False, False):
        # On a narrow terminal the bar alone is shorter.
        bar.add_column(no_wrap=not is_bar, max_width=_BAR_WIDTH if is_bar else None)
    bar.add_row(
        Text(status.name, style="bold"),
        Text(_where(status)),
        ProgressBar(
            total=max(1.0, float(total)),
            completed=min(progress.records_done, total),
            pulse=not total,
            animation_time=status.time,
        ),
        Text(text.percent(progress.records_done, total) if total else ""),
        Text(eta(status).partition(" (")[0], style="cyan"),
    )
    validation = status.last_evaluation
    lines = [
        (" · ".join(figures(status)), ""),
        # Named, since both have a loss.
        (f"validation {text.metrics(validation.metrics)}" if validation else "", ""),
        (" · ".join(roles(status)), "dim"),
    ]
    return Group(
        bar,
        *(
            Text(f"  {line}", style=style, no_wrap=True, overflow="ellipsis")
            for line, style in lines
            if line
        ),
    )


def progress_line(status: JobStatus, *, short: bool = False) -> str:
    """Return the progress in one line, or the job's stage."""
    parts = [_where(status)]
    total = status.progress.records_per_epoch * status.progress.epochs
    if total:
        done = status.progress.records_done
        parts.append(
            f"{text.percent(done, total)} ({text.count(done)} of {text.count(total)} "
            "records)"
        )
    if short:
        return ", ".join(part for part in (*parts, eta(status)) if part)
    parts += figures(status)
    if status.last_evaluation:
        parts.append(f"validation {text.metrics(status.last_evaluation.metrics)}")
    parts += [eta(status)] if eta(status) else []
    return ", ".join([*parts, *roles(status)])


def brief_line(status: JobStatus) -> str:
    """Return stage, progress and remaining time."""
    total = status.progress.records_per_epoch * status.progress.epochs
    done = text.percent(status.progress.records_done, total) if total else ""
    return ", ".join(part for part in (_where(status), done, eta(status)) if part)


def figures(status: JobStatus) -> list[str]:
    """Return speed, step and loss, as far as known."""
    progress = status.progress
    parts = []
    if progress.records_per_second:
        parts.append(f"{text.rate(progress.records_per_second)} records/s")
    if progress.steps:
        parts.append(f"step {text.count(progress.steps)}")
    if status.last_loss is not None:
        parts.append(f"loss {text.metric(status.last_loss)}")
    return parts


def roles(status: JobStatus) -> list[str]:
    """Return the replicas and what they do: `workers 2 of 3: 2 training, 1 pending`."""
    parts = []
    live = [r for r in status.replicas if r.state != ReplicaState.ENDED]
    workers = [r for r in live if r.role == Role.WORKER]
    running = sum(r.state == ReplicaState.RUNNING for r in workers)
    doing = collections.Counter(_doing(r) for r in workers)
    what = ", ".join(f"{number} {word}" for word, number in doing.most_common())
    parts.append(
        f"workers {running} of {status.workers_wanted}"
        f"{' granted' if status.grant else ''}{f': {what}' if what else ''}"
    )
    ps = [r for r in status.replicas if r.role == Role.PS]
    if ps:
        indices = {r.index for r in ps}
        alive = sum(r.state == ReplicaState.RUNNING for r in ps if r in live)
        parts.append(f"PS {alive} of {len(indices)}")
    if status.relaunches:
        number = status.relaunches_before + len(status.relaunches)
        parts.append(text.plural(number, "relaunch"))
    if status.progress.replayed_records:
        parts.append(f"{text.count(status.progress.replayed_records)} records replayed")
    return parts


def _doing(replica: ReplicaStatus) -> str:
    word = replica.phase if replica.state == ReplicaState.RUNNING else replica.state
    return text.doing(word)


def _where(status: JobStatus) -> str:
    if status.state != JobState.RUNNING:
        return str(status.state)
    return where_words(status.type, status.progress)


def where_words(job_type: str, progress: Progress) -> str:
    """`epoch 2/3`; for a job that does not train, what it does."""
    if job_type != JobType.TRAIN:
        return text.doing(job_type)
    if not progress.epochs:
        return f"epoch {progress.epoch + 1}"
    return f"epoch {min(progress.epoch + 1, progress.epochs)}/{progress.epochs}"


def eta(status: JobStatus) -> str:
    """`12 min left (epoch 41 s)`; empty if unknown."""
    return eta_words(status.progress) if status.state == JobState.RUNNING else ""


def eta_words(progress: Progress) -> str:
    """Return the same for a running job."""
    of_epoch = progress.epoch_eta_seconds
    if progress.eta_seconds is None:
        return "" if of_epoch is None else f"epoch {text.left(of_epoch)}"
    whole = text.left(progress.eta_seconds)
    if of_epoch is None or progress.epoch + 1 >= progress.epochs > 0:
        return whole
    return f"{whole} (epoch {text.left(of_epoch).removesuffix(' left')})"


def greeting(spec: JobSpec) -> str:
    """`job digits: train, 3 workers, 2 PS`; PS only for training on PS."""
    has_ps = spec.type == JobType.TRAIN and spec.strategy == Strategy.PARAMETER_SERVER
    ps = f", {spec.ps.replicas} PS" if has_ps else ""
    workers = text.plural(spec.worker.replicas, "worker")
    return f"job {spec.name}: {spec.type}, {workers}{ps}"
