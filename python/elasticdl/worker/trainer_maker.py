"""The trainer that a job's type and strategy ask for, with all its parts.

Owns the one place where strategies differ. Called once by worker.assemble.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import keras

from elasticdl.job.spec.job import JobSpec, JobType, OnNanLoss, Strategy, UpdateMode
from elasticdl.job.words import GoodputCause
from elasticdl.model.definition import ModelDefinition
from elasticdl.model.feeding import Batch
from elasticdl.model.optimizers import (
    ends_its_own_way,
    own_rate,
    without_loss_scale,
)
from elasticdl.model.state import ModelState
from elasticdl.model.state_keeps import state_layout
from elasticdl.model.variables import (
    layout_variables,
    to_buffers,
    trainable_variables,
)
from elasticdl.rpc.ps.client import PsClient
from elasticdl.tensor.placement import place
from elasticdl.worker.life import WorkerLife
from elasticdl.worker.local.checkpoint import LocalCheckpoints, LocalState
from elasticdl.worker.local.own_step import OwnStep, other_optimizers
from elasticdl.worker.local.trainer import LocalTrainer
from elasticdl.worker.ps.clipping import Clipping
from elasticdl.worker.ps.link import PsLink
from elasticdl.worker.ps.shared_variables import SharedVariables
from elasticdl.worker.ps.trainer import PsTrainer, PsTrainerOptions
from elasticdl.worker.ps.transfer import Transfer
from elasticdl.worker.steps.choice import choose_step
from elasticdl.worker.steps.learning_rate import LearningRate
from elasticdl.worker.steps.loss_scale import LossScale
from elasticdl.worker.steps.step import TRACED
from elasticdl.worker.steps.variable_step import VariableStep
from elasticdl.worker.trainer import Trainer
from elasticdl.worker.untrained import UntrainedVariables
from elasticdl.worker.uses.fixed_trainer import FixedTrainer


class TrainerMaker:
    """Creates the worker's trainer."""

    def __init__(
        self,
        life: WorkerLife,
        spec: JobSpec,
        definition: ModelDefinition,
        state: ModelState,
    ) -> None:
        """Take a module with a built model, and its non-trainable state."""
        self._life = life
        self._spec = spec
        self._definition = definition
        self._state = state

    def trainer(self, batch: Batch, restore_dir: str) -> Trainer:
        """Return a trainer at the job's present state.

        Raises RefusedError when the PS cannot run the optimizer, CheckpointError.
        """
        spec = self._spec
        if spec.type is not JobType.TRAIN:
            path = Path(restore_dir or spec.checkpoint.init_from)
            with self._life.goodput.cause(GoodputCause.RESTORE):
                return self._fixed_trainer(path)
        if spec.strategy is Strategy.LOCAL:
            return self._local_trainer(batch, restore_dir)
        return self._ps_trainer(batch)

    def _fixed_trainer(self, path: Path) -> FixedTrainer:
        definition = self._definition
        if not ends_its_own_way(definition.optimizer):
            return FixedTrainer(definition.model, path)
        return FixedTrainer(
            definition.model,
            path,
            optimizer=lambda: LocalState(
                definition.model, definition.optimizer, definition.optimizer_json()
            ),
        )

    def _local_trainer(self, batch: Batch, restore_dir: str) -> LocalTrainer:
        life, definition = self._life, self._definition
        optimizer = definition.optimizer
        skip_nan = self._spec.training.on_nan_loss is OnNanLoss.SKIP
        step: VariableStep | OwnStep
        beside: Sequence[keras.optimizers.Optimizer] = ()
        if definition.trains_itself:
            step = OwnStep(definition)
            with definition.code.running(TRACED):
                step.trace(batch.features, batch.labels)
            beside = other_optimizers(definition.model)
        else:
            step = VariableStep(definition, optimizer=optimizer, guard=skip_nan)
            with definition.code.running(TRACED):
                step.kinds(batch.features, batch.labels)
        rate = LearningRate(
            optimizer,
            definition.rate_schedule().learning_rate_of,
            lambda: life.heartbeat.latest.learning_rate_scale,
        )
        state = LocalState(
            definition.model,
            optimizer,
            definition.optimizer_json(),
            beside=beside,
            rate=rate,
        )
        version = 0
        path = restore_dir or self._spec.checkpoint.init_from
        if path:
            with life.goodput.cause(GoodputCause.RESTORE):
                version = state.restore(Path(path))
        checkpoints = LocalCheckpoints(
            state,
            wanted=lambda: life.heartbeat.latest.local_snapshot,
            tell=life.heartbeat.tell_snapshot,
        )
        return LocalTrainer(
            step,
            optimizer,
            rate=rate,
            version=version,
            skip_nan=skip_nan,
            between_steps=checkpoints.or_hold(life.leaving),
        )

    def _ps_trainer(self, batch: Batch) -> PsTrainer:
        life, spec, definition = self._life, self._spec, self._definition
        sync = spec.ps.mode is UpdateMode.SYNC
        pull_steps = 1 if sync else spec.worker.pull_steps
        scale = LossScale.of(definition.optimizer)
        optimizer = without_loss_scale(definition.optimizer)
        with definition.code.running(TRACED):
            step, kinds = choose_step(
                definition,
                (batch.features, batch.labels),
                optimizer=optimizer if pull_steps > 1 else None,
                scale=scale,
            )
        variables = trainable_variables(definition.model)
        named = {v.name: kind for v, kind in zip(variables, kinds, strict=True)}
        layout = place(layout_variables(variables, named), spec.ps.replicas)
        shared = SharedVariables(
            self._state.shared,
            state_layout(definition, self._state.shared, batch.features, batch.labels),
        )
        frozen = self._state.frozen
        client = PsClient(
            worker=life.context.index,
            generation=life.context.generation,
            sync=sync,
            token=life.context.token,
            identity=life.identity,
            lends=life.context.lends_memory,
            first_admits=spec.ps.max_staleness > 0,
        )
        link = PsLink(
            client,
            life.heartbeat,
            layout=layout,
            optimizer_json=definition.optimizer_json(),
            initial=to_buffers([v.numpy() for v in variables], layout),
            initial_state=shared.state,
            untrained=UntrainedVariables(frozen) if frozen else None,
            leaving=life.leaving,
            on_wait=life.progress.touch,
        )
        life.hold_values(link)
        transfer = Transfer(
            link,
            pull_seconds=life.metrics.pull_seconds,
            push_seconds=life.metrics.push_seconds,
            convert_seconds=life.metrics.convert_seconds,
            on_wait=life.progress.touch,
            clipping=Clipping.of(
                layout,
                clipnorm=optimizer.clipnorm,
                global_clipnorm=optimizer.global_clipnorm,
            ),
        )
        schedule = definition.rate_schedule()
        return PsTrainer(
            step,
            transfer,
            link,
            state=shared,
            options=PsTrainerOptions(
                pipeline=spec.worker.pipeline and not sync,
                pull_steps=pull_steps,
                skip_nan=spec.training.on_nan_loss is OnNanLoss.SKIP,
                learning_rate_of=schedule.learning_rate_of,
                own_rate=own_rate(definition.optimizer, definition.code),
                between_pulls=LearningRate(
                    optimizer,
                    schedule.learning_rate_of,
                    lambda: life.heartbeat.latest.learning_rate_scale,
                )
                if pull_steps > 1
                else None,
            ),
            goodput=life.goodput,
            metrics=life.metrics,
        )
