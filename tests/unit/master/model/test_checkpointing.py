"""A job's checkpoints on a real disk: asked for, completed, given up, gone back to."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elasticdl.checkpoint import shelf, store
from elasticdl.job.heartbeats import SnapshotDone, SnapshotRequest
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import CheckpointSpec, JobSpec
from elasticdl.master.model.checkpoint_identity import Course
from elasticdl.master.model.checkpoint_requests import COPY_SECONDS, STILL_SECONDS
from elasticdl.master.model.checkpointing import Checkpoints
from elasticdl.master.model.holding import Holding
from elasticdl.master.signals import Signals
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.ledger import Ledger

from tests.unit.checkpoint.test_shelf import write

SPEC = JobSpec.model_validate(
    {"name": "job", "model": {"definition": "m.f"}, "data": {"training": "t"}}
)
Story = Callable[[Checkpoints, Ledger], Coroutine[Any, Any, None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Runs a story on the checkpoints of a job with one PS."""

    def play(story: Story, *, course: Course | None = None) -> None:
        async def main() -> None:
            ledger = Ledger.open(tmp_path / "journal", now=0.0)
            checkpoints = Checkpoints(
                SPEC,
                JobDir(tmp_path),
                ledger,
                Signals(1),
                holding=Holding(1),
                course=course or Course("mine", "job"),
            )
            await story(checkpoints, ledger)
            ledger.close()

        asyncio.run(main())

    return play


