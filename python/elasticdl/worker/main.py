"""Wiring of a worker process: reads environment and specification, begins, leaves.

Started by a runner as `python -m elasticdl.worker.main`. The only reader of the
environment in `worker`. Imports TensorFlow only after the heartbeat has begun and the
data has been made. Decides nothing.
"""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from elasticdl.checkpoint import shelf, store
from elasticdl.data.making.prepare import prepare
from elasticdl.data.reader import Reader
from elasticdl.errors import (
    CheckpointError,
    ElasticDLError,
    ExitCode,
    FencedError,
    RpcError,
    UserCodeError,
    exit_code_of,
    is_storage_away,
)
from elasticdl.job.context import RoleContext, hold_lifeline, set_up_logging
from elasticdl.job.in_force import in_force
from elasticdl.job.names import Role
from elasticdl.job.spec.job import DATA_OF_JOB, JobSpec, JobType, Strategy
from elasticdl.rpc.tls.identity import identity_of
from elasticdl.worker.cpus import bound_threads, inter_op_threads
from elasticdl.worker.life import WorkerLife
from elasticdl.worker.quick import quick_import
from elasticdl.worker.quiet import quiet_import
from elasticdl.worker.tasks.early import EarlyTasks
from elasticdl.worker.tasks.errands import Errands
from elasticdl.worker.tasks.readers import Readers, RecordSample
from elasticdl.worker.tasks.reports import with_trace

if TYPE_CHECKING:
    from elasticdl.model.definition import ModelDefinition

log = logging.getLogger("elasticdl.worker.main")

# The thread that trains takes turns with those that feed and talk to others. Python's
# usual 5 ms is as long as a whole step of a small model.
_TURN_SECONDS = 0.0005
# How long one call waits for a task while another worker makes the data.
_DATA_WAIT_SECONDS = 0.5
_RETRY_SECONDS = 2.0  # after records that were not read, as those of a share


