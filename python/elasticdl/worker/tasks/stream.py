"""The worker's tasks: leased, read ahead, reported.

Owns the talk with the master about tasks: the next tasks, whose records are read while
the one before is trained, and reports that are sent until acknowledged, in the call
that leases the next tasks where there is one. How many at a time is said by `ahead`,
which takes from the answers how often the master has time for a call. An
unreachable master is waited for; it never means that there is no more work. What a
report says is in `reports`. Called by the loop. Must not import TensorFlow.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from elasticdl.errors import (
    ExitCode,
    FencedError,
    RpcError,
    is_storage_away,
)
from elasticdl.job.tasks import (
    LeaseReply,
    LeaseRequest,
    ReplicaId,
    Task,
    TaskReport,
    TaskType,
)
from elasticdl.pauses import growing
from elasticdl.worker.tasks.ahead import Ahead
from elasticdl.worker.tasks.outbox import LaterReport, Outbox
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.tasks.reports import returned, storage_away, unread

log = logging.getLogger(__name__)

Lease = Callable[[LeaseRequest], LeaseReply]
# A lease call is held by the master for so long; short, because a worker that leaves
# waits for the end of the call so that no task is leased to nobody.
POLL_SECONDS = 1.0
# While the master is away a call fails in the channel, which connects at its own pace
# (rpc.channel): tried often, because a worker may have nothing left to train.
FIRST_RETRY_SECONDS = 0.05
MOST_RETRY_SECONDS = 0.25
# Tasks of the job's records; all others are beside them.
_OF_RECORDS = {TaskType.TRAINING, TaskType.PREDICTION}
# A task that storage did not give is handed back after so long.
STORAGE_SECONDS = 2.0


class TaskStream:
    """Leases tasks ahead and sends their reports. Thread-safe."""

    def __init__(
        self,
        lease: Lease,
        replica: ReplicaId,
        *,
        load: Callable[[Task], LoadedTask],
        describe: Callable[[str, BaseException], str],
        on_fenced: Callable[[str], None],
        far_ahead: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the calls to the master; `start` begins to lease.

        Args:
            lease: Master.Lease; raises RpcError or FencedError.
            replica: Who this is.
            load: Reads a task's records; DataError and OSError become reports.
            describe: (what ran, what it raised) -> one line with the user's file:line.
            on_fenced: Called with the reason when the master has given this worker up.
            far_ahead: Short tasks may be leased and reported several at a time. Else
                none is leased during one beside training, such as an evaluation: a
                worker does not count for a sync version meanwhile, and would begin a
                training task that it has already without being counted again.
            clock: Seconds, steady.
        """
        self._lease = lease
        self._replica = replica
        self._load = load
        self._describe = describe
        self._on_fenced = on_fenced
        lock = threading.RLock()
        # The caller of `next` and of `close` waits for the one, the two threads for the
        # other: each thread that wakes takes Python's lock from the training step.
        self._changed = threading.Condition(lock)
        self._due = threading.Condition(lock)
        self._ready: deque[LoadedTask] = deque()
        self._outbox = Outbox()
        self._far_ahead = far_ahead
        self._goes_on: Callable[[int], bool] | None = None
        self._ahead = Ahead(far=far_ahead)
        self._beside = 0  # lease of the task beside training that was taken last
        self._beside_done = False  # it is: the next one of its round may be there
        self._clock = clock
        self._waited_seconds = 0.0  # since the last task was taken
        self._report_since = 0.0  # when the oldest waiting report came
        self._urgent = False  # a report waits that may not wait for others
        self._held: set[int] = set()
        self._leasing = False  # the lease thread is in a call
        self._loading = 0  # leased, not read yet
        self._reading = 0  # the lease whose records are being read
        self._steps_wait = False
        self._calls = self._steps_wait_since = 0  # begun; and when steps waited last
        self._finished = False
        self._away = False
        self._draining = False
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run_leases, name="lease", daemon=True),
            threading.Thread(target=self._run_reports, name="report", daemon=True),
        ]

    def take_over(self, goes_on: Callable[[int], bool]) -> None:
        """Ask for the tasks that were another worker's and are this one's now.

        `goes_on`: whether somebody goes on with the task of a lease, who knows where it
        stands. Such a task is never handed back: others would begin it anew.
        """
        self._goes_on = goes_on

    def start(self) -> None:
        """Begin to lease."""
        for thread in self._threads:
            thread.start()

    @property
    def held(self) -> list[int]:
        """The leases that this worker holds; heartbeats renew them."""
        with self._changed:
            return sorted({*self._held, *self._outbox.lease_ids})

    @property
    def has_next(self) -> bool:
        """Whether `next` would return a task at once."""
        return bool(self._ready)

    def ready(self) -> list[LoadedTask]:
        """Return the tasks that `next` would return at once, without taking them."""
        with self._changed:
            return list(self._ready)

    @property
    def reading(self) -> int:
        """The lease of the task being read; 0 if there is none."""
        return self._reading

    @property
    def steps_wait(self) -> bool:
        """Whether an evaluation goes on, by the master's last answer."""
        return self._steps_wait

    def next(
        self, seconds: float, *, reading: int = 0, in_round: bool = False
    ) -> LoadedTask | None:
        """Wait for a task; None if none came in time or none will come.

        None too as soon as something else is `reading` than the caller knows of, and
        with `in_round` as soon as no evaluation has steps wait any more.
        """
        with self._changed:
            if not self._ready:
                asked = self._clock()
                self._changed.wait_for(
                    lambda: (
                        bool(self._ready)
                        or self.ended
                        or self._reading != reading
                        or (in_round and not self._steps_wait)
                    ),
                    seconds,
                )
                self._waited_seconds += self._clock() - asked
            if not self._ready:
                return None
            task = self._ready.popleft()
            if task.task.type not in _OF_RECORDS:
                self._beside = task.task.lease_id
            self._ahead.took(waited_seconds=self._waited_seconds, now=self._clock())
            self._waited_seconds = 0.0
            self._notify_due()
            return task

    @property
    def ended(self) -> bool:
        """Whether no task will come any more."""
        return (self._finished or self._draining) and not (self._ready or self._loading)

    def report(
        self, report: TaskReport | LaterReport, *, can_wait: bool = False
    ) -> None:
        """Queue a task's report; it is sent until it is acknowledged.

        One that `can_wait` does so for a moment, for others to go with it.
        """
        with self._changed:
            self._held.discard(report.lease_id)
            self._beside_done |= report.lease_id == self._beside
            first = not self._outbox.waiting
            self._post(report, urgent=not can_wait)
            # From the first one on the threads know how long they may sleep.
            if first or self._urgent or self._beside_done:
                self._notify_due(begins=first)

    def forget(self, lease_id: int) -> None:
        """Drop a task whose lease was lost, without a report."""
        with self._changed:
            self._held.discard(lease_id)

    def adopt(self, leases: Iterable[int]) -> None:
        """Name leases of another worker that this one goes on with."""
        with self._changed:
            self._held.update(leases)

    def wake(self) -> None:
        """Wake `next` (drain was requested)."""
        with self._changed:
            self._changed.notify_all()

    def drain(self) -> None:
        """Stop leasing and hand back tasks that were read but not begun."""
        with self._changed:
            self._draining = True
            self._notify_all()
        self.hand_back()

    def hand_back(self) -> None:
        """Hand back tasks that were read but not begun."""
        with self._changed:
            while self._ready:
                self._return(self._ready.popleft().task)
            self._notify_all()

    def close(self, seconds: float) -> bool:
        """Send the last reports; return whether all were acknowledged in time."""
        with self._changed:
            self._draining = True
            self._notify_all()
            done = self._changed.wait_for(
                lambda: not (len(self._outbox) or self._leasing or self._loading),
                seconds,
            )
            self._closed = True
            self._notify_all()
        return done

    def _notify_all(self) -> None:
        self._changed.notify_all()
        self._due.notify_all()

    def _notify_due(self, *, begins: bool = False) -> None:
        if begins or self._wanted() or self._must_report():
            self._due.notify_all()

    # -- lease thread -------------------------------------------------------------

    def _wanted(self) -> int:
        if self._finished or self._draining or self._loading:
            return 0
        if self._beside in self._held and not self._far_ahead:
            return 0
        wanted = self._ahead.wanted(len(self._ready))
        # However much is ready: a round's result is not to wait for it at each step.
        return max(wanted, int(self._beside_done))

    def _post(self, report: TaskReport | LaterReport, *, urgent: bool) -> None:
        if not self._outbox.waiting:
            self._report_since = self._clock()
            self._urgent = False
        self._urgent = self._urgent or urgent
        self._outbox.add(report)

    def _report_wait(self) -> float | None:
        """Return how long reports may wait; None: there are none."""
        if not self._outbox.waiting:
            return None
        # With nothing to train there is no reason to wait, and others may wait for it.
        if self._urgent or self._draining or self._finished or not self._ready:
            return 0.0
        return self._ahead.report_due(oldest=self._report_since, now=self._clock())

    def _wait_for(self, needed: Callable[[], bool]) -> None:
        """Wait until `needed` or closed; looks again when a report must go."""
        while not (self._closed or needed()):
            seconds = self._report_wait()
            self._due.wait(seconds if seconds is None or seconds > 0 else None)

    def _must_report(self) -> bool:
        seconds = self._report_wait()
        return seconds is not None and seconds <= 0

    def _run_leases(self) -> None:
        tries = 0
        while True:
            with self._changed:
                self._wait_for(lambda: bool(self._wanted()) or self._must_report())
                if self._closed:
                    return
                want = self._wanted()
                self._beside_done = False
                reports = self._outbox.take()
                self._leasing = True
            reply = self._call(reports, want)
            with self._changed:
                self._leasing = False
                if reply is None:
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._closed, _pause(tries))
                    tries += 1
                    continue
                tries = 0
                self._finished = self._finished or reply.finished
                self._ahead.calls_every(reply.call_seconds)
                self._held.update(task.lease_id for task in reply.tasks)
                self._loading = len(reply.tasks)
                self._changed.notify_all()
            for task in reply.tasks:
                self._make_ready(task)

    def _make_ready(self, task: Task) -> None:
        with self._changed:
            self._reading = task.lease_id
            self._changed.notify_all()
        loaded = None if self._draining else self._load_or_report(task)
        with self._changed:
            self._reading = 0
            self._loading -= 1
            if loaded is not None and not self._draining:
                self._ready.insert(self._place_of(task), loaded)
            elif task.lease_id in self._held:
                self._return(task)
            self._changed.notify_all()

    def _place_of(self, task: Task) -> int:
        """Return how many tasks come before one that was read.

        One beside training comes before those of training, but where it measures what
        the worker itself has: these were leased before it, and change that.
        """
        if task.type in _OF_RECORDS or self._steps_wait:
            return len(self._ready)
        kinds = [loaded.task.type not in _OF_RECORDS for loaded in self._ready]
        return sum(kinds)

    def _load_or_report(self, task: Task) -> LoadedTask | None:
        try:
            return self._load(task)
        except BaseException as error:  # noqa: BLE001 - border: a custom reader's code
            # A cancellation, say, of a data base client: this thread leases on.
            self._not_read(task, error)
        return None

    def _not_read(self, task: Task, error: BaseException) -> None:
        report = unread(task, error, self._describe)
        if is_storage_away(error):
            text = report.error
            log.warning("Handing a task back, storage does not answer: %s", text)
            # Nobody else may have more luck: so not at once.
            with self._changed:
                self._changed.wait_for(lambda: self._draining, STORAGE_SECONDS)
            report = storage_away(task, text)
        elif report.exit_code == ExitCode.USER_CODE:
            log.error("%s", report.error)
        self.report(report)

    def _return(self, task: Task) -> None:
        self._held.discard(task.lease_id)
        if self._goes_on is None or not self._goes_on(task.lease_id):
            self._post(returned(task), urgent=True)

    # -- report thread: carries reports while the lease thread waits for work --------

    def _run_reports(self) -> None:
        tries = 0
        while True:
            with self._changed:
                self._wait_for(
                    lambda: bool(
                        (self._leasing or self._loading) and self._must_report()
                    )
                )
                if self._closed:
                    return
                reports = self._outbox.take()
            if self._call(reports, 0) is not None:
                tries = 0
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._closed, _pause(tries))
                self._due.notify_all()  # the other thread may send what came back
            tries += 1

    def _call(self, reports: list[TaskReport], want: int) -> LeaseReply | None:
        """Call the master; return None if the call has to be repeated."""
        request = LeaseRequest(
            replica=self._replica,
            reports=tuple(reports),
            want=want,
            wait_seconds=POLL_SECONDS if want else 0.0,
            resumes=self._goes_on is not None,
            held=tuple(self.held) if self._goes_on is not None else (),
        )
        with self._changed:
            self._calls += 1
            number = self._calls
        try:
            reply = self._lease(request)
        except FencedError as error:
            with self._changed:
                self._outbox.put_back(reports)
                self._closed = True
                self._notify_all()
            self._on_fenced(str(error))
            return None
        except RpcError as error:
            if not self._away:
                self._away = True
                log.warning("Master not reached, trying until it is: %s", error)
            with self._changed:
                self._outbox.put_back(reports)
            return None
        if self._away:
            self._away = False
            log.info("Master reached again")
        with self._changed:
            self._outbox.acknowledge(reports)
            self._take_word(number, reply.steps_wait)
            self._changed.notify_all()
        for result in reply.results:
            if not result.accepted:
                log.info("lease %d had moved on: %s", result.lease_id, result.reason)
        return reply

    def _take_word(self, number: int, steps_wait: bool) -> None:
        """Note whether steps wait, by the answer to the call of this number."""
        if steps_wait:
            self._steps_wait, self._steps_wait_since = True, self._calls
        elif number > self._steps_wait_since:
            # Else it may be of before the evaluation that another answer told of.
            self._steps_wait = False


def _pause(tries: int) -> float:
    return growing(tries, first=FIRST_RETRY_SECONDS, most=MOST_RETRY_SECONDS)
