"""A member of a group put together: step, state, connections and its loop.

Owns which part gets what in strategy allReduce. Called once by worker.assemble. Decides
nothing while the job runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticdl.checkpoint import shelf, store
from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.collective.encoding import Encoding, GradientForm
from elasticdl.collective.group import Group
from elasticdl.collective.lent_vectors import Vectors
from elasticdl.collective.links import Door
from elasticdl.errors import CheckpointError, UnfitError, UserCodeError
from elasticdl.job.spec.group import ELASTIC
from elasticdl.job.spec.job import JobSpec, OnNanLoss
from elasticdl.job.spec.kinds import RateRule, ShareRule
from elasticdl.job.tasks import ModelVersion, Task
from elasticdl.model.definition import ModelDefinition
from elasticdl.model.feeding import Batch, Feeder
from elasticdl.model.specs import takes_one_size
from elasticdl.model.state import ModelState
from elasticdl.rpc.tls.links import EncryptedLinks
from elasticdl.worker.group.beside import Handler
from elasticdl.worker.group.link import GroupLink
from elasticdl.worker.group.loop import GroupLoop
from elasticdl.worker.group.measures import Measures
from elasticdl.worker.group.plan import StepSize
from elasticdl.worker.group.position import GroupParts, Position
from elasticdl.worker.group.shares import Shares
from elasticdl.worker.group.speeds import Speeds
from elasticdl.worker.group.state import MemberState
from elasticdl.worker.group.step import GroupStep
from elasticdl.worker.group.word import HeaderWord
from elasticdl.worker.life import WorkerLife
from elasticdl.worker.local.checkpoint import LocalCheckpoints, LocalState
from elasticdl.worker.shows import Shows
from elasticdl.worker.steps.learning_rate import LearningRate
from elasticdl.worker.steps.step import TRACED
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.tasks.stream import TaskStream
from elasticdl.worker.trainer import InModel

log = logging.getLogger(__name__)

# Of a state, beside its variables: names, and the position in the data.
_MOST_TEXT_BYTES = 16 << 20


class ValuesInModel:
    """The model's own variables are the only copy of the values."""

    def __init__(self, definition: ModelDefinition) -> None:
        """Take a module with a built model."""
        self._definition = definition

    def values(self, model: ModelVersion) -> InModel:
        """Put averages into the model where they are asked for.

        Which version it is the loop knows, and says in the task's report.
        """
        if model.snapshot == AVERAGE:  # as Keras's fit does when it ends
            trainable = self._definition.model.trainable_variables
            self._definition.optimizer.finalize_variable_values(trainable)
        return InModel(0)

    def variables_changed(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Surroundings:
    """What the loop works with beside the model."""

    batch: Batch  # an example
    feeder: Feeder  # in training mode
    stream: TaskStream
    load: Callable[[Task], LoadedTask]
    handlers: Mapping[int, Handler]
    shows: Shows


def _door(life: WorkerLife, vectors: Vectors) -> Door:
    context = life.context
    identity = life.identity
    return Door(
        token=context.token,
        host=context.host,
        port=context.port,
        encryption=None if identity is None else EncryptedLinks(identity),
        vectors=vectors,
    )


def _check_rate(rate: LearningRate, rule: RateRule) -> None:
    """Raise UserCodeError if the rate cannot follow the number of workers."""
    if rule is not RateRule.NONE and rate.at(0, 0) is None:
        raise UserCodeError(
            f"allReduce.learningRate: got {rule}, expected none: the optimizer takes "
            "its rate from a schedule or a function, or is several optimizers, and "
            "nobody can multiply that; give it a number, and write the schedule as a "
            "LearningRateScheduler in the module's `callbacks`"
        )


def _unit(definition: ModelDefinition, spec: JobSpec) -> int:
    """Return what members' shares are multiples of.

    Raises UserCodeError if a step is not.
    """
    batch, size = spec.training.batch_size, spec.training.global_batch_size
    why = ""
    if definition.jit_compile:
        why = "XLA compiles the step for one size (jitCompile)"
    elif takes_one_size(definition.model):
        why = "the model's input has a fixed batch"
    if not why:
        return 1
    if isinstance(size, int) and size % batch:
        raise UserCodeError(
            f"training.globalBatchSize: got {size}, expected a multiple of "
            f"training.batchSize, {batch}: {why}, so that workers take whole batches; "
            f"write {max(1, size // batch) * batch}"
        )
    return batch


def _step_size(spec: JobSpec) -> StepSize:
    training = spec.training
    elastic = training.global_batch_size == ELASTIC
    return StepSize(
        each=training.batch_size if elastic else 0, rule=spec.all_reduce.learning_rate
    )


class GroupMaker:
    """Creates the loop of a member."""

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

    def loop(self, around: Surroundings) -> GroupLoop:
        """Return the loop; from now on the master may let this worker in."""
        life, spec, definition = self._life, self._spec, self._definition
        optimizer = definition.optimizer
        skip_nan = spec.training.on_nan_loss is OnNanLoss.SKIP
        moved = self._state.moved_together
        vectors = Vectors(lends=life.context.lends_memory)
        step = GroupStep(
            definition,
            optimizer,
            moved,
            skip_nan=skip_nan,
            taps=life.inter_op_threads > 1,
            vectors=vectors,
        )
        with definition.code.running(TRACED):
            step.trace(around.batch.features, around.batch.labels)
        rate = LearningRate(
            optimizer,
            definition.rate_schedule().learning_rate_of,
            lambda: life.heartbeat.latest.learning_rate_scale,
        )
        _check_rate(rate, spec.all_reduce.learning_rate)
        whole = LocalState(
            definition.model, optimizer, definition.optimizer_json(), rate=rate
        )
        state = MemberState(definition.model, optimizer, step.moved, rate)
        checkpoints = LocalCheckpoints(
            whole,
            wanted=lambda: life.heartbeat.latest.local_snapshot,
            tell=life.heartbeat.tell_snapshot,
        )
        unit = _unit(definition, spec)
        speeds = Speeds(follow=spec.all_reduce.shares is ShareRule.SPEED)
        parts = GroupParts(
            step=step,
            state=state,
            rate=rate,
            restore=lambda directory: self._restore(whole, directory),
            shares=Shares(
                around.load,
                around.feeder,
                whole_tasks=spec.data.shuffle_records,
                tries=spec.tasks.max_failures,
                leaving=life.leaving,
            ),
            stream=around.stream,
            handlers=around.handlers,
            between_steps=checkpoints.between_steps,
            holds=lambda: checkpoints.holds,
            copies=lambda: checkpoints.due,
            describe=definition.code.describe,
            orders=life.heartbeat,
            leaving=life.leaving,
            shows=around.shows,
            speeds=speeds,
            skip_nan=skip_nan,
            # The rest of it is for the last reports.
            hand_over_seconds=0.4 * spec.worker.grace_seconds,
            unit=unit,
        )
        position = Position(parts)
        me = life.context.generation
        group = Group(
            me,
            position,
            door=_door(life, vectors),
            most_state_bytes=state.num_bytes + _MOST_TEXT_BYTES,
            form=GradientForm(
                step.ends,
                Encoding(spec.all_reduce.compression, step.num_gradients),
            ),
            word=lambda: HeaderWord(speeds.own, *position.digests.answer).encoded(),
        )
        address = life.context.announced(group.port)
        # By it logs of others tell of this worker: its name has another number.
        log.info("Member %d of the group, reached at %s", me, address)
        measures = Measures(around.shows.clock, lambda: group.sent_bytes)
        link = GroupLink(group, me, address, measures, _step_size(spec))
        loop = GroupLoop(parts, group, link, position)
        life.join_group(link)
        return loop

    def _restore(self, whole: LocalState, directory: str) -> int:
        """Load the checkpoint with which all begin; return its version.

        Raises CheckpointError.

        One that is damaged is told to the master, which lets all begin with another
        one, in the next round.
        """
        path = directory or self._spec.checkpoint.init_from
        if not path:
            return 0
        try:
            store.verify(shelf.resolve(Path(path))[0])
            return whole.restore(Path(path))
        except UnfitError:
            raise
        except CheckpointError as error:
            self._life.register(unloadable=path, reason=str(error))
            raise
