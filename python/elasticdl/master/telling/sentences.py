"""Makes of what happened what people read: a sentence, and its parts apart.

Owns the sentence for each happening. Called by `master.telling.publishing`; the job's
history, Kubernetes' Events (`master.telling.notices`), the status and all commands that
show what happened have it from here. Must not look at anything but the happening.
"""

from __future__ import annotations

from elasticdl.job import words
from elasticdl.job.decision import Decision
from elasticdl.job.status import Relaunch
from elasticdl.master import happenings
from elasticdl.master.happenings import Happening


def sentence(
    kind: words.HappeningKind | str,
    who: str,
    *,
    cause: str,
    detail: str = "",
    new: str = "",
    seconds: float | None = None,
) -> str:
    """Return the sentence about one replica, or several with the same fate."""
    if kind == words.HappeningKind.ENDED:
        return (
            f"{who} ended: {cause}; {f'replaced by {new}' if new else 'not replaced'}"
        )
    if kind == words.HappeningKind.RELAUNCHED:
        return f"{new} works {seconds or 0:.1f} s after the end of {who} ({cause})"
    if kind == words.HappeningKind.NOT_REPLACED:
        return f"{who} is not replaced: {detail}"
    if kind == words.HappeningKind.PENDING:
        return f"{who} waits: {detail or cause}"
    if kind == words.HappeningKind.LEFT:
        return f"{who} left: {cause}"
    waited = f" after {seconds:.1f} s of waiting" if seconds else ""
    return f"{who} runs{waited}"


def decisions_of(
    happening: Happening, *, job: str, message: str = ""
) -> list[Decision]:
    """Return the decisions made of a happening: none, one, or two.

    `message`: what a user has to know of the job `job` now.
    """
    match happening:
        case happenings.ReplicaEnded(record=record):
            return _ended(record)
        case happenings.ReplacementWorks(record=record):
            return [_relaunched(record)]
        case (
            happenings.ReplicaWaits()
            | happenings.ReplicaJoined()
            | happenings.ReplicaLeft()
        ):
            return [_of_replica(happening)]
        case happenings.JobEntered(state=state, why=why):
            return [_state(happening.time, job, state, message or why)]
        case _:
            return _of_model(happening) or _of_job(happening)


def _of_job(happening: Happening) -> list[Decision]:
    cause = ""
    match happening:
        case happenings.JobEdited():
            return [_edited(happening)]
        case happenings.SizeGranted() | happenings.GrantEnded():
            return [_granted(happening)]
        case happenings.GrantRefused(text=text):
            kind = words.HappeningKind.GRANT_REFUSED
        case happenings.EditRefused(text=text, change=cause):
            kind = words.HappeningKind.REFUSED
        case happenings.MasterTookOver(generation=generation):
            kind = words.HappeningKind.MASTER
            text = f"master generation {generation} goes on"
        case happenings.AttentionNeeded(message=text):
            kind = words.HappeningKind.ATTENTION
        case _:
            return []  # who was asked for, or told to go: its coming or leaving is told
    return [Decision(time=happening.time, kind=kind, cause=cause, text=text)]


def _of_replica(
    happening: happenings.ReplicaWaits
    | happenings.ReplicaJoined
    | happenings.ReplicaLeft,
) -> Decision:
    cause = detail = ""
    seconds = None
    match happening:
        case happenings.ReplicaWaits():
            kind = words.HappeningKind.PENDING
            cause, detail = happening.kind, happening.reason
        case happenings.ReplicaLeft():
            kind, cause = words.HappeningKind.LEFT, happening.reason
        case happenings.ReplicaJoined():
            kind, seconds = words.HappeningKind.JOINED, round(happening.waited, 1)
    who = happening.replica
    return Decision(
        time=happening.time,
        kind=kind,
        replica=who,
        cause=cause,
        text=sentence(kind, who, cause=cause, detail=detail, seconds=seconds),
        detail=detail,
        cost_seconds=seconds,
    )


