"""The loop that acts, against a small API server whose answers are scripted."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from elasticdl.client.cluster.api import ClusterClient, Where
from elasticdl.client.cluster.helm import Helm, HelmProgram, Values
from elasticdl.job.names import LABEL_JOB
from elasticdl.training_jobs.controller import Controller
from elasticdl.training_jobs.reconcile import reconcile
from elasticdl.training_jobs.rendering import Renderer
from elasticdl.training_jobs.resource import Seen

from tests.unit.scripted_server import ENDS, Server, listing, until
from tests.unit.training_jobs.objects import (
    MAP_UID,
    REGISTRY,
    config_map,
    manifest,
    master,
    training_job,
)

OWN = "/apis/elasticdl.org/v1alpha1/namespaces/ml/trainingjobs"
CORE = "/api/v1/namespaces/ml/configmaps"
BATCH = "/apis/batch/v1/namespaces/ml/jobs"


PLATFORM = {
    "metadata": {"name": "elasticdl.defaults"},
    "data": {"jobs.yaml": "defaults: {images: {registry: registry.example}}"},
}


def made(name: str) -> tuple[int, Any]:
    """The answer to a request for an object, or to a patch of one."""
    return 200, {"kind": "None", "metadata": {"name": name}}


def serving(*jobs: Any, maps: Any = (PLATFORM,)) -> Server:
    """A server with these TrainingJobs and ConfigMaps, and no batch Job."""
    server = Server()
    server.scripts = {
        OWN: [listing(*jobs)],
        CORE: [listing(*maps)],
        BATCH: [listing()],
        "/api/v1/namespaces/ml": [made("ml")],
    }
    return server


class OneJob(HelmProgram):
    """Helm as far as it renders the same few objects of every job."""

    def render(self, chart: Path, release: str, where: Where, values: Values) -> str:
        kinds = [("v1", "ConfigMap", ""), ("v1", "Secret", "-token"),
                 ("batch/v1", "Job", "-master")]  # fmt: skip
        if "monitoring" in values:
            kinds.append(("apps/v1", "Deployment", "-board"))
        pod = {"template": {"spec": {"containers": []}}}
        return "---\n".join(
            json.dumps(
                {
                    "apiVersion": version,
                    "kind": kind,
                    "metadata": {"name": f"elasticdl-{release}{end}"},
                    **({"spec": pod} if kind == "Job" else {}),
                }
            )
            + "\n"
            for version, kind, end in kinds
        )


def controlled(
    server: Server, holds: Callable[[], bool], helm: Helm | None = None
) -> None:
    """Let a controller run until something holds; fail if it ends, or takes long."""

    async def main() -> None:
        api = server.connection()
        client = ClusterClient(api, "", "ml")
        chart = Renderer(helm or HelmProgram("helm"), Path(), client)
        run = asyncio.create_task(Controller(api, "ml", chart).run())
        try:
            await asyncio.wait(
                {run, asyncio.create_task(until(holds))},
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
    assert holds()


def test_a_trainingjob_that_cannot_be_read_holds_up_no_other(caplog):
    unreadable = {**manifest("a"), "status": {"made": {"run": "x"}}}
    invalid = manifest("b", job__worker__replicas=-1)
    server = serving(unreadable, invalid, maps=())
    controlled(server, lambda: server.asked[f"PATCH {OWN}/b/status"] > 0)
    assert server.asked[f"PATCH {OWN}/b/status"] > 0
    [line] = [one for one in caplog.records if "TrainingJob a:" in one.getMessage()][:1]
    assert line.exc_info is not None
    assert "trying again" in line.getMessage()


def test_a_status_is_written_over_that_of_the_trainingjob_that_was_read_alone():
    # In between it may be another one of the same name.
    one = manifest("b", job__worker__replicas=-1)
    one["metadata"]["resourceVersion"] = "41"
    server = serving(one, maps=())
    path = f"PATCH {OWN}/b/status"
    controlled(server, lambda: server.asked[path] > 0)
    assert server.sent[path][0]["metadata"] == {"resourceVersion": "41"}


def test_a_configmap_is_edited_only_if_it_is_the_one_that_was_seen():
    first = training_job()
    before = reconcile(first, Seen(platform=REGISTRY)).made.document()
    scaled = {**manifest(job__worker__replicas=5), "status": {"made": before}}
    server = serving(scaled, maps=[config_map(first)])
    server.scripts[BATCH] = [listing(master(first))]
    path = f"PATCH {CORE}/elasticdl-digits"
    controlled(server, lambda: server.asked[path] > 0)
    assert server.sent[path][0]["metadata"] == {"uid": MAP_UID}


def test_a_server_that_makes_no_object_for_long_is_told_of():
    server = serving(manifest("a"))
    words = 'failed calling webhook "mjob.kb.io": connection refused'
    server.scripts |= {
        f"PATCH {CORE}/elasticdl-a": [(500, {"kind": "Status", "message": words})],
        f"PATCH {OWN}/a/status": [made("a")],
    }
    path = f"PATCH {OWN}/a/status"
    controlled(server, lambda: server.asked[path] > 0, OneJob("helm"))
    status = server.sent[path][0]["status"]
    [applied] = [one for one in status["conditions"] if one["type"] == "Applied"]
    assert (applied["status"], applied["reason"]) == ("False", "NotApplied")
    assert words in applied["message"]
    assert server.asked[f"PATCH {CORE}/elasticdl-a"] == 5


def test_a_trainingjob_that_is_gone_is_not_made_again_though_no_watch_told_of_it():
    server = serving(manifest("a"), manifest("b", job__worker__replicas=-1))
    # What was made of it is collected.
    deleted = [
        {
            "type": "DELETED",
            "object": {
                "metadata": {
                    "name": f"elasticdl-{job}",
                    "resourceVersion": "9",
                    "labels": {"elasticdl-job-name": job},
                }
            },
        }
        for job in "ab"
    ]
    server.scripts |= {
        f"{CORE}?watch": [(200, [*deleted, ENDS])] * 20,
        f"PATCH {CORE}/elasticdl-a": [made("elasticdl-a")],
        "POST /api/v1/namespaces/ml/secrets": [(201, {})],
        f"PATCH {BATCH}/elasticdl-a-master": [made("elasticdl-a-master")],
        f"PATCH {OWN}/a/status": [(404, {})],
        f"PATCH {OWN}/b/status": [made("b")],
    }
    path = f"PATCH {OWN}/b/status"
    controlled(server, lambda: server.asked[path] > 3, OneJob("helm"))
    assert server.asked[f"PATCH {CORE}/elasticdl-a"] == 1


def test_a_configmap_that_has_the_name_of_a_jobs_and_no_label_is_left_alone():
    server = serving(manifest("a"))
    theirs = {"kind": "ConfigMap", "metadata": {"name": "elasticdl-a", "uid": "7"}}
    server.scripts |= {
        f"{CORE}/elasticdl-a": [(200, theirs)],
        f"PATCH {CORE}/elasticdl-a": [(200, theirs)],
        f"PATCH {OWN}/a/status": [made("a")],
    }
    path = f"PATCH {OWN}/a/status"
    controlled(server, lambda: server.asked[path] > 0, OneJob("helm"))
    status = server.sent[path][0]["status"]
    assert status["conditions"][0]["reason"] == "NameTaken"
    assert server.asked[f"PATCH {CORE}/elasticdl-a"] == 0


def test_a_mistake_is_read_again_only_when_something_is_another(monkeypatch):
    # A large one takes seconds, in which no other one is looked at.
    monkeypatch.setattr("elasticdl.training_jobs.controller._LOOK_AGAIN_SECONDS", 0.05)
    theirs = {"metadata": {"name": "elasticdl-a", "labels": {LABEL_JOB: "a"}}}
    wrong = manifest("b", job__worker__replicas=-1)
    server = serving(manifest("a"), wrong, maps=[theirs])
    for name in "ab":
        server.scripts[f"PATCH {OWN}/{name}/status"] = [made(name)]
    controlled(server, lambda: server.asked[f"PATCH {OWN}/a/status"] > 3)
    assert server.asked[f"PATCH {OWN}/b/status"] == 1


def test_what_was_made_before_a_call_failed_is_not_taken_for_an_earlier_jobs():
    server = serving(manifest("a"))
    there = {"kind": "Status", "reason": "AlreadyExists", "message": "is there"}
    away = {"kind": "Status", "message": "etcdserver: request timed out"}
    job = f"PATCH {BATCH}/elasticdl-a-master"
    server.scripts |= {
        f"PATCH {CORE}/elasticdl-a": [made("elasticdl-a")],
        "POST /api/v1/namespaces/ml/secrets": [(201, {}), (409, there)],
        job: [(500, away), made("elasticdl-a-master")],
        f"PATCH {OWN}/a/status": [made("a")],
    }
    path = f"PATCH {OWN}/a/status"
    controlled(server, lambda: server.asked[path] > 0, OneJob("helm"))
    assert server.asked[job] == 2


def test_what_was_made_before_a_call_failed_goes_when_it_is_not_wanted_any_more(
    monkeypatch,
):
    monkeypatch.setattr("elasticdl.training_jobs.controller._LOOK_AGAIN_SECONDS", 0.05)
    # A quota refuses the master; then the specification asks for less.
    board = "/apis/apps/v1/namespaces/ml/deployments/elasticdl-a-board"
    first = manifest("a", monitoring__tensorboard__enabled=True)
    first["metadata"]["resourceVersion"] = "4"
    edited = manifest("a")
    edited["metadata"] |= {"resourceVersion": "9", "generation": 2}
    server = serving(first)
    quota = {"kind": "Status", "message": "exceeded quota", "reason": "Forbidden"}
    job, told = f"PATCH {BATCH}/elasticdl-a-master", f"PATCH {OWN}/a/status"
    server.scripts |= {
        f"PATCH {CORE}/elasticdl-a": [made("elasticdl-a")],
        f"PATCH {board}": [made("elasticdl-a-board")],
        f"DELETE {board}": [made("elasticdl-a-board")],
        "POST /api/v1/namespaces/ml/secrets": [(201, {})],
        job: [(403, quota), made("elasticdl-a-master")],
        told: [(200, edited)],
    }
    controlled(server, lambda: server.asked[told] > 1, OneJob("helm"))
    assert server.asked[f"DELETE {board}"] == 1
