"""What a list of objects is and becomes: list, watch from there, list again.

Owns the rules of Kubernetes' watches. Used for pods and ConfigMaps by the runner of a
cluster, and by the exporter. Must not know what the objects mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticdl.kube.api import ApiServer
from elasticdl.kube.errors import ApiError, Backoff, Json

log = logging.getLogger(__name__)

# The server ends a watch after so long; many masters shall not come back at once.
_WATCH_SECONDS = (240, 300)
# It sends a bookmark about once a minute: silence for longer is a dead peer.
_SILENT_SECONDS = 150.0
_GONE = 410
# Objects that are asked for at once: each may have a megabyte or more, and is three
# times as large while it is read.
_PAGE = 50
_TAKEN_AWAY = (401, 403, 404)  # a permission, or what the path is in


@dataclass(frozen=True)
class Listing:
    """All existing objects; a known object that is not listed no longer exists."""

    items: list[Any]  # what `keep` returned of each object
    began: float  # the loop's time before the server was asked


@dataclass(frozen=True)
class WatchEvent:
    """One object that was created, changed or deleted."""

    item: Json
    deleted: bool


@dataclass(frozen=True)
class Patience:
    """How long watches are, and how long they may be silent; seconds."""

    watch: tuple[int, int] = _WATCH_SECONDS
    silent: float = _SILENT_SECONDS

    @staticmethod
    def within(seconds: float) -> Patience:
        """Return that of who has to notice a dead watch within so long.

        A server says nothing while nothing happens, but it ends a watch in time: who
        asks for short ones hears from it each time.
        """
        least, most = (max(1, int(part * seconds)) for part in (0.4, 0.6))
        return Patience((least, most), 0.87 * seconds)


async def reflect(
    api: ApiServer,
    path: str,
    selector: Mapping[str, str],
    *,
    on_gap: Callable[[float], None] = lambda _: None,
    until_refused: bool = False,
    patience: Patience = Patience(),
    keep: Callable[[], Callable[[Json], Any]] = lambda: _all_of_it,
) -> AsyncGenerator[Listing | WatchEvent, None]:
    """Yield the whole list, then changes; the whole list again after an interruption.

    `selector` is `labelSelector` or `fieldSelector`. Outages are waited out. Raises
    ApiError if the first list is refused; later a refusal (the permission was taken
    away) is waited out too: what runs, runs; with `until_refused` a later list that is
    refused is raised. `on_gap` is called when changes are missed, until the next list,
    with the seconds since the server was last heard. `keep` is called for each list,
    and returns what takes what is needed from each object: the rest is dropped page by
    page.
    """
    backoff = Backoff()
    known = False
    loop = asyncio.get_running_loop()
    heard = loop.time()
    while True:
        began = loop.time()
        listed = False
        try:
            items, version = await _all(api, path, selector, keep())
            known = listed = True
            heard = began
            yield Listing(items, began)
            del items
            async with contextlib.aclosing(
                _follow(api, path, selector, version, patience)
            ) as changes:
                async for change in changes:
                    backoff.reset()
                    heard = loop.time()
                    if change is not None:
                        yield change
        except ApiError as error:
            ends = until_refused and not listed and error.status in _TAKEN_AWAY
            # A list may be too old before its last page.
            if ends or (not known and error.status != _GONE):
                raise
            on_gap(loop.time() - heard)
            level = logging.INFO if error.status in (0, _GONE) else logging.WARNING
            log.log(level, "watching %s: %s; listing again", path, error)
        await asyncio.sleep(backoff.next_seconds())


def _all_of_it(item: Json) -> Json:
    return item


async def _all(
    api: ApiServer,
    path: str,
    selector: Mapping[str, str],
    keep: Callable[[Json], Any],
) -> tuple[list[Any], str]:
    """Return all objects and the version of the list. Raises ApiError."""
    items: list[Any] = []
    query = {**selector, "limit": str(_PAGE)}
    while True:
        page = await api.insist("GET", path, query=query)
        items += map(keep, page.get("items") or [])
        about = page["metadata"]
        if not (rest := about.get("continue")):
            return items, about["resourceVersion"]
        query["continue"] = rest


async def _follow(
    api: ApiServer,
    path: str,
    selector: Mapping[str, str],
    version: str,
    patience: Patience = Patience(),
) -> AsyncGenerator[WatchEvent | None, None]:
    """Watch from a resource version until that is no longer possible (ApiError).

    Yields None where the server is heard and nothing has changed.
    """
    loop = asyncio.get_running_loop()
    while True:
        seconds = random.randint(*patience.watch)
        query = {
            **selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        began = loop.time()
        async with contextlib.aclosing(
            api.stream(path, query, silent_seconds=patience.silent)
        ) as events:
            async for event in events:
                item = event["object"]
                if event["type"] == "ERROR":
                    raise ApiError(
                        item.get("message", "the watch failed"),
                        status=item.get("code", 0),
                        reason=item.get("reason", ""),
                    )
                version = item["metadata"]["resourceVersion"]
                if event["type"] == "BOOKMARK":
                    yield None
                else:
                    yield WatchEvent(item, deleted=event["type"] == "DELETED")
        yield None
        if loop.time() - began < 1.0:  # a server that is about to leave
            await asyncio.sleep(1.0)
