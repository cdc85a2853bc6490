"""The group of workers that all have a job's model: who is in it, what a loss costs.

Owns the rules of strategy allReduce: when a round of the group ends and who is in the
next one (`rendezvous` decides that, from the words in `gathering`), who leads, which
checkpoint it begins with. Made by `master.assembly`; called as a `ModelHolder`. Must
not launch anything or write checkpoints, nor know what workers say to each other.

Every member has all of the model, so that only the loss of all of them costs something:
then data and model go back to the newest checkpoint. The tasks of a leader that was
lost go to the next one, which stands where the leader stood. A round is in the journal
before anybody hears of it: its number is never used for another one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from elasticdl.collective.messages import Round
from elasticdl.job.heartbeats import GroupMember, GroupReport, GroupRound, LocalSnapshot
from elasticdl.job.names import Role
from elasticdl.job.status import GroupOut, GroupStatus
from elasticdl.job.words import ReplicaState, RoundCause
from elasticdl.master.happenings import RoundBegan, RoundWorks
from elasticdl.master.members.member import Member
from elasticdl.master.model.group.gathering import Gathering, Here
from elasticdl.master.model.group.rendezvous import Formed, decide, waits
from elasticdl.master.model.group.status import Changes, Outside, last_of, out_of
from elasticdl.master.model.holder import Around, Leading, ModelHolder
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.facts import Restore
from elasticdl.runner.base import ReplicaKey

log = logging.getLogger(__name__)

# Others may be there: newcomers, who were copying the state.
_NOBODY_HAS_IT = "no member with the model's state was left"
_LAST_LEAVES = "the last worker that has the model leaves"


class GroupHolder(ModelHolder):
    """Holder of a model that all workers have (strategy allReduce)."""

    outlives_workers = False
    waits_for_minimum = True
    hands_over = True

    def __init__(self, around: Around) -> None:
        """Continue at the state in the journal."""
        self._leading = Leading()
        super().__init__(around, self._leading)
        self._words = Gathering(self._there)
        self._formed: Formed | None = None
        self._order: GroupRound | None = None
        self._index: dict[int, int] = {}  # of each member of the round
        self._acknowledged = self.begun  # something, since the model was taken back
        self._anew = ""
        self._changes = Changes()
        self._repairs = 0
        self._looked_at = 0.0
        self._formed_here = False
        noted = self._ledger.newest_of(model_facts.GroupRoundFact)
        if noted is not None:
            self._take(noted)
            self._changes = Changes(noted.number, noted.changes_seconds)

    # -- what replicas begin with, and are told ------------------------------------

    @property
    def known(self) -> bool:
        """Whether the leader has the group's state."""
        leader = self._leader()
        return leader is not None and self._is_level(leader)

    @property
    def decided(self) -> tuple[int, ...]:
        """The number of rewinds and of the newest round."""
        return (self.rewind, self._order.number if self._order else 0)

    def holds(self, member: Member) -> bool:
        """Whether it is a member of the newest round."""
        return self._is_in(member)

    @property
    def can_regroup(self) -> bool:
        """Whether a member of the newest round is left."""
        return any(self._is_in(m) and not m.drain for m in self._running())

    def registered(self, member: Member, *, now: float) -> Restore:
        """Return nothing: what a member begins with comes with its round."""
        del now
        return member.restore or member.begin_with(Restore())

    def asks_worker(self, member: Member) -> LocalSnapshot | None:
        """Return the snapshot that the leader has to write, if there is one."""
        return self._keeper.asks_worker() if member is self._leader() else None

    def _counts_steps(self, member: Member) -> bool:
        return member is self._leader()

    def round_of(self, member: Member) -> GroupRound | None:
        """Return the newest round; to a worker outside, whose state it can copy."""
        order = self._order
        said = self._words.said(member.generation)
        stays = member.alive and not member.drain
        ready = said is not None and (stays or said.leaves)
        if order is None or not (ready or self._is_in(member)):
            return None
        plan = self._ledger.plan
        goes = self._words.may_go(member.generation)
        return replace(
            order,
            step_records=plan.batch_size if plan else 0,
            waits=self.num_waiting is not None,
            newcomers=self._words.has_newcomers,
            stays=not goes and self._words.leaves(_here(member)),
            goes=goes,
        )

    @property
    def num_waiting(self) -> int | None:
        """Members that make no step, since there are fewer than have to be."""
        least, formed = self._table.spec.worker.min, self._formed
        if least <= 1:
            return None  # asked with each heartbeat: nobody is counted
        if formed is not None and waits(formed, least=least):
            return len(formed.round.members)
        ready = len(self._words.standings())
        return ready if 0 < ready < least else None

    @property
    def group(self) -> GroupStatus | None:
        """Who makes steps together now, and why."""
        formed, out = self._formed, self._out()
        if formed is None:
            return GroupStatus(
                round=0, members=[], level=False, why="", since=0.0, out=out
            )
        return GroupStatus(
            round=formed.round.number,
            members=[formed.names[number] for number in formed.round.members],
            level=self.known,
            why=formed.why,
            cause=formed.cause or "",
            since=formed.at,
            change_seconds=self._changes.seconds,
            changes_seconds=self._changes.all_seconds,
            repairs=self._repairs,
            last=last_of(one for one in self._running() if self._is_in(one)),
            out=out,
        )

    def _out(self) -> list[GroupOut]:
        """Return who runs and is in no round."""
        kept_out = self._formed.kept_out if self._formed else {}
        standings = self._words.standings()
        ready = {w.worker: kept_out.get(w.worker, (0, 0.0))[1] for w in standings}
        copying = frozenset(one.worker for one in standings if not one.copied)
        short = len(ready) < self._table.spec.worker.min
        around = Outside(ready, copying, short, self._looked_at)
        return out_of((m for m in self._running() if not self._is_in(m)), around)

    def _running(self) -> Iterator[Member]:
        return (one for one in self._table.workers() if one.alive)

    def _is_in(self, member: Member) -> bool:
        return member.generation in self._index

    # -- what replicas say ---------------------------------------------------------

    def heard_worker(self, member: Member, *, now: float) -> None:
        """Take what a worker says of its group, and the leader's version."""
        report = member.worker.group if member.worker else GroupReport()
        if not report.address:
            return
        self._note(member, report, now=now)
        if report.leaves:
            self._let_go()
        if member is not self._leader() or member.worker is None:
            return
        formed = self._formed
        if self._changes.heard(member.worker.group_figures) and formed is not None:
            self._tell_works(formed, now=now)
        version = member.worker.model_version
        if version:
            self.version = max(self.version, version)
            self.begins(now=now)

    def _note(self, member: Member, report: GroupReport, *, now: float) -> None:
        number, words = member.generation, self._words
        is_new, others = words.said(number) is None, words.has_newcomers
        changed = words.hear(number, report, now=now)
        if is_new:
            if not others:
                self._signals.bump()  # a leader that is about to leave waits for it
            self._signals.wake()
        elif changed:
            self._signals.wake()
            self._signals.work()  # the leader may be level by now

    def _tell_works(self, formed: Formed, *, now: float) -> None:
        seconds = self._changes.seconds
        if seconds is not None and self._formed_here:
            self._signals.diary.say(
                RoundWorks(time=now, number=formed.round.number, seconds=seconds)
            )

    def begins(self, *, now: float) -> None:
        """Note that training has begun, or goes on after it went back."""
        self._acknowledged = True
        super().begins(now=now)

    # -- losses --------------------------------------------------------------------

    def lost(self, member: Member, *, now: float) -> None:
        """Abort the checkpoint of a leader; the next round is without the member."""
        del now
        self.left(member)

    def left(self, member: Member) -> None:
        """Abort the checkpoint of a leader; the next round is without the member."""
        self._words.lost(member.generation)
        if self._index.get(member.generation) == self._leading.leader:
            self._keeper.abort()
        self._signals.wake()

    def heir(self, member: Member) -> int | None:
        """Return the next oldest member, which knows where the leader stood."""
        if self._formed is None or member.generation not in self._index:
            return None
        for number in self._formed.round.members:
            other = self._table.members.get(self._key(number))
            if (
                other is not None
                and other is not member
                and other.generation == number
                and other.alive
            ):
                return self._index[number]
        return None

    def tick(self, *, now: float) -> None:
        """Form the next round if it is time for one."""
        self._looked_at = now
        if self._table.settling:
            return  # who was not heard of yet may be there
        standings = self._words.standings()
        # A later one makes no step either, but has a state: for checkpoints, newcomers.
        least = self._table.spec.worker.min if self._formed is None else 1
        if len(standings) < max(1, least):
            return
        trained = self._acknowledged and not self._anew
        if trained and self._words.nobody_has_it(standings):
            self.go_back(self._why_all_are_gone(_NOBODY_HAS_IT), now=now)
        formed = decide(
            self._formed,
            standings,
            begins=not self._acknowledged,
            now=now,
            least=self._table.spec.worker.min,
            anew=self._anew,
        )
        if formed is not None:
            self._form(formed)
        self._let_go()
        self._save(now=now)

    def _take_back(self, version: int, *, loads: bool, now: float) -> None:
        """Let all members begin with the checkpoint, in a round of its own."""
        self._acknowledged = False
        self._anew = "training goes back"
        super()._take_back(version, loads=loads, now=now)

    # -- members that leave --------------------------------------------------------

    def job_is_over(self) -> None:
        """Let everybody go."""
        super().job_is_over()
        self._words.ends()

    def _let_go(self) -> None:
        for _ in self._words.let_go(self._is_saved):
            self._signals.bump()
            self._signals.wake()  # the next round is without it

    def _is_saved(self, version: int) -> bool:
        newest = self._keeper.newest
        return version <= (newest.manifest.version if newest else 0)

    def _save(self, *, now: float) -> None:
        """Ask for a checkpoint if the only member with the state leaves."""
        keeper = self._keeper
        tries = not keeper.problem or keeper.schedule.may_hurry(now=now)
        if tries and self._words.has_to_save(self._is_saved):
            keeper.ask(_LAST_LEAVES, now=now)

    # -- rounds --------------------------------------------------------------------

    def _there(self) -> list[Here]:
        return [_here(member) for member in self._table.workers()]

    def _form(self, formed: Formed) -> None:
        before = self._formed.round.leader if self._formed is not None else None
        now, members = formed.at, []
        differing = self._words.differing()
        if differing:
            log.warning("Round %d: %s", formed.round.number, formed.why)
        for number, since in zip(formed.round.members, formed.round.since, strict=True):
            key = self._key(number)
            said = self._words.said(number)
            address = said.address if said else self._address(number)
            members.append(
                model_facts.GroupMemberFact(
                    number=number, index=key.index, address=address, since=since
                )
            )
        fact = model_facts.GroupRoundFact(
            number=formed.round.number,
            members=tuple(members),
            begins=formed.round.begins,
            restore_dir=self.rewind_dir if self.rewind else self.origin.dir,
            time=now,
            why=formed.why,
            cause=formed.cause or "",
            changes_seconds=self._changes.all_seconds,
            repairs=self._repairs + bool(differing),
        )
        self._ledger.record(fact)
        self._changes.began(fact.number)
        self._formed_here = True  # by this master: nobody has told of it
        anew, self._anew = self._anew, ""
        self._take(fact, formed)
        if before != formed.round.leader:
            self._keeper.abort()
        if not anew:
            # The leader stands where the one before stood: every member does.
            self._ledger.hand_over(self._leading.leader, now=now)
        names = tuple(formed.names[number] for number in formed.round.members)
        log.info("Round %d: %s (%s)", fact.number, ", ".join(names), fact.why)
        self._signals.diary.say(
            RoundBegan(time=now, number=fact.number, members=names, why=fact.why)
        )
        self._signals.bump()
        self._signals.work()

    def _take(
        self, fact: model_facts.GroupRoundFact, formed: Formed | None = None
    ) -> None:
        self._formed = formed or Formed(
            Round(
                fact.number,
                tuple(one.number for one in fact.members),
                tuple(one.since for one in fact.members),
                fact.begins,
            ),
            at=fact.time,
            why=fact.why,
            cause=RoundCause(fact.cause) if fact.cause else None,
            names={m.number: f"worker-{m.index}" for m in fact.members},
        )
        self._words.forms(self._formed.round)
        self._repairs = fact.repairs
        self._order = GroupRound(
            fact.number,
            tuple(GroupMember(m.number, m.address, m.since) for m in fact.members),
            fact.begins,
            fact.restore_dir,
        )
        self._index = {one.number: one.index for one in fact.members}
        self._leading.led_by(fact.members[0].index)

    def _leader(self) -> Member | None:
        if self._formed is None:
            return None
        number = self._formed.round.leader
        member = self._table.members.get(self._key(number))
        return member if member and member.generation == number else None

    def _is_level(self, member: Member) -> bool:
        report = member.worker.group if member.worker else GroupReport()
        number = self._order.number if self._order else 0
        return member.alive and report.level and report.round == number

    def _address(self, number: int) -> str:
        members = self._order.members if self._order else ()
        return next((one.address for one in members if one.number == number), "")

    def _key(self, number: int) -> ReplicaKey:
        for member in self._table.workers():
            if member.generation == number:
                return member.key
        return ReplicaKey(Role.WORKER, self._index.get(number, -1))


def _here(member: Member) -> Here:
    return Here(
        member.generation,
        member.name,
        alive=member.alive,
        runs=member.state is ReplicaState.RUNNING and not member.lost_by,
        drains=member.drain,
    )
