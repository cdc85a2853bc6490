"""The worker's heartbeat: one long-poll after another, beside everything else.

Owns the thread and the newest orders of the master: where the PS are, whether to
drain, which leases are lost, which local snapshot is wanted. Read by the trainers and
the loop. Must not import TensorFlow: it beats before and while that is imported.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from elasticdl.errors import FencedError, RpcError
from elasticdl.job.heartbeats import (
    PsView,
    SnapshotDone,
    WorkerHeartbeat,
    WorkerOrders,
    WorkerReport,
)
from elasticdl.job.tasks import ReplicaId
from elasticdl.rpc.held_call import HeldCall

log = logging.getLogger(__name__)

Sync = Callable[[WorkerHeartbeat], WorkerOrders | None]
MOST_WAIT_SECONDS = 1.0  # A worker notices news within a second even if its call fails.


class Heartbeat:
    """Sends heartbeats and keeps the master's answers. Thread-safe."""

    def __init__(
        self,
        sync: Sync,
        replica: ReplicaId,
        *,
        status: Callable[[list[SnapshotDone]], WorkerReport],
        seconds: float,
        on_fenced: Callable[[str], None],
        on_reply: Callable[[WorkerOrders], None],
        held: HeldCall | None = None,
    ) -> None:
        """Prepare; `start` begins.

        Args:
            sync: Master.WorkerSync; None if `held` was withdrawn. Raises RpcError or
                FencedError.
            replica: Who this is.
            status: Makes the worker's part of a heartbeat, which carries the given
                local checkpoints.
            seconds: Time between two heartbeats.
            on_fenced: Called once, with the reason, when the master has given this
                worker up. Nothing it does counts any more.
            on_reply: Called with each answer, in this thread (log level ...).
            held: The call that `sync` makes, for what cannot wait for its answer.
        """
        self._sync = sync
        self._replica = replica
        self._status = status
        self._seconds = seconds
        self._on_fenced = on_fenced
        self._on_reply = on_reply
        self._held = held or HeldCall()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._latest = WorkerOrders(learning_rate_scale=1.0, active_workers=1)
        self._view = PsView()
        self._lost: set[int] = set()
        self._snapshots: list[SnapshotDone] = []
        self._drain = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    @property
    def latest(self) -> WorkerOrders:
        """The newest answer."""
        return self._latest

    @property
    def view(self) -> PsView:
        """The known addresses of the PS."""
        return self._view

    @property
    def drain(self) -> threading.Event:
        """Set when this worker has to hand back its tasks and leave."""
        return self._drain

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the call in progress; does not wait for it."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()

    def is_lost(self, lease_id: int) -> bool:
        """Whether a lease was given to another worker."""
        return lease_id in self._lost

    def regain(self, leases: Iterable[int]) -> None:
        """Forget that these leases were lost: they are this worker's again."""
        with self._changed:
            self._lost.difference_update(leases)

    def tell_snapshot(self, done: SnapshotDone) -> None:
        """Report a local checkpoint to the master until it drops the request."""
        with self._changed:
            self._snapshots = [s for s in self._snapshots if s.id != done.id] + [done]
        if done.file or done.error:
            self.hurry()

    def hurry(self) -> None:
        """Send the next heartbeat now: the master waits for what it tells."""
        self._held.withdraw()

    def learn_view(self, view: PsView) -> None:
        """Take a view that arrived by another call, if it is newer."""
        with self._changed:
            if view.revision >= self._view.revision:
                self._view = view
            self._changed.notify_all()

    def wait_for_view(self, newer_than: int, seconds: float) -> PsView:
        """Wait for a view with a higher revision; return the newest one then."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._view.revision > newer_than or self._stop.is_set(), seconds
            )
            return self._view

    def _run(self) -> None:
        wait = self._seconds / 8
        while not self._stop.is_set():
            self._held.begins()
            status = self._status(list(self._snapshots))
            self._held.tells(status.model_version)
            try:
                reply = self._sync(
                    WorkerHeartbeat(
                        replica=self._replica,
                        worker=status,
                        seen_revision=self._latest.revision,
                        hold_seconds=self._held.hold_seconds(self._seconds),
                    )
                )
            except FencedError as error:
                self._stop.set()
                self._on_fenced(str(error))
                return
            except RpcError as error:
                # The master is away; it comes back under the same address.
                log.debug("heartbeat not delivered: %s", error)
                self._stop.wait(wait)
                wait = min(wait * 2, MOST_WAIT_SECONDS)
                continue
            if reply is None:  # withdrawn: there is news
                self._stop.wait(self._held.pause_seconds())
                continue
            wait = self._seconds / 8
            self._held.awaits(reply.awaited_version)
            self._take(reply)

    def _take(self, reply: WorkerOrders) -> None:
        with self._changed:
            self._latest = reply
            self._lost.update(reply.lost_leases)
            if reply.ps.revision >= self._view.revision:
                self._view = reply.ps
            wanted = reply.local_snapshot.id
            self._snapshots = [s for s in self._snapshots if s.id == wanted]
            if reply.drain:
                self._drain.set()
            self._changed.notify_all()
        self._on_reply(reply)
