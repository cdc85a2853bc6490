"""The local platform: parent of all of a job's processes.

Owns the table of replicas, their processes, the CPUs that workers share and the pipe
whose end tells every process that the launcher is gone. Held by the launcher
(`client.local.launcher`); reached by the master and the CLI through
`runner.local.platform_server`. Must not decide what to relaunch, nor know the job's
specification.

One lock guards the table; every change goes through `_changed`, which wakes watchers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from elasticdl.errors import PlatformError
from elasticdl.job import names
from elasticdl.job.names import Role
from elasticdl.job.words import ExitReason
from elasticdl.runner.base import Launch, ObservedReplica, Phase, ReplicaKey
from elasticdl.runner.last_words import last_words, signal_name
from elasticdl.runner.local import capacity as scheduling
from elasticdl.runner.local.capacity import ClaimState
from elasticdl.runner.local.processes import (
    ChildProcess,
    Intent,
    ProcessEnding,
    by_nobody_known,
    explain,
    out_of_memory,
)
from elasticdl.runner.local.table import (
    JobPlace,
    Replica,
    TableChange,
    claim_of,
    is_worker,
    name_of,
)
from elasticdl.runner.local.temporary import make_folder, remove_folder, variables
from elasticdl.runner.oom import OomKills

log = logging.getLogger(__name__)

_CANNOT_START = 126  # as a shell says it
# Replicas that ended are shown until so many others have: a master that was away learns
# how they did. One that is not shown any more counts as taken away, and a worker's log
# goes with it: a job of preemptible machines has a hundred thousand of them.
_KEPT_ENDED = 500


def _of_pods(name: str) -> bool:
    """Whether a variable belongs to the pod in which the launcher may run."""
    return name in names.POD_ENVIRONMENT


class LocalPlatform:
    """Starts, stops, signals and schedules the processes of one job. Thread-safe."""

    def __init__(
        self, place: JobPlace, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Open the lifeline; `clock` gives Unix seconds for the states."""
        self._place = place
        self._clock = clock
        self._condition = threading.Condition()
        self._oom_kills = OomKills()
        self._replicas: dict[int, Replica] = {}
        self._numbers = count(1)
        self._revision = 0
        self._ended_numbers: deque[int] = deque()  # in the order in which they ended
        self._capacity: float | None = None
        self._closed = False
        self._address = ""
        self._lifeline_read, self._lifeline_write = os.pipe()

    def announce(self, address: str) -> None:
        """Set the address of this platform's server, for the processes."""
        self._address = address

    # What the master asks for.

    def start(self, launch: Launch) -> None:
        """Start a replica, or keep it pending until a CPU is free.

        The same generation again changes nothing. A newer one takes the place of an
        older one, which is killed if it still lives. Raises PlatformError for a
        generation older than one known, and after the platform was closed.
        """
        with self._condition:
            if self._closed:
                raise PlatformError("the local platform is closing; nothing starts now")
            for old in self._of_key(launch.key):
                known = old.launch.generation
                if known == launch.generation:
                    return
                if known > launch.generation:
                    raise PlatformError(
                        f"{name_of(launch.key)}: got generation {launch.generation}, "
                        f"but {known} is known; the caller is an old master"
                    )
                self._supersede(old)
            number = next(self._numbers)
            state = ObservedReplica(
                launch.key, launch.generation, Phase.PENDING, since=self._clock()
            )
            self._replicas[number] = Replica(launch, number, state)
            self._changed(number, state)
            self._schedule()

    def stop(self, key: ReplicaKey, *, grace_seconds: float, reason: str) -> bool:
        """Send SIGTERM, then SIGKILL after the grace time; whether it was there."""
        with self._condition:
            replica = self._live(key)
            if replica is None:
                return False
            self._end(replica, Intent.DELETED, grace_seconds, reason)
            self._schedule()
            return True

    # Fault injection.

    def signal(self, key: ReplicaKey, number: int) -> int:
        """Send a signal to a running replica; its pid, or 0 if there is none.

        The platform behaves as if somebody else had sent it.
        """
        with self._condition:
            replica = self._live(key)
            if replica is None or replica.child is None:
                return 0
            if number in (signal.SIGTERM, signal.SIGINT) and (
                replica.intent is Intent.NONE
            ):
                # A replica that leaves in good order on it was stopped by somebody.
                replica.intent = Intent.DELETED
                replica.note = f"{signal_name(number)} by hand"
            return replica.child.pid if replica.child.send(number) else 0

    def set_capacity(self, cpus: float | None) -> tuple[int, int, int]:
        """Set the workers' CPUs; return the running, preempted and pending workers."""
        with self._condition:
            self._capacity = cpus
            self._revision += 1
            preempted = self._schedule()
            workers = [r for r in self._replicas.values() if is_worker(r)]
            self._condition.notify_all()
            running = sum(
                r.holding is ClaimState.RUNNING for r in workers if not r.ended
            )
            pending = sum(r.state.phase is Phase.PENDING for r in workers)
            return running, preempted, pending

    # What is seen.

    def states(self) -> TableChange:
        """Return all replicas, including ended ones."""
        with self._condition:
            return self._since(0)

    def next_change(self, seen: int, *, timeout_seconds: float) -> TableChange:
        """Wait for a revision after `seen`; no states if none came in time."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._revision > seen or self._closed, timeout_seconds
            )
            return self._since(seen)

    def wake(self) -> None:
        """Wake all waiters in `next_change`."""
        with self._condition:
            self._condition.notify_all()

    @property
    def closed(self) -> bool:
        """Whether nothing will start or change any more."""
        return self._closed

    # The end.

    def close(self, *, grace_seconds: float) -> None:
        """End all processes and wait until they are gone; none is left behind."""
        with self._condition:
            self._closed = True
            live = [replica for replica in self._replicas.values() if not replica.ended]
            for replica in live:
                self._end(replica, Intent.DELETED, grace_seconds, "job ended")
            self._condition.notify_all()
        for replica in live:
            if replica.child is not None:
                replica.child.wait_ended(grace_seconds + 30.0)
        with contextlib.suppress(OSError):
            os.close(self._lifeline_write)
        with contextlib.suppress(OSError):
            os.close(self._lifeline_read)

    # All below is called with the lock held.

    def _of_key(self, key: ReplicaKey) -> list[Replica]:
        return [r for r in self._replicas.values() if r.launch.key == key]

    def _live(self, key: ReplicaKey) -> Replica | None:
        live = [r for r in self._of_key(key) if not r.ended]
        return max(live, key=lambda r: r.launch.generation, default=None)

    def _supersede(self, old: Replica) -> None:
        if not old.ended:
            self._end(old, Intent.DELETED, 0.0, "a newer generation was started")
        if old.ended:
            del self._replicas[old.number]

    def _since(self, seen: int) -> TableChange:
        changed = [r for r in self._replicas.values() if r.revision > seen]
        changed.sort(key=lambda r: r.revision)
        return TableChange(
            tuple(r.state for r in changed), self._revision, self._capacity
        )

    def _changed(self, number: int, state: ObservedReplica) -> None:
        self._revision += 1
        replica = self._replicas[number]
        replica.state = state
        replica.revision = self._revision
        self._condition.notify_all()

    def _schedule(self) -> int:
        """Start and preempt by capacity; return how many were preempted."""
        if self._closed:
            return 0
        waiting = [
            r
            for r in self._replicas.values()
            if r.holding is ClaimState.WAITING and not r.ended
        ]
        blocked = {r.number: r for r in waiting if self._predecessor(r) is not None}
        for replica in waiting:
            if replica.number in blocked:
                self._wait_because(replica, "waiting for its predecessor to end")
            elif not is_worker(replica):
                self._spawn(replica)
        plan = scheduling.plan(
            [
                claim_of(r)
                for r in self._replicas.values()
                if is_worker(r) and not r.ended and r.number not in blocked
            ],
            self._capacity,
        )
        for number in plan.preempt:
            replica = self._replicas[number]
            grace_seconds = replica.launch.grace_seconds
            self._end(replica, Intent.PREEMPTED, grace_seconds, "CPUs taken away")
        for number in plan.start:
            self._spawn(self._replicas[number])
        for number, reason in plan.waiting.items():
            self._wait_because(self._replicas[number], reason)
        return len(plan.preempt)

    def _predecessor(self, replica: Replica) -> Replica | None:
        """Return an older generation of the same replica that still lives."""
        for other in self._of_key(replica.launch.key):
            if other.number < replica.number and not other.ended:
                return other
        return None

    def _wait_because(self, replica: Replica, reason: str) -> None:
        if replica.state.pending_reason != reason:
            self._changed(replica.number, replace(replica.state, pending_reason=reason))

    def _spawn(self, replica: Replica) -> None:
        launch = replica.launch
        role, index = launch.key.role, launch.key.index
        temporary: Path | None = None
        try:
            env = self._environment(launch)
            if role is Role.WORKER:  # it alone runs code that writes such files
                temporary = make_folder(name_of(launch.key), env)
                env |= variables(temporary)
            replica.child = ChildProcess(
                self._place.command(role),
                env=env,
                log_file=self._place.job_dir.log_file(role, index),
                pass_fds=(self._lifeline_read,),
                temporary=temporary,
                on_exit=lambda code: self._exited(replica.number, code),
            )
        except OSError as error:
            if temporary is not None:
                remove_folder(temporary)
            ending = ProcessEnding(Phase.FAILED, ExitReason.ERROR, _CANNOT_START)
            self._ended(replica, ending, f"the process could not be started: {error}")
            return
        self._changed(
            replica.number,
            replace(
                replica.state,
                phase=Phase.RUNNING,
                pending_reason="",
                since=self._clock(),
                pid=replica.child.pid,
            ),
        )

    def _environment(self, launch: Launch) -> dict[str, str]:
        given = {k: v for k, v in self._place.environ.items() if not _of_pods(k)}
        # An empty entry is the current folder, from which no role imports (`-P`).
        path = given.pop("PYTHONPATH", "").split(os.pathsep)
        if folders := list(filter(None, path)):
            given["PYTHONPATH"] = os.pathsep.join(folders)
        return {
            # As in a pod: gRPC prints a line for each peer that goes.
            "GRPC_VERBOSITY": "ERROR",
            **given,
            "PYTHONUNBUFFERED": "1",  # what user code prints must survive a SIGKILL
            **launch.env,
            names.ENV_JOB_DIR: str(self._place.job_dir.root),
            names.ENV_ROLE: str(launch.key.role),
            names.ENV_INDEX: str(launch.key.index),
            names.ENV_GENERATION: str(launch.generation),
            names.ENV_MASTER_ADDRESS: self._place.master_address,
            names.ENV_TOKEN: self._place.token,
            names.ENV_LAUNCH: self._place.launch,
            names.ENV_PLATFORM_ADDRESS: self._address,
            names.ENV_LIFELINE_FD: str(self._lifeline_read),
        }

    def _end(
        self, replica: Replica, intent: Intent, grace_seconds: float, note: str
    ) -> None:
        """Start ending a replica; a pending one ends at once."""
        if replica.intent is Intent.NONE:
            replica.intent, replica.note = intent, note
        child = replica.child
        if child is None:
            self._ended(replica, explain(-signal.SIGTERM, replica.intent), note)
            return
        if grace_seconds <= 0:
            child.send(signal.SIGKILL)
            return
        child.send(signal.SIGTERM)
        if replica.timer is None:
            # A stopped process does not see SIGTERM; SIGKILL ends it all the same.
            replica.timer = threading.Timer(
                grace_seconds, child.send, (signal.SIGKILL,)
            )
            replica.timer.daemon = True
            replica.timer.start()

    def _ended(self, replica: Replica, ending: ProcessEnding, message: str) -> None:
        self._changed(
            replica.number,
            replace(
                replica.state,
                phase=ending.phase,
                reason=ending.reason,
                exit_code=ending.exit_code,
                pending_reason="",
                since=self._clock(),
                message=message,
            ),
        )
        self._ended_numbers.append(replica.number)
        if len(self._ended_numbers) > _KEPT_ENDED:
            forgotten = self._replicas.pop(self._ended_numbers.popleft(), None)
            if forgotten is not None and is_worker(forgotten):
                self._remove_log(forgotten)

    def _remove_log(self, worker: Replica) -> None:
        """Remove the log of a worker, whose index is never used again."""
        file = self._place.job_dir.log_file(Role.WORKER, worker.launch.key.index)
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s: cannot be removed: %s", file, error.strerror)

    def _exited(self, number: int, returncode: int) -> None:
        """Called from the thread that waited for the process; takes the lock."""
        with self._condition:
            replica = self._replicas[number]
            if replica.timer is not None:
                replica.timer.cancel()
            ending = explain(returncode, replica.intent)
            by_kernel = by_nobody_known(ending) and self._oom_kills.explain_one()
            # A master that was killed goes on from its journal, whoever did it.
            if by_kernel and replica.launch.key.role is not Role.MASTER:
                ending = out_of_memory(ending)
            words = replica.note or ending.signal_name
            if ending.reason is ExitReason.ERROR and replica.child is not None:
                words = last_words(replica.child.end_of_log(), words)
            self._ended(replica, ending, words)
            if any(r.number > number for r in self._of_key(replica.launch.key)):
                del self._replicas[number]  # watchers see its successor instead
            self._schedule()
