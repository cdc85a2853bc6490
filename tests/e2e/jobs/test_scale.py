"""A running job follows its values file: nothing that stays is restarted."""

from elasticdl.job.words import JobState

from tests.e2e.kube import wait_until
from tests.e2e.releases import values_file

# Four workers fit a laptop's node.
SMALL = {"cpu": 1, "memory": "1536Mi"}


def test_a_job_grows_shrinks_and_rests_while_it_runs(job, elasticdl):
    digits = job(
        values_file("digits.yaml"),
        training={"epochs": 10_000},
        worker={"replicas": 2, "resources": SMALL},
    )
    digits.wait_running("worker", 2)
    digits.wait_steps(1)
    begun = digits.uids()
    stays = {n: u for n, u in begun.items() if not n.startswith("worker")}

    digits.upgrade(worker={"replicas": 4})
    assert digits.wait_running("worker", 4) == {f"worker-{i}" for i in range(4)}
    assert begun.items() <= digits.uids().items()
    digits.wait_steps(20)

    digits.upgrade(worker={"replicas": 1})
    assert digits.wait_running("worker", 1) == {"worker-0"}
    assert {**stays, "worker-0": begun["worker-0"]} == running(digits)
    digits.wait_steps(20)

    digits.upgrade(paused=True)
    digits.wait_status("it is paused", lambda s: s.state is JobState.PAUSED)
    wait_until("no worker", lambda: not digits.in_phase("worker"), seconds=180)
    assert stays == running(digits)

    digits.upgrade(paused=False)
    digits.wait_running("worker", 1)
    digits.wait_steps(20)

    elasticdl("scale", "digits", "--workers=2")
    digits.wait_running("worker", 2)
    assert stays.items() <= running(digits).items()

    digits.upgrade(training={"epochs": 10_000}, worker={"replicas": 3})
    digits.wait_running("worker", 3)
    digits.end_after_this_epoch()
    report = digits.wait_succeeded()
    # A worker that goes hands back the task that it is in the middle of.
    assert {replay.cause for replay in report.replays} <= {"handed back"}
    assert "every record" in elasticdl("audit", "digits")
    assert not report.relaunches


def running(digits):
    names = {n for role in ("master", "ps", "worker") for n in digits.in_phase(role)}
    return {name: uid for name, uid in digits.uids().items() if name in names}
