"""Stand-ins for `threading`, `queue`, `time` and `concurrent.futures`.

Own nothing but the waiting of simulated threads. Product modules get them in place of
the standard library's (tests/simulation/importing.py).
"""

from __future__ import annotations

import concurrent.futures as real_futures
import queue as real_queue
import threading as real_threading
import time as real_time
import types
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.kernel import Kernel, Killed, Process, kernel

Full, Empty = real_queue.Full, real_queue.Empty


class _Waiters:
    """Threads that wait for one thing, oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Any, int]] = deque()

    def wait(self, seconds: float | None) -> bool:
        run = kernel()
        self._waiting.append((run.current, run.current.waits + 1))
        return run.park(seconds)

    def wake_one(self) -> bool:
        run = kernel()
        while self._waiting:
            thread, number = self._waiting.popleft()
            if run.wake(thread, number):
                return True
        return False

    def wake_all(self) -> None:
        while self.wake_one():
            pass


class Lock:
    """threading.Lock."""

    def __init__(self) -> None:
        self._locked = False
        self._waiters = _Waiters()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        run = Kernel.instance
        if run is None or run.current is None:
            self._locked = True
            return True
        run.may_give_way()
        until = None if timeout < 0 else run.now + timeout
        while self._locked:
            if not blocking:
                return False
            left = None if until is None else until - run.now
            if left is not None and left <= 0:
                return False
            self._waiters.wait(left)
        self._locked = True
        return True

    def release(self) -> None:
        self._locked = False
        if Kernel.instance is not None:
            self._waiters.wake_one()

    def locked(self) -> bool:
        return self._locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    """threading.RLock."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: Any = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        run = Kernel.instance
        me = run.current if run is not None else None
        if self._depth and self._owner is me:
            self._depth += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def put_down(self) -> int:
        depth, self._depth, self._owner = self._depth, 0, None
        self._lock.release()
        return depth

    def take_up(self, depth: int) -> None:
        self._lock.acquire()
        self._owner, self._depth = kernel().current, depth


class Condition:
    """threading.Condition."""

    def __init__(self, lock: Any = None) -> None:
        self._lock = lock or RLock()
        self._waiters = _Waiters()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None and timeout > real_threading.TIMEOUT_MAX:
            raise OverflowError("timestamp too large to convert to C _PyTime_t")
        depth = self._lock.put_down() if isinstance(self._lock, RLock) else 0
        if not depth:
            self._lock.release()
        try:
            return self._waiters.wait(timeout)
        finally:
            if depth:
                self._lock.take_up(depth)
            else:
                self._lock.acquire()

    def wait_for(
        self, predicate: Callable[[], Any], timeout: float | None = None
    ) -> Any:
        run = kernel()
        until = None if timeout is None else run.now + timeout
        result = predicate()
        while not result:
            left = None if until is None else until - run.now
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        for _ in range(n):
            self._waiters.wake_one()

    def notify_all(self) -> None:
        self._waiters.wake_all()


class Event:
    """threading.Event."""

    def __init__(self) -> None:
        self._set = False
        self._waiters = _Waiters()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        if Kernel.instance is not None:
            self._waiters.wake_all()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        run = kernel()
        until = None if timeout is None else run.now + timeout
        while not self._set:
            left = None if until is None else until - run.now
            if left is not None and left <= 0:
                break
            self._waiters.wait(left)
        return self._set


