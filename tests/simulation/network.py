"""A stand-in for `grpc`: channels and servers that hand bytes over in memory.

Owns what becomes of a call: late, lost on the way there or back, repeated, refused.
Serializers, handlers, token checks and error mapping are the product's own. Must not
know what calls mean.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc as real
import grpc.aio as real_aio

from tests.simulation.kernel import Killed, Process, kernel
from tests.simulation.threads import Event, ThreadPoolExecutor

Status = real.StatusCode
KEEPALIVE_SECONDS = 8.0  # what rpc.channel asks for: 5 s, and 3 s for the answer


class CallError(real.RpcError, real.Call):
    """What a failed call raises."""

    def __init__(self, code: Status, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code, self._details = code, details

    def code(self) -> Status:
        return self._code

    def details(self) -> str:
        return self._details

    def _none(self, *_: object) -> Any:
        return None

    initial_metadata = trailing_metadata = is_active = time_remaining = _none
    cancel = add_callback = _none


class _AbortError(Exception):
    def __init__(self, code: Status, details: str) -> None:
        super().__init__(details)
        self.code, self.details = code, details


@dataclass
class Weather:
    """How calls fare now."""

    fastest: float = 0.0002
    slowest: float = 0.002
    lose_request: float = 0.0
    lose_reply: float = 0.0
    late: float = 0.0  # by up to `latest` seconds
    latest: float = 6.0
    repeat: float = 0.0


@dataclass(frozen=True)
class _Details:
    method: str
    invocation_metadata: tuple[tuple[str, str], ...]


class _Context:
    """Of a call at a server of threads."""

    def __init__(self, details: _Details) -> None:
        self._details = details

    def abort(self, code: Status, details: str) -> None:
        raise _AbortError(code, details)

    def invocation_metadata(self) -> Any:
        return self._details.invocation_metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}  # calls of local jobs are not encrypted

    def is_active(self) -> bool:
        return True

    def cancel(self) -> None:
        """The caller has its own word for it."""


class _AioContext(_Context):
    async def abort(self, code: Status, details: str) -> None:  # type: ignore[override]
        raise _AbortError(code, details)


class Network:
    """All addresses of a run."""

    def __init__(self) -> None:
        self.weather = Weather()
        self.servers: dict[str, Any] = {}
        self._port = 20000
        self.calls = 0
        self.watch: Callable[[Process, str, str, Any], None] | None = None

    def free_port(self) -> int:
        self._port += 1
        return self._port

    def hop(self) -> float:
        weather, chance = self.weather, kernel().random
        seconds = chance.uniform(weather.fastest, weather.slowest)
        if weather.late and chance.random() < weather.late:
            seconds += chance.uniform(0.0, weather.latest)
        return seconds

    def call(self, call: _Call) -> Any:
        """Make a call in the calling thread. Raises CallError."""
        run = kernel()
        chance, weather = run.random, self.weather
        self.calls += 1
        call.caller = run.current.process
        if chance.random() < weather.lose_request:
            self._lose(call)
        else:
            run.later(self.hop(), lambda: self._arrive(call))
            if weather.repeat and chance.random() < weather.repeat:
                pause = chance.choice([0.0, 0.01, 1.0, 10.0])
                run.later(self.hop() + pause, lambda: self._arrive(call))
        seconds = call.seconds if call.seconds is not None else 3600.0
        if not call.over.wait(seconds):
            call.finish(error=(Status.DEADLINE_EXCEEDED, "Deadline Exceeded"))
            if call.on_deadline is not None:
                call.on_deadline()
        if call.error is not None:
            raise CallError(*call.error)
        return call.reply

    def _lose(self, call: _Call) -> None:
        """A packet is gone: the connection breaks at once, or found by keepalive."""
        run = kernel()
        most = 1.0 if run.random.random() < 0.5 else KEEPALIVE_SECONDS
        run.later(
            run.random.uniform(0.01, most),
            lambda: call.finish(error=(Status.UNAVAILABLE, "connection reset")),
        )

    def silent(self, process: Process) -> None:
        """A peer does not answer pings any more: calls to it break."""
        if not (process.stopped or process.isolated):
            return
        for server in self.servers.values():
            if server.process is process:
                self.gone("", list(server.under_way))

    def _arrive(self, call: _Call) -> None:
        server = self.servers.get(call.address)
        if server is None or not server.process.alive:
            refused = (Status.UNAVAILABLE, "connection refused")
            kernel().later(self.hop(), lambda: call.finish(error=refused))
        elif server.process.isolated or call.caller.isolated:
            self._unanswered(call)
        else:
            if server.process.stopped:
                self._unanswered(call)
            server.take(call, lambda *told: self._back(call, server, *told))

    def _unanswered(self, call: _Call) -> None:
        def pinged() -> None:
            server = self.servers.get(call.address)
            there = server is not None and not (
                server.process.stopped or server.process.isolated
            )
            if not there or call.caller.isolated:
                lost = (Status.UNAVAILABLE, "keepalive watchdog timeout")
                call.finish(error=lost)

        kernel().later(KEEPALIVE_SECONDS, pinged)

    def _back(
        self, call: _Call, server: Any, reply: Any, error: tuple[Status, str] | None
    ) -> None:
        run = kernel()
        if not server.process.alive or server.process.isolated:
            return
        if run.random.random() < self.weather.lose_reply:
            self._lose(call)
            return
        run.later(self.hop(), lambda: call.finish(reply, error))

    def leave(self, process: Process) -> None:
        """A process keeps its addresses no longer, though it lives."""
        for place, server in list(self.servers.items()):
            if server.process is process:
                del self.servers[place]

    def gone(self, address: str, calls: Iterable[_Call]) -> None:
        """A server's process ended: whoever waits for it learns so."""
        reset = (Status.UNAVAILABLE, "connection reset")
        for call in calls:
            kernel().later(self.hop(), lambda call=call: call.finish(error=reset))


