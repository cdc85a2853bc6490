"""The connections of a member's rounds: the present one, the next, and those before.

Owns which of them are used, and how all members of a round are connected. Called by
`collective.group` and `collective.entering`, under the group's lock but for
`connect_all`. Must not know what is sent.

A round's connections are made while the members still make steps in the one before.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping

from elasticdl.collective import wire
from elasticdl.collective.links import Door, Links, Listener, Outgoing, connect
from elasticdl.collective.messages import Round
from elasticdl.errors import RpcError

_ROUND_SECONDS = 5.0  # until all members of a round have to be connected
_Connections = tuple[dict[int, Outgoing], dict[int, socket.socket]]


class RoundLinks:
    """Connections by round. Whoever is `over` has to be closed, without the lock."""

    def __init__(self) -> None:
        """Begin outside all rounds."""
        self.present: Links | None = None
        self.over: list[Links] = []
        self._pending: dict[int, Links] = {}
        # Of rounds before the present one: others may still need what was sent.
        self._lingering: list[Links] = []

    def expect(self, number: int, links: Links) -> None:
        """Keep the connections of a round that will be entered."""
        self._pending[number] = links

    def drop_before(self, number: int) -> None:
        """Give up rounds that were not entered, before this one."""
        for early in [one for one in self._pending if one < number]:
            self.over.append(self._pending.pop(early))

    def enter(self, number: int) -> None:
        """Use the connections of a round; those of the one before linger."""
        if self.present is not None:
            self._lingering.append(self.present)
        self.present = self._pending.pop(number, None)

    def leave(self) -> bool:
        """End what lingers: nothing more is sent on it when this returns.

        Returns whether there is anything to close.
        """
        for links in self._lingering:
            links.shut()
        self.over += self._lingering
        self._lingering.clear()
        return bool(self.over)

    def end(self) -> None:
        """End everything."""
        if self.present is not None:
            self._lingering.append(self.present)
        self._lingering += self._pending.values()
        self.present = None
        self._pending.clear()
        self.leave()

    def taken_over(self) -> list[Links]:
        """Return what has to be closed, once."""
        over, self.over = self.over, []
        return over


class NotReachedError(RpcError):
    """A member of a round was not reached in time."""

    def __init__(self, message: str, member: int) -> None:
        """Name the member."""
        super().__init__(message)
        self.member = member


def connect_all(
    me: int,
    wanted: Round,
    addresses: Mapping[int, str],
    door: Door,
    listener: Listener,
    *,
    go_on: Callable[[], bool],
) -> _Connections:
    """Return a connection to each other member, and one from each.

    All members try the others in the same order, so that all of them name the same one
    that does not answer. Raises NotReachedError; also when `go_on` says no.
    """
    until = time.monotonic() + _ROUND_SECONDS

    def in_time() -> bool:
        return time.monotonic() <= until and go_on()

    listener.drop_before(wanted.number)
    others = [member for member in wanted.members if member != me]
    outgoing: dict[int, Outgoing] = {}
    incoming: dict[int, socket.socket] = {}
    member = -1
    try:
        for member in others:
            greeting = wire.Greeting(wanted.number, me, member)
            outgoing[member] = connect(addresses[member], greeting, door, go_on=in_time)
        for member in others:
            incoming[member] = listener.take(wanted.number, member, go_on=in_time)
    except (RpcError, KeyError) as error:
        made = [to.connection for to in outgoing.values()]
        for connection in (*made, *incoming.values()):
            connection.close()
        raise NotReachedError(str(error), member) from error
    return outgoing, incoming
