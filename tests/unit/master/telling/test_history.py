"""A job's history: what a real master writes beside its journal, and shows of it."""

import gzip
import json
import math
from pathlib import Path

import pytest
from elasticdl.data.formats.files import FilePool
from elasticdl.data.formats.tfrecord import TFRecordReader
from elasticdl.data.records import BadRecords
from elasticdl.errors import ExitCode
from elasticdl.job import history
from elasticdl.job.decision import Decision
from elasticdl.job.heartbeats import PsReport
from elasticdl.job.history import PsSample
from elasticdl.job.names import Role
from elasticdl.job.status import EvaluationResult
from elasticdl.job.values.file import edit_values
from elasticdl.job.words import JobState
from elasticdl.master.telling import sampling
from elasticdl.master.telling.appending import append
from elasticdl.master.telling.shortening import MOST_FILE_BYTES
from elasticdl.proto import tensorboard_pb2

from tests.unit.master.looks import first_checkpoint
from tests.unit.master.tasks.test_journal import FullDisk

MONTH_SECONDS = 30 * 86_400.0


def events(folder: Path) -> list[tensorboard_pb2.Event]:
    (file,) = folder.glob("*tfevents*")
    reader = TFRecordReader(file, FilePool())
    records = reader.read(0, reader.num_records, BadRecords(file.name, skip=False))
    return [tensorboard_pb2.Event.FromString(record) for record in records]


def leases(rig) -> bool:
    return any(replica.held for replica in rig.replicas.values())


def test_a_job_leaves_its_history(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: leases(rig))
            rig.kill("worker-0")
            await rig.until(lambda: rig.runner.running(Role.WORKER) == [1, 2])
            edit_values(rig.job_dir.spec_file, {"job.worker.replicas": 3})
            await rig.until(lambda: rig.runner.running(Role.WORKER) == [1, 2, 3])
            edit_values(rig.job_dir.spec_file, {"job.training.batchSize": 9})
            await rig.until(
                lambda: any(n.reason == "EditRefused" for n in rig.publisher.notices)
            )
            rig.world.go.set()
            report = await rig.ended()
        told = history.read(rig.job_dir.history_file)
        by_kind = {one.kind: one for one in told.decisions}
        assert by_kind["ended"].replica == "worker-0"
        assert by_kind["ended"].replacement == "worker-2"
        assert by_kind["relaunched"].cost_seconds == report.relaunches[0].seconds
        assert by_kind["grown"].cause == "worker.replicas: 2 -> 3"
        assert "batchSize" in by_kind["refused"].cause
        assert by_kind["checkpoint"].cost_seconds >= 0.0
        assert by_kind["state"].text == "job rig succeeded"
        last = told.samples[-1]
        assert (last.records_done, last.state) == (report.records, "succeeded")
        assert last.goodput_seconds == pytest.approx(report.goodput_seconds, abs=1.0)
        assert list(told.evaluations) == report.evaluations
        times = [one.time for one in told.samples]
        assert times == sorted(times)
        # What the platform's notices say is the same, in the same words.
        said = {notice.message for notice in rig.publisher.notices}
        assert by_kind["grown"].text in said
        shown = gzip.decompress(rig.publisher.packed_history).decode().splitlines()
        assert history.parse(shown).decisions[-1] == told.decisions[-1]

    rig.run(story, data__validation="test.csv")


def test_a_restarted_master_goes_on_in_the_same_file(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: leases(rig))
            rig.kill("worker-0")
            await rig.until(
                lambda: any(
                    one.kind == "ended"
                    for one in history.read(rig.job_dir.history_file).decisions
                )
            )
        with rig.job_dir.history_file.open("a") as file:
            file.write('{"sample":{"time":1')  # killed while it wrote
        before = history.read(rig.job_dir.history_file)
        async with rig.serving():
            rig.world.go.set()
            await rig.ended()
        told = history.read(rig.job_dir.history_file)
        assert list(told.samples[: len(before.samples)]) == list(before.samples)
        ends = [one.replica for one in told.decisions if one.kind == "ended"]
        assert ends.count("worker-0") == 1
        assert [one.text for one in told.decisions if one.kind == "master"] == [
            "master generation 2 goes on"
        ]
        files = list(rig.job_dir.tensorboard_dir.glob("*tfevents*"))
        assert len(files) == 2

    rig.run(story)


def test_a_master_shortens_a_history_that_has_grown_long(rig) -> None:
    async def story(rig) -> None:
        file = rig.job_dir.history_file
        entry = Decision(time=1.0, kind="ended", text="x" * 10_000)
        number = MOST_FILE_BYTES // 10_000 + 1
        file.write_text(f"{history.line(entry)}\n" * number)
        async with rig.serving():
            await rig.ended()
        assert file.stat().st_size < MOST_FILE_BYTES / 2
        told = history.read(file)
        assert told.decisions[-1].text == "job rig succeeded"
        assert told.samples[-1].state == "succeeded"

    rig.run(story)


def kinds(rig, kind: str) -> list[str]:
    told = history.read(rig.job_dir.history_file).decisions
    found = [one for one in told if one.kind == kind]
    return [one.cause if kind == "state" else one.text for one in found]


