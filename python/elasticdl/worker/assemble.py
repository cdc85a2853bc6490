"""Putting a worker together once TensorFlow is there: model, trainer, loop.

Owns which part gets what. Called by main. Decides nothing while the job runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from elasticdl.data.reader import Metadata
from elasticdl.errors import RefusedError, UserCodeError
from elasticdl.job.heartbeats import ModelInfo
from elasticdl.job.spec.job import (
    JobSpec,
    JobType,
    OnBadRecord,
    OnNanLoss,
    Strategy,
    UpdateMode,
)
from elasticdl.job.tasks import Task, TaskReport, TaskType
from elasticdl.job.words import DataKind
from elasticdl.model.definition import ModelDefinition
from elasticdl.model.feed.default import VECTOR_ORDER
from elasticdl.model.feeding import Batch, Feeder
from elasticdl.model.state import non_trainable, seed_for_worker
from elasticdl.worker.group.loop import GroupLoop
from elasticdl.worker.group_maker import GroupMaker, Surroundings, ValuesInModel
from elasticdl.worker.life import WorkerLife, leave_fenced
from elasticdl.worker.loop import Handler, LoopParts, WorkerLoop
from elasticdl.worker.shows import Shows
from elasticdl.worker.tasks.errands import Errands
from elasticdl.worker.tasks.readers import Readers, RecordSample
from elasticdl.worker.tasks.records import LoadedTask, RecordLoader
from elasticdl.worker.tasks.stream import TaskStream
from elasticdl.worker.trainer import ModelSource, Trainer
from elasticdl.worker.trainer_maker import TrainerMaker
from elasticdl.worker.training import Training
from elasticdl.worker.uses.evaluator import Evaluator
from elasticdl.worker.uses.finite import Expect, FiniteValues, any_values
from elasticdl.worker.uses.model_export import ModelExporter
from elasticdl.worker.uses.model_values import ModelValues
from elasticdl.worker.uses.prediction_files import PredictionFiles, format_named
from elasticdl.worker.uses.predictor import (
    FileSink,
    Predictor,
    ProcessorSink,
    of_any_length,
)

log = logging.getLogger(__name__)


def _nothing() -> None:
    """Do nothing: a job without snapshots has none to forget."""


_MODES = {
    JobType.TRAIN: "training",
    JobType.EVALUATE: "evaluation",
    JobType.PREDICT: "prediction",
}


class Assembly:
    """The model and the parts of a worker around it."""

    def __init__(
        self,
        life: WorkerLife,
        spec: JobSpec,
        definition: ModelDefinition,
        sample: RecordSample | None,
    ) -> None:
        """Build the model and report it to the master. Raises UserCodeError."""
        self._life = life
        self._spec = spec
        self._definition = definition
        if sample is None:
            model = definition.build_model()
        else:
            model = definition.build_model(sample.metadata, sample.records)
        self._state = non_trainable(model)
        seed_for_worker(self._state, life.context.index)
        self._makers = TrainerMaker(life, spec, definition, self._state)
        self._batch: Batch | None = None
        self._main_feeder: Feeder | None = None
        self._evaluated = Metadata()
        if sample is not None:
            self._learn(sample)
        self._tell()

    def run(
        self,
        readers: Readers,
        errands: Errands,
        sample: RecordSample,
        *,
        restore_dir: str,
    ) -> None:
        """Create the trainer and run tasks until there are no more."""
        if self._batch is None:
            self._learn(sample)
        self._evaluated = self._metadata_of_evaluation(readers, sample)
        if self._in_group:
            self._run_in_group(readers, errands)
            return
        spec = self._spec
        try:
            trainer = self._makers.trainer(self._main()[1], restore_dir)
        except RefusedError as error:
            raise UserCodeError(str(error)) from error
        loader = self._loader(readers)
        # Sync: a version waits for the gradients of whoever holds a task.
        far_ahead = spec.ps.mode is UpdateMode.ASYNC
        stream = self._stream(loader.load, far_ahead=far_ahead)
        loop = self._loop(trainer, stream, errands)
        try:
            self._run(loop, stream)
        finally:
            trainer.close()

    def _run_in_group(self, readers: Readers, errands: Errands) -> None:
        """Make steps together with others until there are no more."""
        life, spec = self._life, self._spec
        feeder, batch = self._main()
        loader = self._loader(readers)

        def load(task: Task) -> LoadedTask:
            # Of a training task each member reads its own share.
            trains = task.type == TaskType.TRAINING
            return LoadedTask(task, []) if trains else loader.load(task)

        stream = self._stream(load, far_ahead=False)
        source = ValuesInModel(self._definition)
        handlers, _ = self._handlers(source, errands)
        maker = GroupMaker(life, spec, self._definition, self._state)
        loop = maker.loop(
            Surroundings(batch, feeder, stream, loader.load, handlers, self._shows())
        )
        self._run(loop, stream)

    def _run(self, loop: WorkerLoop | GroupLoop, stream: TaskStream) -> None:
        holder: TaskStream | GroupLoop = stream
        if isinstance(loop, GroupLoop):
            holder = loop
        self._life.answer_for(lambda: holder.held)
        stream.start()
        try:
            loop.run()
        finally:
            stream.close(max(1.0, self._spec.worker.grace_seconds / 2))

    # -- parts ----------------------------------------------------------------------

    @property
    def _in_group(self) -> bool:
        spec = self._spec
        return spec.type is JobType.TRAIN and spec.strategy is Strategy.ALL_REDUCE

    def _loader(self, readers: Readers) -> RecordLoader:
        spec = self._spec
        return RecordLoader(
            readers.of_task,
            skip_bad=spec.data.on_bad_record is OnBadRecord.SKIP,
            shuffle_records=spec.data.shuffle_records,
        )

    def _stream(
        self, load: Callable[[Task], LoadedTask], *, far_ahead: bool
    ) -> TaskStream:
        return TaskStream(
            self._life.lease,
            self._life.replica,
            load=load,
            describe=self._definition.code.describe,
            on_fenced=leave_fenced,
            far_ahead=far_ahead,
        )

    def _metadata_of_evaluation(
        self, readers: Readers, sample: RecordSample
    ) -> Metadata:
        """Return what is known of the records that evaluations read.

        Files of validation may have their columns in another order than those of
        training. What takes all of them as one vector takes them in the latter's.
        """
        spec = self._spec
        if spec.type is not JobType.TRAIN or not spec.data.validation:
            return sample.metadata
        known = readers.of(DataKind.VALIDATION).metadata
        order = {VECTOR_ORDER: sample.metadata.column_names}
        return replace(known, extra={**known.extra, **order})

    def _feeder(self, mode: str, metadata: Metadata) -> Feeder:
        return Feeder(
            self._definition,
            mode=mode,
            batch_size=self._spec.training.batch_size,
            metadata=metadata,
            skip_bad=self._spec.data.on_bad_record is OnBadRecord.SKIP,
        )

    def _learn(self, sample: RecordSample) -> None:
        """Create the main feeder and an example batch."""
        feeder = self._feeder(_MODES[self._spec.type], sample.metadata)
        batch = next(feeder.batches(sample.records), None)
        if batch is None:
            raise UserCodeError(
                f"{self._spec.model.feed} made no batch of the first "
                f"{len(sample.records)} records; it must not drop all records"
            )
        feeder.warn_of_unseen()
        self._main_feeder, self._batch = feeder, batch

    def _main(self) -> tuple[Feeder, Batch]:
        if self._main_feeder is None or self._batch is None:
            raise RuntimeError("no sample of the data was seen")
        return self._main_feeder, self._batch

    @property
    def _in_order(self) -> bool:
        feeder = self._main_feeder
        kept = feeder.order_preserved if feeder is not None else False
        return kept and not self._spec.data.shuffle_records

    def _tell(self) -> None:
        definition, spec = self._definition, self._spec
        path = {
            JobType.TRAIN: spec.data.training,
            JobType.EVALUATE: spec.data.validation,
            JobType.PREDICT: spec.data.prediction,
        }[spec.type]
        predicts = spec.type is JobType.PREDICT
        # Of an evaluation job there is nothing to stop or to keep: what it measures is
        # kept already, and the `best` model is another one.
        trains = spec.type is JobType.TRAIN
        self._life.tell_model_ready(
            ModelInfo(
                callbacks_json=definition.callbacks_json() if trains else "[]",
                num_parameters=definition.model.count_params(),
                metric_names=() if predicts else tuple(definition.metrics().names()),
                order_preserved=self._in_order,
                custom_reader=definition.custom_reader(path) is not None,
            )
        )

    def _loop(
        self,
        trainer: Trainer,
        stream: TaskStream,
        errands: Errands,
    ) -> WorkerLoop:
        life, definition = self._life, self._definition
        feeder, _ = self._main()
        handlers, on_rewind = self._handlers(trainer, errands)
        if self._spec.type is JobType.PREDICT:
            predictor = self._predictor(trainer, feeder)
            handlers[TaskType.PREDICTION] = self._counted(
                predictor.predict, "prediction"
            )
        training = Training(
            trainer,
            feeder,
            stream,
            life.heartbeat,
            leaving=life.leaving,
            shows=self._shows(),
            in_order=self._in_order,
        )
        return WorkerLoop(
            LoopParts(
                stream=stream,
                trainer=trainer,
                training=training,
                handlers=handlers,
                on_rewind=on_rewind,
                describe=definition.code.describe,
                leaving=life.leaving,
                goodput=life.goodput,
                progress=life.progress,
            )
        )

    def _shows(self) -> Shows:
        life = self._life
        return Shows(
            life.progress,
            life.goodput,
            life.metrics,
            log_loss_steps=self._spec.training.log_loss_steps,
        )

    def _handlers(
        self, trainer: ModelSource, errands: Errands
    ) -> tuple[dict[int, Handler], Callable[[], None]]:
        """Return what does the tasks beside training, and what a rewind calls."""
        life, spec, definition = self._life, self._spec, self._definition
        borrowed = ModelValues(definition.model, trainer)
        on_rewind: Callable[[], None] = _nothing
        handlers: dict[int, Handler] = {
            TaskType.PREPARE: lambda loaded: errands.prepare(loaded.task),
            TaskType.SHARDS: lambda loaded: errands.shards(loaded.task),
        }
        if spec.type is not JobType.PREDICT:
            evaluator = Evaluator(
                definition,
                self._feeder("evaluation", self._evaluated),
                trainer=trainer,
                borrowed=borrowed,
                progress=life.progress,
                expect=self._expected(),
            )
            exporter = ModelExporter(
                definition,
                spec.export,
                job=spec.name,
                trainer=trainer,
                borrowed=borrowed,
                expect=self._expected(),
            )
            on_rewind = evaluator.forget
            handlers[TaskType.EVALUATION] = self._counted(
                evaluator.evaluate, "evaluation"
            )
            handlers[TaskType.SUMMARIZE] = lambda loaded: evaluator.summarize(
                loaded.task
            )
            handlers[TaskType.EXPORT] = lambda loaded: exporter.export(loaded.task)
        return handlers, on_rewind

    def _expected(self) -> Expect:
        """Return what refuses values that training has spoilt."""
        if self._spec.type is not JobType.TRAIN:
            return any_values
        skips = self._spec.training.on_nan_loss is OnNanLoss.SKIP
        return FiniteValues(self._definition.model, skips=skips).expect

    def _counted(self, handler: Handler, kind: str) -> Handler:
        """Return a handler that counts its records in the metrics."""
        records = self._life.metrics.records.labels(kind)
        bad = self._life.metrics.bad_records

        def handle(loaded: LoadedTask) -> TaskReport:
            report = handler(loaded)
            records.inc(report.records)
            bad.inc(len(report.bad_records))
            return report

        return handle

    def _predictor(self, trainer: Trainer, feeder: Feeder) -> Predictor:
        life, spec, definition = self._life, self._spec, self._definition
        borrowed = ModelValues(definition.model, trainer)
        processor = definition.outputs_processor()
        if processor is not None:
            sink: ProcessorSink | FileSink = ProcessorSink(
                processor, definition, life.context.index
            )
        else:
            output = spec.prediction_output
            directory = Path(output) if output else life.context.job_dir.predictions_dir
            sink = FileSink(
                PredictionFiles(directory, format_named(spec.prediction_format)),
                of_any_length=of_any_length(definition.model),
            )
        return Predictor(
            definition,
            feeder,
            sink,
            trainer=trainer,
            borrowed=borrowed,
            progress=life.progress,
        )
