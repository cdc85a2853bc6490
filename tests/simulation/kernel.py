"""Simulated time, processes and threads, one of which runs at a time.

Owns the clock, the random numbers of a run and whose turn it is. A thread is a
greenlet; it gives its turn away only in a call of this module, so that a seed decides
every interleaving. Used by all stand-ins of the simulation. Must not know what runs.
"""

from __future__ import annotations

import asyncio.events
import heapq
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import getcurrent, greenlet

# Of a run: more turns than this is a loop that stands still in time.
MOST_TURNS = 2_000_000


class Killed(SystemExit):
    """Raised in each thread of a process that ends, wherever it waits.

    A SystemExit: asyncio and user code let it pass.
    """


class StuckError(Exception):
    """The run does not come to its end."""


class Thread:
    """One thread of a simulated process."""

    def __init__(
        self, process: Process, run: Callable[[], None], name: str, kernel: Kernel
    ) -> None:
        self.process = process
        self.name = name
        self.greenlet = greenlet(run, kernel.hub)
        self.waits = 0  # number of its present wait: a late waking is told apart
        self.woken = False
        self.running_loop: Any = None  # asyncio's, of this thread
        self.ended = False

    def __repr__(self) -> str:
        return f"{self.process.name}/{self.name}"


@dataclass(eq=False)
class Process:
    """A simulated process; what it holds ends with it."""

    kernel: Kernel
    name: str
    role: str
    pid: int
    on_exit: Callable[[Process], None] = lambda _: None
    alive: bool = True
    exit_code: int | None = None
    stopped: bool = False  # SIGSTOP, a frozen node
    isolated: bool = False  # from the network
    threads: dict[Thread, None] = field(default_factory=dict)
    held: list[Thread] = field(default_factory=list)  # ready, but stopped
    handlers: dict[int, Callable[..., Any]] = field(default_factory=dict)
    closers: list[Callable[[], None]] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)  # not to be collected meanwhile
    killed: bool = False  # by a fault
    generation: int = 0

    def exit(self, code: int, *, killed: bool = False) -> None:
        """End it; its threads unwind before anything else runs."""
        if not self.alive:
            return
        self.alive, self.exit_code, self.killed = False, code, killed
        kernel = self.kernel
        kernel.log(f"{self.name} ends with {code}{' (killed)' if killed else ''}")
        for close in self.closers:
            close()
        kernel.dying += [t for t in self.threads if not t.ended]
        kernel.later(0.0, lambda: self.on_exit(self))
        current = kernel.current
        if current is not None and current.process is self:
            raise Killed(code)

    def stop(self) -> None:
        """Freeze it."""
        self.stopped = True

    def go_on(self) -> None:
        """Let a frozen one run again."""
        self.stopped = False
        self.kernel.ready += self.held
        self.held = []

    def terminate(self) -> None:
        """Send SIGTERM."""
        handler = self.handlers.get(15)
        if handler is None:
            self.exit(-15)
        elif self.alive:
            self.kernel.spawn(self, lambda: handler(15, None), "signal")