async def until(test: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not test():
            await asyncio.sleep(0)


async def asked(checkpoints: Checkpoints, *, now: float = 0.0) -> SnapshotRequest:
    """Ask for one; return what the PS is told."""
    checkpoints.ask("a test", now=now)
    await until(lambda: bool(checkpoints.asks_ps(0)))
    return checkpoints.asks_ps(0)[0]


def written(wanted: SnapshotRequest, version: int) -> SnapshotDone:
    """Write what the PS is asked for, and return its word of it."""
    part = store.write_shard(
        Path(wanted.dir),
        0,
        1,
        {"value|w|0|1": np.ones(1, np.float32)},
        {"version": version},
    )
    return SnapshotDone(
        id=wanted.id,
        version=version,
        file=part.file,
        file_bytes=part.bytes,
        crc32=part.crc32,
    )


async def completed(checkpoints: Checkpoints, version: int, *, now: float = 0.0) -> str:
    """Make a whole checkpoint; its folder."""
    checkpoints.take(0, written(await asked(checkpoints, now=now), version), now=now)
    await until(lambda: not checkpoints.busy)
    assert checkpoints.newest is not None
    return checkpoints.newest.dir


def test_a_checkpoint_of_a_course_that_was_left_while_it_got_its_name_is_not_kept(
    run, tmp_path
):
    async def story(checkpoints: Checkpoints, ledger: Ledger) -> None:
        first = await completed(checkpoints, 3)
        checkpoints.take(0, written(await asked(checkpoints), 5), now=0.0)
        assert checkpoints.naming
        ledger.rewind({}, applied={}, cause="a test", now=0.0)
        checkpoints.rewound(version=3)
        await until(lambda: not checkpoints.naming)
        assert checkpoints.newest.dir == first
        again = await completed(checkpoints, 5)
        assert store.read_manifest(Path(again)).rewind == 1
        assert str(shelf.resolve(tmp_path / "checkpoints")[0]) == again

    run(story)


def test_a_rewind_while_a_checkpoint_is_given_its_name_leaves_none_of_that_course(
    run, tmp_path, monkeypatch
):
    named, go_on = threading.Event(), threading.Event()
    real = os.rename

    def rename(source, target, **folders):
        real(source, target, **folders)
        if Path(target).name == "version-5":
            named.set()
            go_on.wait(10.0)

    async def story(checkpoints: Checkpoints, ledger: Ledger) -> None:
        first = await completed(checkpoints, 3)
        monkeypatch.setattr(os, "rename", rename)
        checkpoints.take(0, written(await asked(checkpoints), 5), now=0.0)
        await until(named.is_set)
        ledger.rewind({}, applied={}, cause="a test", now=0.0)
        checkpoints.rewound(version=3)
        go_on.set()
        place = tmp_path / "checkpoints"
        await until(lambda: not (place / "version-5").exists())
        assert str(shelf.resolve(place)[0]) == checkpoints.newest.dir == first

    run(story)


def test_the_good_checkpoint_of_a_version_wins_over_a_damaged_one_of_it(run):
    async def story(checkpoints: Checkpoints, ledger: Ledger) -> None:
        await completed(checkpoints, 3)
        damaged = await completed(checkpoints, 5)
        assert checkpoints.give_up(damaged)
        ledger.rewind({}, applied={}, cause="a test", now=0.0)
        checkpoints.rewound(version=3)
        good = await completed(checkpoints, 5)
        assert checkpoints.newest.dir == good
        assert not checkpoints.gave_up(good)
        assert checkpoints.newest.manifest == store.read_manifest(Path(good))

    run(story)


def test_a_part_may_take_for_ever_as_long_as_bytes_are_written(run):
    async def story(checkpoints: Checkpoints, ledger: Ledger) -> None:
        wanted = await asked(checkpoints)
        done = SnapshotDone(id=wanted.id, version=1, pinned_only=True)
        now = 0.0
        for _ in range(1000):
            now += STILL_SECONDS - 1.0
            done = replace(done, written_bytes=done.written_bytes + 1)
            checkpoints.take(0, done, now=now)
            checkpoints.watch(now=now)
        assert checkpoints.busy
        checkpoints.take(0, done, now=now + STILL_SECONDS)  # no byte more
        checkpoints.watch(now=now + STILL_SECONDS + 1.0)
        assert not checkpoints.busy
        assert "nothing more was written of shard 0" in checkpoints.problem

    run(story)


def test_a_ps_may_copy_for_minutes_before_it_says_anything(run):
    async def story(checkpoints: Checkpoints, ledger: Ledger) -> None:
        await asked(checkpoints)
        checkpoints.watch(now=COPY_SECONDS)
        assert checkpoints.busy
        checkpoints.watch(now=COPY_SECONDS + 1.0)
        assert not checkpoints.busy

    run(story)


def test_what_another_job_writes_in_the_same_folder_stays(run, tmp_path):
    async def first(checkpoints: Checkpoints, ledger: Ledger) -> None:
        wanted = await asked(checkpoints)
        written(wanted, 4)
        run_of_other.append(wanted.dir)

    async def second(checkpoints: Checkpoints, ledger: Ledger) -> None:
        await asked(checkpoints)
        assert Path(run_of_other[0]).is_dir()

    run_of_other: list[str] = []
    run(first, course=Course("theirs", "other"))
    run(second)


def test_the_folder_is_made_beside_the_loop_and_its_failure_is_told(
    run, tmp_path, monkeypatch
):
    real, makers = os.open, []

    def opening(path, *rest, **named):
        if Path(path).name == "checkpoints":
            makers.append(threading.current_thread())
        return real(path, *rest, **named)

    async def story(checkpoints: Checkpoints, ledger: Ledger) -> None:
        monkeypatch.setattr(os, "open", opening)
        checkpoints.ask("a test", now=0.0)
        assert checkpoints.busy  # nothing was waited for
        await until(lambda: not checkpoints.busy)
        assert "checkpoint not written" in checkpoints.problem
        assert checkpoints.schedule.due(version=0, now=4.0) is None
        assert checkpoints.schedule.due(version=0, now=6.0) == "first"

    (tmp_path / "checkpoints").touch()
    run(story)
    assert makers
    assert threading.main_thread() not in makers


def test_a_newest_checkpoint_that_is_gone_is_noticed_when_a_master_starts(
    run, tmp_path, caplog
):
    async def begin(checkpoints: Checkpoints, ledger: Ledger) -> None:
        await completed(checkpoints, 3)
        await completed(checkpoints, 5)
        await ledger.commit()

    async def later(checkpoints: Checkpoints, ledger: Ledger) -> None:
        assert checkpoints.newest.manifest.version == 3
        assert checkpoints.had_one

    run(begin)
    (tmp_path / "checkpoints" / "version-5" / "manifest.json").unlink()
    run(later)
    assert "the newest checkpoint in the journal" in caplog.text


def test_a_starting_master_leaves_the_bytes_of_shards_to_whoever_loads_them(
    run, tmp_path
):
    """It would read 100 GB before it serves."""

    async def first(checkpoints: Checkpoints, ledger: Ledger) -> None:
        del ledger
        made.append(Path(await completed(checkpoints, 3)))

    async def second(checkpoints: Checkpoints, ledger: Ledger) -> None:
        del ledger
        found.append(checkpoints.newest and checkpoints.newest.dir)

    made: list[Path] = []
    found: list[str | None] = []
    run(first)
    shard = next(path for path in made[0].iterdir() if "0" in path.name)
    shard.write_bytes(bytes(shard.stat().st_size))
    run(second)
    assert found == [str(made[0])]


def test_a_master_that_was_replaced_leaves_the_checkpoint_of_the_next_one_alone(
    run, tmp_path
) -> None:
    async def story(checkpoints: Checkpoints, ledger: Ledger) -> None:
        left = Path((await asked(checkpoints)).dir)
        checkpoints.abort()
        await until(lambda: not left.exists())
        left.mkdir()  # what a replica still wrote
        of_next = left.with_name(left.name.replace("ckpt-1.", "ckpt-2."))
        of_next.mkdir()
        (of_next / "shard-0-of-1.edl").write_bytes(b"whole")
        await asked(checkpoints)
        assert not left.exists()
        assert (of_next / "shard-0-of-1.edl").exists()

    run(story)


def test_a_checkpoint_whose_shard_is_gone_gets_no_name(run, tmp_path) -> None:
    async def story(checkpoints: Checkpoints, ledger: Ledger) -> None:
        wanted = await asked(checkpoints)
        done = written(wanted, 7)
        (Path(wanted.dir) / done.file).unlink()
        checkpoints.take(0, done, now=0.0)
        await until(lambda: not checkpoints.busy)
        assert checkpoints.newest is None
        assert f"{done.file}: No such file" in checkpoints.problem
        assert await completed(checkpoints, 8, now=99.0)

    run(story)


def test_checkpoints_of_a_folder_before_are_gone_back_to_and_left_where_they_are(
    tmp_path: Path,
) -> None:
    """The journal says which folder that was, and a worker can write there."""
    course = Course("mine", "job")
    before = JobDir(tmp_path / "before").checkpoints_dir
    newer = write(before, 9, job="job", run="mine")
    here = JobDir(tmp_path / "here")
    older = write(here.checkpoints_dir, 4, job="job", run="mine")

    async def main() -> None:
        ledger = Ledger.open(here.journal_dir, now=0.0)
        ledger.record(model_facts.CheckpointFact(version=9, dir=str(newer)))
        checkpoints = Checkpoints(
            SPEC, here, ledger, Signals(1), holding=Holding(1), course=course
        )
        assert checkpoints.newest.dir == str(newer)
        assert checkpoints.give_up(str(newer))
        assert checkpoints.newest.dir == str(older)
        assert checkpoints.give_up(str(older))
        await until(lambda: not older.exists())
        ledger.close()

    asyncio.run(main())
    assert newer.is_dir()


def test_nothing_is_made_behind_a_link_in_the_place_of_the_folder_of_checkpoints(
    tmp_path: Path,
) -> None:
    """A name of a document there keeps another job's master from writing its own."""
    other, above = tmp_path / "other", tmp_path / "above"
    other.mkdir()
    above.mkdir()
    checkpoint = {"dir": str(above / "report.json")}
    spec = SPEC.model_copy(
        update={"checkpoint": CheckpointSpec.model_validate(checkpoint)}
    )

    async def main() -> None:
        ledger = Ledger.open(tmp_path / "own" / "journal", now=0.0)
        checkpoints = Checkpoints(
            spec,
            JobDir(tmp_path / "own"),
            ledger,
            Signals(1),
            holding=Holding(1),
            course=Course("mine", "job"),
        )
        above.rmdir()
        above.symlink_to(other)
        checkpoints.ask("steps", now=1.0)
        await until(lambda: checkpoints.failures > 0)
        assert "is a link" in checkpoints.problem
        ledger.close()

    asyncio.run(main())
    assert list(other.iterdir()) == []
