"""What people should hear of a job: what happened, as notices of the platform.

Owns the word of each notice and which ones are warnings. Called by
`master.telling.publishing` and `master.pod`. The sentences are those of
`master.telling.sentences`.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.job.decision import Decision
from elasticdl.job.words import EndCause, HappeningKind, JobState
from elasticdl.master.telling.sentences import sentence
from elasticdl.runner.publisher import Notice

_STATES = {
    JobState.RUNNING: "JobRunning",
    JobState.PAUSED: "JobPaused",
    JobState.FINISHING: "JobFinishing",
    JobState.SUCCEEDED: "JobSucceeded",
    JobState.FAILED: "JobFailed",
    JobState.STOPPED: "JobStopped",
}
# By the cause of an end; all others are `ReplicaFailed`.
_ENDINGS = {
    EndCause.PREEMPTED: "ReplicaPreempted",
    EndCause.EVICTED: "ReplicaEvicted",
    EndCause.NODE_LOST: "ReplicaNodeLost",
    EndCause.OOM_KILLED: "ReplicaOOMKilled",
    EndCause.DELETED: "ReplicaDeleted",
    EndCause.KILLED: "ReplicaKilled",
    EndCause.COMPLETED: "ReplicaLeft",
    EndCause.SILENT: "ReplicaSilent",
    EndCause.HUNG: "ReplicaHung",
}
_HARMLESS = (EndCause.PREEMPTED, EndCause.EVICTED, EndCause.DELETED, EndCause.COMPLETED)
# By kind, with whether it is a warning. `joined` and `checkpoint` are none: pods tell
# that they run, and a checkpoint each minute would push out what matters.
_WORDS: dict[str, tuple[str, bool]] = {
    HappeningKind.RELAUNCHED: ("ReplicaRelaunched", False),
    HappeningKind.NOT_REPLACED: ("ReplicaNotReplaced", True),
    HappeningKind.LEFT: ("ReplicaLeft", False),
    HappeningKind.GROWN: ("Edited", False),
    HappeningKind.SHRUNK: ("Edited", False),
    HappeningKind.EDITED: ("Edited", False),
    HappeningKind.REFUSED: ("EditRefused", True),
    HappeningKind.GRANT_REFUSED: ("GrantRefused", True),
    HappeningKind.REWOUND: ("Rewound", True),
    HappeningKind.CHECKPOINT_FAILED: ("CheckpointFailed", True),
    HappeningKind.MASTER: ("MasterStarted", False),
    HappeningKind.ATTENTION: ("Attention", True),
}
# With a detail these are no edits of the user's.
_BY_GRANT = (HappeningKind.GROWN, HappeningKind.SHRUNK, HappeningKind.EDITED)
_MOST_NAMES = 8


def notices(decisions: Iterable[Decision]) -> list[Notice]:
    """Return the notices about decisions; replicas with the same fate share one."""
    alike: dict[tuple[str, ...], list[Decision]] = {}
    for decision in decisions:
        alike.setdefault(_fate(decision), []).append(decision)
    told = [(_word(same[0]), same) for same in alike.values()]
    return [
        Notice(word, _text(same), warning=warning)
        for (word, warning), same in told
        if word
    ]


def pending_kind(reason: str) -> str:
    """Return the platform's reason word, for example `Unschedulable`."""
    word = reason.partition(":")[0]
    return word if word.isalnum() and word[:1].isupper() else "ReplicaPending"


def _fate(decision: Decision) -> tuple[str, ...]:
    if not decision.replica:
        return decision.kind, decision.cause, decision.text
    # The last words of crashes differ, and are no reason for a notice each.
    detail = "" if decision.kind == HappeningKind.ENDED else decision.detail
    return decision.kind, decision.cause, detail


def _word(decision: Decision) -> tuple[str, bool]:
    """Return the notice's reason word ("" for none) and whether it is a warning."""
    if decision.kind == HappeningKind.ENDED:
        word = _ENDINGS.get(decision.end_cause, "ReplicaFailed")
        return word, decision.end_cause not in _HARMLESS
    if decision.kind == HappeningKind.PENDING:
        return pending_kind(decision.detail), True
    if decision.kind == HappeningKind.STATE:
        state = JobState(decision.cause)
        return _STATES.get(state, ""), state is JobState.FAILED
    if decision.kind in _BY_GRANT and decision.detail:
        return "Granted", False
    return _WORDS.get(decision.kind, ("", False))


def _text(same: list[Decision]) -> str:
    first, last = same[0], same[-1]
    text = first.text
    if first.replica and len(same) > 1:
        costs = [one.cost_seconds for one in same if one.cost_seconds is not None]
        text = sentence(
            first.kind,
            _names([one.replica for one in same]),
            cause=first.cause,
            detail=first.detail,
            new=_names([one.replacement for one in same if one.replacement]),
            seconds=max(costs, default=None),
        )
    if first.kind == HappeningKind.ENDED and last.detail:
        text += f"\n{last.detail}"
    return text


def _names(replicas: list[str]) -> str:
    shown = ", ".join(replicas[:_MOST_NAMES])
    more = len(replicas) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