class _Call:
    """One call under way."""

    def __init__(
        self, address: str, details: _Details, request: Any, seconds: float | None
    ) -> None:
        self.address, self.details, self.request = address, details, request
        self.seconds = seconds
        self.over = Event()
        self.reply: Any = None
        self.error: tuple[Status, str] | None = None
        self.caller: Any = None
        self.on_deadline: Callable[[], None] | None = None

    def finish(
        self, reply: Any = None, error: tuple[Status, str] | None = None
    ) -> None:
        if not self.over.is_set():
            self.reply, self.error = reply, error
            self.over.set()


class _Stream:
    """A call that answers with a stream; it is made when it is read."""

    def __init__(self, call: _Call, result: Callable[[], Any]) -> None:
        self._call, self._result = call, result

    def __iter__(self) -> Any:
        yield from self._result()

    def cancel(self) -> None:
        self._call.finish(error=(Status.CANCELLED, "Locally cancelled"))


class _Future:
    """A call that can be withdrawn; it is made when its answer is waited for."""

    def __init__(self, call: _Call, result: Callable[[], Any]) -> None:
        self._call, self._result = call, result
        self._cancelled = False

    def result(self) -> Any:
        try:
            if self._cancelled:
                raise real.FutureCancelledError
            return self._result()
        except CallError as error:
            if self._cancelled:
                raise real.FutureCancelledError from error
            raise

    def cancel(self) -> bool:
        self._cancelled = not self._call.over.is_set()
        self._call.finish(error=(Status.CANCELLED, "Locally cancelled"))
        if self._call.on_deadline is not None:
            self._call.on_deadline()  # the server learns of it as of a deadline
        return self._cancelled


