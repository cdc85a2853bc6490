"""The loop that acts, against a small API server whose answers are scripted."""

import asyncio
from contextlib import suppress
from pathlib import Path

from elasticdl.client.cluster.api import ClusterClient
from elasticdl.client.cluster.helm import HelmProgram
from elasticdl.training_jobs.controller import Controller
from elasticdl.training_jobs.rendering import Renderer

from tests.unit.scripted_server import Server, listing, until
from tests.unit.training_jobs.objects import manifest

OWN = "/apis/elasticdl.org/v1alpha1/namespaces/ml/trainingjobs"
CORE = "/api/v1/namespaces/ml/configmaps"
BATCH = "/apis/batch/v1/namespaces/ml/jobs"


def test_a_trainingjob_that_cannot_be_read_holds_up_no_other(caplog):
    unreadable = {**manifest("a"), "status": {"made": {"run": "x"}}}
    invalid = manifest("b", job__worker__replicas=-1)
    server = Server()
    server.scripts = {
        OWN: [listing(unreadable, invalid)],
        CORE: [listing()],
        BATCH: [listing()],
    }

    async def main() -> None:
        api = server.connection()
        chart = Renderer(HelmProgram("helm"), Path(), ClusterClient(api, "", "ml"))
        run = asyncio.create_task(Controller(api, "ml", chart).run())
        told = until(lambda: server.asked[f"PATCH {OWN}/b/status"] > 0)
        try:
            await asyncio.wait(
                {run, asyncio.create_task(told)},
                timeout=20,
                return_when=asyncio.FIRST_COMPLETED,
            )
            assert not run.done()
        finally:
            run.cancel()
            with suppress(asyncio.CancelledError):
                await run
            await api.close()

    try:
        asyncio.run(main())
    finally:
        server.close()
    assert server.asked[f"PATCH {OWN}/b/status"] > 0
    [line] = [one for one in caplog.records if "TrainingJob a:" in one.getMessage()][:1]
    assert line.exc_info is not None
    assert "trying again" in line.getMessage()
