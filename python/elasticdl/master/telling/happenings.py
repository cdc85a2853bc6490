"""What happened to a job, found by comparing its status with the one before.

Owns which things count as something that happened, and the sentence for each. Called by
`master.telling.publishing`; history, Kubernetes Events (`master.telling.notices`) and
`elasticdl explain` all say what is found here. Must not look at anything but statuses
and edits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from elasticdl.job.history import Decision
from elasticdl.job.status import JobStatus, Relaunch, ReplicaStatus
from elasticdl.job.words import NOT_YET_RUNNING, Happening, ReplicaState
from elasticdl.master.live_edits import Change

# What every pod goes through.
_ON_ITS_WAY = ("ContainerCreating", "PodInitializing")

_Life = tuple[str, int]  # name and generation of a replica


def sentence(
    kind: Happening | str,
    who: str,
    *,
    cause: str,
    detail: str = "",
    new: str = "",
    seconds: float | None = None,
) -> str:
    """Return what happened to one replica, or to several with the same fate."""
    if kind == Happening.ENDED:
        return (
            f"{who} ended: {cause}; {f'replaced by {new}' if new else 'not replaced'}"
        )
    if kind == Happening.RELAUNCHED:
        return f"{new} works {seconds or 0:.1f} s after the end of {who} ({cause})"
    if kind == Happening.NOT_REPLACED:
        return f"{who} is not replaced: {detail}"
    if kind == Happening.PENDING:
        return f"{who} waits: {detail or cause}"
    if kind == Happening.LEFT:
        return f"{who} left: {cause}"
    waited = f" after {seconds:.1f} s of waiting" if seconds else ""
    return f"{who} runs{waited}"


def pending_cause(reason: str) -> str:
    """Return the platform's word that a reason begins with, as `Unschedulable`."""
    return reason.partition(":")[0]


class Decisions:
    """Remembers what was found of one job."""

    def __init__(self, *, told_until: float = math.inf) -> None:
        """`told_until`: up to then an earlier master told everything (Unix seconds)."""
        self._told_until = told_until
        self._last: JobStatus | None = None
        self._told = 0  # relaunches
        self._open: set[int] = set()  # relaunches whose replacement does not work yet
        self._waiting: set[tuple[str, str]] = set()  # replica, first word of why
        self._waits: dict[_Life, float] = {}  # since when it is wanted
        self._here: dict[_Life, str] = {}  # why it was told to go, "" if it was not
        self._lost: set[str] = set()  # their end is told, but they may still be shown

    def of(self, status: JobStatus) -> list[Decision]:
        """Return what is new; of a restarted master's first one that it took over."""
        last, self._last = self._last, status
        found: list[Decision] = []
        if last is None and status.master_generation > 1:
            text = f"master generation {status.master_generation} goes on"
            found.append(Decision(time=status.time, kind=Happening.MASTER, text=text))
        found += self._relaunches(status, first=last is None)
        found += self._pending(status)
        adopted = last is None and status.master_generation > 1
        found += self._presence(status, adopted=adopted)
        if last is not None:
            found += self._model(last, status)
        said = last.message if last is not None else ""
        news = status.message not in ("", said, status.checkpoint_problem)
        if news and not status.ending:
            found.append(
                Decision(
                    time=status.time, kind=Happening.ATTENTION, text=status.message
                )
            )
        if last is None or status.state is not last.state:
            found.append(_state(status))
        return found

    # -- replicas that ended ------------------------------------------------------

    def _relaunches(self, status: JobStatus, *, first: bool) -> Iterator[Decision]:
        before = status.relaunches_before
        records = dict(enumerate(status.relaunches, before))
        total = before + len(records)
        for number in range(before if first else max(before, self._told), total):
            record = records[number]
            if record.replacement and record.seconds is None:
                self._open.add(number)
            if first and record.time <= self._told_until:
                if _worked_at(record) > self._told_until:
                    yield _relaunched(record)
                continue
            self._lost.add(record.replica)
            yield from _ended(record)
            if record.seconds is not None:
                yield _relaunched(record)
        self._told = total
        self._open &= records.keys()
        for number in sorted(self._open):
            if records[number].seconds is not None:
                self._open.discard(number)
                yield _relaunched(records[number])

    # -- replicas that wait, come and leave ---------------------------------------

    def _pending(self, status: JobStatus) -> Iterator[Decision]:
        """Tell why replicas wait, once for each replica and kind of reason."""
        waiting = {
            (r.name, pending_cause(r.reason)): r.reason
            for r in status.replicas
            if r.state == ReplicaState.PENDING
            and r.reason
            and pending_cause(r.reason) not in _ON_ITS_WAY
        }
        for (name, cause), reason in waiting.items():
            if (name, cause) not in self._waiting:
                yield Decision(
                    time=status.time,
                    kind=Happening.PENDING,
                    replica=name,
                    cause=cause,
                    text=sentence(Happening.PENDING, name, cause=cause, detail=reason),
                    detail=reason,
                )
        # A reason that comes back while it still waits is no news.
        names = {name for name, _ in waiting}
        self._waiting = {
            told for told in self._waiting | set(waiting) if told[0] in names
        }

    def _presence(self, status: JobStatus, *, adopted: bool) -> Iterator[Decision]:
        shown: set[_Life] = set()
        ended: dict[_Life, str] = {}
        for replica in status.replicas:
            life = (replica.name, replica.generation)
            if replica.state == ReplicaState.ENDED:
                ended[life] = replica.reason
                continue
            shown.add(life)
            if replica.state in NOT_YET_RUNNING:
                self._waits.setdefault(life, replica.since or status.time)
                continue
            if life not in self._here and not adopted:
                yield self._joined(replica, life)
            draining = replica.state == ReplicaState.DRAINING
            self._here[life] = replica.reason if draining else ""
        for life in [life for life in self._here if life not in shown]:
            reason = ended.get(life) or self._here[life] or "it is not wanted any more"
            del self._here[life]
            if life[0] in self._lost:
                self._lost.discard(life[0])
                continue
            yield Decision(
                time=status.time,
                kind=Happening.LEFT,
                replica=life[0],
                cause=reason,
                text=sentence(Happening.LEFT, life[0], cause=reason),
            )
        for life in [life for life in self._waits if life not in shown]:
            del self._waits[life]
        self._lost &= {name for name, _ in [*shown, *self._here]}

    def _joined(self, replica: ReplicaStatus, life: _Life) -> Decision:
        since = self._waits.pop(life, None)
        waited = None if since is None else max(0.0, round(replica.since - since, 1))
        return Decision(
            time=replica.since,
            kind=Happening.JOINED,
            replica=replica.name,
            text=sentence(Happening.JOINED, replica.name, cause="", seconds=waited),
            cost_seconds=waited,
        )

    # -- the model's state --------------------------------------------------------

    def _model(self, last: JobStatus, status: JobStatus) -> Iterator[Decision]:
        if status.rewinds > last.rewinds:
            lost = [r for r in status.relaunches if r.replica.startswith("ps-")]
            why = f"{lost[-1].replica} {lost[-1].reason}" if lost else ""
            yield Decision(
                time=status.time,
                kind=Happening.REWOUND,
                cause=why,
                text="all PS and the data went back to the checkpoint of version "
                f"{status.checkpoint_version}",
            )
        version = status.checkpoint_version
        if version is not None and version != last.checkpoint_version:
            yield Decision(
                time=status.time,
                kind=Happening.CHECKPOINT,
                text=f"checkpoint of version {version} is complete",
                cost_seconds=status.checkpoint_seconds,
            )
        if status.checkpoint_failures > last.checkpoint_failures:
            yield Decision(
                time=status.time,
                kind=Happening.CHECKPOINT_FAILED,
                text=status.checkpoint_problem or "a checkpoint was not written",
            )


