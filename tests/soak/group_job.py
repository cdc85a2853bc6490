"""A job of a group whose members are killed for two minutes, and what came of it.

    python -m tests.soak.group_job
    python -m tests.soak.group_job --seconds 30 --seed 7

A member of three is killed every five seconds, any of them, by SIGKILL; now and then
two at once, one that has the state is left. Fails if a record was repeated or missed,
if values of members ever differed, if the model is worse than 0.97, or more than 0.005
worse than that of a job of as many epochs that nothing happens to.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from pathlib import Path

from elasticdl.data.making.datasets import make_dataset
from elasticdl.errors import NotFoundError
from elasticdl.job.status import JobReport
from elasticdl.job.values.document import ValuesFile
from elasticdl.master.tasks.audit import AuditReport
from elasticdl.testing.claims import check_whole
from elasticdl.testing.job import JobUnderTest

ROOT = Path(__file__).resolve().parents[2]
PAUSE_SECONDS = 5.0
LEAST_ACCURACY = 0.97
MOST_WORSE = 0.005
_CALM_SECONDS = 900.0


def values(name: str, epochs: int = 0) -> ValuesFile:
    """Return a job of a CNN on digits; of 0 epochs it is endless."""
    return ValuesFile.model_validate(
        {
            "kind": "job",
            "job": {
                "name": name,
                "strategy": "allReduce",
                "model": {
                    "zoo": str(ROOT / "model_zoo"),
                    "definition": "digits.cnn.custom_model",
                },
                "data": {
                    "training": "data/digits/train",
                    "validation": "data/digits/test",
                },
                "training": {
                    "epochs": epochs,
                    "batchSize": 32,
                    "batchesPerTask": 4,
                },
                "evaluation": {"atEpochEnd": False},
                "checkpoint": {"everySeconds": 5.0},
                "worker": {"replicas": 3, "threads": 1, "maxRestarts": 1000},
            },
        }
    )


def kill_members(job: JobUnderTest, seconds: float, rng: random.Random) -> int:
    """Kill members while others are left; return how many."""
    killed, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(PAUSE_SECONDS)
        # One at least stays that has the state.
        status = job.wait_until(
            lambda s: s.group and s.group.level and len(s.group.members) > 1,
            "two members",
        )
        members = status.group.members if status.group else []
        some = rng.sample(members, min(len(members) - 1, rng.choice([1, 1, 2])))
        for name in some:
            try:
                job.handle.kill(name, signal.SIGKILL)
            except NotFoundError:
                continue
            killed += 1
            print(f"killed {name} of {', '.join(members)}", flush=True)
    return killed


def faults_of(report: JobReport, calm: JobReport, audit: AuditReport) -> list[str]:
    """Return what is wrong with a job whose members were killed."""
    accuracy, usual = (of.metrics["accuracy"] for of in (report, calm))
    checks = {
        f"{report.rewinds} rewinds": not report.rewinds,
        f"{report.replayed_records} records given out again": not (
            report.replayed_records
        ),
        f"records were not trained once: {audit}": audit.once,
        f"{report.version} steps in the model, {report.steps} reported": (
            report.version == report.steps
        ),
        f"values of members differed {report.repairs} times": not report.repairs,
        f"accuracy {accuracy:.4f}, undisturbed {usual:.4f}": (
            accuracy >= usual - MOST_WORSE
        ),
    }
    return [what for what, holds in checks.items() if not holds]


def main() -> None:
    """Run it once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="of kills")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        make_dataset("digits", work / "data")
        with JobUnderTest(values("group"), work / "jobs", work) as job:
            job.wait_until(lambda s: s.group and len(s.group.members) == 3, "three")
            killed = kill_members(job, args.seconds, random.Random(args.seed))
            job.end_after_this_epoch()
            report = job.finish()
            check_whole(job, report, least_accuracy=LEAST_ACCURACY)
            found = job.audit()
        print(f"a job of {report.epochs} epochs that nothing happens to", flush=True)
        with JobUnderTest(
            values("calm", report.epochs),
            work / "jobs",
            work,
            limit_seconds=_CALM_SECONDS,
        ) as job:
            calm = job.finish()
    print(
        f"{killed} members killed, {report.rewinds} rewinds, "
        f"{report.replayed_records} records repeated, accuracy "
        f"{report.metrics['accuracy']:.4f} (undisturbed "
        f"{calm.metrics['accuracy']:.4f}), "
        f"{report.version} steps"
    )
    wrong = faults_of(report, calm, found)
    if wrong:
        raise SystemExit("; ".join(wrong))


if __name__ == "__main__":
    main()
