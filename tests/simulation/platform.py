"""What starts, stops and shows the processes of a run.

Owns the table of replicas and the launcher that keeps a master alive. Implements
`runner.base.Runner` for each master of the run. Must not decide what the master does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from elasticdl.errors import FINAL_EXITS, ExitCode
from elasticdl.job.folder import read_report
from elasticdl.job.names import Role, replica_name
from elasticdl.job.words import ExitReason
from elasticdl.runner.base import (
    Launch,
    Observation,
    ObservedReplica,
    Phase,
    ReplicaKey,
)

from tests.simulation.kernel import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

_LIVING = (Phase.PENDING, Phase.RUNNING)
Main = Callable[[Process, Any], int]


class Platform:
    """Processes of one run, those of replicas and of masters."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.states: dict[ReplicaKey, ObservedReplica] = {}
        self.processes: dict[ReplicaKey, Process] = {}
        self.all: list[Process] = []
        self.watchers: dict[asyncio.Queue[Observation], Any] = {}
        self.master: Process | None = None
        self.masters = 0
        self.launches = 1  # by the user
        self.ended: int | None = None  # the last master's exit code, if it is the end
        self.stops: list[tuple[float, str, str]] = []
        self._asked: set[tuple[ReplicaKey, int]] = set()
        self._pid = 100

    def process(self, name: str, role: str) -> Process:
        self._pid += 1
        made = Process(self.world.kernel, name, role, self._pid)
        self.all.append(made)
        return made

    # -- masters -----------------------------------------------------------------

    def start_master(self) -> None:
        """As the launcher does."""
        self.masters += 1
        process = self.process(f"master-0.{self.masters}", "master")
        process.generation = self.masters
        process.on_exit = self._master_ended
        self.master = process
        self.world.kernel.spawn(
            process, lambda: process.exit(self.world.run_master(process)), "main"
        )

    def _master_ended(self, process: Process) -> None:
        if process is not self.master:
            return
        code = process.exit_code
        reported = read_report(self.world.job_dir) is not None
        final = not process.killed and (reported or code in FINAL_EXITS)
        chance = self.world.kernel.random
        if not final:
            self.world.kernel.later(chance.uniform(0.1, 2.0), self.start_master)
            return
        self.world.kernel.log(f"the launcher ends with {code}")
        for one in self.all:
            if one.alive and not one.isolated:
                one.exit(-9)
        if code != ExitCode.OK and self.world.goes_on(code):
            self.world.kernel.later(chance.uniform(1.0, 40.0), self.launch_again)
        else:
            self.ended = code

    def launch_again(self) -> None:
        """The user launches a job that failed or was stopped: it goes on."""
        self.world.kernel.log("the job is launched again")
        self.world.job_dir.report_file.unlink(missing_ok=True)
        self.states.clear()
        self.processes.clear()
        self.launches += 1
        self.start_master()

    # -- replicas ----------------------------------------------------------------

    def start(self, launch: Launch) -> None:
        key = launch.key
        known = self.states.get(key)
        if known is not None and known.generation >= launch.generation:
            return
        if (old := self.processes.get(key)) is not None and old.alive:
            old.exit(-9)
        process = self.process(replica_name(key.role, key.index), str(key.role))
        process.generation = launch.generation
        process.on_exit = lambda ended: self._replica_ended(key, ended)
        self.processes[key] = process
        self._show(
            ObservedReplica(key, launch.generation, Phase.RUNNING, pid=process.pid)
        )
        main = self.world.run_ps if key.role is Role.PS else self.world.run_worker

        def begin() -> None:
            if process.alive:
                self.world.kernel.spawn(
                    process, lambda: process.exit(main(process, launch)), "main"
                )

        self.world.kernel.later(self.world.start_seconds(), begin)

    def stop(self, key: ReplicaKey, *, grace_seconds: float, reason: str) -> None:
        process = self.processes.get(key)
        if process is None or not process.alive:
            return
        self.world.kernel.log(f"{process.name} is to stop: {reason}")
        self.stops.append((self.world.kernel.now, process.name, reason))
        self._asked.add((key, process.generation))
        if grace_seconds <= 0:
            process.exit(-9)
            return
        process.terminate()
        self.world.kernel.later(grace_seconds, lambda: process.exit(-9))

    def _replica_ended(self, key: ReplicaKey, process: Process) -> None:
        state = self.states.get(key)
        if state is None or state.generation != process.generation:
            return
        code = process.exit_code or 0
        if (key, process.generation) in self._asked:
            reason = ExitReason.DELETED
        elif process.killed:
            reason = ExitReason.KILLED
        else:
            reason = ExitReason.ERROR if code else ExitReason.COMPLETED
        done = reason is ExitReason.COMPLETED
        phase = Phase.SUCCEEDED if done else Phase.FAILED
        self._show(replace(state, phase=phase, reason=reason, exit_code=max(0, code)))

    def _show(self, state: ObservedReplica) -> None:
        self.states[state.key] = state
        self._tell(Observation((state,)))

    def _tell(self, observation: Observation) -> None:
        for queue, loop in list(self.watchers.items()):
            loop.call_soon_threadsafe(queue.put_nowait, observation)

    def list_again(self) -> None:
        """A watch broke: the whole list is shown."""
        self._tell(Observation(tuple(self.states.values()), resync=True))


class SimulatedRunner:
    """The platform as one master sees it."""

    def __init__(self, platform: Platform, master: Process) -> None:
        self._platform = platform
        self._master = master

    async def check(self, launches: Sequence[Launch]) -> None:
        await self._pass()

    async def start(self, launch: Launch) -> None:
        await self._pass()
        self._platform.start(launch)

    async def stop(self, key: ReplicaKey, *, grace_seconds: float, reason: str) -> None:
        await self._pass()
        self._platform.stop(key, grace_seconds=grace_seconds, reason=reason)

    async def _pass(self) -> None:
        chance = self._platform.world.kernel.random
        await asyncio.sleep(chance.uniform(0.0005, 0.02))
        while self._master.isolated:
            await asyncio.sleep(1.0)

    async def watch(self) -> AsyncIterator[Observation]:
        queue: asyncio.Queue[Observation] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        self._platform.watchers[queue] = loop
        self._master.closers.append(lambda: self._platform.watchers.pop(queue, None))
        yield Observation(tuple(self._platform.states.values()), resync=True)
        while True:
            found = await queue.get()
            if not self._master.isolated:
                yield found


def is_living(state: ObservedReplica) -> bool:
    """Whether a replica's process is there as far as the platform shows."""
    return state.phase in _LIVING
