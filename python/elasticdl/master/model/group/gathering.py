"""What the workers of a group have said: who is ready, has the state, leaves, may go.

Owns these words, and what follows from them and from who is there; the rules themselves
are `rendezvous`'s. Made by `group.holder`, and by tests that play the master. Must not
know heartbeats' other parts, the journal, checkpoints, or why a worker is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from elasticdl.collective.messages import Round
from elasticdl.job.heartbeats import GroupReport
from elasticdl.master.model.group.rendezvous import Present, Standing, is_last, may_go


@dataclass(frozen=True)
class Here:
    """A worker that is there."""

    number: int  # which no other process of the job has had
    name: str = ""  # for people
    alive: bool = True  # it may be in the next round
    runs: bool = True  # its process is there, and nobody has counted it out
    drains: bool = False  # it was told to leave


@dataclass
class Said:
    """What a worker has said of its group."""

    ready_at: float
    report: GroupReport
    broken_at: float = 0.0
    level_in: int = 0  # the last round in which it had the state


class Gathering:
    """The words of all workers, by their numbers."""

    def __init__(self, here: Callable[[], Iterable[Here]]) -> None:
        """Begin without a word.

        Args:
            here: Returns the workers that are there.
        """
        self._here = here
        self._said: dict[int, Said] = {}
        self._free: set[int] = set()  # those that leave, and were told that they may
        self._round: Round | None = None
        self._since: dict[int, int] = {}  # of each member of the newest round
        self._is_over = False

    # -- what happens --------------------------------------------------------------

    def forms(self, newest: Round) -> None:
        """Note the newest round."""
        self._round = newest
        self._since = dict(zip(newest.members, newest.since, strict=True))

    def ends(self) -> None:
        """Let everybody go: the job is over."""
        self._is_over = True

    def hear(self, number: int, report: GroupReport, *, now: float) -> bool:
        """Take a worker's word; return whether it is another one than its last."""
        said = self._said.setdefault(number, Said(now, report))
        if report.broken != said.report.broken:
            said.broken_at = now
        if report.level or report.version:
            said.level_in = report.round
        changed = report != said.report
        said.report = report
        return changed

    def lost(self, number: int) -> None:
        """Forget a worker that is no longer there."""
        self._said.pop(number, None)
        self._free.discard(number)

    def let_go(self, is_saved: Callable[[int], bool]) -> list[int]:
        """Let members go that say that they leave, one after the other; return them.

        Args:
            is_saved: Whether a checkpoint has a version.
        """
        found = []
        for one in self._speakers():
            report = self._said[one.number].report
            if not report.leaves or self.may_go(one.number):
                continue
            saved = is_saved(report.version)
            if may_go(one.number, self._present(), saved=saved):
                self._free.add(one.number)
                found.append(one.number)
        return found

    # -- what is known -------------------------------------------------------------

    def said(self, number: int) -> GroupReport | None:
        """Return a worker's last word."""
        said = self._said.get(number)
        return said.report if said else None

    @property
    def has_newcomers(self) -> bool:
        """Whether a worker that is not in the newest round has spoken."""
        return bool(self._said.keys() - self._since.keys())

    def leaves(self, one: Here) -> bool:
        """Whether a worker was told to leave, or says that it does."""
        report = self.said(one.number)
        return one.drains or (report is not None and report.leaves)

    def may_go(self, number: int) -> bool:
        """Whether a member that leaves was let go."""
        return self._is_over or number in self._free

    def standings(self) -> list[Standing]:
        """Return who could be in the next round."""
        found, differing = [], self.differing()
        for one in self._here():
            said = self._said.get(one.number)
            if said is None and one.number in self._since:
                # Of an earlier master's round: what it said is not known here.
                said = Said(0.0, GroupReport())
            stays = one.alive and not self.leaves(one)
            if said is None or not (stays or self._is_last(one.number)):
                continue
            found.append(
                Standing(
                    one.number,
                    ready_at=said.ready_at,
                    broken=said.report.broken,
                    broken_at=said.broken_at,
                    lost=said.report.lost or -1,
                    copied=said.report.copied,
                    differs=one.number in differing,
                    name=one.name,
                )
            )
        return found

    def nobody_has_it(self, standings: Iterable[Standing]) -> bool:
        """Whether the state of the newest round is lost with those who had it."""
        if self._round is None:
            return False
        here = {one.worker for one in standings}
        stayed = [member for member in self._since if member in here]
        words = [report for m in stayed if (report := self.said(m)) is not None]
        number = self._round.number
        return not stayed or any(w.stateless and w.broken == number for w in words)

    def has_to_save(self, is_saved: Callable[[int], bool]) -> bool:
        """Whether the leader leaves with what neither others nor a checkpoint have."""
        if self._round is None or not self._is_last(self._round.leader):
            return False
        report = self._said[self._round.leader].report
        return report.leaves and not is_saved(report.version)

    def differing(self) -> tuple[int, ...]:
        """Return whose state is not as that of the leader of the newest round."""
        if self._round is None:
            return ()
        report = self.said(self._round.leader)
        if report is None or report.round != self._round.number:
            return ()
        return tuple(report.differing)

    def _speakers(self) -> list[Here]:
        """Return who runs and has spoken, also who leaves."""
        return [one for one in self._here() if one.runs and one.number in self._said]

    def _present(self) -> list[Present]:
        return [
            Present(
                one.number,
                has_state=self._has_state(one.number),
                leaves=self.leaves(one),
                let_go=self.may_go(one.number),
            )
            for one in self._speakers()
        ]

    def _is_last(self, number: int) -> bool:
        """Whether a member that leaves has what nobody else has who will be there."""
        return is_last(number, self._present())

    def _has_state(self, number: int) -> bool:
        """Whether a member is level since it is one, and has the leader's values."""
        said, since = self._said.get(number), self._since.get(number)
        if said is None or since is None:
            return False
        return said.level_in >= since and number not in self.differing()
