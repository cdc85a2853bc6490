"""Which updates went with async PS, and which of them a master had been told of.

Owns both numbers, by PS, and when a job begins a second time instead: launched again
before any worker was answered that a task counts as trained, it has lost nothing, for
it trains everything. Called by `world`, which watches PS, masters and workers; read by
the invariants. Believes no count of the product: what a PS held is read off its values,
what a master was told off the calls that it took, what counts off masters' answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Applied:
    """An update that a PS made."""

    time: float
    ps: int
    pid: int
    version: int  # after it
    push_ids: tuple[str, ...]
    tasks: tuple[int, ...]  # of the pushes


@dataclass
class _Life:
    """One PS process at one rewind."""

    pid: int
    parameters: Any
    rewind: int
    launch: int  # of the job, by the user
    told: int  # the newest version of it that a master was told of
    journaled: int  # that one of which a worker was answered that it counts
    master: int = 0  # that was told


class Losses:
    """Lives of PS, from the values that one begins with to those of the next."""

    def __init__(
        self,
        applied: dict[int, list[Applied]],
        batch_size: int,
        initial: Sequence[Any] = (),
        version: int = 0,
    ) -> None:
        """Take the list of updates by PS, which the world fills.

        `initial`: what each PS of the job begins with, none if that is zeros; and the
        version of that.
        """
        self._initial = initial
        self._version = version
        self.lost: dict[int, int] = defaultdict(int)  # updates, by PS
        self.untold: dict[int, int] = defaultdict(int)  # of these
        self._applied = applied
        self._batch_size = batch_size
        self._lives: dict[int, _Life] = {}
        # By PS: what was known when the next one asked what it begins with.
        self._known: dict[int, int] = {}
        # By lease whose report was taken: the master that took it first, its rewind.
        self._taken: dict[int, tuple[int, int]] = {}
        # By such a lease: the PS, its process and its version that the report told.
        self._reported: dict[int, list[tuple[int, int, int]]] = {}
        self._counts: set[int] = set()  # rewinds in which a task counts as trained

    def begins(
        self, ps: int, pid: int, parameters: Any, rewind: int, *, launch: int
    ) -> bool:
        """A PS has values; return whether it is to go on from those of the one before.

        Not so after a rewind, which takes back what it trains again. Nor in another
        launch, if nobody was ever answered that a task of this rewind counts as trained
        (the journal's disk was full, say): no worker of the launch before is there, all
        that they held is given out again, whole, and no record can be missing.
        """
        before, known = self._lives.get(ps), self._known.pop(ps, None)
        version = parameters.version
        self._lives[ps] = _Life(pid, parameters, rewind, launch, version, version)
        if before is None or before.rewind != rewind:
            return False
        anew = version == self._version and not self.trained(ps).any()
        if anew and launch != before.launch and rewind not in self._counts:
            return False
        gone = float(before.parameters.shard.values.sum())
        count = round((gone - float(parameters.shard.values.sum())) / self._batch_size)
        if count > 0:
            self.lost[ps] += count
            told = before.told if known is None else known
            self.untold[ps] += min(count, before.parameters.version - told)
        return True

    def trained(self, ps: int) -> Any:
        """Return how often a PS holds each record on top of what the job began with.

        Or held when it ended; None if it never did.
        """
        life = self._lives.get(ps)
        if life is None:
            return None
        values = life.parameters.shard.values
        return values - self._initial[ps] if len(self._initial) else values

    def missed(self) -> int:
        """Return how many updates other PS made, and one that was lost never got.

        Their workers were lost before they could repeat them: where nobody who lives
        knows what a PS had, they count as lost with it.
        """
        made = {
            ps: {one for update in updates for one in update.push_ids}
            for ps, updates in self._applied.items()
        }
        everything = set().union(*made.values())
        return sum(len(everything - made.get(ps, set())) for ps in self.lost)

    def told(self, ps: int, version: int, master: int) -> None:
        """A master was told of a version of a PS, by whomever."""
        life = self._lives.get(ps)
        if life is not None and ps not in self._known:
            _now_led_by(life, master)
            life.told = max(life.told, min(version, life.parameters.version))

    def told_all(self, versions: Sequence[int], master: int) -> None:
        """A master was told of a version of each PS."""
        for ps, version in enumerate(versions):
            self.told(ps, version, master)

    def reported(
        self, worker: int, generation: int, task: int, lease: int, master: int
    ) -> None:
        """A master took a report: it knows now that all of the task is applied."""
        mark = f"{worker}-{generation}-"
        for ps, life in self._lives.items():
            for one in reversed(self._applied[ps]):
                if one.pid != life.pid:
                    break
                if _is_of(one, mark, task):
                    self.told(ps, one.version, master)
                    told = (ps, life.pid, one.version)
                    self._reported.setdefault(lease, []).append(told)
                    break

    def taken(self, lease: int, master: int, rewind: int) -> None:
        """A master took a report of a trained task, at this rewind.

        A repeated one is of the first one's rewind; a lease that another master gives
        once more is none that anybody was answered about.
        """
        if self._taken.get(lease, (0, 0))[0] != master:
            self._taken[lease] = master, rewind

    def answered(self, lease: int) -> None:
        """A worker was answered that a task which it trained counts."""
        for ps, pid, version in self._reported.get(lease, ()):
            life = self._lives.get(ps)
            if life is not None and life.pid == pid:
                life.journaled = max(life.journaled, version)
        if lease in self._taken:
            self._counts.add(self._taken[lease][1])

    def asked(self, ps: int, master: int) -> None:
        """A PS has asked what it begins with: later words are of another life."""
        life = self._lives.get(ps)
        if life is not None:
            _now_led_by(life, master)
            self._known[ps] = life.told


def _now_led_by(life: _Life, master: int) -> None:
    """Forget what a lost master alone was told; who lives tells the next one again."""
    if life.master != master:
        life.master, life.told = master, life.journaled


def _is_of(one: Applied, mark: str, task: int) -> bool:
    pushes: Iterable[tuple[str, int]] = zip(one.push_ids, one.tasks, strict=True)
    return any(push.startswith(mark) and of == task for push, of in pushes)
