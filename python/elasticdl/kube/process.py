"""A process of the platform: how it begins, how a signal ends it, and its exit code.

Owns what exporter, controller and the controller of TrainingJobs have in common. Called
by their `main`. Must not know what they do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from elasticdl.errors import ElasticDLError, ExitCode, SpecError
from elasticdl.job.context import set_up_logging
from elasticdl.kube.api import ApiServer

log = logging.getLogger("elasticdl.kube.process")


def add_arguments(parser: argparse.ArgumentParser, *, listens: str) -> None:
    """Add the options of all of them; `listens`: what its address is for."""
    parser.add_argument(
        "--kubeconfig", help="of a user; without it the account of this pod is used"
    )
    parser.add_argument("--host", default="127.0.0.1", help=listens)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")


def add_serving_arguments(parser: argparse.ArgumentParser, *, priority: int) -> None:
    """Add the options that say which pods count as serving."""
    parser.add_argument(
        "--serving-priority",
        type=int,
        default=priority,
        help="pods of at least this priority count as serving",
    )
    parser.add_argument(
        "--serving-labels",
        default="",
        metavar="KEY=VALUE,...",
        help="pods with all these labels count as serving too",
    )


def pairs_of(text: str, option: str) -> dict[str, str]:
    """Return the pairs of `KEY=VALUE,...`. Raises SpecError."""
    found = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not (key and equals):
            raise SpecError(f"{option}: got {part!r}, expected KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def run(
    name: str,
    args: argparse.Namespace,
    work: Callable[[argparse.Namespace, ApiServer], Coroutine[Any, Any, None]],
) -> int:
    """Do a process's work with the API server that it is told; return the exit code."""
    set_up_logging(name, "info")
    try:
        if args.kubeconfig:
            api = ApiServer.from_kubeconfig(args.kubeconfig)
        else:
            api = ApiServer.in_cluster()
        asyncio.run(work(args, api))
    except ElasticDLError as error:
        log.error("%s", error)
        return error.exit_code
    return ExitCode.OK


async def until_told(*parts: Awaitable[None]) -> None:
    """Run all parts until a signal comes, or one fails. Raises ElasticDLError."""

    async def together() -> None:
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                tasks.create_task(_awaited(part))

    loop = asyncio.get_running_loop()
    running = asyncio.create_task(together())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await running
    except* ElasticDLError as group:
        raise _first(group) from None


async def _awaited(part: Awaitable[None]) -> None:
    await part


def _first(group: BaseExceptionGroup[ElasticDLError]) -> ElasticDLError:
    """Return one error of a group, however deep."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
