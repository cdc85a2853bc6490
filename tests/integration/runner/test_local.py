"""The master's runner, against a served platform."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
from elasticdl.errors import PlatformError
from elasticdl.job.names import Role
from elasticdl.job.words import ExitReason
from elasticdl.runner.base import Observation, Phase, ReplicaKey
from elasticdl.runner.local.platform_server import PlatformServer
from elasticdl.runner.local.runner import LocalRunner
from elasticdl.testing.scripted import BOUND_SECONDS, TOKEN, ScriptedStage, launch

WORKER_0 = ReplicaKey(Role.WORKER, 0)


async def next_of(watch: AsyncIterator[Observation]) -> Observation:
    return await asyncio.wait_for(anext(watch), BOUND_SECONDS)


async def until_phase(watch: AsyncIterator[Observation], phase: Phase) -> Observation:
    while True:
        seen = await next_of(watch)
        if any(state.phase is phase for state in seen.states):
            return seen


def test_it_starts_sees_and_stops_replicas(stage: ScriptedStage) -> None:
    server = PlatformServer(stage.platform, token=TOKEN)

    async def scenario() -> None:
        runner = LocalRunner(server.address, token=TOKEN)
        watch = runner.watch()
        first = await next_of(watch)
        assert first == Observation((), resync=True)
        await runner.start(launch(0, 4))
        seen = await until_phase(watch, Phase.RUNNING)
        assert (seen.resync, seen.states[0].generation) == (False, 4)
        assert seen.states[0].pid > 0
        await runner.stop(WORKER_0, grace_seconds=0.0, reason="scaled down")
        seen = await until_phase(watch, Phase.FAILED)
        assert seen.states[0].reason is ExitReason.DELETED
        assert seen.states[0].message == "scaled down"
        await runner.close()

    try:
        asyncio.run(scenario())
    finally:
        server.close()


def test_the_master_is_not_among_what_it_watches(stage: ScriptedStage) -> None:
    server = PlatformServer(stage.platform, token=TOKEN)
    stage.platform.start(launch(0, role=Role.MASTER))
    stage.platform.start(launch(0, role=Role.PS))

    async def scenario() -> None:
        runner = LocalRunner(server.address, token=TOKEN)
        first = await next_of(runner.watch())
        assert [s.key.role for s in first.states] == [Role.PS]
        await runner.close()

    try:
        asyncio.run(scenario())
    finally:
        server.close()


def test_two_watchers_see_the_same_and_why_a_worker_waits(stage: ScriptedStage) -> None:
    server = PlatformServer(stage.platform, token=TOKEN)

    async def scenario() -> None:
        runner, other = (
            LocalRunner(server.address, token=TOKEN),
            LocalRunner(server.address, token=TOKEN),
        )
        watches = [runner.watch(), other.watch()]
        for watch in watches:
            await next_of(watch)
        stage.platform.set_capacity(0)
        await runner.start(launch())
        for watch in watches:
            seen = await until_phase(watch, Phase.PENDING)
            while not seen.states[0].pending_reason:
                seen = await until_phase(watch, Phase.PENDING)
            assert seen.states[0].pending_reason == "waiting for CPU: 0 of 0 in use"
        await runner.close()
        await other.close()

    try:
        asyncio.run(scenario())
    finally:
        server.close()


def test_after_a_break_the_whole_list_comes_again(stage: ScriptedStage) -> None:
    server = PlatformServer(stage.platform, token=TOKEN)
    stage.platform.start(launch(0))

    async def scenario() -> None:
        runner = LocalRunner(server.address, token=TOKEN)
        watch = runner.watch()
        first = await next_of(watch)
        assert first.resync
        await asyncio.to_thread(server.close)
        # Missed while nobody served: seen all the same after the break.
        stage.platform.signal(WORKER_0, signal.SIGKILL)
        await asyncio.to_thread(stage.until_ended)
        port = int(server.address.rpartition(":")[2])
        again = await asyncio.to_thread(
            PlatformServer, stage.platform, token=TOKEN, port=port
        )
        seen = await next_of(watch)
        while not seen.resync:
            seen = await next_of(watch)
        assert [s.phase for s in seen.states] == [Phase.FAILED]
        assert seen.states[0].reason is ExitReason.KILLED
        await runner.close()
        await asyncio.to_thread(again.close)

    asyncio.run(scenario())


def test_a_refused_start_is_a_platform_error(stage: ScriptedStage) -> None:
    server = PlatformServer(stage.platform, token=TOKEN)

    async def scenario() -> None:
        runner = LocalRunner(server.address, token=TOKEN)
        await runner.start(launch(0, 2))
        with pytest.raises(PlatformError, match=r"start worker-0: .*old master"):
            await runner.start(launch(0, 1))
        await runner.close()

    try:
        asyncio.run(scenario())
    finally:
        server.close()


def test_a_platform_that_is_gone_is_a_platform_error(stage: ScriptedStage) -> None:
    server = PlatformServer(stage.platform, token=TOKEN)
    server.close()

    async def scenario() -> None:
        runner = LocalRunner(server.address, token=TOKEN)
        with pytest.raises(PlatformError, match="did not stop worker-0"):
            await runner.stop(WORKER_0, grace_seconds=0.0, reason="")
        await runner.close()

    asyncio.run(scenario())