def test_masters_that_take_over_do_not_tell_the_state_of_the_job_again(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        for taken_over in range(3):
            async with rig.serving():
                await rig.until(lambda n=taken_over: len(kinds(rig, "master")) == n)
                await rig.until(lambda: "running" in kinds(rig, "state"))
        async with rig.serving():
            rig.world.go.set()
            await rig.ended()
        async with rig.serving(launched=True):  # of a finished job: it says so again
            await rig.ended()
        states = kinds(rig, "state")
        assert states == [*dict.fromkeys(states)]
        assert (states[0], states[-1]) == ("starting", "succeeded")
        assert len(kinds(rig, "master")) == 3

    rig.run(story)


def test_a_job_that_is_launched_again_has_no_master_that_was_replaced(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: "running" in kinds(rig, "state"))
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            await rig.ended()
        async with rig.serving(launched=True):
            rig.world.go.set()
            report = await rig.ended()
        assert report.master_restarts == len(kinds(rig, "master")) == 0
        assert {"stopped", "succeeded"} <= set(kinds(rig, "state"))

    rig.run(story)


def test_a_master_that_follows_one_that_told_nothing_is_told_of(rig) -> None:
    """The lost one began the launch, and no line of the history is of it."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving(launched=True) as master:
            await rig.until(lambda: leases(rig))
            await master.job.parts.ledger.commit()
        rig.job_dir.history_file.unlink()
        async with rig.serving():
            rig.world.go.set()
            report = await rig.ended()
        assert report.master_restarts == len(kinds(rig, "master")) == 1

    rig.run(story)


def test_what_a_master_learns_before_it_has_heard_everybody_is_told_at_once(
    rig,
) -> None:
    """It may be killed before: the next one knows neither edits nor rewinds."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            await master.job.parts.ledger.commit()
        rig.world.mute.update(["worker-0"])
        async with rig.serving() as master:
            master.job.parts.holder.go_back("a test", now=master.job.clock())
            await rig.until(lambda: kinds(rig, "rewound"))
            await master.job.parts.ledger.commit()
        assert len(kinds(rig, "rewound")) == 1
        rig.world.mute.clear()
        async with rig.serving():
            rig.world.go.set()
            report = await rig.ended()
        assert len(kinds(rig, "rewound")) == report.rewinds == 1

    rig.run(story)


def test_a_rewind_that_a_lost_master_did_not_tell_is_told_by_the_next_one(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: leases(rig))
            ledger = master.job.parts.ledger
            await rig.until(lambda: first_checkpoint(master))
            master.job.parts.holder.go_back("a test", now=master.job.clock())
            await ledger.commit()
            master.job.parts.signals.diary.take()  # it was killed before it told
        async with rig.serving():
            rig.world.go.set()
            report = await rig.ended()
        assert len(kinds(rig, "rewound")) == report.rewinds == 1

    rig.run(story)


def test_a_disk_that_takes_no_history_does_not_disturb_the_job(rig) -> None:
    async def story(rig) -> None:
        rig.job_dir.history_file.mkdir()  # nothing can be appended to a folder
        rig.job_dir.tensorboard_dir.write_text("in the way")
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story)


def test_scalars_are_in_an_event_file_of_tensorboards_form(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving():
            report = await rig.ended()
        first, *rest = events(rig.job_dir.tensorboard_dir)
        assert first.file_version == "brain.Event:2"
        tags = {}
        for event in rest:
            for value in event.summary.value:
                assert value.WhichOneof("value") == "simple_value"  # 0 as well
                tags[value.tag] = (event.step, value.simple_value)
        assert set(tags) == {
            "loss",
            "evaluation/accuracy",
            "workers/running",
            "workers/wanted",
            "goodput/share",
            "records_per_second",
        }
        assert tags["loss"] == (report.version, 0.5)
        assert tags["workers/wanted"][1] == 2.0
        step, accuracy = tags["evaluation/accuracy"]
        assert step == report.evaluations[-1].version
        assert accuracy == pytest.approx(0.9)

    rig.run(story, data__validation="test.csv")


def test_half_a_line_of_a_full_disk_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "history.jsonl"
    append(path, b"one\n", b"\n", root=tmp_path)
    with path.open("ab") as file:
        file.write(b"two, torn")
    append(path, b"three\n", b"\n", root=tmp_path)
    assert path.read_bytes() == b"one\ntwo, torn\nthree\n"
    with FullDisk() as disk:
        disk.allow(path.stat().st_size + 2)
        with pytest.raises(OSError, match="too large"):
            append(path, b"four\n", b"\n", root=tmp_path)
    assert path.read_bytes() == b"one\ntwo, torn\nthree\n"


def test_a_month_is_some_thousand_samples() -> None:
    age, count = 0.0, 0
    while age < MONTH_SECONDS:
        age += sampling.period_seconds(age)
        count += 1
    assert 1000 < count < 5000


def test_a_line_is_json_for_everybody() -> None:
    result = EvaluationResult(
        version=1, metrics={"f1": math.nan}, records=1, seconds=1.0, time=1.0
    )
    text = history.line(result)
    assert json.loads(text, parse_constant=pytest.fail)
    (read,) = history.parse([text]).evaluations
    assert math.isnan(read.metrics["f1"])


def test_a_ps_that_never_told_anything_has_no_figures() -> None:
    assert sampling.ps_sample("pending", None) == PsSample(state="pending")
    told = PsReport(bytes=8, calls=3, memory_limit_bytes=5)
    made = sampling.ps_sample("running", told)
    assert (made.parameter_bytes, made.calls, made.memory_limit_bytes) == (8, 3, 5)
