"""Who of several controllers decides: a Lease, taken, renewed, lost, given back.

Owns the Lease and when it was last renewed. Run by `controller.main`; asked before
each write. `next_move` is pure. Nobody's clock is compared with another's: a holder
counts as gone when its Lease was not seen to change for as long as it says.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from elasticdl.kube.api import ApiServer
from elasticdl.kube.errors import ApiError

log = logging.getLogger(__name__)

Json = dict[str, Any]
_GROUP = "/apis/coordination.k8s.io/v1"
_ANOTHER = (404, 409)  # it is gone, or was written by somebody else


@dataclass(frozen=True)
class LeaseTimes:
    """How long a Lease lasts, and what follows from it; seconds."""

    lasts: float = 15.0  # without a renewal, until somebody else may take it
    every: float = 5.0  # it is renewed, or looked at
    # Longer than that after its last renewal a holder writes nothing: somebody else may
    # be about to.
    fence: float = 10.0


@dataclass(frozen=True)
class Seen:
    """A Lease as it was read, and since when it looks so."""

    holder: str
    version: str
    since: float  # our own steady clock
    lasts: float


class Move(enum.Enum):
    """What to do with a Lease."""

    MAKE = "make"  # there is none
    TAKE = "take"  # nobody has it, or who had it is gone
    RENEW = "renew"
    WAIT = "wait"


def next_move(seen: Seen | None, me: str, *, now: float) -> Move:
    """Return what a candidate does."""
    if seen is None:
        return Move.MAKE
    if seen.holder == me:
        return Move.RENEW
    if not seen.holder or now - seen.since > seen.lasts:
        return Move.TAKE
    return Move.WAIT


def next_look(times: LeaseTimes, *, leads: bool, wrong: bool) -> float:
    """Return in how many seconds the Lease is renewed, or looked at, again.

    `wrong`: it is another one than it was. Whoever led looks at once: somebody may have
    deleted it, and the next one made it anew.
    """
    if not leads:
        return times.every / 2
    return 0.0 if wrong else times.every


class Leadership:
    """One candidate for one Lease."""

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        name: str,
        me: str,
        times: LeaseTimes,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`me`: a name that no other candidate has."""
        self._api = api
        self._all = f"{_GROUP}/namespaces/{namespace}/leases"
        self._path = f"{self._all}/{name}"
        self._namespace, self._name, self._me = namespace, name, me
        self._times = times
        self._clock = clock
        self._seen: Seen | None = None
        self._item: Json | None = None
        self._renewed = float("-inf")  # when the last renewal that came through began
        self._answered = float("-inf")
        self._told = False
        self.changed = asyncio.Event()

    @property
    def may_write(self) -> bool:
        """Whether this candidate holds the Lease, as of less than `fence` ago."""
        return self._clock() - self._renewed < self._times.fence

    @property
    def silence(self) -> float:
        """Seconds since the API server last answered."""
        return self._clock() - self._answered

    async def run(self) -> None:
        """Take the Lease when it is free and renew it, for ever."""
        while True:
            began = self._clock()
            try:
                async with asyncio.timeout(self._times.lasts):
                    await self._try_once()
                wrong = False
            except (ApiError, TimeoutError) as error:
                log.info("the Lease %s: %s", self._name, _words(error))
                # Somebody else was quicker, or nothing is known: looked at again.
                self._item = None
                wrong = isinstance(error, ApiError) and error.status in _ANOTHER
            self._tell()
            spent = self._clock() - began
            pause = next_look(self._times, leads=self._told, wrong=wrong)
            await asyncio.sleep(max(0.1, pause - spent))

    async def give_back(self) -> None:
        """Let the next one begin at once. Never raises."""
        if not self.may_write or self._item is None:
            return
        self._renewed = float("-inf")
        try:
            async with asyncio.timeout(self._times.every):
                # A renewal may have been under way.
                self._look(await self._read())
                if self._seen is not None and self._seen.holder == self._me:
                    await self._put(self._with(""))
        except (ApiError, TimeoutError) as error:
            log.info("the Lease %s is not given back: %s", self._name, _words(error))

    async def _try_once(self) -> None:
        began = self._clock()
        if self._item is None or not self.may_write:
            self._look(await self._read())
        move = next_move(self._seen, self._me, now=self._clock())
        if move is Move.WAIT:
            self._renewed = float("-inf")
            return
        if move is Move.MAKE:
            made = await self._api.request("POST", self._all, body=self._new())
        else:
            made = await self._put(self._with(self._me))
        self._answered = self._clock()
        self._look(made)
        self._renewed = began

    async def _read(self) -> Json | None:
        try:
            item = await self._api.request("GET", self._path)
        except ApiError as error:
            if error.status != 404:
                raise
            item = None
        self._answered = self._clock()
        return item

    async def _put(self, item: Json) -> Json:
        return await self._api.request("PUT", self._path, body=item)

    def _look(self, item: Json | None) -> None:
        self._item = item
        if item is None:
            self._seen = None
            return
        spec, version = item.get("spec") or {}, item["metadata"]["resourceVersion"]
        if self._seen is None or self._seen.version != version:
            self._seen = Seen(
                holder=spec.get("holderIdentity") or "",
                version=version,
                since=self._clock(),
                lasts=float(spec.get("leaseDurationSeconds") or self._times.lasts),
            )

    def _new(self) -> Json:
        metadata = {"name": self._name, "namespace": self._namespace}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": self._spec(self._me, {}),
        }

    def _with(self, holder: str) -> Json:
        item = self._item or self._new()
        return {**item, "spec": self._spec(holder, item.get("spec") or {})}

    def _spec(self, holder: str, before: Json) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        same = before.get("holderIdentity") == holder
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, round(self._times.lasts)),
            "acquireTime": before.get("acquireTime", now) if same else now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (not same),
        }

    def _tell(self) -> None:
        if self.may_write != self._told:
            self._told = self.may_write
            log.info("%s the Lease %s", "holds" if self._told else "lost", self._name)
            self.changed.set()


def _words(error: ApiError | TimeoutError) -> str:
    return str(error) or "no answer in time"