def _ended(record: Relaunch) -> list[Decision]:
    kind, replica = words.HappeningKind.ENDED, record.replica
    told = [
        Decision(
            time=record.time,
            kind=kind,
            replica=replica,
            cause=record.reason,
            end=record.end_cause,
            text=sentence(kind, replica, cause=record.reason, new=record.replacement),
            replacement=record.replacement,
            detail=record.detail.strip(),
        )
    ]
    if record.why_not:
        kind = words.HappeningKind.NOT_REPLACED
        told.append(
            Decision(
                time=record.time,
                kind=kind,
                replica=replica,
                cause=record.reason,
                end=record.end_cause,
                text=sentence(kind, replica, cause="", detail=record.why_not),
                detail=record.why_not,
            )
        )
    return told


def _relaunched(record: Relaunch) -> Decision:
    return Decision(
        time=record.time + (record.seconds or 0.0),
        kind=words.HappeningKind.RELAUNCHED,
        replica=record.replica,
        cause=record.reason,
        end=record.end_cause,
        text=sentence(
            words.HappeningKind.RELAUNCHED,
            record.replica,
            cause=record.reason,
            new=record.replacement,
            seconds=record.seconds,
        ),
        replacement=record.replacement,
        cost_seconds=record.seconds,
    )


def _state(time: float, job: str, state: words.JobState, message: str) -> Decision:
    text = f"job {job} {'' if state.ended else 'is '}{state}"
    if message:
        text += f": {message}"
    return Decision(
        time=time,
        kind=words.HappeningKind.STATE,
        cause=str(state),
        text=text,
        detail=message,
    )


def _edited(happening: happenings.JobEdited) -> Decision:
    kind = words.HappeningKind.EDITED
    if happening.path == "worker.replicas":
        grown = happening.new > happening.old
        kind = words.HappeningKind.GROWN if grown else words.HappeningKind.SHRUNK
    return Decision(
        time=happening.time,
        kind=kind,
        cause=str(happening),
        text=f"changed: {happening}",
    )


def _granted(happening: happenings.SizeGranted | happenings.GrantEnded) -> Decision:
    """Return a change of size that the user did not make; `detail` says why."""
    before, after = happening.before, happening.workers
    kind = words.HappeningKind.GROWN if after > before else words.HappeningKind.SHRUNK
    why = "no grant is in force, worker.replicas is"
    if isinstance(happening, happenings.SizeGranted):
        why = happening.why or "no reason was given"
    if after == before:
        kind = words.HappeningKind.EDITED
    change = f"granted workers: {before} -> {after}"
    return Decision(
        time=happening.time,
        kind=kind,
        cause=change,
        text=f"{change}: {why}",
        detail=why,
    )


def _of_model(happening: Happening) -> list[Decision]:
    cause = ""
    cost: float | None = None
    match happening:
        case happenings.WentBack(cause=why, version=version):
            kind, cause = words.HappeningKind.REWOUND, why
            where = (
                "the job's beginning"
                if version is None
                else f"the checkpoint of version {version}"
            )
            text = f"model and data went back to {where}"
        case happenings.RoundBegan(number=number, members=members, why=why):
            kind, cause = words.HappeningKind.ROUND, why
            text = f"round {number} of {', '.join(members)}: {members[0]} leads; {why}"
        case happenings.RoundWorks(number=number, seconds=took):
            kind, cost = words.HappeningKind.ROUND, round(took, 3)
            text = f"round {number} made its first step {took:.1f} s after the last one"
        case happenings.CheckpointWritten(version=written, seconds=seconds):
            kind, cost = words.HappeningKind.CHECKPOINT, seconds
            text = f"checkpoint of version {written} is complete"
        case happenings.CheckpointFailed(problem=text):
            kind = words.HappeningKind.CHECKPOINT_FAILED
        case happenings.Evaluated(result=result):
            kind = words.HappeningKind.EVALUATED
            text = f"evaluation at version {result.version}: {_figures(result.metrics)}"
        case _:
            return []
    return [
        Decision(
            time=happening.time, kind=kind, cause=cause, text=text, cost_seconds=cost
        )
    ]


def _figures(metrics: dict[str, float]) -> str:
    # What the user asked for comes before the loss.
    ordered = sorted(metrics.items(), key=lambda item: item[0] == "loss")
    return ", ".join(f"{name} {value:.4g}" for name, value in ordered)
