"""An asyncio event loop in simulated time; its executor is simulated threads.

Owns the loop of one master. Before each step of a task the seed may let others run, or
kill the process: that is a crash at any await.
"""

from __future__ import annotations

import asyncio
import asyncio.base_events
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.kernel import Killed, Process, kernel


class _Selector:
    """Waits in simulated time; woken by other threads."""

    def __init__(self) -> None:
        self._thread: Any = None
        self._number = 0
        self._woken = False

    def select(self, seconds: float | None) -> list[Any]:
        run = kernel()
        if self._woken or (seconds is not None and seconds <= 0):
            self._woken = False
            run.check()
            return []
        self._thread, self._number = run.current, run.current.waits + 1
        run.park(seconds)
        self._thread, self._woken = None, False
        return []

    def wake(self) -> None:
        self._woken = True
        if self._thread is not None:
            kernel().wake(self._thread, self._number)

    def close(self) -> None:
        pass


class SimulatedLoop(asyncio.base_events.BaseEventLoop):
    """The event loop of one process."""

    def __init__(self, process: Process, before_step: Callable[[], None]) -> None:
        super().__init__()
        self._process = process
        self._before_step = before_step
        self._selector = _Selector()
        self._clock_resolution = 1e-9
        self.set_task_factory(self._make_task)
        process.kept.append(self)

    def time(self) -> float:
        return kernel().now

    def _make_task(self, loop: Any, coroutine: Any, **options: Any) -> Any:
        task = asyncio.Task(coroutine, loop=loop, **options)
        # A dead process's tasks must not be collected, and so closed, in the run.
        self._process.kept.append(task)
        if len(self._process.kept) > 2000:
            kept = self._process.kept
            kept[:] = [
                k for k in kept if not (isinstance(k, asyncio.Task) and k.done())
            ]
        return task

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        self._selector.wake()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = super().call_soon(callback, *args, context=context)
        # A call of another thread or of the hub, as of the network.
        if asyncio.events._get_running_loop() is not self:
            self._selector.wake()
        return handle

    def _run_once(self) -> None:
        self._before_step()
        super()._run_once()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """As asyncio.run."""
        task = self.create_task(coroutine)
        asyncio.events._set_running_loop(self)
        try:
            while not task.done():
                self._run_once()
        finally:
            asyncio.events._set_running_loop(None)
        return task.result()

    def run_in_executor(self, executor: Any, function: Any, *args: Any) -> Any:
        future = self.create_future()

        def give(setter: Callable[[Any], None], value: Any) -> None:
            if not future.cancelled():
                setter(value)

        def work() -> None:
            try:
                result = function(*args)
            except Killed:
                raise
            except BaseException as error:  # noqa: BLE001 - as an executor
                self.call_soon_threadsafe(give, future.set_exception, error)
            else:
                self.call_soon_threadsafe(give, future.set_result, result)

        kernel().spawn(self._process, work, "executor")
        return future

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        self._process.handlers[int(sig)] = lambda *_: self.call_soon_threadsafe(
            callback, *args
        )

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self._process.alive or kernel().over or isinstance(error, Killed):
            return
        kernel().bugs.append(f"{self._process.name}: {context}")
