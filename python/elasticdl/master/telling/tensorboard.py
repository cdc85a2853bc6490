"""Event files for TensorBoard: loss, evaluations, workers, goodput.

Owns which scalars there are and the events they become. Called by
`master.telling.history`, which has them written. Needs no TensorFlow: an event file is
a TFRecord file of small messages (proto/tensorboard.proto).

Steps are versions of the model. Each master has a file of its own. Where it goes on, or
goes back to, is told as the start of a session: TensorBoard then drops what was told of
that step and of later ones before.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from elasticdl.data.formats.tfrecord import framed
from elasticdl.job.names import Role
from elasticdl.job.status import EvaluationResult, JobStatus
from elasticdl.job.words import ReplicaState
from elasticdl.master.members import goodput
from elasticdl.master.telling.appending import Appending
from elasticdl.proto import tensorboard_pb2

_FILE_VERSION = "brain.Event:2"


class Scalars:
    """The TensorBoard event file of one master."""

    def __init__(self, directory: Path, *, now: float, generation: int) -> None:
        """Open a file; nothing is written yet."""
        name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{generation}"
        self.file = Appending(directory / name, root=directory.parent)
        self._resumes = generation > 1  # and the PS have not told their version yet
        self._rewinds: int | None = None
        self._add(tensorboard_pb2.Event(wall_time=now, file_version=_FILE_VERSION))

    def sampled(self, status: JobStatus) -> None:
        """Write the job's figures."""
        step = status.progress.version
        if self._resumes and not step:
            return
        back = self._rewinds is not None and status.rewinds > self._rewinds
        if self._resumes or back:
            # A rewind goes to the newest checkpoint; its version is told before ours.
            at = min(step, status.checkpoint_version or 0) if back else step
            start = tensorboard_pb2.SessionLog(status=tensorboard_pb2.SessionLog.START)
            self._add(
                tensorboard_pb2.Event(wall_time=status.time, step=at, session_log=start)
            )
        self._resumes, self._rewinds = False, status.rewinds
        workers = [r for r in status.replicas if r.role == Role.WORKER]
        values = {
            "workers/running": float(
                sum(r.state == ReplicaState.RUNNING for r in workers)
            ),
            "workers/wanted": float(status.workers_wanted),
            "goodput/share": goodput.share(status.goodput_seconds),
            "records_per_second": status.progress.records_per_second,
        }
        if status.last_loss is not None:
            values["loss"] = status.last_loss
        self._tell(values, step=step, now=status.time)

    def evaluated(self, result: EvaluationResult) -> None:
        """Write the metrics of an evaluation."""
        values = {f"evaluation/{name}": one for name, one in result.metrics.items()}
        self._tell(values, step=result.version, now=result.time)

    def _tell(self, values: Mapping[str, float], *, step: int, now: float) -> None:
        event = tensorboard_pb2.Event(wall_time=now, step=step)
        for tag, value in values.items():
            event.summary.value.add(tag=tag, simple_value=value)
        self._add(event)

    def _add(self, event: tensorboard_pb2.Event) -> None:
        self.file.add(b"".join(framed(event.SerializeToString())))
