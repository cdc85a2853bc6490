"""Where a step's milliseconds go."""

import pytest
from elasticdl.cli.profile import Looks, picture, values_of
from elasticdl.job.status import GroupStatus
from elasticdl.metrics.registry import PsMetrics, WorkerMetrics
from elasticdl.views.terminal.step_times import figures_of, step_times
from prometheus_client import generate_latest
from rich.console import Console

from tests.unit.views.terminal.test_tables import replica, status


def page(metrics):
    return figures_of(generate_latest(metrics.registry).decode())


def worker(steps, *, compute=0.010, ledger=()):
    metrics = WorkerMetrics()
    for _ in range(steps):
        metrics.step_seconds.observe(0.015)
        metrics.push_seconds.observe(0.012)
        metrics.convert_seconds.observe(0.001)
        if compute:
            metrics.compute_seconds.observe(compute)
    metrics.goodput.set_by(dict(ledger))
    return page(metrics)


def test_parts_of_all_workers_are_averaged_over_their_steps():
    before = worker(10, ledger={"waitData": 5.0, "waitPs": 9.0})
    after = worker(110, ledger={"waitData": 5.2, "waitPs": 9.4})
    ps = PsMetrics()
    empty = page(ps)
    ps.apply_seconds.observe(0.002)
    times = step_times([(before, after), (before, after)], [(empty, page(ps))])
    assert times.steps == 200
    line = {part.name: part.milliseconds for part in times.line}
    assert line == pytest.approx(
        {"input": 2.0, "compute": 10.0, "wait": 4.0, "other": 1.0}
    )
    assert times.milliseconds == pytest.approx(17.0)
    beside = {part.name: part.milliseconds for part in times.beside}
    assert beside == pytest.approx({"convert": 1.0, "push": 12.0, "apply": 2.0})


def test_strategy_local_computes_and_waits_for_nobody():
    times = step_times([(worker(0, compute=0), worker(5, compute=0))], [])
    line = {part.name: part.milliseconds for part in times.line}
    assert line == pytest.approx({"input": 0, "compute": 15.0, "wait": 0, "other": 0})


def test_what_a_member_of_a_group_computes_is_no_wait_for_others_before_its_step():
    # 15 ms a step, 4 of them a wait; 16 more go by before others are there.
    ledger = {"waitData": 0.2, "waitPeers": 2.0, "train": 0.8, "replay": 0.1}
    after = worker(100, compute=0, ledger=ledger)
    times = step_times([(worker(0, compute=0), after)], [])
    line = {part.name: part.milliseconds for part in times.line}
    assert line == pytest.approx(
        {"input": 2.0, "compute": 9.0, "wait": 20.0, "other": 0}
    )
    assert times.milliseconds == pytest.approx(31.0)


def test_no_step_no_picture():
    assert step_times([], []) is None
    assert step_times([(worker(3), worker(3))], []) is None


def test_the_picture_fits_a_terminal():
    times = step_times([(worker(0), worker(7))], [])
    console = Console(width=90, record=True)
    console.print(picture(times))
    text = console.export_text()
    assert "compute" in text
    assert "beside the step" in text
    assert max(map(len, text.splitlines())) <= 90


def test_a_profile_of_a_group_tells_its_round_and_what_a_step_sends():
    group = GroupStatus(
        round=3,
        members=["worker-2", "worker-0"],
        level=True,
        why="worker-2 is level",
        since=1050.0,
        change_seconds=0.2,
        changes_seconds=0.5,
    )
    members = [
        replica("worker-0", step=9, wait_seconds=0.001, step_bytes=2048),
        replica("worker-2", step=9, wait_seconds=0.020, step_bytes=2048),
    ]
    looks = Looks()
    looks.take(status(group=group, replicas=members))
    # The last look is at the end, when members leave.
    fewer = group.model_copy(update={"round": 4, "members": ["worker-0"]})
    looks.take(status(group=fewer, replicas=members[:1]))
    console = Console(width=90, record=True)
    console.print(picture(step_times([(worker(0), worker(7))], []), looks.group))
    text = " ".join(console.export_text().split())
    for line in (
        "round 3 of worker-2 (leads), worker-0: worker-2 is level",
        "the change to it cost 0.2 s, all changes 0.5 s",
        "worker-0 waits 1.0 ms and sends 2 KiB, worker-2 waits 20 ms and sends 2 KiB",
    ):
        assert line in text, text


def test_a_profile_leaves_nothing_where_the_job_would_and_tells_nobody(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(
        f"""
kind: job
job:
  name: {"n" * 46}
  model: {{definition: m.model}}
  data: {{training: t, validation: v}}
  checkpoint: {{dir: shared/checkpoints, everySteps: 5, initFrom: start}}
  export: {{dir: out}}
  master: {{port: 50001}}
  onEnd: {{command: [deploy], webhook: "https://a.example/x"}}
"""
    )
    job = values_of(file, ["training.batchSize=7"], steps=400).job
    assert job.name == "n" * 38 + "-profile"
    assert (job.checkpoint.dir, job.export.dir, job.data.validation) == ("", "", "")
    assert (job.checkpoint.every_steps, job.checkpoint.every_seconds) == (0, 0)
    assert (job.on_end.command, job.on_end.webhook) == ([], "")
    assert job.master.port == 0
    # What makes the steps what they are stays.
    assert (job.checkpoint.init_from, job.training.batch_size) == ("start", 7)
    assert job.training.max_steps == 400