class Kernel:
    """One run."""

    instance: Kernel | None = None

    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.wall_offset = 1.7e9
        self.preempt = 0.0  # how often a thread loses its turn at a lock
        self.hub = getcurrent()
        self.current: Thread | None = None
        self.ready: list[Thread] = []
        self.timers: list[tuple[float, float, int, Callable[[], None]]] = []
        self.dying: list[Thread] = []
        self.turns = 0
        self.over = False
        self.bugs: list[str] = []  # exceptions that nobody caught
        self.lines: list[str] = []
        self.verbose = verbose
        self._count = 0

    # -- what a run is made of ---------------------------------------------------

    def log(self, text: str) -> None:
        """Note what happened."""
        if self.verbose:
            print(f"{self.now:10.4f} {text}", flush=True)
        else:
            self.lines.append(f"{self.now:10.4f} {text}")
            if len(self.lines) > 400:
                del self.lines[:200]

    def spawn(self, process: Process, run: Callable[[], Any], name: str) -> Thread:
        """Begin a thread."""

        def main() -> None:
            try:
                if process.alive:
                    run()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001 - top of the thread
                if process.alive and not self.over:
                    self.uncaught(process, name, error)
            finally:
                thread.ended = True
                process.threads.pop(thread, None)

        thread = Thread(process, main, name, self)
        process.threads[thread] = None
        self.ready.append(thread)
        return thread

    def uncaught(self, process: Process, name: str, error: BaseException) -> None:
        """Note an exception that ended a thread."""
        text = "".join(traceback.format_exception(error))
        self.bugs.append(f"{process.name}/{name}: {text}")
        self.log(f"BUG {process.name}/{name}: {error!r}")

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back at a time; of equal times the seed chooses the first."""
        self._count += 1
        entry = (self.now + seconds, self.random.random(), self._count, callback)
        heapq.heappush(self.timers, entry)

    # -- what threads call -------------------------------------------------------

    def check(self) -> None:
        """Raise Killed in a thread whose process has ended."""
        current = self.current
        if self.over or (current is not None and not current.process.alive):
            raise Killed(0)

    def _switch(self) -> None:
        thread = self.current
        thread.running_loop = asyncio.events._get_running_loop()
        asyncio.events._set_running_loop(None)
        try:
            self.hub.switch()
        finally:
            self.current = thread
            asyncio.events._set_running_loop(thread.running_loop)
        self.check()

    def park(self, seconds: float | None = None) -> bool:
        """Wait to be woken; False if the time is over first."""
        self.check()
        thread = self.current
        if thread is None:
            raise RuntimeError("only a simulated thread can wait")
        thread.waits += 1
        thread.woken = False
        if seconds is not None:
            number = thread.waits

            def over() -> None:
                if thread.waits == number and not thread.woken and not thread.ended:
                    thread.waits += 1
                    self.ready.append(thread)

            self.later(max(0.0, seconds), over)
        self._switch()
        return thread.woken

    def wake(self, thread: Thread, number: int) -> bool:
        """Wake a thread out of its wait of that number; whether it was in it."""
        if thread.waits != number or thread.woken or thread.ended:
            return False
        thread.woken = True
        self.ready.append(thread)
        return True

    def sleep(self, seconds: float) -> None:
        """Let time pass for the thread."""
        self.park(seconds)

    def give_way(self) -> None:
        """Let the seed choose who goes on."""
        self.check()
        thread = self.current
        thread.waits += 1
        thread.woken = True
        self.ready.append(thread)
        self._switch()

    def may_give_way(self) -> None:
        """Now and then let another thread go first."""
        if self.current is None:
            return
        if self.preempt and self.random.random() < self.preempt:
            self.give_way()
        else:
            self.check()

    # -- the hub -----------------------------------------------------------------

    def run(self, done: Callable[[], bool], *, most_seconds: float) -> None:
        """Give turns until `done`. Raises StuckError."""
        while not done():
            while self.dying:
                self._end(self.dying.pop())
            if self.ready:
                self._turn()
            elif self.timers:
                when, _, _, callback = heapq.heappop(self.timers)
                if when > most_seconds:
                    raise StuckError(f"not over after {most_seconds:.0f} s")
                self.now = max(self.now, when)
                callback()
            else:
                raise StuckError("nobody has anything to do")
            if self.turns > MOST_TURNS:
                raise StuckError(f"{MOST_TURNS} turns and {self.now:.3f} s, no end")

    def _turn(self) -> None:
        ready = self.ready
        index = int(self.random.random() * len(ready)) if len(ready) > 1 else 0
        thread = ready[index]
        ready[index] = ready[-1]
        ready.pop()
        if thread.ended:
            return
        if thread.process.stopped and thread.process.alive:
            thread.process.held.append(thread)
            return
        self.turns += 1
        self.current = thread
        try:
            thread.greenlet.switch()
        finally:
            self.current = None

    def _end(self, thread: Thread) -> None:
        if thread.ended:
            return
        if not thread.greenlet:  # never begun
            thread.ended = True
            return
        self.current = thread
        try:
            thread.greenlet.throw(Killed(0))
        except Killed:
            pass
        finally:
            self.current = None
        if not thread.ended:
            self.dying.insert(0, thread)  # it waited for something once more

    def close(self, processes: list[Process]) -> None:
        """End everything that is left, without a trace."""
        self.over = True
        for process in processes:
            process.alive = False
            for thread in list(process.threads):
                for _ in range(50):
                    if thread.ended:
                        break
                    self._end(thread)
            process.kept.clear()
        self.dying.clear()
        self.ready.clear()
        self.timers.clear()


def kernel() -> Kernel:
    """Return the run under way."""
    found = Kernel.instance
    if found is None:
        raise RuntimeError("no simulation is under way")
    return found


def current_process() -> Process | None:
    """Return the process whose thread runs."""
    found = Kernel.instance
    if found is None or found.current is None:
        return None
    return found.current.process