class Channel:
    """grpc.Channel."""

    def __init__(self, address: str, network: Network) -> None:
        self._address, self._network = address, network
        self._closed = False
        self._calls: set[_Call] = set()

    def _callable(self, *, many_in: bool, many_out: bool) -> Any:
        def make(
            method: str,
            request_serializer: Any = None,
            response_deserializer: Any = None,
            **_: object,
        ) -> Any:
            dump = request_serializer or (lambda message: message)
            load = response_deserializer or (lambda data: data)

            def begin(
                request: Any, timeout: float | None = None, metadata: Any = (), **_: Any
            ) -> Any:
                if self._closed:
                    raise ValueError("Cannot invoke RPC on closed channel!")
                sent = [dump(r) for r in request] if many_in else dump(request)
                details = _Details(method, tuple(metadata))
                under_way = _Call(self._address, details, sent, timeout)

                def result() -> Any:
                    self._calls.add(under_way)
                    try:
                        reply = self._network.call(under_way)
                    finally:
                        self._calls.discard(under_way)
                    return [load(r) for r in reply] if many_out else load(reply)

                return under_way, result

            def call(*args: Any, **options: Any) -> Any:
                under_way, result = begin(*args, **options)
                return _Stream(under_way, result) if many_out else result()

            call.future = lambda *args, **options: _Future(*begin(*args, **options))  # type: ignore[attr-defined]
            return call

        return make

    @property
    def unary_unary(self) -> Any:
        return self._callable(many_in=False, many_out=False)

    @property
    def unary_stream(self) -> Any:
        return self._callable(many_in=False, many_out=True)

    @property
    def stream_unary(self) -> Any:
        return self._callable(many_in=True, many_out=False)

    @property
    def stream_stream(self) -> Any:
        return self._callable(many_in=True, many_out=True)

    def close(self) -> None:
        self._closed = True
        for call in list(self._calls):
            call.finish(error=(Status.CANCELLED, "Channel closed!"))


class LoopChannel(Channel):
    """grpc.aio.Channel: a simulated thread makes each call."""

    def _callable(self, *, many_in: bool, many_out: bool) -> Any:
        make_blocking = super()._callable(many_in=many_in, many_out=many_out)

        def make(*args: Any, **options: Any) -> Any:
            call = make_blocking(*args, **options)

            async def later(*args: Any, **options: Any) -> Any:
                loop = asyncio.get_running_loop()
                try:
                    return await loop.run_in_executor(
                        None, lambda: call(*args, **options)
                    )
                except CallError as error:
                    nothing = real_aio.Metadata()
                    raise real_aio.AioRpcError(
                        error.code(), nothing, nothing, details=error.details()
                    ) from error

            return later

        return make

    async def close(self, grace: float | None = None) -> None:  # type: ignore[override]
        super().close()


class _Server:
    """What both servers share."""

    def __init__(self, interceptors: Iterable[Any]) -> None:
        self.process: Process = kernel().current.process
        self._network = world_network()
        self._interceptors = list(interceptors)
        self._methods: dict[str, Any] = {}
        self._generic: list[Any] = []
        self._addresses: list[str] = []
        self.under_way: dict[_Call, None] = {}
        self._started = False

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        self._generic += handlers

    def add_registered_method_handlers(self, service: str, methods: Any) -> None:
        for name, handler in methods.items():
            self._methods[f"/{service}/{name}"] = handler

    def add_insecure_port(self, address: str) -> int:
        host, _, text = address.rpartition(":")
        port = int(text) or self._network.free_port()
        place = f"{host}:{port}"
        holder = self._network.servers.get(place)
        if holder is not None and holder.process.alive and not holder.process.isolated:
            return 0
        self._network.servers[place] = self
        self._addresses.append(place)
        self.process.closers.append(self._gone)
        return port

    def _gone(self) -> None:
        for place in self._addresses:
            if self._network.servers.get(place) is self:
                del self._network.servers[place]
            self._network.gone(place, list(self.under_way))

    def _handler(self, details: _Details) -> Any:
        found = self._methods.get(details.method)
        if found is None:
            asked = (generic.service(details) for generic in self._generic)
            found = next((one for one in asked if one is not None), None)
        return found


