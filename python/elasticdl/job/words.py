"""The closed sets of words that roles say to each other and to people.

Owns each word once: the string that is stored in documents, sent in messages and shown
in metrics. Every package compares with these members, never with a bare string.
Sentences are made where they are printed, from a word and its figures. Must not import
anything of the product: everybody imports it.
"""

from __future__ import annotations

import enum

# How a worker ends the message of a full disk; statements of SQL, which write that
# field themselves, tell their users something else in its place.
OTHER_OUTPUT = "set job.predictionOutput to another folder"


class JobState(enum.StrEnum):
    """Where a job is in its life."""

    STARTING = "starting"
    PREPARING = "preparing"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHING = "finishing"  # last evaluation, export
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED)


class ReplicaState(enum.StrEnum):
    """Where a replica is in its life, as statuses and histories show it."""

    SCHEDULED = "scheduled"  # starts at a time that is still to come
    LAUNCHED = "launched"  # the platform was asked for it
    PENDING = "pending"  # the platform has no room for it yet, or is making it
    RUNNING = "running"
    DRAINING = "draining"  # runs, and was told to leave
    ENDED = "ended"

    @property
    def waits(self) -> bool:
        """Whether the replica is wanted and does not run yet."""
        return self in NOT_YET_RUNNING


NOT_YET_RUNNING = (ReplicaState.SCHEDULED, ReplicaState.LAUNCHED, ReplicaState.PENDING)


class ExitReason(enum.StrEnum):
    """Why a replica ended, as the platform saw it."""

    NONE = ""
    COMPLETED = "completed"
    ERROR = "error"  # its own exit code, not 0
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    NODE_LOST = "nodeLost"
    OOM_KILLED = "oomKilled"
    DELETED = "deleted"  # stopped by the master or by hand
    KILLED = "killed"  # a signal nobody here sent
    CANNOT_START = "cannotStart"  # its container can never be made as it is described


class EndCause(enum.StrEnum):
    """Why a replica that was needed ended: by the platform, or by the master."""

    PREEMPTED = "preempted"
    EVICTED = "evicted"
    NODE_LOST = "nodeLost"
    OOM_KILLED = "oomKilled"
    KILLED = "killed"
    DELETED = "deleted"
    CRASHED = "crashed"  # with an exit code of its own
    COMPLETED = "completed"  # exit code 0 while there was work
    SILENT = "silent"  # the master did not hear it
    HUNG = "hung"  # it was heard, and did nothing
    FENCED = "fenced"  # another one has its place
    CANNOT_START = "cannotStart"
    OTHER = "other"


# By these the end of a replica says nothing about the replica.
TAKEN_AWAY = (EndCause.PREEMPTED, EndCause.EVICTED)


def end_cause(reason: ExitReason) -> EndCause:
    """Return the cause of an end as the platform reports it."""
    if reason is ExitReason.NONE:
        return EndCause.OTHER
    return EndCause.CRASHED if reason is ExitReason.ERROR else EndCause(reason.value)


def end_cause_of(reason: str) -> EndCause:
    """Return the cause behind the sentence in a document without a cause.

    Versions before 1.0 wrote only the sentence; what is written now has both.
    """
    if reason.startswith("exit code "):
        return EndCause.CRASHED
    if reason == "stopped from outside":
        return EndCause.DELETED
    return EndCause(reason) if reason in set(EndCause) else EndCause.OTHER


class ChangeCause(enum.StrEnum):
    """Why a replica joined or was told to leave; why one was lost is an `EndCause`."""

    JOINED = "joined"
    STARTED = "started"
    GROWN = "grown"
    SHRUNK = "shrunk"
    PAUSED = "paused"
    RESUMED = "resumed"


class WorkerPhase(enum.StrEnum):
    """What a worker is doing; `WAIT` is waiting for others and never a hang."""

    START = "start"
    PREPARE = "prepare"
    READ = "read"  # has a task whose records are being read
    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"
    EXPORT = "export"
    WAIT = "wait"
    IDLE = "idle"


class GoodputCause(enum.StrEnum):
    """What a worker's second was spent on; `TRAIN` is the useful part."""

    START = "start"
    TRAIN = "train"
    WAIT_DATA = "waitData"
    WAIT_PS = "waitPs"
    WAIT_PEERS = "waitPeers"  # for other workers' parts of a step
    REGROUP = "regroup"  # between two rounds of workers that make steps together
    EVALUATE = "evaluate"
    RESTORE = "restore"
    REPLAY = "replay"
    IDLE = "idle"
    PREDICT = "predict"
    EXPORT = "export"
    # What the master adds, for workers that could not run.
    PENDING = "pending"
    PREEMPTED = "preempted"


MASTER_CAUSES = (GoodputCause.PENDING, GoodputCause.PREEMPTED)
WORKER_CAUSES = tuple(cause for cause in GoodputCause if cause not in MASTER_CAUSES)


class RoundCause(enum.StrEnum):
    """Why a group's round began; of several causes the one named first here."""

    WENT_BACK = "wentBack"  # to a checkpoint, or to the job's beginning
    ENDED = "ended"  # a member did
    DIFFERED = "differed"  # a member has other values than the leader
    LEFT_OUT = "leftOut"  # a member that others do not reach
    BROKEN = "broken"  # a connection broke: the same members try again
    JOINED = "joined"


class OutCause(enum.StrEnum):
    """Why a worker that runs is in no round."""

    LEFT_OUT = "leftOut"  # others did not reach it; it comes back later
    LEAVING = "leaving"
    PREPARING = "preparing"  # builds and traces its model
    COPYING = "copying"  # gets the group's state beside its steps
    MINIMUM = "minimum"  # fewer workers are ready than `worker.min`
    JOINING = "joining"  # in the next round


class HappeningKind(enum.StrEnum):
    """Kinds of decisions in a history: what happened to the job or a replica."""

    PENDING = "pending"  # it waits, and why
    JOINED = "joined"
    LEFT = "left"  # it was told to
    ENDED = "ended"  # it was lost
    RELAUNCHED = "relaunched"  # its replacement works
    NOT_REPLACED = "notReplaced"
    GROWN = "grown"
    SHRUNK = "shrunk"
    EDITED = "edited"
    REFUSED = "refused"
    GRANT_REFUSED = "grantRefused"
    REWOUND = "rewound"
    ROUND = "round"  # other workers than before make steps together
    EVALUATED = "evaluated"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_FAILED = "checkpointFailed"
    MASTER = "master"
    STATE = "state"  # of the job
    ATTENTION = "attention"


class DataKind(enum.StrEnum):
    """The job's kinds of data; each has its own path in the specification."""

    TRAINING = "training"
    VALIDATION = "validation"
    PREDICTION = "prediction"
