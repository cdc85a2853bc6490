"""What the controller sees, against a small API server whose answers are scripted."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from elasticdl.controller.watching import WatchedCluster, Watches
from elasticdl.job.grant import Grant, format_grant
from elasticdl.job.status import JobStatus
from elasticdl.job.words import JobState
from elasticdl.kube.inventory import Serving
from elasticdl.planner.view import JobKey

from tests.unit.controller.test_reading import VALUES, config_map, pod
from tests.unit.scripted_server import ENDS, Server, listing, until

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
JOBS = "/api/v1/namespaces/ml/configmaps"
DIGITS = JobKey("ml", "digits")
BOUND_SECONDS = 8.0
FORBIDDEN = (403, {"kind": "Status", "message": "forbidden", "reason": "Forbidden"})


@pytest.fixture
def server():
    one = Server()
    one.scripts |= {NODES: [listing()], PODS: [listing(master())]}
    yield one
    one.close()


def event(kind: str, item: Any) -> str:
    item["metadata"]["resourceVersion"] = "6"
    return json.dumps({"type": kind, "object": item}) + "\n"


def master(job: str = "digits") -> Any:
    labels = {"elasticdl-job-name": job, "elasticdl-replica-type": "master"}
    made = pod(labels=labels, nodeName="n1", priority=0)
    made["metadata"] |= {"uid": job}
    return made


Story = Callable[[WatchedCluster], Awaitable[None]]


def watching(server: Server, story: Story, *, stale_seconds: float = 15.0) -> None:
    """Run a story while the cluster is followed."""

    async def main() -> None:
        api = server.connection()
        watches = Watches(
            *(Serving(1_000_000), ("ml",), "ops/controller"),
            stale_seconds=stale_seconds,
            tail_seconds=0.02,
        )
        cluster = WatchedCluster(api, watches)
        watch = asyncio.create_task(cluster.watch())
        try:
            await asyncio.wait_for(story(cluster), BOUND_SECONDS)
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            await api.close()

    asyncio.run(main())


def test_a_namespace_that_may_no_longer_be_read_holds_up_no_plan(server):
    server.scripts |= {
        JOBS: [listing(config_map()), FORBIDDEN],
        f"{JOBS}?watch": [FORBIDDEN],
    }

    async def story(cluster: WatchedCluster) -> None:
        await until(lambda: server.asked[JOBS] == 2 and not cluster.jobs())
        await until(lambda: cluster.age == 0.0)

    watching(server, story)


def test_a_namespace_whose_watch_broke_keeps_its_jobs(server):
    server.scripts |= {
        JOBS: [listing(config_map()), listing(config_map())],
        f"{JOBS}?watch": [FORBIDDEN],
    }

    async def story(cluster: WatchedCluster) -> None:
        await until(lambda: DIGITS in cluster.jobs())
        await until(lambda: server.asked[JOBS] == 2 and cluster.age == 0.0)
        assert DIGITS in cluster.jobs()

    watching(server, story)


def last() -> Any:
    item = config_map()
    item["metadata"]["name"] = "elasticdl-last"
    item["metadata"]["labels"] = {"elasticdl-job-name": "last"}
    return item


def without_job() -> Any:
    item = config_map()
    del item["data"]["job.yaml"]
    return item


def without_label() -> Any:
    item = config_map()
    item["metadata"]["labels"] = {}
    return item


@pytest.mark.parametrize(
    "gone",
    [
        ("DELETED", config_map()),
        ("MODIFIED", without_job()),
        ("DELETED", without_job()),
        ("DELETED", without_label()),
    ],
)
def test_a_job_that_is_deleted_or_no_job_any_more_is_forgotten(server, gone):
    server.scripts |= {
        PODS: [listing(master("digits"), master("last"))],
        JOBS: [listing(config_map())],
        f"{JOBS}?watch": [(200, [event(*gone), event("ADDED", last())])],
    }

    async def story(cluster: WatchedCluster) -> None:
        await until(lambda: {key.name for key in cluster.jobs()} == {"last"})

    watching(server, story)


def test_a_namespace_that_has_no_job_any_more_is_watched_no_more(server):
    elsewhere = master("other")
    elsewhere["metadata"]["namespace"] = "branch-7"
    maps = "/api/v1/namespaces/branch-7/configmaps"
    server.scripts |= {
        PODS: [listing(master(), elsewhere)],
        f"{PODS}?watch": [(200, [event("DELETED", elsewhere)])],
        JOBS: [listing(config_map())],
        maps: [listing()],
    }

    def watched() -> set[str]:
        names = {task.get_name() for task in asyncio.all_tasks()}
        return {name for name in names if name.startswith("jobs of ")}

    async def story(cluster: WatchedCluster) -> None:
        await until(lambda: server.asked[maps] > 0)
        await until(lambda: watched() == {"jobs of ml"})
        await until(lambda: cluster.age == 0.0)

    watching(server, story)


def test_a_config_map_of_another_name_takes_no_job_with_it(server):
    other = without_job()
    other["metadata"]["name"] = "digits"
    server.scripts |= {
        PODS: [listing(master("digits"), master("last"))],
        JOBS: [listing(config_map())],
        f"{JOBS}?watch": [(200, [event("DELETED", other), event("ADDED", last())])],
    }

    async def story(cluster: WatchedCluster) -> None:
        await until(lambda: {one.name for one in cluster.jobs()} == {"digits", "last"})

    watching(server, story)


def test_a_watch_that_says_nothing_is_listed_anew_before_its_view_is_too_old(server):
    server.scripts[PODS] = [listing(master()), listing()]
    found = 0.0

    async def story(cluster: WatchedCluster) -> None:
        nonlocal found
        await until(lambda: cluster.age == 0.0)
        await until(lambda: cluster.age is not None and cluster.age > 0.0)
        found = cluster.age or 0.0
        await until(
            lambda: server.asked[PODS] >= 2 and not cluster.view(cluster.jobs()).pods
        )

    watching(server, story, stale_seconds=1.0)
    assert found > 0.8  # since the server was last heard


def test_a_watch_that_the_server_ends_in_time_is_followed_on(server):
    server.scripts |= {
        f"{PODS}?watch": [(200, [ENDS]), (200, [event("ADDED", master("last"))])]
    }

    async def story(cluster: WatchedCluster) -> None:
        await until(lambda: len(cluster.view(cluster.jobs()).pods) == 2)
        assert server.asked[PODS] == 1
        assert cluster.age == 0.0

    watching(server, story, stale_seconds=4.0)


def status_of_tail(left: int | None) -> Any:
    status = JobStatus(
        name="digits", type="train", strategy="parameterServer", state=JobState.RUNNING,
        started=1.0, time=2.0, master_generation=1, workers_wanted=2, tasks_left=left,
    )  # fmt: skip
    return 200, {
        "metadata": {"ownerReferences": [{"uid": "uid-1"}]},
        "data": {"status.json": status.model_dump_json()},
    }


def test_a_job_whose_master_makes_fewer_workers_has_as_many_tasks_as_it_says(
    server,
):
    grant = Grant(4, (), time.time() + 600, "ops/controller")
    granted = {"elasticdl.org/workers": format_grant(grant)}
    server.scripts |= {
        JOBS: [listing(config_map(annotations=granted))],
        f"{JOBS}/elasticdl-digits-status": [
            *[status_of_tail(None)] * 2,
            *[status_of_tail(2)] * 3,
            status_of_tail(None),
        ],
    }

    async def story(cluster: WatchedCluster) -> None:
        def left() -> list[int | None]:
            return [job.tasks_left for job in cluster.view(cluster.jobs()).jobs]

        await until(lambda: left() == [2])
        await until(lambda: left() == [None])

    watching(server, story)


def edited() -> Any:
    # As long as others', and more of it to be read.
    more = "  env: {" + ", ".join(f"V{number}: a" for number in range(400)) + "}\n"
    return config_map(VALUES.replace("max: 8", "max: 12") + more)


def test_a_job_that_is_edited_is_as_it_was_until_its_text_is_read(server):
    server.scripts |= {
        JOBS: [listing(config_map())],
        f"{JOBS}?watch": [(200, [event("MODIFIED", edited())])],
    }

    async def story(cluster: WatchedCluster) -> None:
        await until(lambda: DIGITS in cluster.jobs())
        while cluster.jobs()[DIGITS].job.max != 12:
            assert cluster.jobs()[DIGITS].job.max == 8
            await asyncio.sleep(0)

    watching(server, story)


def test_another_job_of_the_name_is_never_what_the_one_before_was(server):
    other = edited()
    other["metadata"]["uid"] = "uid-2"
    server.scripts |= {
        JOBS: [listing(config_map())],
        f"{JOBS}?watch": [(200, [event("ADDED", other)])],
    }

    async def story(cluster: WatchedCluster) -> None:
        seen = set()
        while ("uid-2", 12) not in seen:
            seen |= {(one.uid, one.job.max) for one in cluster.jobs().values()}
            await asyncio.sleep(0)
        assert seen <= {("uid-1", 8), ("uid-2", 12)}

    watching(server, story)


def test_a_job_that_is_made_again_while_its_watch_is_broken_is_no_less_a_job(server):
    again = config_map()
    again["metadata"]["uid"] = "uid-2"  # of the same name and the same text
    gone = (410, {"kind": "Status", "message": "too old", "reason": "Expired"})
    server.scripts |= {
        JOBS: [listing(config_map()), listing(again)],
        f"{JOBS}?watch": [gone],
    }

    async def story(cluster: WatchedCluster) -> None:
        await until(lambda: {one.uid for one in cluster.jobs().values()} == {"uid-2"})

    watching(server, story)


def test_a_job_for_whose_text_there_was_no_room_is_known_when_others_are_gone(server):
    def large(number: int) -> Any:
        item = config_map(VALUES + "#" * 500_000)
        labels = {"elasticdl-job-name": f"a{number}"}
        about = {"name": f"elasticdl-a{number}", "uid": f"a{number}", "labels": labels}
        item["metadata"] |= about
        return item

    many = [large(number) for number in range(34)]
    server.scripts |= {
        JOBS: [listing(*many, config_map(VALUES + "#" * 500_000))],
        f"{JOBS}?watch": [(200, [event("DELETED", one) for one in many[:3]])],
    }

    async def story(cluster: WatchedCluster) -> None:
        server.scripts[JOBS].append(listing(*many[3:], last(), config_map()))
        await until(lambda: DIGITS in cluster.jobs())
        assert server.asked[JOBS] == 2

    watching(server, story)
