"""The key figures in the head of a report.

Owns which they are. Called by `views.report.page`. Pure; must not know HTML.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from elasticdl.client import JobView
from elasticdl.job.history import History
from elasticdl.job.names import Role
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.words import HappeningKind, ReplicaState
from elasticdl.master.members.goodput import share
from elasticdl.views import formatting as text

_MOST_METRICS = 3  # One row of key figures on a narrow page.


@dataclass(frozen=True)
class KeyFigure:
    """A headline number of a report."""

    label: str
    value: str
    note: str = ""


def key_figures(view: JobView, history: History, *, now: float) -> Iterator[KeyFigure]:
    """Yield the known key figures of the job, the most wanted first."""
    if view.report is not None:
        yield from _of_report(view.report)
    elif view.status is not None:
        yield from _of_status(view.status, now=now)
    preemptions = max((s.preemptions for s in history.samples), default=0)
    if preemptions:
        yield KeyFigure("preemptions", text.count(preemptions))
    costs = [
        one.cost_seconds
        for one in history.decisions
        if one.kind == HappeningKind.RELAUNCHED and one.cost_seconds is not None
    ]
    if costs:
        yield KeyFigure(
            "back after a loss",
            text.duration(sum(costs) / len(costs)),
            f"mean of {len(costs)}, at most {text.duration(max(costs))}",
        )


def _of_report(report: JobReport) -> Iterator[KeyFigure]:
    yield KeyFigure("took", text.duration(report.seconds))
    yield KeyFigure(
        "records",
        text.count(report.records),
        f"{text.count(report.epochs)} epochs" if report.epochs else "",
    )
    yield KeyFigure("records per second", text.rate(report.records_per_second))
    if report.steps:
        yield _steps(report.steps, report.version)
        yield _goodput(report.goodput)
    yield from _learned(report.last_loss, report.metrics)
    lost = [one for one in report.relaunches if one.replacement]
    number = report.relaunches_before + len(lost)
    yield KeyFigure("relaunches", text.count(number))
    yield KeyFigure("replayed records", text.count(report.replayed_records))
    if report.skipped_batches:
        batches = text.count(report.skipped_batches)
        yield KeyFigure("skipped batches", batches, "their loss was not finite")
    if report.master_restarts:
        yield KeyFigure("master restarts", text.count(report.master_restarts))
    if report.rewinds:
        yield KeyFigure("rewinds", text.count(report.rewinds))
    if report.rounds:
        yield _rounds(report.rounds, report.changes_seconds)
    if report.repairs:
        yield _repairs(report.repairs)


def _of_status(status: JobStatus, *, now: float) -> Iterator[KeyFigure]:
    progress = status.progress
    yield KeyFigure("running for", text.duration(now - status.started))
    if progress.eta_seconds is not None:
        yield KeyFigure("done in", text.duration(progress.eta_seconds))
    wanted = progress.records_per_epoch * progress.epochs
    yield KeyFigure(
        "records",
        text.count(progress.records_done),
        f"of {text.count(wanted)}, {text.percent(progress.records_done, wanted)}"
        if wanted
        else "",
    )
    yield KeyFigure("records per second", text.rate(progress.records_per_second))
    running = sum(
        one.role == Role.WORKER and one.state == ReplicaState.RUNNING
        for one in status.replicas
    )
    what = "granted" if status.grant else "wanted"
    yield KeyFigure(
        "workers", text.count(running), f"of {status.workers_wanted} {what}"
    )
    if progress.steps:
        yield _steps(progress.steps, progress.version)
    if status.goodput_seconds:
        yield _goodput(share(status.goodput_seconds))
    evaluation = status.last_evaluation
    yield from _learned(status.last_loss, evaluation.metrics if evaluation else {})
    lost = [one for one in status.relaunches if one.replacement]
    number = status.relaunches_before + len(lost)
    yield KeyFigure("relaunches", text.count(number))
    yield KeyFigure("replayed records", text.count(progress.replayed_records))
    if status.group and status.group.round:
        yield _rounds(status.group.round, status.group.changes_seconds)
    if status.group and status.group.repairs:
        yield _repairs(status.group.repairs)


def _rounds(number: int, changes_seconds: float) -> KeyFigure:
    cost = text.duration(changes_seconds)
    return KeyFigure("rounds", text.count(number), f"their changes cost {cost}")


def _repairs(number: int) -> KeyFigure:
    why = "members had other values than their leader"
    return KeyFigure("repairs", text.count(number), why)


def _steps(steps: int, version: int) -> KeyFigure:
    return KeyFigure("steps", text.count(steps), f"version {text.count(version)}")


def _goodput(trained: float) -> KeyFigure:
    return KeyFigure(
        "goodput", f"{100 * trained:.0f} %", "of the time in which workers ran"
    )


def _learned(loss: float | None, metrics: Mapping[str, float]) -> Iterator[KeyFigure]:
    if loss is not None:
        yield KeyFigure("last loss", text.metric(loss))
    named = sorted((name, value) for name, value in metrics.items() if name != "loss")
    for name, value in named[:_MOST_METRICS]:
        yield KeyFigure(name, text.metric(value), "of the last evaluation")
