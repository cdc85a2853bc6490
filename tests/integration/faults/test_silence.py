"""Who is silent and who is not heard: a real master that is stopped, or overloaded.

The workers are simulated (bench/master_crowd.py): they beat and lease as real ones do,
by the default times, and the master is a process of its own.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORKERS = 12
BOUND_SECONDS = 90.0


@pytest.fixture
def crowd(monkeypatch, tmp_path):
    """Run a story with a master's rig and its workers, which are at work."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import master_crowd
    import master_role

    def run(story, program: Path | None = None):
        async def main(rig):
            workers = await master_crowd.living(rig)
            try:
                await story(rig, workers)
            finally:
                await asyncio.gather(*(worker.end() for worker in workers))

        with master_role.master(
            tmp_path, workers=WORKERS, program=program, patient=False
        ) as rig:
            rig.open_plan(10_000_000)
            asyncio.run(main(rig))

    return run


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


async def beat_again(workers, times: int) -> None:
    """Wait until each has been answered so often, or was given up."""
    before = [worker.beats for worker in workers]
    await until(
        lambda: all(
            worker.fenced or worker.beats >= beats + times
            for worker, beats in zip(workers, before, strict=True)
        )
    )


def given_up(rig) -> list[int]:
    return [index for role, index, _ in rig.served.stopped if role == "worker"]


def test_nobody_is_silent_because_the_master_was_stopped(crowd):
    async def story(rig, workers):
        await beat_again(workers, 1)
        os.kill(rig.process.pid, signal.SIGSTOP)
        # Longer than a worker may be silent: calls that wait for an answer have failed.
        await until(lambda: all(worker.errors for worker in workers))
        os.kill(rig.process.pid, signal.SIGCONT)
        await beat_again(workers, 3)
        assert not given_up(rig)
        assert not any(worker.fenced for worker in workers)

    crowd(story)


def test_nobody_is_silent_because_the_master_has_not_read_what_he_said(
    crowd, tmp_path, monkeypatch
):
    flag = tmp_path / "busy"
    monkeypatch.setenv("BUSY_MASTER_FLAG", str(flag))

    async def story(rig, workers):
        await beat_again(workers, 1)
        flag.write_text("")
        await beat_again(workers, 3)
        assert not given_up(rig)
        flag.unlink()
        # Whoever is silent now is found all the same.
        await beat_again(workers, 1)
        await workers[3].end()
        await until(lambda: bool(given_up(rig)))
        assert set(given_up(rig)) == {3}  # told again until its process is gone

    crowd(story, Path(__file__).with_name("busy_master.py"))