class ThreadedServer(_Server):
    """grpc.Server."""

    def __init__(self, pool: ThreadPoolExecutor, interceptors: Iterable[Any]) -> None:
        super().__init__(interceptors)
        self._pool = pool

    def start(self) -> None:
        self._started = True

    def stop(self, grace: float | None) -> Event:
        self._started = False
        self._gone()
        done = Event()
        done.set()
        return done

    def take(self, call: _Call, answer: Callable[..., None]) -> None:
        if not self._started:
            answer(None, (Status.UNAVAILABLE, "connection refused"))
            return
        self.under_way[call] = None
        kernel().spawn(self.process, lambda: self._submit(call, answer), "accept")

    def _submit(self, call: _Call, answer: Callable[..., None]) -> None:
        self._pool.submit(self._serve, call, answer)

    def _serve(self, call: _Call, answer: Callable[..., None]) -> None:
        reply, error = None, None

        def last(details: Any) -> Any:
            return self._handler(details)

        find = last
        for interceptor in reversed(self._interceptors):
            find = _intercepted(interceptor, find)
        handler = find(call.details)
        try:
            if handler is None:
                raise _AbortError(Status.UNIMPLEMENTED, call.details.method)
            load = handler.request_deserializer or (lambda data: data)
            dump = handler.response_serializer or (lambda message: message)
            many = isinstance(call.request, list)
            sent = call.request
            request = iter([load(r) for r in sent]) if many else load(sent)
            context = _Context(call.details)
            serve = next(
                method
                for method in (
                    handler.unary_unary, handler.unary_stream,
                    handler.stream_unary, handler.stream_stream,
                )
                if method is not None
            )  # fmt: skip
            came = serve(request, context)
            streams = handler.response_streaming
            reply = [dump(r) for r in came] if streams else dump(came)
        except _AbortError as abort:
            error = (abort.code, abort.details)
        except (Killed, SystemExit):
            raise
        except Exception as problem:  # noqa: BLE001 - as grpc
            kernel().uncaught(self.process, call.details.method, problem)
            error = (Status.UNKNOWN, f"Exception calling application: {problem}")
        self.under_way.pop(call, None)
        answer(reply, error)


def _intercepted(interceptor: Any, find: Any) -> Any:
    return lambda details: interceptor.intercept_service(find, details)


class LoopServer(_Server):
    """grpc.aio.Server."""

    def __init__(self, interceptors: Iterable[Any]) -> None:
        super().__init__(interceptors)
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        self._started = True

    async def stop(self, grace: float | None) -> None:
        self._started = False
        self._gone()

    def take(self, call: _Call, answer: Callable[..., None]) -> None:
        if not self._started:
            answer(None, (Status.UNAVAILABLE, "connection refused"))
            return
        self.under_way[call] = None

        def begin() -> None:
            task = self._loop.create_task(self._serve(call, answer))
            # The server learns of a caller's deadline and cancels the handler.
            call.on_deadline = lambda: self._loop.call_soon_threadsafe(task.cancel)

        self._loop.call_soon_threadsafe(begin)

    async def _serve(self, call: _Call, answer: Callable[..., None]) -> None:
        reply, error = None, None

        async def find(details: Any) -> Any:
            return self._handler(details)

        try:
            handler = await find(call.details)
            for interceptor in self._interceptors:
                handler = await interceptor.intercept_service(find, call.details)
            request = handler.request_deserializer(call.request)
            came = await handler.unary_unary(request, _AioContext(call.details))
            reply = handler.response_serializer(came)
        except _AbortError as abort:
            error = (abort.code, abort.details)
        except asyncio.CancelledError:
            error = (Status.CANCELLED, "cancelled")
        except (Killed, SystemExit):
            raise
        except Exception as problem:  # noqa: BLE001 - as grpc
            kernel().uncaught(self.process, call.details.method, problem)
            error = (Status.UNKNOWN, repr(problem))
        finally:
            self.under_way.pop(call, None)
        answer(reply, error)


_network: list[Network] = []


def world_network() -> Network:
    """Return the network of the run under way."""
    return _network[-1]


def use(network: Network) -> None:
    """Make a run's network the one that channels and servers are made in."""
    _network[:] = [network]


def _proxy(name: str, module: types.ModuleType, **changed: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__getattr__ = lambda attribute: getattr(module, attribute)  # type: ignore[method-assign]
    made.__dict__.update(changed)
    return made


def _insecure_channel(address: str, options: Any = None, **_: Any) -> Channel:
    return Channel(address, world_network())


def _server(
    pool: ThreadPoolExecutor, interceptors: Any = (), **_: Any
) -> ThreadedServer:
    return ThreadedServer(pool, interceptors or ())


def _aio_server(interceptors: Any = (), **_: Any) -> LoopServer:
    return LoopServer(interceptors or ())


def _aio_channel(address: str, options: Any = None, **_: Any) -> LoopChannel:
    return LoopChannel(address, world_network())


def _refused(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("the simulation has no such channel; add it")


aio = _proxy(
    "grpc.aio",
    real_aio,
    server=_aio_server,
    insecure_channel=_aio_channel,
    secure_channel=_refused,
)
grpc = _proxy("grpc", real, insecure_channel=_insecure_channel, server=_server, aio=aio)
