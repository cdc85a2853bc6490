"""What must hold of any job, whatever happened to it: claims for tests and benchmarks.

Owns the statements. Called after `JobUnderTest.finish`. Must not know which faults
were injected.
"""

from __future__ import annotations

from elasticdl.errors import JobError
from elasticdl.job.status import JobReport
from elasticdl.testing.job import JobUnderTest

# A 64-unit MLP on digits after 8 epochs stands above this, disturbed or not; the
# bound is far below the usual 0.96 so that only real damage (lost updates) breaks it.
LEAST_ACCURACY = 0.90


def check_whole(
    job: JobUnderTest, report: JobReport, *, least_accuracy: float = LEAST_ACCURACY
) -> None:
    """Raise JobError unless every record of every epoch was counted."""
    audited = job.audit()
    plan = job.values.job.training
    if not audited.ok:
        raise JobError(f"records were missed: {audited.gaps}\n{job.shown()}")
    wanted = plan.epochs and not job.shortened
    if wanted and len(audited.epochs) != plan.epochs:
        raise JobError(
            f"{len(audited.epochs)} epochs in the journal, expected {plan.epochs}"
        )
    open_epochs = [e.epoch for e in audited.epochs if not e.finished]
    if open_epochs:
        raise JobError(f"epochs {open_epochs} did not finish\n{job.shown()}")
    accuracy = report.metrics.get("accuracy", 1.0)
    if accuracy < least_accuracy:
        raise JobError(
            f"accuracy {accuracy:.3f}, expected {least_accuracy} or more\n{job.shown()}"
        )


def relaunched(job: JobUnderTest, replica: str, *, reason: str) -> None:
    """Wait until an end of a replica is recorded as `reason`."""
    job.wait_until(
        lambda s: any(
            r.replica == replica and r.reason == reason for r in s.relaunches
        ),
        f"the relaunch of {replica} as {reason}",
    )
