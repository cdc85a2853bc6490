"""Gives the product's modules the simulated system, as they are imported.

Owns which module stands in for which. It must be used before the first module of the
product is imported, so a simulation has a process of its own. Nothing in the product
knows of it: a thread, a clock or a file that is added tomorrow is simulated as well.
"""

from __future__ import annotations

import builtins
import importlib
import random
import secrets
import sys
import types
import uuid
from typing import Any

from tests.simulation import disk, network, threads, toy_keras
from tests.simulation.kernel import Kernel

_PRODUCT = "elasticdl"


class _Memory:
    rss = 1 << 26


class _Processes:
    """psutil.Process."""

    def __init__(self, *_: object) -> None:
        self.pid = 1

    def memory_info(self) -> _Memory:
        return _Memory()

    def create_time(self) -> float:
        return threads.time.time() - 0.5


def _signal(number: int, handler: Any) -> None:
    run = Kernel.instance
    if run is not None and run.current is not None and callable(handler):
        run.current.process.handlers[int(number)] = handler


def _random() -> float:
    run = Kernel.instance
    return run.random.random() if run is not None else random.random()


def _token_bytes(size: int = 16) -> bytes:
    run = Kernel.instance
    return run.random.randbytes(size) if run is not None else secrets.token_bytes(size)


def _token_hex(size: int = 16) -> str:
    return _token_bytes(size).hex()


def _token_urlsafe(size: int = 16) -> str:
    return _token_hex(size)


def _uuid4() -> uuid.UUID:
    return uuid.UUID(bytes=_token_bytes(16), version=4)


def _stand_ins() -> dict[str, types.ModuleType]:
    import signal

    import psutil

    return {
        "threading": threads.threading,
        "queue": threads.queue,
        "time": threads.time,
        "concurrent": threads.concurrent,
        "concurrent.futures": threads.futures,
        "grpc": network.grpc,
        "grpc.aio": network.aio,
        "os": disk.os,
        "tempfile": disk.tempfile,
        "pathlib": disk.paths,
        "psutil": network._proxy("psutil", psutil, Process=_Processes),
        "signal": network._proxy("signal", signal, signal=_signal),
        "random": network._proxy("random", random, random=_random),
        "secrets": network._proxy(
            "secrets",
            secrets,
            token_bytes=_token_bytes,
            token_hex=_token_hex,
            token_urlsafe=_token_urlsafe,
        ),
        "uuid": network._proxy("uuid", uuid, uuid4=_uuid4),
        "tensorflow": toy_keras.tensorflow,
        "keras": toy_keras.keras,
    }


def install() -> None:
    """Put the stand-ins in place."""
    early = [name for name in sys.modules if name.split(".")[0] == _PRODUCT]
    if early:
        raise RuntimeError(f"imported before the simulation: {early[:5]}")
    stand_ins = _stand_ins()
    original = builtins.__import__

    def import_for_product(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        importer = (globals or {}).get("__name__", "")
        if level == 0 and importer.split(".")[0] == _PRODUCT:
            if name in stand_ins:
                if not fromlist and "." in name:
                    return stand_ins[name.split(".", maxsplit=1)[0]]
                return stand_ins[name]
            top = name.split(".", maxsplit=1)[0]
            if top in ("tensorflow", "keras"):
                return stand_ins[top]
        return original(name, globals, locals, fromlist, level)

    builtins.__import__ = import_for_product
    toys = importlib.import_module("tests.simulation.toys")
    # Before other modules take these names out of them.
    for name, names in toys.replaced().items():
        vars(importlib.import_module(name)).update(names)
