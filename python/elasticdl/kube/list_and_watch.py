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

from elasticdl.kube.api import ApiServer
from elasticdl.kube.errors import ApiError, Backoff, Json

log = logging.getLogger(__name__)

# The server ends a watch after so long; many masters shall not come back at once.
_WATCH_SECONDS = (240, 300)
_GONE = 410
_TAKEN_AWAY = (401, 403, 404)  # a permission, or what the path is in


@dataclass(frozen=True)
class Listing:
    """All existing objects; a known object that is not listed no longer exists."""

    items: list[Json]
    began: float  # the loop's time before the server was asked


@dataclass(frozen=True)
class WatchEvent:
    """One object that was created, changed or deleted."""

    item: Json
    deleted: bool


async def reflect(
    api: ApiServer,
    path: str,
    selector: Mapping[str, str],
    *,
    on_gap: Callable[[], None] = lambda: None,
    until_refused: bool = False,
) -> AsyncGenerator[Listing | WatchEvent, None]:
    """Yield the whole list, then changes; the whole list again after an interruption.

    `selector` is `labelSelector` or `fieldSelector`. Outages are waited out. Raises
    ApiError if the first list is refused; later a refusal (the permission was taken
    away) is waited out too: what runs, runs; with `until_refused` a later list that is
    refused is raised. `on_gap` is called when changes begin to be missed, until the
    next list.
    """
    backoff = Backoff()
    known = False
    while True:
        began = asyncio.get_running_loop().time()
        listed = False
        try:
            listing = await api.insist("GET", path, query=selector)
            known = listed = True
            yield Listing(listing.get("items") or [], began)
            version = listing["metadata"]["resourceVersion"]
            async with contextlib.aclosing(
                _follow(api, path, selector, version)
            ) as changes:
                async for change in changes:
                    backoff.reset()
                    yield change
        except ApiError as error:
            ends = until_refused and not listed and error.status in _TAKEN_AWAY
            if ends or not known:
                raise
            on_gap()
            level = logging.INFO if error.status in (0, _GONE) else logging.WARNING
            log.log(level, "watching %s: %s; listing again", path, error)
        await asyncio.sleep(backoff.next_seconds())


async def _follow(
    api: ApiServer, path: str, selector: Mapping[str, str], version: str
) -> AsyncGenerator[WatchEvent, None]:
    """Watch from a resource version until that is no longer possible (ApiError)."""
    loop = asyncio.get_running_loop()
    while True:
        seconds = random.randint(*_WATCH_SECONDS)
        query = {
            **selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        began = loop.time()
        async with contextlib.aclosing(api.stream(path, query)) as events:
            async for event in events:
                item = event["object"]
                if event["type"] == "ERROR":
                    raise ApiError(
                        item.get("message", "the watch failed"),
                        status=item.get("code", 0),
                        reason=item.get("reason", ""),
                    )
                version = item["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    yield WatchEvent(item, deleted=event["type"] == "DELETED")
        if loop.time() - began < 1.0:  # a server that is about to leave
            await asyncio.sleep(1.0)
