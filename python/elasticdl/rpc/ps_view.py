"""Where the parameter servers are, and the connections to them.

Owns which connections live on when the PS move. Used by `rpc.ps_client` alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from elasticdl.proto import master_pb2
from elasticdl.rpc.channel import connect
from elasticdl.rpc.ps_wire import PsStub


@dataclass(frozen=True)
class PsCallView:
    """The PS as last told by the master; replaced as a whole, never changed."""

    revision: int = -1
    rewind: int = 0
    addresses: tuple[str, ...] = ()
    generations: tuple[int, ...] = ()
    channels: tuple[grpc.Channel | None, ...] = ()
    stubs: tuple[PsStub | None, ...] = ()

    def moved_to(
        self, view: master_pb2.PsView, token: str
    ) -> tuple[PsCallView, list[grpc.Channel]]:
        """Return the next view, and the connections that it has no use for.

        A PS that stayed (same address and generation) keeps its connection; calls on
        the others carry `token`.
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
                channel = connect(address, token)
                stub = PsStub(channel, f"ps-{index} at {address}", address)
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
