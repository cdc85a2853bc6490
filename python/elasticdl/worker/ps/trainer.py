"""Training with parameter servers: pull, step, push.

Owns the order of the three. Pipelined, a step runs while the exchange of the step
before is under way, so its values lack one update of its own; otherwise (and always in
sync mode) each step waits for its exchange. A refused gradient is computed again at
the new values until it is accepted. Called by the loop through `Trainer`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.errors import ElasticDLError, FencedError
from elasticdl.job.tasks import ModelVersion
from elasticdl.job.words import GoodputCause
from elasticdl.metrics.goodput import GoodputLedger
from elasticdl.metrics.registry import WorkerMetrics
from elasticdl.model.variables import from_buffers
from elasticdl.rpc.ps.tensors import PulledValues, PushOrder
from elasticdl.tensor.shared_state import StateShare
from elasticdl.worker.ps.link import PsLink
from elasticdl.worker.ps.shared_variables import SharedVariables
from elasticdl.worker.ps.transfer import Exchange, Transfer
from elasticdl.worker.steps.learning_rate import LearningRate
from elasticdl.worker.steps.packing import Arena
from elasticdl.worker.steps.step import GradientStep, StepResult
from elasticdl.worker.trainer import (
    BatchDone,
    BatchPosition,
    NanLossError,
    Values,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PsTrainerOptions:
    """Options of training on PS."""

    pipeline: bool
    pull_steps: int
    skip_nan: bool
    # (version, epoch) -> rate that a callback sets, None for the PS's own.
    learning_rate_of: Callable[[int, int], float | None]
    # step -> rate of a schedule that is the user's code, which no PS runs.
    own_rate: Callable[[int], float] | None = None
    # Of the optimizer that applies gradients here between pulls; None without one.
    between_pulls: LearningRate | None = None


@dataclass(frozen=True)
class _Sent:
    """A batch whose gradients are in transit; kept to compute it again."""

    features: Any
    labels: Any
    at: BatchPosition
    number: int  # PsTrainer.trained with it


class PsTrainer:
    """Trains with gradients that the PS apply."""

    def __init__(
        self,
        step: GradientStep,
        transfer: Transfer,
        link: PsLink,
        *,
        state: SharedVariables,
        options: PsTrainerOptions,
        goodput: GoodputLedger,
        metrics: WorkerMetrics,
    ) -> None:
        """Join the PS (they get initial values if they have none) and pull.

        Args:
            step: Computes gradients.
            transfer: Moves them.
            link: The PS.
            state: The model's non-trainable variables that all workers move.
            options: See PsTrainerOptions.
            goodput: Where this worker's seconds go.
            metrics: What it shows.
        """
        self._step = step
        self._transfer = transfer
        self._link = link
        self._state = state
        self._options = options
        self._goodput = goodput
        self._metrics = metrics
        self._sent: _Sent | None = None
        self._trained = 0
        self._acknowledged = 0
        self._since_pull = 0
        self._arena: Arena | None = None  # what the step has loaded
        self._begin()

    # -- Trainer --------------------------------------------------------------------

    @property
    def trained(self) -> int:
        return self._trained

    @property
    def acknowledged(self) -> int:
        return self._acknowledged

    def train_batch(self, features: Any, labels: Any, at: BatchPosition) -> BatchDone:
        version, versions = self._current().version, self._current().versions
        if self._options.between_pulls is not None:
            step = version + self._since_pull
            self._options.between_pulls.set_for(step, at.epoch)
        with self._metrics.compute_seconds.time():
            result = self._step.run(features, labels, at.shapes)
        done = BatchDone(result.loss, version, skipped=self._is_skipped(result, at))
        share = self._share_of(done)
        # Only now is there anything to wait for: the exchange ran beside the step.
        self._settle(ahead=share)
        self._trained += 1
        if done.skipped:
            self._acknowledged = self._trained
            return done
        sent = _Sent(features, labels, at, self._trained)
        self._send(sent, result, versions, share)
        if not self._options.pipeline:
            self._settle()
        return done

    def flush(self) -> None:
        self._settle()

    def recover(self) -> None:
        if self._transfer.under_way:
            with contextlib.suppress(ElasticDLError):
                self._transfer.finish()
        self._sent = None
        self._begin()

    def values(self, model: ModelVersion) -> Values:
        with self._goodput.cause(GoodputCause.WAIT_PS):
            client = self._link.client
            if model.snapshot == AVERAGE:
                self._link.pull()  # brings all PS to one version (sync mode)
            if model.snapshot:
                pulled: PulledValues = self._link.call_snapshot(
                    "pull snapshot",
                    lambda: client.pull(snapshot=model.snapshot, ticket=model.ticket),
                )
                buffers, version = pulled.buffers, pulled.version
                state = pulled.state
            else:
                buffers, versions = self._link.pull()
                version, state = versions[0], self._link.state
        return Values(
            version,
            from_buffers(buffers, self._link.layout),
            {} if state is None else self._state.layout.split(state),
        )

    def between_steps(self) -> None:
        """Do nothing: the step has started the exchange with the PS."""

    def variables_changed(self) -> None:
        if self._arena is not None:
            self._step.load(self._arena)

    def close(self) -> None:
        self._transfer.close()
        self._link.client.close()

    # -- parts --------------------------------------------------------------------

    def _begin(self) -> None:
        # Not "restore": it is the PS that restore, this worker waits for them.
        with self._goodput.cause(GoodputCause.WAIT_PS):
            while True:
                try:
                    self._link.join()
                    self._load(self._transfer.pull())
                except FencedError as error:
                    log.info("the PS were rewound again: %s", error)
                else:
                    return

    def _current(self) -> Arena:
        if self._arena is None:
            raise RuntimeError("nothing was pulled")
        return self._arena

    def _load(self, arena: Arena, ahead: StateShare | None = None) -> None:
        self._arena = arena
        self._since_pull = 0
        self._step.load(arena)
        self._state.take(arena.state, ahead)

    def _is_skipped(self, result: StepResult, at: BatchPosition) -> bool:
        if result.finite:
            if result.overflow:
                log.debug("gradients overflowed; the loss scale is halved")
            return result.overflow
        if not self._options.skip_nan:
            raise NanLossError(f"loss is {result.loss}", at)
        return True

    def _share_of(self, done: BatchDone) -> StateShare | None:
        """Return the last step's contribution to the state, if it counts."""
        if not done.skipped:
            return self._state.share()
        self._state.undo()
        return None

    def _send(
        self,
        sent: _Sent,
        result: StepResult,
        versions: Sequence[int],
        share: StateShare | None,
    ) -> None:
        """Push gradients computed at `versions`; pipelined, newer ones exist now."""
        at = sent.at
        self._since_pull += 1
        self._sent = sent
        self._transfer.start(
            Exchange(
                gradients=result.gradients,
                order=PushOrder(
                    push_id=self._link.client.next_push_id(),
                    versions=versions,
                    task_id=at.task_id,
                    records_done=at.records_done,
                    # Of the step that it will be, as in Keras: the newest known,
                    # and after it those that were pushed since.
                    learning_rate=self._rate(
                        self._current().version + self._since_pull - 1, at.epoch
                    ),
                    batch_records=at.num_records,
                    pull=self._since_pull >= self._options.pull_steps,
                    state=share,
                ),
            )
        )

    def _rate(self, version: int, epoch: int) -> float | None:
        """Return the learning rate to send with a push; None for the PS's own."""
        rate = self._options.learning_rate_of(version, epoch)
        own = self._options.own_rate
        if rate is not None or own is None:
            return rate
        # The optimizer's step, as on the PS: one that is new begins at 0.
        return own(version - self._link.first_step)

    def _settle(self, ahead: StateShare | None = None) -> None:
        """Wait for the exchange in progress; compute refused batches again.

        `ahead`: what the step after it has put into the state meanwhile.
        """
        again = False
        while (sent := self._sent) is not None:
            # Whatever is raised below, nothing is under way then; what was sent counts
            # as never acknowledged, and its task is given back or fails.
            self._sent = None
            with self._goodput.cause(GoodputCause.WAIT_PS):
                came = self._transfer.finish()
            if came.pushed.accepted:
                if came.arena is not None:
                    self._load(came.arena, ahead)
                elif again:
                    self._state.take(self._state.values, ahead)
                self._acknowledged = sent.number
                return
            again = True
            if came.arena is not None:
                self._load(came.arena)
            log.debug("gradient refused (%s), computed again", came.pushed.reason)
            self._metrics.refused.inc()
            result = self._step.run(sent.features, sent.labels, sent.at.shapes)
            done = BatchDone(result.loss, self._current().version)
            if self._is_skipped(result, sent.at):
                self._state.take(self._current().state, ahead)
                self._acknowledged = sent.number
                return
            versions = self._current().versions
            self._send(sent, result, versions, self._share_of(done))
