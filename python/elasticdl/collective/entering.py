"""The thread in which a member connects to the others of the newest round.

Owns that thread and which round it is to connect next, and closes connections that are
over. Made by `collective.group`, which calls it under its lock but for `end`, and which
it calls under that lock once a round's members are connected. Must not know the
protocol, nor what is sent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from elasticdl.collective.links import Door, Links, Listener
from elasticdl.collective.messages import Broken, Round
from elasticdl.collective.rounds import NotReachedError, RoundLinks, connect_all

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entrant:
    """What entering asks of its group.

    Attributes:
        connected: Takes a round whose members are connected; called under the lock.
        lost: Takes the number of a round, the member that was lost, and why.
        broken: Takes that a member of a round was not reached.
    """

    connected: Callable[[Round], None]
    lost: Callable[[int, int, str], None]
    broken: Callable[[Broken], None]


class Entering:
    """Connects to the members of the round that is wanted, until it is stopped."""

    def __init__(
        self,
        me: int,
        door: Door,
        listener: Listener,
        *,
        wake: threading.Condition,
        links: RoundLinks,
        to: Entrant,
    ) -> None:
        """Begin to wait for rounds.

        `wake`: the group's, on its lock; whoever calls from the group wakes it.
        """
        self._me = me
        self._door = door
        self._listener = listener
        self._wake = wake
        self._links = links
        self._to = to
        self._wanted: tuple[Round, Mapping[int, str]] | None = None
        self._stopped = False
        self._thread = threading.Thread(
            target=self._run, name="group-rounds", daemon=True
        )
        self._thread.start()

    @property
    def wanted(self) -> Round | None:
        """The round that is to be connected next; None once that has begun."""
        return self._wanted[0] if self._wanted else None

    def want(self, wanted: Round, addresses: Mapping[int, str]) -> None:
        """Connect to the members of this round; one before it is given up."""
        self._wanted = wanted, dict(addresses)

    def forget(self) -> None:
        """Want no round any more; one whose connections are being made is finished."""
        self._wanted = None

    def stop(self) -> None:
        """Have the thread end; `end` waits for it."""
        self._stopped = True

    def end(self) -> None:
        """Wait for the thread, and end all connections. Called without the lock."""
        self._thread.join()
        with self._wake:
            self._links.end()
        self._close_links()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._wanted or self._links.over or self._stopped):
                    self._wake.wait()
                if self._stopped:
                    return
                wanted, self._wanted = self._wanted, None
            self._close_links()
            if wanted is not None:
                self._connect(*wanted)

    def _close_links(self) -> None:
        with self._wake:
            over = self._links.taken_over()
        for links in over:
            links.close()

    def _connect(self, wanted: Round, addresses: Mapping[int, str]) -> None:
        def go_on() -> bool:
            return self._wanted is None and not self._stopped

        try:
            connections = connect_all(
                self._me, wanted, addresses, self._door, self._listener, go_on=go_on
            )
        except NotReachedError as error:
            if self._wanted is None:  # else it is over: there is a newer one
                log.warning("Round %d cannot begin: %s", wanted.number, error)
                self._to.broken(Broken(wanted.number, error.member))
            return
        links = Links(*connections, on_lost=partial(self._to.lost, wanted.number))
        with self._wake:
            self._links.expect(wanted.number, links)
            self._to.connected(wanted)
