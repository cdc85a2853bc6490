"""The master's metrics are what the job is: a real master, scripted replicas."""

import math

import pytest
from elasticdl.job.tasks import LeaseRequest, TaskOutcome, TaskReport
from elasticdl.job.values.file import edit_values
from elasticdl.job.words import ExitReason, JobState
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families


class Shown:
    """The samples of one scrape."""

    def __init__(self, master) -> None:
        master.gauges.update(now=master.job.clock())
        text = generate_latest(master.gauges.metrics.registry).decode()
        self.samples = [
            sample
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def all(self, name: str) -> dict[tuple[str, ...], float]:
        """Values by the labels' values, in the order of the labels' names."""
        return {
            tuple(sample.labels.values()): sample.value
            for sample in self.samples
            if sample.name == f"elasticdl_{name}"
        }

    def one(self, name: str, *labels: str) -> float:
        return self.all(name)[labels]


async def tell(replica, report: TaskReport) -> None:
    request = LeaseRequest(reports=[report])
    await replica.call(replica.client.lease, request)


def two_leases(master) -> bool:
    queue = master.job.parts.ledger.queue
    return queue is not None and len(queue.leased) == 2


def test_a_running_job_shows_its_size_its_queue_and_what_is_not_known_yet(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            shown = Shown(master)
            assert shown.all("job_info") == {("rig", "parameterServer", "train"): 1}
            assert shown.one("workers_wanted") == 2
            assert shown.one("workers_min") == 1
            assert shown.one("workers_max") == 5
            assert shown.all("replicas") == {
                ("ps", "running"): 2,
                ("worker", "running"): 2,
            }
            assert shown.all("pending_replicas") == {}
            assert shown.one("tasks_planned") == 16
            assert shown.one("tasks_done") == 0
            assert shown.one("tasks_leased") == 2
            assert shown.one("checkpoint_interval_seconds") == 60
            for absent in (
                "job_eta_seconds",
                "job_epoch_eta_seconds",
                "job_loss",
                "job_last_step_timestamp_seconds",
                "evaluation_metric",
            ):
                assert shown.all(absent) == {}, absent
            assert shown.all("preemptions_total") == {("ps",): 0, ("worker",): 0}
            assert shown.one("master_restarts_total") == 0
            rig.world.go.set()
            report = await rig.ended()
            shown = Shown(master)
            assert shown.one("job_records_done") == report.records == 128
            assert shown.one("job_steps_done") == report.steps
            assert shown.one("tasks_done") == 16
            assert shown.one("job_state", "succeeded") == 1
            assert shown.one("job_loss") == report.last_loss
            assert shown.all("replicas") == {}
            assert shown.all("workers_last_step_seconds") == {}

    rig.run(story, training__epochs=2, worker__min=1, worker__max=5)


def test_membership_changes_tell_cause_and_cost_and_agree_with_the_report(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            rig.kill("worker-0", ExitReason.PREEMPTED)
            rig.kill("worker-1", ExitReason.ERROR, exit_code=1, message="boom")
            await rig.until(
                lambda: (
                    [r.seconds is not None for r in master.job.parts.relaunches.records]
                    == [True, True]
                )
            )
            shown = Shown(master)
            changes = shown.all("membership_changes_total")
            assert changes["started", "worker"] == 2
            assert changes["preempted", "worker"] == 1
            assert changes["crashed", "worker"] == 1
            assert changes["joined", "worker"] == 4
            assert changes["joined", "ps"] == 2
            assert shown.all("preemptions_total") == {("ps",): 0, ("worker",): 1}
            assert shown.all("relaunches_total") == {
                ("preempted", "worker"): 1,
                ("exit code 1", "worker"): 1,
            }
            records = {r.reason: r for r in master.job.parts.relaunches.records}
            costs = shown.all("membership_last_change_cost_seconds")
            assert costs["preempted",] == records["preempted"].seconds
            assert costs["crashed",] == records["exit code 1"].seconds
            assert costs["started",] > 0
            times = shown.all("membership_last_change_timestamp_seconds")
            assert times["preempted",] == records["preempted"].time
            rig.world.go.set()
            await rig.ended()

    rig.run(story)


def test_a_worker_that_is_added_or_sent_away_is_a_change_with_its_own_cause(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            edit_values(rig.job_dir.spec_file, {"job.worker.replicas": 3})
            await rig.until(lambda: len(master.job.parts.ledger.queue.leased) == 3)
            cost = "membership_last_change_cost_seconds"
            await rig.until(lambda: ("grown",) in Shown(master).all(cost))
            shown = Shown(master)
            assert shown.all("membership_changes_total")["grown", "worker"] == 1
            assert shown.all(cost)["grown",] > 0
            assert shown.one("workers_wanted") == 3
            edit_values(rig.job_dir.spec_file, {"job.worker.replicas": 2})
            await rig.until(
                lambda: (
                    ("shrunk", "worker")
                    in Shown(master).all("membership_changes_total")
                )
            )
            rig.world.go.set()
            await rig.ended()

    rig.run(story, training__epochs=4)


def test_a_restarted_master_goes_on_counting_where_the_journal_is(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            rig.kill("worker-0", ExitReason.PREEMPTED)
            await rig.until(lambda: two_leases(master))
            await rig.until(
                lambda: any(
                    r.seconds is not None for r in master.job.parts.relaunches.records
                )
            )
        async with rig.serving() as master:
            await rig.until(
                lambda: all(
                    m.registered and m.alive
                    for m in master.job.parts.table.members.values()
                )
            )
            shown = Shown(master)
            assert shown.one("master_restarts_total") == 1
            assert shown.one("preemptions_total", "worker") == 1
            # Those that were taken over did not join a second time.
            assert ("joined", "worker") not in shown.all("membership_changes_total")
            rig.world.go.set()
            await rig.ended()

    rig.run(story)


def test_a_loss_that_is_not_finite_is_counted_skipped_or_fatal(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            assert Shown(master).one("job_nonfinite_losses_total") == 0
            worker, other = (
                rig.replicas[member.key] for member in master.job.parts.table.workers()
            )
            queue = master.job.parts.ledger.queue
            mine, others = (
                queue.leases_of(replica.key.index)[0] for replica in (worker, other)
            )
            skipped = TaskReport(
                lease_id=mine,
                outcome=TaskOutcome.DONE,
                records=8,
                steps=1,
                skipped_batches=1,
                loss=0.5,
            )
            await tell(worker, skipped)
            assert Shown(master).one("job_nonfinite_losses_total") == 1
            fatal = TaskReport(
                lease_id=others,
                outcome=TaskOutcome.FAILED,
                error="loss is nan",
                fatal=True,
                loss=math.nan,
            )
            await tell(other, fatal)
            shown = Shown(master)
            assert shown.one("job_nonfinite_losses_total") == 2
            assert shown.one("job_loss") == pytest.approx(0.5)
            rig.world.go.set()
            report = await rig.ended()
            assert report.status is JobState.FAILED

    rig.run(story)


def test_alerts_are_shown_what_the_job_says_itself_and_the_room_of_its_volume(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            shown = Shown(master)
            assert shown.all("job_alert_threshold") == {
                ("noStepSeconds",): 3600,
                ("goodputRatio",): 0.1,
            }
            size = shown.one("volume_bytes")
            assert 0 < shown.one("volume_free_bytes") <= size
            assert shown.one("journal_blocked_seconds") == 0
            assert shown.one("job_stalled_seconds") == 0
            assert shown.one("checkpoint_unsaved_seconds") == 0
            edit_values(rig.job_dir.spec_file, {"job.alerts.noStepSeconds": 60})
            told = {("noStepSeconds",): 60, ("goodputRatio",): 0.1}
            await rig.until(lambda: Shown(master).all("job_alert_threshold") == told)
            rig.world.go.set()
            await rig.ended()

    rig.run(story, alerts__no_step_seconds=3600, alerts__goodput_ratio=0.1)
