"""How many gradients make a version in sync mode, and who may begin to train.

Owns which workers count: those at a training task, and those about to get the next one.
Called by `master.model.ps_group`, and through it by leasing. Must not give tasks out.

PS 0 makes versions by the number that it has carried out, which may be an old one: of a
moment ago, or of a master that is gone. So a worker that did not count yet is given no
task before PS 0 has carried out a number in which it does. Then no version can be made
without the gradient of a worker that trains, however late PS 0 hears of anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.job.spec.job import UpdateMode
from elasticdl.master.members.table import MemberTable
from elasticdl.master.signals import Signals
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.side_tasks import SideTasks


class Quorum:
    """The number of gradients that make a version; admits everybody without sync PS."""

    def __init__(
        self, table: MemberTable, ledger: Ledger, signals: Signals, side: SideTasks
    ) -> None:
        """Count the workers of an earlier master until they are heard."""
        self._table = table
        self._ledger = ledger
        self._signals = signals
        self._side = side
        self._training: set[int] = set()
        # About to get a next task: those of an earlier master too, until they ask.
        self._between = {m.key.index for m in table.workers() if m.ready}
        # By worker that counts: the PS revision from which on it does. Nobody begins
        # before PS 0 has heard this master: an earlier one may have told it fewer.
        self._since: dict[int, int] = {}
        self._rose_at = signals.ps_revision
        self._refused: set[int] = set()  # in the answer that is being made
        # What PS 0 has to carry out before the first of those who wait may begin.
        self._awaited: int | None = None
        self._number = 0  # not known: no PS makes a version by it
        if ledger.queue is not None:
            self.count()

    @property
    def number(self) -> int:
        """Number of gradients that make a version now; 0 if not known yet."""
        return self._number

    @property
    def counts(self) -> bool:
        """Whether versions depend on the quorum: in sync mode with PS."""
        return self._table.spec.ps.mode is UpdateMode.SYNC and self._table.ps_seats > 0

    def finished(self, worker: int) -> None:
        """Keep counting a worker that reported a task, until it asks for another.

        Otherwise a version would be made of the others' gradients alone in the moment
        between its report and its next lease.
        """
        self._between.add(worker)
        self.count([worker])

    def may_evaluate(self, worker: int) -> bool:
        """Return True: the PS hold a snapshot for whoever evaluates."""
        del worker
        return True

    def may_look_for_data(self, worker: int) -> bool:
        """Return True."""
        del worker
        return True

    def may_begin(self, worker: int) -> bool:
        """Whether a worker may be given a training task.

        If not, it counts from now on, and may once PS 0 has carried that out. While it
        has a task beside training it does not count, and would go on to a training task
        in its hands without a word: so it gets none before it has reported that one.
        """
        if not self.counts:
            return True
        if self._side.leases_of(worker):
            return False
        if worker not in self._since:
            self._between.add(worker)
            self.count([worker])
        since = self._since[worker]
        if self._obeyed() >= since:
            return True
        self._refused.add(worker)
        self._awaited = min(since, self._awaited or since)
        return False

    def side_done(self) -> None:
        """Note that a worker reported a task other than training done."""
        if self.counts:
            self._signals.work()

    def _obeyed(self) -> int:
        first = self._table.ps()[0]
        told = first.ps if first is not None else None
        return told.obeyed_revision if told is not None else -1

    def heard(self) -> None:
        """Let waiting workers ask again, after a PS was heard."""
        if self._awaited is not None and self._obeyed() >= self._awaited:
            self._awaited = None
            self._signals.work()

    def asked(self, worker: int) -> None:
        """Count a worker that was given a training task or told to wait."""
        if worker in self._refused:
            self._refused.discard(worker)
            return
        self.gone(worker)

    def gone(self, worker: int) -> None:
        """Count a worker that will be given nothing only while it trains."""
        self._refused.discard(worker)
        self._between.discard(worker)
        self.count([worker])

    def count(self, workers: Iterable[int] | None = None) -> None:
        """Recount after leases of these workers (None: of any) changed.

        Tells the PS if the number changed. A worker that holds a training task is at
        one: `may_begin` sees to it that none is read ahead while it evaluates.
        """
        if not self.counts:
            return
        spec, queue = self._table.spec, self._ledger.queue
        if workers is None:
            holders = queue.holders if queue else ()
            workers = {*holders, *self._training, *self._between}
        new = []
        for worker in workers:
            trains = bool(queue and queue.leases_of(worker))
            (self._training.add if trains else self._training.discard)(worker)
            if not (trains or worker in self._between):
                self._since.pop(worker, None)
            elif worker not in self._since:
                new.append(worker)
        wanted = spec.ps.grads_to_wait or self._table.wanted
        number = max(1, min(wanted, len(self._since) + len(new)))
        if number != self._number:
            rose, self._number = number > self._number, number
            self._signals.bump_ps()
            if rose:
                self._rose_at = self._signals.ps_revision
        self._since.update(dict.fromkeys(new, self._rose_at))
