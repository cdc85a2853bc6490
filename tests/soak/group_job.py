"""A job of a group whose members are killed for two minutes, and what came of it.

    python -m tests.soak.group_job
    python -m tests.soak.group_job --seconds 30 --seed 7

A member of three is killed every five seconds, any of them, by SIGKILL; now and then
two at once. Fails if a record was repeated although a member was left, if one was
missed, or if the model is worse than 0.97.
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
from elasticdl.job.values.document import ValuesFile
from elasticdl.testing.claims import check_whole
from elasticdl.testing.job import JobUnderTest

ROOT = Path(__file__).resolve().parents[2]
PAUSE_SECONDS = 5.0
LEAST_ACCURACY = 0.97


def values() -> ValuesFile:
    """Return an endless job of a CNN on digits."""
    return ValuesFile.model_validate(
        {
            "kind": "job",
            "job": {
                "name": "group",
                "strategy": "allReduce",
                "model": {
                    "zoo": str(ROOT / "model_zoo"),
                    "definition": "digits.cnn.custom_model",
                },
                "data": {
                    "training": "data/digits/train",
                    "validation": "data/digits/test",
                },
                "training": {"epochs": 0, "batchSize": 32, "batchesPerTask": 4},
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
        with JobUnderTest(values(), work / "jobs", work) as job:
            job.wait_until(lambda s: s.group and len(s.group.members) == 3, "three")
            killed = kill_members(job, args.seconds, random.Random(args.seed))
            job.end_after_this_epoch()
            report = job.finish()
            check_whole(job, report, least_accuracy=LEAST_ACCURACY)
            found = job.audit()
    print(
        f"{killed} members killed, {report.rewinds} rewinds, "
        f"{report.replayed_records} records repeated, accuracy "
        f"{report.metrics['accuracy']:.4f}, {report.version} steps"
    )
    once = found.once and report.version == report.steps
    if report.rewinds == 0 and not once:
        raise SystemExit(
            f"records were not trained once: {found}; {report.version} steps in the "
            f"model, {report.steps} reported"
        )


if __name__ == "__main__":
    main()
