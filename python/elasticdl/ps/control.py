"""The PS's side of its talk with the master: registration, heartbeat, orders.

Owns that loop. Started by ps/main.py. Knows nothing of parameters: it hands orders to
ParameterServer and figures to the master.

The loop's thread never waits for the PS's lock: orders are carried out by a thread of
their own, since a snapshot of a large shard takes longer than the master lets a silent
PS live.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from elasticdl.errors import RpcError
from elasticdl.job.context import set_log_level
from elasticdl.job.heartbeats import (
    PsHeartbeat,
    PsOrders,
    Registration,
)
from elasticdl.pauses import growing
from elasticdl.ps.figures import PsFigures, report_of
from elasticdl.ps.server import ParameterServer
from elasticdl.ps.snapshots import WantedSnapshot
from elasticdl.ps.traffic import Usage
from elasticdl.ps.updater import Control
from elasticdl.rpc.held_call import HeldCall
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.retry import is_transient, retry

log = logging.getLogger(__name__)

# While the master waits for something (a start, a snapshot) it is told this often: at
# first soon, since a small snapshot takes no longer, then more rarely, since workers
# need the CPU to start.
_PENDING_SECONDS = 0.05
_LONG_PENDING_SECONDS = 0.25
_LEAST_PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class PsLife:
    """State that other threads of the PS process read and set."""

    stop: threading.Event = field(default_factory=threading.Event)
    registered: threading.Event = field(default_factory=threading.Event)
    held: HeldCall = field(default_factory=HeldCall)


@dataclass(frozen=True)
class _Order:
    """The master's answer; it is complete, so only the last one counts."""

    control: Control
    requests: list[WantedSnapshot]
    rewind: int


class _Orders:
    """The newest order that was not carried out yet. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: _Order | None = None

    def put(self, order: _Order) -> None:
        with self._changed:
            self._newest = order
            self._changed.notify_all()

    def serve(self, carry_out: Callable[[_Order], None]) -> None:
        """Carry out one after another, for ever."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._newest is not None)
                order, self._newest = self._newest, None
            if order is not None:
                carry_out(order)


class ControlLoop:
    """Registers the PS, then sends heartbeats and carries out orders."""

    def __init__(
        self,
        server: ParameterServer,
        master: MasterClient,
        registration: Registration,
        *,
        life: PsLife,
        heartbeat_seconds: float,
        keep_versions: bool,
        usage: Usage,
    ) -> None:
        """Take the server, the master and their settings.

        `keep_versions`: a PS that comes back alone does not use a version twice.
        `life.registered` is set once the master knows this PS.
        `life.held` is told by `server` what it reaches.
        """
        self._usage = usage
        self._held = life.held
        self._server = server
        self._master = master
        self._registration = registration
        self._stop = life.stop
        self._heartbeat_seconds = heartbeat_seconds
        self._keep_versions = keep_versions
        self._revision = 0
        self._pending_beats = 0  # in a row
        self._log_level = ""  # as the master said last
        self._registered = life.registered
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._orders = _Orders()

    def run(self) -> None:
        """Run until the master or `stop` ends it.

        Raises FencedError when this PS was replaced, RefusedError when the master
        does not know such a PS, and whatever else broke the loop: a PS that does not
        talk to its master must not go on.
        """
        self._thread.start()
        threading.Thread(target=self._carry_out, name="orders", daemon=True).start()
        # The loop may be in a call that a hung master does not answer.
        self._stop.wait()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._register()
            while not self._stop.is_set():
                self._beat()
        except RpcError as error:
            if not self._stop.is_set():
                self._error = error
        except Exception as error:  # noqa: BLE001 - top of the thread; `run` raises it
            self._error = error
        finally:
            self._stop.set()

    def _carry_out(self) -> None:
        try:
            self._orders.serve(
                lambda order: self._server.control(
                    order.control, order.requests, rewind=order.rewind
                )
            )
        except Exception as error:  # noqa: BLE001 - top of the thread; `run` raises it
            self._error = error
            self._stop.set()

    def _register(self) -> None:
        reply = retry(
            lambda: self._master.register(self._registration), stop=self._stop
        )
        if self._registered.is_set():
            # Known already: a rewind that came meanwhile is told, with the checkpoint
            # to load, in the next heartbeat's answer; this one names none.
            return
        log.info(
            "Registered with the master (generation %d, rewind %d)",
            reply.master_generation,
            reply.ps.rewind,
        )
        self._registered.set()
        self._begin(
            reply.ps.rewind,
            reply.restore_dir,
            reply.min_version if self._keep_versions else 0,
            handback=reply.handback,
        )

    def _begin(
        self,
        rewind: int,
        restore_dir: str,
        min_version: int = 0,
        *,
        handback: bool = False,
    ) -> None:
        # Loading may take longer than the master lets a silent PS live.
        threading.Thread(
            target=self._server.begin,
            kwargs={
                "rewind": rewind,
                "restore_dir": Path(restore_dir) if restore_dir else None,
                "min_version": min_version,
                "handback": handback,
            },
            name="restore",
            daemon=True,
        ).start()

    def _beat(self) -> None:
        self._held.begins()
        figures = self._server.figures()
        self._held.tells(figures.version)
        request = PsHeartbeat(
            status=report_of(figures, self._usage),
            seen_revision=self._revision,
            hold_seconds=self._held.hold_seconds(self._hold_seconds(figures)),
        )
        try:
            reply = self._master.ps_sync(request, self._held)
        except RpcError as error:
            if not is_transient(error):
                raise
            log.warning("%s; trying again until it answers", error)
            # A master that was restarted has to be told the address again.
            self._revision = 0
            self._register()
            return
        if reply is None:  # withdrawn: there is news
            self._stop.wait(self._held.pause_seconds())
            return
        self._held.awaits(reply.awaited_version)
        self._obey(reply)
        # Against a master that answers at once each time.
        self._stop.wait(_LEAST_PAUSE_SECONDS)

    def _hold_seconds(self, figures: PsFigures) -> float:
        """Return how long the master may hold the next heartbeat without news."""
        if not figures.pending and figures.obeyed >= self._revision:
            self._pending_beats = 0
            return self._heartbeat_seconds
        self._pending_beats += 1
        pause = growing(
            self._pending_beats - 1, first=_PENDING_SECONDS, most=_LONG_PENDING_SECONDS
        )
        return min(pause, self._heartbeat_seconds)

    def _obey(self, reply: PsOrders) -> None:
        self._revision = reply.revision
        if reply.log_level and reply.log_level != self._log_level:
            self._log_level = reply.log_level
            set_log_level(reply.log_level)
        if reply.stop:
            log.info("The job is over")
            self._stop.set()
            return
        figures = self._server.figures()
        if reply.rewind > figures.rewind:
            self._begin(reply.rewind, reply.restore_dir)
            return
        requests = [
            WantedSnapshot(request.id, request.dir, request.ticket)
            for request in reply.snapshots
        ]
        control = Control(
            reply.quorum, reply.learning_rate_scale or 1.0, reply.revision
        )
        self._orders.put(_Order(control, requests, reply.rewind))
