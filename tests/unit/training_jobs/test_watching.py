"""What is seen of a namespace, against an API server whose answers are scripted."""

import asyncio
import copy
from contextlib import suppress

from elasticdl.training_jobs.watching import WatchedNamespace

from tests.unit.scripted_server import Server, listing, until
from tests.unit.training_jobs.objects import manifest
from tests.unit.training_jobs.test_controller import BATCH, CORE, OWN


def digits(version: int, workers: int):
    item = copy.deepcopy(manifest("digits", job__worker__replicas=workers))
    item["metadata"]["resourceVersion"] = str(version)
    return item


def test_an_answer_that_is_late_takes_no_edit_back():
    server = Server()
    server.scripts = {
        OWN: [listing(digits(5, 1))],
        f"{OWN}?watch": [(200, [{"type": "MODIFIED", "object": digits(11, 3)}])],
        CORE: [listing()],
        BATCH: [listing()],
    }

    def workers(watched: WatchedNamespace) -> int:
        job = watched.job("digits")
        return job.manifest["spec"]["job"]["worker"]["replicas"] if job else 0

    async def main() -> None:
        api = server.connection()
        watched = WatchedNamespace(api, "ml")
        run = asyncio.create_task(watched.watch())
        try:
            await asyncio.wait_for(until(lambda: workers(watched) == 3), 8)
            watched.note(digits(10, 1))  # of a status that was written before the edit
            assert workers(watched) == 3
            watched.note(digits(12, 3))
            assert watched.job("digits").manifest["metadata"]["resourceVersion"] == "12"
        finally:
            run.cancel()
            with suppress(asyncio.CancelledError):
                await run
            await api.close()

    try:
        asyncio.run(main())
    finally:
        server.close()
