"""What happened to replicas that ended, and what that allows for the next one.

Owns the record of relaunches (journaled as `facts.RelaunchFact`, of which the
newest are kept), their counts, the count against `maxRestarts` and the series of quick
endings. Called by `master.members.membership`. Decides with `relaunch_rules`. Must not
start or stop anything.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from elasticdl.job import status
from elasticdl.job.names import Role, role_of
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.quantity import parse_bytes
from elasticdl.job.words import EndCause, end_cause_of
from elasticdl.master.happenings import Diary, ReplacementWorks, ReplicaEnded
from elasticdl.master.members import relaunch_rules
from elasticdl.master.members.member import Member
from elasticdl.master.members.relaunch_rules import (
    GiveUp,
    Limits,
    PastEndings,
    ReplicaEnding,
    StartReplacement,
)
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.ledger import Ledger

log = logging.getLogger(__name__)

# A job of preemptible machines has many; the journal and the history name them all.
KEPT = 500
# A replica is made again after some seconds, and says the same within a minute.
_AWAY_AGAIN_SECONDS = 120.0


class Relaunches:
    """The endings of one job's replicas, and what was done about them."""

    def __init__(self, ledger: Ledger, diary: Diary) -> None:
        """Read the journal; only crashes of this run count."""
        self._ledger = ledger
        self._diary = diary
        self._kept: deque[status.Relaunch] = deque(maxlen=KEPT)
        self.total = 0
        self.recovered = 0  # replacements that worked, since this master began
        # All of the job: role and cause -> endings; the same by the reason in words.
        self.causes: Counter[tuple[str, str]] = Counter()
        self.counts: Counter[tuple[str, str]] = Counter()
        self._counted: list[float] = []  # when
        self._nowhere: dict[str, tuple[int, int]] = {}  # PS -> crashes, at checkpoint
        self._quick: dict[str, int] = {}  # "worker", "ps-0": endings in a row
        # When storage first kept a replica from starting, and when it last did.
        self._away = (0.0, -math.inf)
        self._since: dict[str, tuple[int, float]] = {}  # replacement -> record, time
        self._read(ledger)

    def _read(self, ledger: Ledger) -> None:
        noted = ledger.all_of(facts.RelaunchFact)
        self.total = ledger.count_of(facts.RelaunchFact)
        took = {
            fact.record: fact.seconds for fact in ledger.all_of(facts.RecoveredFact)
        }
        for number, fact in enumerate(noted, self.total - len(noted)):
            seconds = took.get(number)
            record = fact.record.model_copy(update={"seconds": seconds})
            self._kept.append(record)
            awaited = ledger.newest_of(facts.ReplicaFact, record.replacement)
            if awaited and record.seconds is None:
                self._since[record.replacement] = (number, record.time)
        counts = ledger.newest_of(facts.RelaunchCountsFact)
        if counts is None:  # a journal of format 1, which kept all
            run = ledger.newest_of(facts.RunFact)
            since = run.time if run else 0.0
            self.counts.update(_count_of(record) for record in self._kept)
            self.causes = _by_cause(self.counts)
            times = (fact.time for fact in noted if fact.counted)
            self._counted = [time for time in times if time >= since]
            return
        for role, by_reason in counts.counts.items():
            for reason, count in by_reason.items():
                self.counts[role, reason] = count
        # Written since causes and reasons are apart.
        known = counts.causes
        self.causes = _by_cause(self.counts) if known is None else _flat(known)
        if counts.run == ledger.count_of(facts.RunFact):
            self._counted = list(counts.counted)

    @property
    def records(self) -> Sequence[status.Relaunch]:
        """The newest records, oldest first."""
        return self._kept

    def say_since(self, time: float) -> None:
        """Report what happened after `time` (Unix seconds) under an earlier master."""
        for record in self._kept:
            works = record.time + (record.seconds or 0.0)
            if record.time > time:
                self._diary.say(ReplicaEnded(time=record.time, record=record))
            if record.seconds is not None and works > time:
                self._diary.say(ReplacementWorks(time=works, record=record))

    def counts_by_role(self) -> dict[str, dict[str, int]]:
        """Return how many replicas of each role ended, by reason."""
        return _nested(self.counts)

    def causes_by_role(self) -> dict[str, dict[str, int]]:
        """Return how many replicas of each role ended, by `EndCause`."""
        return _nested(self.causes)

    def decide(
        self, member: Member, ending: ReplicaEnding, *, spec: JobSpec, now: float
    ) -> StartReplacement | GiveUp:
        """Return what to do about an ending, and remember it."""
        series = str(Role.WORKER) if member.is_worker else member.name
        nowhere = 0 if member.is_worker else self._got_nowhere(member, ending, spec)
        history = PastEndings(
            len(self._not_forgiven(spec, now=now)),
            self._quick.get(series, 0),
            nowhere,
            self._away_seconds(ending, now=now),
        )
        limits = Limits(
            spec.worker.max_restarts,
            parse_bytes(spec.worker.memory_limit_max) if member.is_worker else 0,
            spec.master.journal_wait_seconds,
        )
        decision = relaunch_rules.decide(ending, history, limits, name=member.name)
        quick = relaunch_rules.is_quick(ending)
        self._quick[series] = history.quick + 1 if quick else 0
        counted = isinstance(decision, GiveUp) or decision.counted
        if counted and member.is_worker:
            self._counted.append(now)
        elif counted:
            self._nowhere[member.name] = (nowhere + 1, self._newest_checkpoint())
        return decision

    def _away_seconds(self, ending: ReplicaEnding, *, now: float) -> float:
        """Return for how long storage has kept replicas from starting."""
        if not relaunch_rules.waits_for_storage(ending):
            return 0.0
        since, last = self._away
        self._away = (since if now - last < _AWAY_AGAIN_SECONDS else now, now)
        return now - self._away[0]

    def _not_forgiven(self, spec: JobSpec, *, now: float) -> list[float]:
        """Return the crashes that count; old crashes of a long job are forgiven."""
        worker = spec.worker
        starts = 2.0 * (worker.max_restarts + 1) * worker.start_seconds
        since = now - max(relaunch_rules.FORGIVEN_SECONDS, starts)
        self._counted = [time for time in self._counted if time > since]
        return self._counted

    def _newest_checkpoint(self) -> int:
        noted = self._ledger.newest_of(model_facts.CheckpointFact)
        return noted.version if noted else 0

    def _got_nowhere(self, member: Member, ending: ReplicaEnding, spec: JobSpec) -> int:
        """Return how often a PS crashed since it last made progress."""
        crashes, at = self._nowhere.get(member.name, (0, 0))
        keeps = spec.checkpoint.every_seconds or spec.checkpoint.every_steps
        if keeps:
            return crashes if self._newest_checkpoint() <= at else 0
        lived = ending.lived_seconds >= relaunch_rules.PS_LIVED_SECONDS
        return 0 if lived else crashes

    def book(
        self,
        member: Member,
        decision: StartReplacement | GiveUp,
        *,
        cause: EndCause,
        replacement: Member | None,
        detail: str,
        now: float,
    ) -> None:
        """Record what was done about an ending."""
        self._since.pop(member.name, None)  # its own coming is awaited no longer
        if replacement is not None:
            self._since[replacement.name] = (self.total, now)
        # It may be cut: what a traceback says is its last line.
        detail = relaunch_rules.error_first(detail)
        name = replacement.name if replacement else ""
        if name and isinstance(decision, StartReplacement) and decision.memory_bytes:
            mebibytes = decision.memory_bytes / 2**20
            detail = f"{name} may use {mebibytes:.0f} MiB of memory\n{detail}"
        record = status.Relaunch(
            replica=member.name,
            reason=decision.reason,
            cause=cause,
            replacement=name,
            time=now,
            detail=detail[:2000],
            why_not="" if replacement else _why_not(decision),
        )
        self._kept.append(record)
        self._diary.say(ReplicaEnded(time=now, record=record))
        self.total += 1
        self.counts[_count_of(record)] += 1
        self.causes[role_of(record.replica), cause] += 1
        counted = isinstance(decision, GiveUp) or decision.counted
        self._ledger.record(
            facts.RelaunchFact(
                **record.model_dump(), counted=counted and member.is_worker
            )
        )
        self._ledger.record(
            facts.RelaunchCountsFact(
                run=self._ledger.count_of(facts.RunFact),
                counted=[*self._counted],
                counts=self.counts_by_role(),
                causes=self.causes_by_role(),
            )
        )
        log.warning(
            "%s ended: %s; %s",
            member.name,
            decision.reason,
            f"replaced by {name}" if name else "not replaced",
        )

    def works(self, name: str, *, now: float) -> None:
        """Note the first work of a replacement, and how long that took."""
        number, since = self._since.pop(name, (-1, now))
        if number < 0:
            return
        seconds = round(now - since, 3)
        self.recovered += 1
        self._ledger.record(facts.RecoveredFact(record=number, seconds=seconds))
        place = number - (self.total - len(self._kept))
        if place < 0:
            return
        record = self._kept[place].model_copy(update={"seconds": seconds})
        self._kept[place] = record
        self._diary.say(ReplacementWorks(time=now, record=record))
        log.info(
            "%s works %.1f s after the end of %s",
            record.replacement,
            seconds,
            record.replica,
        )


def _count_of(record: status.Relaunch) -> tuple[str, str]:
    return role_of(record.replica), record.reason


def _nested(counts: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (role, name), count in sorted(counts.items()):
        found.setdefault(role, {})[name] = count
    return found


def _flat(counts: Mapping[str, Mapping[str, int]]) -> Counter[tuple[str, str]]:
    return Counter(
        {(role, name): n for role, named in counts.items() for name, n in named.items()}
    )


def _by_cause(reasons: Mapping[tuple[str, str], int]) -> Counter[tuple[str, str]]:
    """Return the counts by cause of a journal that has reasons in words only."""
    counts: Counter[tuple[str, str]] = Counter()
    for (role, reason), count in reasons.items():
        counts[role, end_cause_of(reason)] += count
    return counts


def _why_not(decision: StartReplacement | GiveUp) -> str:
    if isinstance(decision, GiveUp):
        return f"the job fails: {decision.message}"
    return "as many workers as are wanted stay without it"
