"""Where the parameter servers are, and the connections to them.

Owns which connections live on when the PS move. Used by `rpc.ps.calls`, which replaces
it, and by `rpc.ps.client`, which reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from elasticdl.job.heartbeats import PsView
from elasticdl.job.names import Role
from elasticdl.rpc.channel import Peer, connect
from elasticdl.rpc.ps.wire import PsStub
from elasticdl.rpc.tls.identity import Identity


@dataclass(frozen=True)
class PsCallView:
    """Connections to the PS at the master's last view; replaced as a whole."""

    revision: int = -1
    rewind: int = 0
    addresses: tuple[str, ...] = ()
    generations: tuple[int, ...] = ()
    channels: tuple[grpc.Channel | None, ...] = ()
    stubs: tuple[PsStub | None, ...] = ()

    def moved_to(
        self,
        view: PsView,
        token: str,
        identity: Identity | None = None,
        *,
        lends: bool = True,
    ) -> tuple[PsCallView, list[grpc.Channel]]:
        """Return the next view, and the connections that it no longer uses.

        A PS that stayed (same address and generation) keeps its connection; calls on
        the others carry `token`, and are encrypted where this process has an
        identity. `lends`: memory, to PS of this machine.
        """
        channels: list[grpc.Channel | None] = []
        stubs: list[PsStub | None] = []
        gone = [channel for channel in self.channels if channel is not None]
        old = list(zip(self.addresses, self.generations, strict=True))
        for index, address in enumerate(view.addresses):
            channel: grpc.Channel | None = None
            stub: PsStub | None = None
            if old[index : index + 1] == [(address, view.generations[index])]:
                channel, stub = self.channels[index], self.stubs[index]
                if channel is not None:
                    gone.remove(channel)
            elif address:
                channel = connect(address, token, Peer(Role.PS, index, identity))
                # Memory is lent on one machine alone, where nothing is encrypted.
                lends_at = address if lends and not identity else ""
                stub = PsStub(channel, f"ps-{index} at {address}", lends_at)
            channels.append(channel)
            stubs.append(stub)
        moved = PsCallView(
            view.revision,
            view.rewind,
            tuple(view.addresses),
            tuple(view.generations),
            tuple(channels),
            tuple(stubs),
        )
        return moved, gone