def run() -> int:
    """Run a worker until there is no more to do; return the exit code."""
    try:
        context = RoleContext.from_environ(os.environ, Role.WORKER)
        spec = in_force(context.job_dir)
    except (ElasticDLError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - no logging yet
        return exit_code_of(error)
    set_up_logging(context.name, spec.log.level, spec.log.file)
    hold_lifeline(context)
    # Where native code crashes the log shows the line that called it.
    faulthandler.enable(all_threads=False)
    sys.setswitchinterval(_TURN_SECONDS)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    bound_threads(spec.worker.threads, os.environ)
    leaving = threading.Event()
    _leave_on_signals(leaving)
    try:
        _live(context, spec, leaving)
    except FencedError as error:
        log.error("This worker is not needed any more: %s", error)
        return ExitCode.FENCED
    except ElasticDLError as error:
        if leaving.is_set() and isinstance(error, RpcError):
            return ExitCode.OK
        told = error.__cause__ if isinstance(error, UserCodeError) else None
        log.error("%s", with_trace(str(error), told) if told else error)
        return exit_code_of(error)
    except OSError as error:
        log.error("%s", error)
        return exit_code_of(error)
    return ExitCode.OK


def _live(context: RoleContext, spec: JobSpec, leaving: threading.Event) -> None:
    life = WorkerLife(
        context,
        spec,
        leaving,
        identity_of(context, leaving),
        inter_op_threads=inter_op_threads(os.environ),
    )
    try:
        work(life, spec)
    finally:
        life.close()


def work(life: WorkerLife, spec: JobSpec) -> None:
    """Do everything between the first heartbeat and the last report."""
    restore_dir = _loadable(life, spec, life.register().restore_dir)
    module = _Module(life, spec)
    readers = Readers(spec.data, module.custom_reader)
    errands = Errands(lambda: _prepare(spec), readers.of)
    early = EarlyTasks(
        life.master.lease,
        life.replica,
        errands,
        leaving=life.leaving,
        progress=life.progress,
    )
    life.answer_for(lambda: early.held)
    if not early.run(0.0):
        return
    if not module.may_come_with_data:
        module.load()
    sample = _sample(life, spec, readers, early, patient=spec.data.prepare is not None)
    if sample is None and spec.data.prepare is not None:
        return  # it was waited for until the job was over

    from elasticdl.worker.assemble import Assembly

    assembly = Assembly(life, spec, module.definition, sample)
    if sample is None:
        # Nothing to learn from: either the master is about to say that there is no
        # data, or data turns up.
        sample = _sample(life, spec, readers, early, patient=True)
    if sample is None or life.leaving.is_set():
        return
    assembly.run(readers, errands, sample, restore_dir=restore_dir)


def _loadable(life: WorkerLife, spec: JobSpec, restore_dir: str) -> str:
    """Return the checkpoint that a worker loads itself, after verifying it.

    For a damaged one the master names the next older one. Raises CheckpointError if
    it names no other.
    """
    if spec.type is JobType.TRAIN and spec.strategy is not Strategy.LOCAL:
        return restore_dir  # PS load, or the leader of a group
    while restore_dir:
        try:
            store.verify(shelf.resolve(Path(restore_dir))[0])
        except CheckpointError as error:
            reply = life.register(unloadable=restore_dir, reason=str(error))
            if reply.restore_dir in ("", restore_dir):
                raise
            restore_dir = reply.restore_dir
        else:
            break
    return restore_dir


class _Module:
    """The user's model module, imported when first needed."""

    def __init__(self, life: WorkerLife, spec: JobSpec) -> None:
        self._life = life
        self._spec = spec
        self._definition: ModelDefinition | None = None

    @property
    def definition(self) -> ModelDefinition:
        return self._definition or self.load()

    @property
    def may_come_with_data(self) -> bool:
        """Whether `data.prepare` may make the module, too: no reader of its is asked.

        So it is with SQL in a cluster (sql/remote).
        """
        return self._spec.data.prepare is not None and not self._spec.model.data_reader

    def custom_reader(self, origin: str) -> Reader | None:
        if not self._spec.model.data_reader:
            return None
        return self.definition.custom_reader(origin)

    def load(self) -> ModelDefinition:
        # Imported late: it takes seconds, and heartbeats have begun by now.
        with quick_import(), quiet_import():
            from elasticdl.model.definition import load_definition

        if self._definition is None:
            context = self._life.context
            # The current folder of a pod is the claim; models come with its image.
            base = Path("/") if context.in_pod else None
            self._definition = load_definition(self._spec, context.job_dir, base=base)
        return self._definition


def _sample(
    life: WorkerLife,
    spec: JobSpec,
    readers: Readers,
    early: EarlyTasks,
    *,
    patient: bool,
) -> RecordSample | None:
    """Return some records; None if there are none, or the job is over.

    Raises what a reader raises `tasks.maxFailures` times, as for any other records.
    """
    failed = 0
    while not life.leaving.is_set():
        try:
            sample = readers.sample(DATA_OF_JOB[spec.type], spec.training.batch_size)
        except Exception as error:  # whatever the user's own reader raises
            failed += not is_storage_away(error)
            if failed >= spec.tasks.max_failures or not early.run(_DATA_WAIT_SECONDS):
                raise
            log.warning("The first records were not read, trying again: %r", error)
            life.leaving.wait(_RETRY_SECONDS)
            continue
        if sample is not None or not patient or not early.run(_DATA_WAIT_SECONDS):
            return sample
        # A wait that the master cut short must not become a busy loop.
        life.leaving.wait(_DATA_WAIT_SECONDS / 2)
    return None


def _prepare(spec: JobSpec) -> None:
    if spec.data.prepare is None:
        return
    data = spec.data
    needed = [p for p in (data.training, data.validation, data.prediction) if p]
    prepare(spec.data.prepare, Path(data.root), log.info, needed=needed)


def _leave_on_signals(leaving: threading.Event) -> None:
    def on_signal(number: int, _frame: FrameType | None) -> None:
        if leaving.is_set():
            os._exit(ExitCode.STOPPED)
        # Not in the handler: the main thread may hold the event's own lock.
        threading.Thread(target=leaving.set, daemon=True).start()
        log.info("Got %s, leaving after this step", signal.Signals(number).name)

    signal.signal(signal.SIGTERM, on_signal)
    # Ctrl-C reaches the whole foreground group; the launcher decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def leave(code: int) -> NoReturn:
    """End the process without TensorFlow's teardown, which costs seconds.

    Everything that counts is on its way by now. What others registered for the exit
    (the user's module, a coverage measurement) still runs.
    """
    # Python has no public way to run these and then not to finalize.
    atexit._run_exitfuncs()  # noqa: SLF001
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(run())
