"""What an audit shows: who trained which records how often, and what was missed.

Owns its look. Called by `cli.audit`. The count is `master.tasks.audit`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from elasticdl.master.tasks.audit import AuditReport, EpochAudit
from elasticdl.views import formatting as text
from elasticdl.views.terminal.tables import make_table

_MOST_GAPS = 20  # `--json` has all gaps.


def audit_view(report: AuditReport) -> RenderableType:
    """Return how often records were trained, by whom, and why some were repeated."""
    epochs = make_table("EPOCH", "FINISHED", "RECORDS", "TRAINED", "BY")
    for first, epoch in alike(report.epochs):
        times = ", ".join(
            f"{text.count(records)} x{often}" for often, records in epoch.times.items()
        )
        left_out = "".join(f", {words}" for words in _left_out(epoch))
        by = ", ".join(f"{name} {text.count(n)}" for name, n in epoch.by_worker.items())
        epochs.add_row(
            f"{first + 1}"
            if first == epoch.epoch
            else f"{first + 1}-{epoch.epoch + 1}",
            "yes" if epoch.finished else "no",
            text.count(epoch.records),
            times + left_out,
            by,
        )
    parts: list[RenderableType] = [epochs]
    if report.replays:
        replays = make_table("GIVEN OUT AGAIN", "TASKS", "RECORDS")
        for one in report.replays:
            replays.add_row(one.cause, str(one.tasks), text.count(one.records))
        parts += [Text(""), replays]
    for gap in report.gaps[:_MOST_GAPS]:
        parts.append(
            Text(
                f"missed: epoch {gap.epoch + 1}, {gap.source}, records {gap.start} to "
                f"{gap.end - 1}",
                style="red",
            )
        )
    for fault in report.faults[:_MOST_GAPS]:
        parts.append(Text(f"broken: {fault}", style="red"))
    parts += [Text(""), Text(_verdict(report))]
    return Group(*parts)


def _left_out(epoch: EpochAudit) -> Iterator[str]:
    """Yield the reasons why records are not in the parameters as they were read."""
    if epoch.undone:
        yield f"{text.count(epoch.undone)} undone"
    yield from _not_as_read([epoch])


def _not_as_read(epochs: Sequence[EpochAudit]) -> Iterator[str]:
    """Yield how many records of these epochs were skipped, or made more than a row."""
    if bad := sum(epoch.bad for epoch in epochs):
        yield f"{text.count(bad)} bad"
    if skipped := sum(epoch.skipped for epoch in epochs):
        yield f"{text.count(skipped)} skipped (loss not finite)"
    if filtered := sum(max(0, epoch.filtered) for epoch in epochs):
        yield f"{text.count(filtered)} without a row (feed)"
    if more := sum(max(0, -epoch.filtered) for epoch in epochs):
        count = text.count(more)
        yield f"{count} rows more than records (feed, or a wrong count in a file)"


def alike(epochs: Sequence[EpochAudit]) -> Iterator[tuple[int, EpochAudit]]:
    """Yield (first epoch, sum) for runs of equal finished epochs.

    The sum has the number of the last epoch and the records of each; workers' records
    are added.
    """
    first, last = 0, None
    for epoch in epochs:
        same = last is not None and replace(
            last, epoch=epoch.epoch, by_worker=epoch.by_worker
        ) == (epoch if epoch.finished else None)
        if last is not None and same:
            by = Counter(last.by_worker) + Counter(epoch.by_worker)
            last = replace(epoch, by_worker=dict(by))
            continue
        if last is not None:
            yield first, last
        first, last = epoch.epoch, epoch
    if last is not None:
        yield first, last


def _verdict(report: AuditReport) -> str:
    finished = sum(epoch.finished for epoch in report.epochs)
    counted = [
        text.plural(number, what)
        for number, what in (
            (report.late_reports, "late report"),
            (report.lost_updates, "lost update"),
            (report.master_restarts, "master restart"),
            (report.rewinds, "rewind"),
        )
        if number
    ]
    extra = f"; {', '.join(counted)}" if counted else ""
    if report.gaps:
        missed = sum(gap.end - gap.start for gap in report.gaps)
        return f"MISSED {text.count(missed)} records of finished epochs{extra}"
    if report.faults:
        return (
            f"NOT BY THE RULES: {text.plural(len(report.faults), 'fault')} in what the "
            f"journal says{extra}"
        )
    if not finished:
        return f"no epoch of training is finished yet{extra}"
    once = " exactly once" if report.once else ""
    if but := ", ".join(_not_as_read(report.epochs)):
        once = f" but for {but}"
    again = sum(one.records for one in report.replays)
    if again:
        extra = f", up to {text.count(again)} of them again{extra}"
    return (
        f"every record of {text.plural(finished, 'finished epoch')} was trained{once}"
        f"{extra}"
    )
