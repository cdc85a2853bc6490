"""One master after another, and one beside another: real masters, scripted replicas."""

import asyncio

from elasticdl.errors import ExitCode, PlatformError, SupersededError
from elasticdl.job.values.file import edit_values
from elasticdl.job.words import JobState
from elasticdl.master.course.launching import Launching
from elasticdl.master.live_edits import stamp
from elasticdl.master.members.membership import Stop
from elasticdl.master.tasks.journal_files import read_events
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.runner.base import (
    Launch,
    ObservedReplica,
    Phase,
    ReplicaKey,
    Role,
)
from elasticdl.testing.fakes import InMemoryRunner


def leased(rig) -> int:
    queue = rig.master.job.parts.ledger.queue
    return len(queue.leased) if queue is not None else 0


async def nobody_calls(rig) -> None:
    """Have no call tell a master that another one has taken over."""
    for replica in rig.everyone:
        replica.kill()
    # Those that are under way are answered first.
    await asyncio.get_running_loop().run_in_executor(None, rig.pool.shutdown)


def test_an_old_master_that_wakes_up_ends_and_touches_nothing(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as old:
            await rig.until(lambda: leased(rig) >= 2)
            await nobody_calls(rig)
            next_one = Ledger.open(rig.job_dir.journal_dir, now=2.0)
            # What the old one would end: replicas that the next one started.
            stranger = ReplicaKey(Role.WORKER, 9)
            old.loop._launching._stops.append(Stop(stranger, 0.0, "unknown"))
            old.job.parts.signals.wake()
            await asyncio.wait([rig.running])
        assert isinstance(rig.running.exception(), SupersededError)
        await next_one.hold()
        next_one.close()
        assert rig.runner.stops == []
        assert not rig.job_dir.report_file.exists()

    rig.run(story)


class LosesOneMeanwhile(InMemoryRunner):
    """A PS ends while the master waits for this platform to end a replica."""

    def __init__(self, rig) -> None:
        super().__init__(on_start=self.starts)
        self.rig = rig
        self.too_early: list[Launch] = []

    def starts(self, launch: Launch) -> None:
        events = read_events(self.rig.job_dir.journal_dir)
        given = [e.get("generation", 0) for _, e in events if e["k"] == "ids"]
        if launch.generation > max(given):
            self.too_early.append(launch)
        self.rig.start_replica(launch)

    async def stop(self, key: ReplicaKey, *, grace_seconds: float, reason: str) -> None:
        self.rig.kill("ps-1")
        table = self.rig.master.job.parts.table
        before = table.ps()[1]
        while table.ps()[1] in (before, None):
            await asyncio.sleep(0)
        await super().stop(key, grace_seconds=grace_seconds, reason=reason)


def test_no_replica_is_started_whose_generation_another_master_could_give_again(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.runner = LosesOneMeanwhile(rig)
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: leased(rig) >= 2)
            # Its end is seen in the moment in which the master began to look.
            moment = master.job.clock()
            master.job.clock = lambda: moment
            stranger = ReplicaKey(Role.WORKER, 9)
            master.loop._launching._stops.append(Stop(stranger, 0.0, "unknown"))
            master.job.parts.signals.wake()
            ps_1 = ReplicaKey(Role.PS, 1)
            await rig.until(
                lambda: [one.key for one in rig.runner.launches].count(ps_1) == 2
            )
        assert rig.runner.too_early == []

    rig.run(story)


def test_a_master_with_nothing_to_write_finds_out_that_it_is_the_old_one(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: leased(rig) >= 2)
            await nobody_calls(rig)
            Ledger.open(rig.job_dir.journal_dir, now=2.0).close()
            await asyncio.wait([rig.running])
        assert isinstance(rig.running.exception(), SupersededError)
        assert not rig.job_dir.report_file.exists()

    rig.run(story)


def test_an_old_master_that_winds_down_leaves_the_replicas_to_the_next_one(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as old:
            await rig.until(lambda: leased(rig) >= 2)
            rig.world.mute |= {"worker-0", "worker-1", "ps-0", "ps-1"}
            old.job.end(JobState.FAILED, "some failure", ExitCode.JOB_FAILED)
            workers = old.job.parts.table.workers
            await rig.until(lambda: all(member.drain for member in workers()))
            next_one = Ledger.open(rig.job_dir.journal_dir, now=2.0)
            await asyncio.wait([rig.running])
        assert isinstance(rig.running.exception(), SupersededError)
        next_one.close()
        assert rig.runner.stops == []
        assert not rig.job_dir.report_file.exists()

    rig.run(story)


def test_a_lease_longer_than_its_time_outlives_the_master(rig) -> None:
    """Renewals are not journaled: a task of an hour would go to a second worker."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: leased(rig) >= 2)
        rig.clock_ahead = 10_000.0
        async with rig.serving() as master:
            members = master.job.parts.table.members
            await rig.until(lambda: not any(m.unsettled for m in members.values()))
            await rig.until(lambda: all(m.worker or m.ps for m in members.values()))
            assert leased(rig) >= 2
            assert not master.job.parts.ledger.queue.waiting
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.replayed_records == 0

    rig.run(story)


def test_an_edit_during_a_masters_start_is_taken(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        seen = stamp(rig.job_dir.spec_file)  # then the file is read, and then edited
        edit_values(rig.job_dir.spec_file, {"job.worker.replicas": 3})
        async with rig.serving(spec_seen=seen) as master:
            await rig.until(lambda: master.job.spec.worker.replicas == 3)
            rig.world.go.set()
            await rig.ended()

    rig.run(story)


def test_data_that_changed_between_two_launches_are_refused(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: leased(rig) >= 2)
        with (rig.root / "train.csv").open("a") as file:
            file.write("99,1\n" * 8)
        rig.world.go.set()
        async with rig.serving(launched=True):
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "was begun with 64 records in 1 sources" in report.message
        assert "train.csv had 64 records, now" in report.message
        assert "has 72; put the old data and settings back" in report.message

    rig.run(story)


def test_a_job_launched_again_goes_on_with_the_same_data(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: leased(rig) >= 2)
        rig.world.go.set()
        async with rig.serving(launched=True):
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.records == 64

    rig.run(story)


def test_stops_that_failed_are_carried_out_at_the_end(rig) -> None:
    async def story(rig) -> None:
        tried = []

        class Away:
            async def stop(self, key, *, grace_seconds, reason):
                tried.append(key)
                if len(tried) < 3:
                    raise PlatformError("the API server is away")

        async with rig.serving() as master:
            launching = Launching(master.job, Away())
            stranger = ReplicaKey(Role.WORKER, 9)
            launching.add_stops([Stop(stranger, 0.0, "unknown to the master")])
            await launching.stop_all(pause=0.0)
            await rig.ended()
        assert tried == [stranger] * 3
        assert launching._stops == []

    rig.run(story)


def test_a_stop_that_the_last_turn_could_not_make_is_made_before_the_job_is_over(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        stranger = ReplicaKey(Role.WORKER, 9)
        really, tried_last = rig.runner.stop, []

        async def stop(key, *, grace_seconds, reason):
            if key == stranger and not tried_last:
                # The last turn of the loop is the one in which the job is over.
                if rig.master.job.finished:
                    tried_last.append(key)
                raise PlatformError("the API server is away")
            await really(key, grace_seconds=grace_seconds, reason=reason)

        rig.runner.stop = stop
        async with rig.serving():
            await rig.until(lambda: leased(rig) >= 2)
            rig.runner._show(ObservedReplica(stranger, 77, Phase.RUNNING))
            rig.world.go.set()
            await rig.ended()
        assert tried_last
        assert rig.runner.states[stranger].phase is Phase.FAILED

    rig.run(story)
