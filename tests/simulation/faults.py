"""What goes wrong in a run, and when.

Owns one function for each kind of fault. Called by `run` once, before the job begins;
what it sets off happens in simulated time. Must not look at what the product does, but
to choose a moment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticdl.checkpoint.layout import MANIFEST
from elasticdl.job.names import Role

from tests.simulation.kernel import Process
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.world import World

_LOOK_SECONDS = 0.02


class Faults:
    """The faults of one run."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        self._world = world
        self._kernel = world.kernel
        self._scenario = scenario
        self._deaths: list[tuple[str, int]] = []  # (role, at this many events)
        world.kernel.preempt = scenario.preempt
        for fault in (*scenario.faults, *scenario.edits):
            act = getattr(self, fault.kind)
            at = fault.at * scenario.seconds
            self._kernel.later(at, lambda act=act, fault=fault: act(fault))
        world.disk.dies = self._dies_at_write
        world.before_master_step = self._master_step

    def _note(self, what: str, seconds: float = 0.0) -> None:
        self._kernel.log(f"FAULT {what}")
        seen = self._world.seen
        seen.faults.append(f"{self._kernel.now:.2f} s: {what}")
        seen.last_fault = max(seen.last_fault, self._kernel.now + seconds)

    def _living(self, role: Role) -> list[Process]:
        platform = self._world.platform
        return [
            process
            for key, process in sorted(
                platform.processes.items(),
                key=lambda item: (item[0].role, item[0].index),
            )
            if key.role is role and process.alive
        ]

    def _kill(self, process: Process | None, how: str = "") -> None:
        if process is not None and process.alive and not process.isolated:
            self._note(f"{process.name} is killed{how}")
            self._world.dies(process)
            process.exit(-9, killed=True)

    def _one(self, role: Role, fault: Fault) -> Process | None:
        living = self._living(role)
        return living[fault.number % len(living)] if living else None

    @property
    def _master(self) -> Process | None:
        return self._world.platform.master

    # -- kills -------------------------------------------------------------------

    def kill_worker(self, fault: Fault) -> None:
        self._kill(self._one(Role.WORKER, fault))

    def kill_ps(self, fault: Fault) -> None:
        self._kill(self._one(Role.PS, fault))

    def kill_master(self, fault: Fault) -> None:
        self._kill(self._master)

    def kill_worker_and_master(self, fault: Fault) -> None:
        self._kill(self._one(Role.WORKER, fault))
        pause = min(1.0, fault.seconds / 10)
        self._kernel.later(pause, lambda: self._kill(self._master))

    def kill_all_ps(self, fault: Fault) -> None:
        for process in self._living(Role.PS):
            self._kill(process)

    def kill_ps_and_master(self, fault: Fault) -> None:
        self._kill(self._one(Role.PS, fault))
        pause = min(1.0, fault.seconds / 10)
        self._kernel.later(pause, lambda: self._kill(self._master))

    def _finishing(self) -> bool:
        master = self._master.__dict__.get("master") if self._master else None
        return master is not None and str(master.job.state) == "finishing"

    def kill_ps_at_end(self, fault: Fault) -> None:
        """Between the last report and the end."""
        if self._finishing():
            self.kill_ps(fault)
        elif self._world.platform.ended is None:
            self._kernel.later(
                0.001 * (1 + fault.number % 20), lambda: self.kill_ps_at_end(fault)
            )

    def kill_worker_at_end(self, fault: Fault) -> None:
        if self._finishing():
            self.kill_ps(fault)
            self._kernel.later(fault.seconds / 2, lambda: self.kill_worker(fault))
        elif self._world.platform.ended is None:
            self._kernel.later(
                0.001 * (1 + fault.number % 20), lambda: self.kill_worker_at_end(fault)
            )

    def kill_master_at_write(self, fault: Fault) -> None:
        self._deaths.append(("master", fault.number % 40))

    def kill_ps_at_write(self, fault: Fault) -> None:
        self._deaths.append(("ps", fault.number % 6))

    def kill_worker_at_write(self, fault: Fault) -> None:
        self._deaths.append(("worker", fault.number % 6))

    def kill_master_at_step(self, fault: Fault) -> None:
        self._deaths.append(("step", fault.number))

    def _counts_down(self, what: str) -> bool:
        for index, (kind, left) in enumerate(self._deaths):
            if kind == what:
                if left <= 0:
                    del self._deaths[index]
                    return True
                self._deaths[index] = (kind, left - 1)
        return False

    def _dies_at_write(self, process: Process, path: str) -> bool:
        if not self._deaths or process.isolated or not self._counts_down(process.role):
            return False
        self._note(f"{process.name} dies in a write of {Path(path).name}")
        self._world.dies(process)
        return True

    def _master_step(self, process: Process) -> None:
        if self._deaths and not process.isolated and self._counts_down("step"):
            self._note(f"{process.name} dies at an await")
            process.exit(-9, killed=True)
        self._kernel.may_give_way()

    def power_cut(self, fault: Fault) -> None:
        """The machine of the master fails in the middle of what it writes."""
        master = self._master
        if master is None or not master.alive:
            return
        if not self._world.disk.unsynced and fault.number < 390:
            self._kernel.later(0.0005, lambda: self.power_cut(_fewer(fault)))
            return
        self._note("the master's machine fails")
        journal = {
            path: writes
            for path, writes in self._world.disk.unsynced.items()
            if "journal" in path
        }
        self._world.disk.unsynced = journal
        master.exit(-9, killed=True)
        self._world.disk.power_cut()

    # -- freezes, networks -------------------------------------------------------

    def _freeze(self, process: Process | None, fault: Fault) -> None:
        if process is None or not process.alive or process.isolated:
            return
        self._note(f"{process.name} is frozen for {fault.seconds} s", fault.seconds)
        self._world.excused.add(process.pid)
        process.stop()
        self._kernel.later(8.0, lambda: self._world.network.silent(process))
        self._kernel.later(fault.seconds, process.go_on)

    def freeze_worker(self, fault: Fault) -> None:
        self._freeze(self._one(Role.WORKER, fault), fault)

    def freeze_ps(self, fault: Fault) -> None:
        self._freeze(self._one(Role.PS, fault), fault)

    def freeze_master(self, fault: Fault) -> None:
        self._freeze(self._master, fault)

    def bad_network(self, fault: Fault) -> None:
        """Calls get lost, late, repeated and overtake each other."""
        weather, chance = self._world.network.weather, self._kernel.random
        seconds = min(12.0, fault.seconds)
        self._note(f"bad network for {seconds} s", seconds + 20)
        self._excuse_all()
        share = chance.choice([0.02, 0.2])
        weather.lose_request = chance.choice([0.0, share])
        weather.lose_reply = chance.choice([0.0, share])
        weather.late = chance.choice([0.0, share])
        weather.repeat = chance.choice([0.0, share])

        def over() -> None:
            weather.lose_request = weather.lose_reply = 0.0
            weather.late = weather.repeat = 0.0
            self._excuse_all()

        self._kernel.later(seconds, over)

    def _excuse_all(self) -> None:
        self._world.excused.update(p.pid for p in self._world.platform.all)

    def cut_off(self, fault: Fault) -> None:
        """One replica cannot be reached, and reaches nobody."""
        role = Role.PS if fault.number % 3 == 0 else Role.WORKER
        process = self._one(role, fault)
        if process is None:
            return
        self._note(f"{process.name} is cut off for {fault.seconds} s", fault.seconds)
        self._excuse_all()
        process.isolated = True
        self._kernel.later(8.0, lambda: self._world.network.silent(process))

        def over() -> None:
            process.isolated = False

        self._kernel.later(fault.seconds, over)

    def ghost_master(self, fault: Fault) -> None:
        """A master is replaced while it lives, cut off from all but the disk."""
        ghost = self._master
        if ghost is None or not ghost.alive:
            return
        self._note(f"{ghost.name} is cut off and replaced", fault.seconds)
        ghost.isolated = True
        ghost.stop()
        self._world.network.leave(ghost)
        self._kernel.later(0.5, self._world.platform.start_master)
        self._kernel.later(0.5 + fault.seconds, ghost.go_on)
        self._kernel.later(5.0 + fault.seconds, lambda: ghost.exit(-9))

    def list_again(self, fault: Fault) -> None:
        self._note("the watch broke")
        self._world.platform.list_again()

    # -- disk, clock -------------------------------------------------------------

    def full_disk(self, fault: Fault) -> None:
        self._note(f"the disk is full for {fault.seconds} s", fault.seconds)
        self._world.disk.full = True
        self._world.was_full = True

        def room() -> None:
            self._kernel.log("there is room on the disk")
            self._world.disk.full = False

        self._kernel.later(fault.seconds, room)

    def slow_disk(self, fault: Fault) -> None:
        self._note(f"a slow disk for {fault.seconds} s", fault.seconds)
        self._world.disk.slow = 0.3

        def over() -> None:
            self._world.disk.slow = 0.0

        self._kernel.later(fault.seconds, over)

    def clock(self, fault: Fault) -> None:
        """The wall clock is set; then the master is killed, to read it."""
        step = [-7200.0, -30.0, 30.0, 7200.0][fault.number % 4]
        self._note(f"the clock is set by {step} s")
        self._kernel.wall_offset += step
        self._kernel.later(0.5, lambda: self._kill(self._master))
        self._kernel.later(4.0, lambda: self._kill(self._master))

    def damage_checkpoint(self, fault: Fault) -> None:
        """A bit of the newest checkpoint flips; somebody has to load one then."""
        folder = Path(self._world.root) / "job" / "checkpoints"
        found = sorted(
            folder.glob("version-*/shard-*"), key=lambda path: path.stat().st_mtime_ns
        )
        versions = {path.parent for path in found if (path.parent / MANIFEST).exists()}
        if len(versions) < 2:
            return
        newest = max(versions, key=lambda path: (path / MANIFEST).stat().st_mtime_ns)
        shard = min(newest.glob("shard-*"))
        size = shard.stat().st_size
        with shard.open("r+b") as file:
            file.seek(size // 2)
            byte = file.read(1)
            file.seek(size // 2)
            file.write(bytes([byte[0] ^ 255]))
        self._note(f"{newest.name} is damaged")
        self._world.damaged.add(str(newest))
        holder = Role.WORKER if self._scenario.local else Role.PS
        self._kill(self._one(holder, fault))

    # -- edits of the values file ------------------------------------------------

    def _edit(
        self,
        what: str,
        change: dict[str, dict[str, Any]],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        if self._world.platform.ended is not None:
            return
        if self._world.disk.full:  # the user's editor says so
            self._kernel.later(1.0, lambda: self._edit(what, change, then))
            return
        self._kernel.log(f"EDIT {what}")
        self._world.edit(change)
        then()

    def pause(self, fault: Fault) -> None:
        """Training stands still for a while."""

        def goes_on() -> None:
            self._edit("the job goes on", {"": {"paused": False}})

        self._edit(
            "the job is paused",
            {"": {"paused": True}},
            lambda: self._kernel.later(fault.seconds, goes_on),
        )

    def scale(self, fault: Fault) -> None:
        """Another number of workers."""
        wanted = 1 + fault.number % 3
        self._edit(f"{wanted} workers", {"worker": {"replicas": wanted}})

    def more_epochs(self, fault: Fault) -> None:
        """One epoch more."""
        epochs = self._scenario.most_epochs
        self._edit(f"{epochs} epochs", {"training": {"epochs": epochs}})

    def stop_job(self, fault: Fault) -> None:
        """The job is stopped, and launched again."""
        if self._master is not None and self._master.alive:
            self._note("the job is told to stop")
            self._world.launch_again += 1
            self._master.terminate()


def _fewer(fault: Fault) -> Fault:
    return Fault(fault.kind, fault.at, fault.seconds, fault.number + 1)
