"""The exception tree of ElasticDL.

Owns every exception type that crosses a module border, and which errors of the system
mean that storage is away. Raised anywhere, caught at the borders: `cli` turns them into
one message and an exit code, servicers into a gRPC status. Knows nothing of who raises
it.

    ElasticDLError
    |- SpecError            the values file or a flag is wrong
    |- UserCodeError        the user's model module raised or returned nonsense
    |- DataError            data is missing, empty or corrupt
    |  `- BadRecordError    one record cannot be read (file and record number known)
    |- CheckpointError      a checkpoint is missing, torn or does not fit
    |  `- UnfitError        it is whole, and of another model
    |- JournalError         the journal cannot be written or read
    |- SupersededError      another master of the job has taken over: end, do nothing
    |- PlatformError        the place where replicas run refused or failed
    |- JobError             the job ended without success, or is in the wrong state
    |  `- NotFoundError     there is no job or replica of that name
    `- RpcError             a peer could not be reached, or refused the call
       |- FencedError       the caller's generation or lease is old: stop using it
       |- NotInitializedError  a PS has no parameters yet: hand them over
       `- RefusedError      the peer says the call is wrong: trying again is useless

Every message says what came, what was expected and what to do next.
"""

from __future__ import annotations

import enum
import errno


class ExitCode(enum.IntEnum):
    """Exit codes of every `elasticdl` process.

    CRASHED is a bug of ours: another start may get round it. HANDED_OVER is a master
    that was told to leave its pod while the job goes on: another one takes over.
    POD_JOB_FAILED is JOB_FAILED, said by a master in a pod: Python itself ends with 1
    where an import fails, as on a volume that is away, and that is no end of the job.
    STORAGE_AWAY is a PS or worker that could not begin for such a volume.
    """

    OK = 0
    JOB_FAILED = 1
    USAGE = 2
    SPEC = 3
    USER_CODE = 4
    DATA = 5
    STORAGE = 6
    PLATFORM = 7
    AUDIT = 8
    FENCED = 9
    POD_JOB_FAILED = 10
    CRASHED = 70
    STORAGE_AWAY = 75
    STOPPED = 130
    HANDED_OVER = 143


# Starting a master again would meet the same: it has said what is wrong. With
# POD_JOB_FAILED these end the batch Job of a master in a pod.
FINAL_EXITS = (
    ExitCode.USAGE,
    ExitCode.SPEC,
    ExitCode.USER_CODE,
    ExitCode.DATA,
    ExitCode.STORAGE,
)


class ElasticDLError(Exception):
    """Base of all errors that ElasticDL raises on purpose."""

    exit_code: ExitCode = ExitCode.JOB_FAILED


class SpecError(ElasticDLError):
    """The values file or a flag is wrong; the message names every mistake found."""

    exit_code = ExitCode.SPEC


class UserCodeError(ElasticDLError):
    """The user's model module could not be loaded, raised, or broke the contract."""

    exit_code = ExitCode.USER_CODE
    # TensorFlow's AutoGraph would wrap the message in a trace of its own otherwise.
    ag_pass_through = True


class DataError(ElasticDLError):
    """Data is missing, empty, corrupt or of an unknown format."""

    exit_code = ExitCode.DATA


class BadRecordError(DataError):
    """One record cannot be read; the job goes on with `data.onBadRecord: skip`."""

    def __init__(self, source: str, record: int, reason: str) -> None:
        """Name the file, the record's number in it (from 0) and what is wrong."""
        super().__init__(f"{source}: record {record}: {reason}")
        self.source = source
        self.record = record
        self.reason = reason


class CheckpointError(ElasticDLError):
    """A checkpoint is missing, torn, or does not fit the model."""

    exit_code = ExitCode.STORAGE


class UnfitError(CheckpointError):
    """A checkpoint is whole, and of another model: an older one says the same."""


class JournalError(ElasticDLError):
    """The journal cannot be written or read."""

    exit_code = ExitCode.STORAGE


class SupersededError(ElasticDLError):
    """The job's journal is another master's now, or was removed: this one must end."""

    exit_code = ExitCode.FENCED


class PlatformError(ElasticDLError):
    """The platform (local processes, Kubernetes) refused or failed."""

    exit_code = ExitCode.PLATFORM


class JobError(ElasticDLError):
    """The job ended without success, or is not in the state the command needs."""


class NotFoundError(JobError):
    """There is no job, replica or log of that name."""

    exit_code = ExitCode.USAGE


class RpcError(ElasticDLError):
    """A peer could not be reached in time, or refused the call."""

    exit_code = ExitCode.PLATFORM


class FencedError(RpcError):
    """The caller's generation or lease is old; it must stop using it."""

    exit_code = ExitCode.FENCED


class NotInitializedError(RpcError):
    """A PS has no parameters yet; a worker must initialize it."""


class RefusedError(RpcError):
    """The peer rejects the call itself; a retry cannot succeed."""


# What a network disk says while it is away. A file that is missing, or that this user
# may not read, is no such case: it will be so tomorrow.
_AWAY = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EREMOTEIO,
        errno.ENOTCONN,
        errno.ESHUTDOWN,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOLINK,
    }
)


# Of these a socket that the user's own code opens says none.
_AWAY_OF_FILES = frozenset({errno.EIO, errno.ESTALE, errno.EREMOTEIO})


def is_file_away(error: BaseException | None) -> bool:
    """Whether an error, or its cause, is that of a file on storage that is away."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _AWAY_OF_FILES:
            return True
        error = error.__cause__
    return False


def is_storage_away(error: BaseException | None) -> bool:
    """Whether an error, or its cause, may disappear when the storage is back."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _AWAY:
            return True
        error = error.__cause__
    return False


def exit_code_of(error: Exception) -> ExitCode:
    """Return the exit code of a PS or worker that an error ends. Raises others."""
    if is_file_away(error):
        return ExitCode.STORAGE_AWAY
    if isinstance(error, ElasticDLError):
        return error.exit_code
    raise error


def with_records(message: str, records: str) -> str:
    """Return a message that says in its first line which records it is about.

    `records`: "" leaves it as it is.
    """
    if not records:
        return message
    first, end, rest = message.partition("\n")
    return f"{first} (it was at {records}){end}{rest}"
