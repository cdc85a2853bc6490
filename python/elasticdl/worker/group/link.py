"""What a member and the master say to each other about rounds.

Owns the rounds that were told, and what the next heartbeat says of the group. The
heartbeat's thread brings rounds, the main thread says what became of them. Must not
know tasks or the model.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from elasticdl.collective.buffers import Floats
from elasticdl.collective.collective import Collective
from elasticdl.collective.messages import Round
from elasticdl.job.heartbeats import GroupFigures, GroupReport, GroupRound
from elasticdl.worker.group.measures import Measures
from elasticdl.worker.group.plan import StepSize
from elasticdl.worker.group.speeds import Speeds

# Rounds of which an order may still be on its way to the main thread.
_MOST_ROUNDS = 16


class GroupLink:
    """Rounds in, words out. Thread-safe."""

    def __init__(
        self,
        group: Collective[Floats],
        me: int,
        address: str,
        measures: Measures,
        size: StepSize | None = None,
    ) -> None:
        """Take the group, the own number, where others reach it, and a step's size."""
        self._group = group
        self.measures = measures
        self._me = me
        self._address = address
        self._size = size or StepSize()
        self._lock = threading.Lock()
        # Those that this worker is in; and the newest of all.
        self._rounds: OrderedDict[int, GroupRound] = OrderedDict()
        self._newest = 0
        self.waits = False  # the newest round has too few members for a step
        self.newcomers = False  # others are ready to get the state
        # Who leaves is told that it has to stay a while, or that it may go.
        self.stays = self.goes = False
        self._version: Callable[[], int] | None = None  # of a worker that leaves
        self._broken = 0
        self._lost = 0
        self._stateless = False
        self._differing: tuple[int, tuple[int, ...]] = 0, ()  # a round, members
        self._step_records = 0  # as the job began; 0: not known yet

    def told(self, order: GroupRound) -> None:
        """Take what the master says; a round that is not newer changes nothing.

        Beside a round that this worker is not in it copies the state, unless it leaves.
        """
        self._step_records = order.step_records or self._step_records
        with self._lock:
            if order.number >= self._newest:
                self.waits, self.newcomers = order.waits, order.newcomers
                self.stays, self.goes = order.stays, order.goes
            if order.number <= self._newest:
                return
            self._newest = order.number
            is_in = any(member.number == self._me for member in order.members)
            if is_in:
                self._rounds[order.number] = order
            elif self._version is not None:
                return
            while len(self._rounds) > _MOST_ROUNDS:
                self._rounds.popitem(last=False)
        told = Round(
            order.number,
            tuple(member.number for member in order.members),
            tuple(member.since for member in order.members),
            order.begins,
        )
        addresses = {member.number: member.address for member in order.members}
        if is_in:
            self._group.enter(told, addresses)
        else:
            self._group.listen(told, addresses)

    def round(self, number: int) -> GroupRound | None:
        """Return a round that was told."""
        with self._lock:
            return self._rounds.get(number)

    def is_newest(self, number: int) -> bool:
        """Whether no newer round was told."""
        with self._lock:
            return number >= self._newest

    def place(self, number: int) -> tuple[int, int] | None:
        """Return the own rank in a round and its number of members."""
        told = self.round(number)
        if told is None:
            return None
        numbers = [member.number for member in told.members]
        return (numbers.index(self._me), len(numbers)) if self._me in numbers else None

    def numbers(self, number: int) -> tuple[int, ...]:
        """Return the members of a round; none if it was not told."""
        told = self.round(number)
        return tuple(member.number for member in told.members) if told else ()

    @property
    def step_records(self) -> int:
        """Records of a step of all members together; 0: not known yet."""
        return self._size.records(self._step_records, self._num_members)

    @property
    def rate_scale(self) -> float:
        """What the learning rate is multiplied by for this number of members."""
        return self._size.scale(self._step_records, self._num_members)

    @property
    def size(self) -> tuple[int, int]:
        """The number of the round that this worker is in, and its members."""
        return self._group.round, self._num_members

    def differ(self, members: tuple[int, ...]) -> None:
        """Note who has another state than this worker, which leads."""
        with self._lock:
            self._differing = self._group.round, members

    @property
    def _num_members(self) -> int:
        place = self.place(self._group.round)
        return place[1] if place is not None else 0

    def weights(self, speeds: Speeds) -> tuple[float, ...]:
        """Return what each member takes of a step, by what they have said."""
        members = self.numbers(self._group.round)
        return speeds.weights(self._me, members, self._group.words)

    @property
    def leads(self) -> bool:
        """Whether this worker leads the round that it is in."""
        place = self.place(self._group.round)
        return place is not None and place[0] == 0

    @property
    def will_lead(self) -> bool:
        """Whether this worker leads the newest round that it was told."""
        with self._lock:
            newest = self._rounds.get(self._newest)
        return newest is not None and newest.members[0].number == self._me

    @property
    def others(self) -> int:
        """Number of other members in the newest round that this worker is in."""
        with self._lock:
            newest = max(self._rounds, default=0)
            return len(self._rounds[newest].members) - 1 if newest else 0

    def changes(self, made_in: int) -> bool:
        """Whether a round is over or has not begun; `made_in`: that of the last step.

        A newcomer changes rounds from the first one on that it is told.
        """
        with self._lock:
            newest = max(self._rounds, default=0)
            return newest > made_in or (0 < made_in == self._broken)

    def broke(self, number: int, lost: int) -> None:
        """Note that a round cannot go on; `lost`: without whom, -1 if not known."""
        self._ends(number, max(0, lost), stateless=False)

    def stateless(self, number: int) -> None:
        """Note that nobody in a round has a state."""
        self._ends(number, 0, stateless=True)

    def _ends(self, number: int, lost: int, *, stateless: bool) -> None:
        with self._lock:
            # Connections of the round before may break after those of the next one
            # could not be made. The master waits for a word about the newest.
            if number >= self._broken:
                self._broken, self._lost, self._stateless = number, lost, stateless

    def leave(self, version: Callable[[], int]) -> None:
        """Say from now on that this worker leaves; `version`: of its model."""
        with self._lock:
            self._version = version

    def figures(self) -> GroupFigures:
        """Return what steps with others cost, for the next heartbeat."""
        return self.measures.figures()

    def report(self) -> GroupReport:
        """Return what the next heartbeat says."""
        with self._lock:
            broken, lost, stateless = self._broken, self._lost, self._stateless
            compared_in, differing = self._differing
            version = self._version
        number, counts = self._group.round, self._group.version is not None
        return GroupReport(
            address=self._address,
            round=number,
            level=self._group.level,
            broken=broken,
            lost=lost,
            stateless=stateless,
            copied=self._group.copied,
            differing=differing if compared_in == number else (),
            leaves=version is not None,
            version=version() if version is not None and counts else 0,
        )