class Thread:
    """threading.Thread."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str = "thread",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name
        self.daemon = daemon
        self._call = lambda: target(*args, **(kwargs or {})) if target else None
        self._done = Event()
        self._thread: Any = None

    def start(self) -> None:
        run = kernel()
        process = run.current.process
        self._thread = run.spawn(process, self._run, self.name)

    def _run(self) -> None:
        try:
            self._call()
        except (Killed, SystemExit):
            raise
        except BaseException as error:
            if process_hook := getattr(kernel().current.process, "on_bug", None):
                kernel().uncaught(kernel().current.process, self.name, error)
                process_hook()
            raise
        finally:
            if not kernel().over and kernel().current.process.alive:
                self._done.set()

    def join(self, timeout: float | None = None) -> None:
        self._done.wait(timeout)

    def is_alive(self) -> bool:
        return self._thread is not None and not self._done.is_set()


class SimpleQueue:
    """queue.SimpleQueue."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiters = _Waiters()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        self._waiters.wake_one()
        kernel().may_give_way()

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        run = kernel()
        run.may_give_way()
        until = None if timeout is None else run.now + timeout
        while not self._items:
            left = None if until is None else until - run.now
            if not block or (left is not None and left <= 0):
                raise Empty
            self._waiters.wait(left)
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Queue(SimpleQueue):
    """queue.Queue."""

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__()
        self._most = maxsize
        self._room = _Waiters()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        run = kernel()
        until = None if timeout is None else run.now + timeout
        while self._most and len(self._items) >= self._most:
            left = None if until is None else until - run.now
            if not block or (left is not None and left <= 0):
                raise Full
            self._room.wait(left)
        super().put(item)

    def put_nowait(self, item: Any) -> None:
        self.put(item, block=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        item = super().get(block, timeout)
        self._room.wake_one()
        return item


class Future:
    """concurrent.futures.Future."""

    def __init__(self) -> None:
        self._done = Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self._cancelled = False
        self._callbacks: list[Callable[[Any], None]] = []

    def done(self) -> bool:
        return self._done.is_set()

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> bool:
        if self.done():
            return False
        self._cancelled = True
        self._finish()
        return True

    def result(self, timeout: float | None = None) -> Any:
        if not self._done.wait(timeout):
            raise TimeoutError
        if self._cancelled:
            raise real_futures.CancelledError
        if self._error is not None:
            try:
                raise self._error
            finally:
                self = None  # noqa: PLW0642 - as the real one: no cycle through this frame
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self._done.wait(timeout):
            raise TimeoutError
        return self._error

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self.done():
            callback(self)
        else:
            self._callbacks.append(callback)

    def set_result(self, result: Any) -> None:
        self._result = result
        self._finish()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._finish()

    def _finish(self) -> None:
        self._done.set()
        for callback in self._callbacks:
            callback(self)


class ThreadPoolExecutor:
    """concurrent.futures.ThreadPoolExecutor."""

    def __init__(
        self, max_workers: int = 4, thread_name_prefix: str = "pool", **_: object
    ) -> None:
        self._most = max_workers
        self._name = thread_name_prefix
        self._work: SimpleQueue = SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._closed = False
        self._pending: list[Future] = []

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = Future()
        self._pending = [f for f in self._pending if not f.done()] + [future]
        self._work.put((future, lambda: function(*args, **kwargs)))
        if self._idle < len(self._work._items) and self._threads < self._most:
            self._threads += 1
            run = kernel()
            run.spawn(run.current.process, self._run, f"{self._name}-{self._threads}")
        return future

    def _run(self) -> None:
        while not self._closed or not self._work.empty():
            self._idle += 1
            try:
                item = self._work.get()
            finally:
                self._idle -= 1
            if item is None:
                return
            future, call = item
            if future.cancelled():
                continue
            try:
                result = call()
            except (Killed, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - as the real one
                future.set_exception(error)
            else:
                future.set_result(result)
            del item, future, call

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            while not self._work.empty():
                item = self._work.get()
                if item is not None:
                    item[0].cancel()
        for _ in range(self._threads):
            self._work.put(None)
        if wait:
            for future in list(self._pending):
                future._done.wait()

    def __enter__(self) -> ThreadPoolExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _module(name: str, real: types.ModuleType, **changed: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__getattr__ = lambda attribute: getattr(real, attribute)  # type: ignore[method-assign]
    module.__dict__.update(changed)
    return module


def _monotonic() -> float:
    run = Kernel.instance
    return real_time.monotonic() if run is None else 1000.0 + run.now


def _wall() -> float:
    run = Kernel.instance
    return real_time.time() if run is None else run.wall_offset + run.now


class _Name:
    def __init__(self, name: str) -> None:
        self.name = name


def _current_thread() -> Any:
    run = Kernel.instance
    return _Name(run.current.name if run and run.current else "MainThread")


def _sleep(seconds: float) -> None:
    kernel().sleep(seconds)


threading = _module(
    "threading", real_threading, Lock=Lock, RLock=RLock, Condition=Condition,
    Event=Event, Thread=Thread, current_thread=_current_thread,
    get_native_id=lambda: 1,
)  # fmt: skip
queue = _module("queue", real_queue, Queue=Queue, SimpleQueue=SimpleQueue)
time = _module(
    "time", real_time, monotonic=_monotonic, time=_wall, perf_counter=_monotonic,
    sleep=_sleep, monotonic_ns=lambda: int(_monotonic() * 1e9),
    time_ns=lambda: int(_wall() * 1e9),
)  # fmt: skip
futures = _module(
    "concurrent.futures", real_futures, Future=Future,
    ThreadPoolExecutor=ThreadPoolExecutor,
)  # fmt: skip
concurrent = types.ModuleType("concurrent")
concurrent.futures = futures  # type: ignore[attr-defined]

__all__ = ["Process", "concurrent", "futures", "queue", "threading", "time"]
