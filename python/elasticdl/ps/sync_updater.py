"""Sync mode: a version is the mean of the first `quorum` gradients of the one before.

Owns which gradients those are (PS 0: SyncUpdater) and how the other PS come to the
same set without talking to it (SyncFollower). Called by ps/server.py under its lock.

A worker gives its gradient to every follower, which only stages it, and then to PS 0,
which admits or refuses it. Whoever pulls the new version brings PS 0's ticket to the
followers: the ids of the gradients that made it. A gradient that PS 0 never admitted
(its worker died in between, or was late) is never applied anywhere.

A version's gradients are added up in the order of their places in the data, not in that
of arrival, which is another one in each run: rounding would differ with it. So all of
them are kept until the set is known: on each PS at most one share of a gradient for
each worker under way, let go once the version is made.
"""

from __future__ import annotations

import threading

from elasticdl.errors import RpcError
from elasticdl.job.tasks import Ticket
from elasticdl.ps.parameters import Parameters, Push
from elasticdl.ps.updater import Control, Pin, PushAnswer
from elasticdl.rpc.ps.tensors import STALE, SYNC_WAIT_SECONDS, WAITING, PushId


class SyncUpdater:
    """Updater of PS 0 in sync mode: admits gradients and makes versions."""

    def __init__(
        self,
        parameters: Parameters,
        changed: threading.Condition,
        *,
        control: Control,
        wait_seconds: float = SYNC_WAIT_SECONDS,
    ) -> None:
        """A push waits at most `wait_seconds` on `changed` (the PS's lock)."""
        self._parameters = parameters
        self._changed = changed
        self._control = control
        self._wait_seconds = wait_seconds
        self._admitted: dict[PushId, Push] = {}
        self._ticket = Ticket(parameters.version)
        self._announced: list[str] = []
        self._error: Exception | None = None

    @property
    def follows(self) -> bool:
        return False

    @property
    def ticket(self) -> Ticket | None:
        return self._ticket

    @property
    def num_admitted(self) -> int:
        """Gradients that wait for the rest of their version."""
        return len(self._admitted)

    def push(self, push: Push) -> PushAnswer:
        parameters = self._parameters
        if push.push_id in parameters.pushed:
            return PushAnswer(
                True, parameters.version, ticket=self._ticket, duplicate=True
            )
        if push.version != parameters.version:
            return PushAnswer(False, parameters.version, STALE)
        if push.push_id not in self._admitted:
            parameters.check(push)
            self._admitted[push.push_id] = push
            self._make_version()
        self._changed.wait_for(
            lambda: self._error or push.push_id not in self._admitted,
            self._wait_seconds,
        )
        if push.push_id in parameters.pushed:
            return PushAnswer(True, parameters.version, ticket=self._ticket)
        if self._error:
            raise self._error
        return PushAnswer(False, parameters.version, WAITING)

    def _make_version(self) -> None:
        if not 0 < self._control.quorum <= len(self._admitted):
            return
        pushes = sorted(self._admitted.values(), key=lambda push: push.place)
        parameters = self._parameters
        parameters.apply(pushes, rate_factor=self._control.learning_rate_scale)
        self._admitted = {}
        self._ticket = Ticket(
            parameters.version,
            tuple(str(push.push_id) for push in pushes),
            tuple(self._announced),
            self._control.learning_rate_scale,
        )
        self._announced = []
        self._changed.notify_all()

    def advance(self, ticket: Ticket) -> None:
        """Do nothing: PS 0 writes the tickets."""

    def announce(self, snapshot: str) -> None:
        self._announced.append(snapshot)

    def control(self, control: Control) -> None:
        self._control = control
        self._make_version()

    def close(self, error: Exception) -> None:
        self._error = error
        self._changed.notify_all()


class SyncFollower:
    """Updater of the other PS: stages gradients and applies those of a ticket."""

    def __init__(self, parameters: Parameters, *, pin: Pin) -> None:
        """`pin` takes a snapshot of the present version."""
        self._parameters = parameters
        self._pin = pin
        self._staged: dict[str, Push] = {}

    @property
    def follows(self) -> bool:
        return True

    @property
    def ticket(self) -> Ticket | None:
        return None

    @property
    def num_staged(self) -> int:
        """Staged gradients that no ticket has named yet."""
        return len(self._staged)

    def push(self, push: Push) -> PushAnswer:
        """Stage a gradient; always accepted, since PS 0 alone decides.

        One of an old version is dropped here: PS 0 is at least as new and refuses it.
        """
        parameters = self._parameters
        fresh = push.version >= parameters.version
        if fresh and push.push_id not in parameters.pushed:
            parameters.check(push)
            self._staged[str(push.push_id)] = push
        return PushAnswer(True, parameters.version)

    def advance(self, ticket: Ticket) -> None:
        """Apply the gradients of a ticket that makes the next version.

        Raises RpcError when that cannot be: this PS was lost and came back, and the
        master's rewind has not reached it yet.
        """
        parameters = self._parameters
        if ticket.version <= parameters.version:
            return
        missing = [push for push in ticket.push_ids if push not in self._staged]
        if ticket.version > parameters.version + 1 or missing:
            raise RpcError(
                f"got a ticket for version {ticket.version}, this PS is at "
                f"{parameters.version} and lacks {len(missing)} of its gradients; it "
                "was lost and waits to be rewound: try again"
            )
        for snapshot in ticket.snapshots:
            self._pin(snapshot)
        pushes = [self._staged[push_id] for push_id in ticket.push_ids]
        parameters.apply(pushes, rate_factor=ticket.rate_scale)
        # Those just applied are of an old version now, as are the late ones.
        self._staged = {
            push_id: push
            for push_id, push in self._staged.items()
            if push.version >= parameters.version
        }

    def announce(self, snapshot: str) -> None:
        """Do nothing: PS 0's tickets name snapshots."""

    def control(self, control: Control) -> None:
        """Do nothing: PS 0's tickets say it all."""

    def close(self, error: Exception) -> None:
        """Do nothing: nobody waits."""