def _worked_at(record: Relaunch) -> float:
    return -math.inf if record.seconds is None else record.time + record.seconds


def _ended(record: Relaunch) -> Iterator[Decision]:
    yield Decision(
        time=record.time,
        kind=Happening.ENDED,
        replica=record.replica,
        cause=record.reason,
        end=record.end_cause,
        text=sentence(
            Happening.ENDED, record.replica, cause=record.reason, new=record.replacement
        ),
        replacement=record.replacement,
        detail=record.detail.strip(),
    )
    if record.why_not:
        yield Decision(
            time=record.time,
            kind=Happening.NOT_REPLACED,
            replica=record.replica,
            cause=record.reason,
            end=record.end_cause,
            text=sentence(
                Happening.NOT_REPLACED, record.replica, cause="", detail=record.why_not
            ),
            detail=record.why_not,
        )


def _relaunched(record: Relaunch) -> Decision:
    return Decision(
        time=record.time + (record.seconds or 0.0),
        kind=Happening.RELAUNCHED,
        replica=record.replica,
        cause=record.reason,
        end=record.end_cause,
        text=sentence(
            Happening.RELAUNCHED,
            record.replica,
            cause=record.reason,
            new=record.replacement,
            seconds=record.seconds,
        ),
        replacement=record.replacement,
        cost_seconds=record.seconds,
    )


def _state(status: JobStatus) -> Decision:
    over = status.state.ended
    text = f"job {status.name} {'' if over else 'is '}{status.state}"
    if status.message:
        text += f": {status.message}"
    return Decision(
        time=status.time, kind=Happening.STATE, cause=str(status.state), text=text
    )


# -- edits of the values file -----------------------------------------------------


def edited(accepted: Sequence[Change], *, now: float) -> list[Decision]:
    """Return what taken changes are: another size of the job, or an edit."""
    return [_edit(change, now) for change in accepted]


def _edit(change: Change, now: float) -> Decision:
    kind = Happening.EDITED
    if change.path == "worker.replicas":
        grown = change.new > change.old
        kind = Happening.GROWN if grown else Happening.SHRUNK
    return Decision(
        time=now,
        kind=kind,
        cause=str(change),
        text=f"changed: {change}",
    )


def refused(text: str, *, cause: str, now: float) -> Decision:
    """Return that an edit is not taken; `cause` is the change, "" of a whole file."""
    return Decision(time=now, kind=Happening.REFUSED, cause=cause, text=text)
