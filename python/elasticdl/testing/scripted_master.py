"""A master that only pretends: it answers, makes progress by the clock and ends.

Run as a process in place of `elasticdl.master.main`, to test launcher and CLI without
a training job. What it does is in the environment: SCRIPT_SECONDS (how long the job
takes), SCRIPT_END (succeeded, failed, crash, refuse). Must not know the real master.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import grpc

from elasticdl.files import write_whole
from elasticdl.job.names import ENV_JOB_DIR, ENV_MASTER_ADDRESS, ENV_TOKEN, JobDir
from elasticdl.job.status import (
    EvaluationResult,
    JobReport,
    JobStatus,
    Progress,
    Relaunch,
    ReplicaStatus,
)
from elasticdl.job.words import JobState
from elasticdl.rpc.master_service import add_master
from elasticdl.rpc.server import threaded_server

RECORDS, EPOCHS = 1437, 3


class ScriptedMaster:
    """Status by the clock; the journal is a file with one line for each start."""

    def __init__(self, job_dir: JobDir, *, seconds: float, end: str) -> None:
        self._job_dir = job_dir
        self._seconds = seconds
        self._end = end
        self.stop_asked = threading.Event()
        job_dir.journal_dir.mkdir(parents=True, exist_ok=True)
        starts = job_dir.journal_dir / "starts"
        with starts.open("a") as file:
            file.write(f"{time.time()}\n")
        times = [float(line) for line in starts.read_text().split()]
        self._started, self._generation = times[0], len(times)

    def Echo(  # noqa: N802 - the name is the RPC's
        self, request: tuple[()], context: grpc.ServicerContext
    ) -> None:
        del request, context

    def Status(  # noqa: N802 - the name is the RPC's
        self, request: tuple[()], context: grpc.ServicerContext
    ) -> str:
        del request, context
        return self.status().model_dump_json()

    def Stop(  # noqa: N802 - the name is the RPC's
        self, reason: str, context: grpc.ServicerContext
    ) -> None:
        del reason, context
        self.stop_asked.set()

    def _absent(self, request: object, context: grpc.ServicerContext) -> NoReturn:
        del request
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "this master only pretends")

    Register = ModelReady = Lease = WorkerSync = PsSync = _absent

    @property
    def share(self) -> float:
        """How much of the job is done."""
        return min(1.0, (time.time() - self._started) / self._seconds)

    def run(self) -> int:
        """Wait for the end of the script; the exit code."""
        if self._end == "refuse":
            sys.stderr.write("error: data/digits: no such folder\n")
            return 5
        while self.share < 1.0 and not self.stop_asked.wait(0.02):
            pass
        if self._end == "crash" and not self.stop_asked.is_set():
            raise RuntimeError("the script says crash")
        state = JobState.STOPPED if self.stop_asked.is_set() else JobState(self._end)
        report = self.report(state)
        text = report.model_dump_json(indent=1)
        write_whole(self._job_dir.report_file, text, durable=False)
        return {JobState.SUCCEEDED: 0, JobState.STOPPED: 130}.get(state, 4)

    def status(self) -> JobStatus:
        """Return a status as that of a small training job."""
        now = time.time()
        done = int(self.share * RECORDS * EPOCHS)
        running = {"state": "running", "generation": 1, "since": self._started}
        return JobStatus(
            name=self._job_dir.root.name,
            type="train",
            strategy="parameterServer",
            state=JobState.RUNNING,
            started=self._started,
            time=now,
            master_generation=self._generation,
            workers_wanted=3,
            progress=Progress(
                epoch=done // RECORDS,
                epochs=EPOCHS,
                records_per_epoch=RECORDS,
                records_done=done,
                steps=done // 32,
                version=done // 32,
                records_per_second=RECORDS * EPOCHS / self._seconds,
                eta_seconds=(1 - self.share) * self._seconds,
                replayed_records=256 if self.share > 0.5 else 0,
            ),
            replicas=[
                ReplicaStatus(
                    name="ps-0", role="ps", index=0, version=done // 32, **running
                ),
                ReplicaStatus(
                    name="worker-0",
                    role="worker",
                    index=0,
                    phase="train",
                    step=done // 64,
                    steps_per_second=21.7,
                    loss=2.3 * (1.05 - self.share),
                    memory_bytes=612 << 20,
                    **running,
                ),
                ReplicaStatus(
                    name="worker-1",
                    role="worker",
                    index=1,
                    generation=1,
                    state="failed",
                    reason="killed",
                    since=now - 3,
                ),
                ReplicaStatus(
                    name="worker-3",
                    role="worker",
                    index=3,
                    generation=2,
                    state="pending",
                    reason="waiting for CPU: 2 of 2 in use",
                    since=now - 2,
                ),
            ],
            relaunches=self._relaunches(),
            last_loss=2.3 * (1.05 - self.share),
            last_evaluation=self._evaluation(),
            checkpoint_version=0,
            checkpoint_age_seconds=now - self._started,
        )

    def _relaunches(self) -> list[Relaunch]:
        if self.share < 0.5:
            return []
        return [
            Relaunch(
                replica="worker-1",
                reason="killed",
                replacement="worker-3",
                time=self._started + 1,
                detail="SIGKILL",
                seconds=1.8,
            )
        ]

    def _evaluation(self) -> EvaluationResult | None:
        if self.share < 0.4:
            return None
        return EvaluationResult(
            version=45,
            metrics={"accuracy": 0.8512},
            records=360,
            seconds=0.3,
            time=self._started + 0.4 * self._seconds,
            why="epoch end",
        )

    def report(self, state: JobState) -> JobReport:
        """Return the final report."""
        evaluation = self._evaluation()
        done = int(self.share * RECORDS * EPOCHS)
        failed = state is JobState.FAILED
        return JobReport(
            name=self._job_dir.root.name,
            type="train",
            strategy="parameterServer",
            status=state,
            message="cnn.py:12: loss() returned shape (64,)" if failed else "",
            started=self._started,
            seconds=time.time() - self._started,
            epochs=EPOCHS,
            steps=done // 32,
            version=done // 32,
            records=done,
            records_per_second=done / self._seconds,
            replayed_records=0,
            replays=[],
            bad_records=[],
            skipped_batches=0,
            lost_updates=0,
            rewinds=0,
            master_restarts=self._generation - 1,
            goodput_seconds={"train": 70.2, "start": 20.1, "waitPs": 3.3, "idle": 0.0},
            goodput=0.75,
            last_loss=0.0712,
            metrics=evaluation.metrics if evaluation else {},
            evaluations=[evaluation] if evaluation else [],
            relaunches=self._relaunches(),
            checkpoint=str(self._job_dir.checkpoints_dir / "version-134"),
            exports=["outputs/digits/saved_model", "outputs/digits/model.keras"],
        )


def main() -> int:
    environ = os.environ  # noqa: TID251 - this is a process's main
    job_dir = JobDir(Path(environ[ENV_JOB_DIR]))
    master = ScriptedMaster(
        job_dir,
        seconds=float(environ.get("SCRIPT_SECONDS", "2")),
        end=environ.get("SCRIPT_END", "succeeded"),
    )
    signal.signal(signal.SIGTERM, lambda *_: master.stop_asked.set())
    server = threaded_server(4, environ[ENV_TOKEN])
    add_master(master, server)
    server.add_insecure_port(environ[ENV_MASTER_ADDRESS])
    server.start()
    sys.stderr.write("serving\n")
    try:
        return master.run()
    finally:
        server.stop(grace=0.2).wait()


if __name__ == "__main__":
    sys.exit(main())
