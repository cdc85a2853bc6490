"""Status and events of a job on a real API server."""

import asyncio
import base64
import json
import os

from elasticdl.master.telling.shortening import MOST_PACKED_BYTES
from elasticdl.runner.publisher import Notice

STATUS = "configmaps/elasticdl-digits-status"


def shown(rig):
    names = [item["metadata"]["name"] for item in rig.get("configmaps")["items"]]
    if "elasticdl-digits-status" not in names:
        return {}
    return rig.get(STATUS)["data"]


def master_job(name):
    labels = {"elasticdl-job-name": "digits", "elasticdl-replica-type": "master"}
    container = {"name": "main", "image": "elasticdl/master:1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        # A mark of somebody else's, so that there are annotations.
        "metadata": {"name": name, "annotations": {"example.org/a": "b"}},
        "spec": {
            "template": {
                "metadata": {"labels": labels},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            }
        },
    }


def events(rig):
    return sorted(
        rig.get("events")["items"], key=lambda one: one["metadata"]["creationTimestamp"]
    )


def test_the_status_is_a_config_map_that_goes_with_the_job(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster(watch=False) as cluster:
            cluster.publisher.status('{"state": "running", "n": 1}')
            await rig.until(lambda: shown(rig))
            cluster.publisher.status('{"state": "running", "n": 2}')
            await rig.until(lambda: json.loads(shown(rig)["status.json"])["n"] == 2)
            owners = rig.get(STATUS)["metadata"]["ownerReferences"]
            of_job = rig.get("configmaps/elasticdl-digits")["metadata"]["uid"]
            assert [owner["uid"] for owner in owners] == [of_job]
            await cluster.publisher.close(status='{"state": "succeeded"}', report="{}")
            assert shown(rig) == {
                "status.json": '{"state": "succeeded"}',
                "report.json": "{}",
            }

    run(story())


def test_a_new_run_of_the_job_takes_the_report_of_the_one_before_away(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster(watch=False) as cluster:
            cluster.publisher.status("first")
            await cluster.publisher.close(status="failed", report="{}")
        async with rig.cluster(watch=False, run=2) as cluster:
            cluster.publisher.status("again")
            await rig.until(lambda: shown(rig) == {"status.json": "again"})

    run(story())


def test_state_and_message_are_on_the_masters_job_of_this_run(rig, run) -> None:
    def marks(name: str):
        path = f"/apis/batch/v1/namespaces/{rig.namespace}/jobs/{name}"
        return rig.admin.call("GET", path)["metadata"]["annotations"]

    async def story() -> None:
        rig.apply(master_job("elasticdl-digits-master"))
        rig.apply(master_job("elasticdl-digits-master-2"))
        async with rig.cluster(watch=False, run=2) as cluster:
            cluster.publisher.headline("running", "too few workers")
            rig.link.cut()
            cluster.publisher.headline("failed", "no such data")
            closing = asyncio.create_task(
                cluster.publisher.close(status="failed", report="{}")
            )
            rig.link.join()
            await closing
        shown_now = marks("elasticdl-digits-master-2")
        assert shown_now["elasticdl.org/state"] == "failed"
        assert shown_now["elasticdl.org/message"] == "no such data"
        assert "elasticdl.org/state" not in marks("elasticdl-digits-master")

    run(story())


def test_the_history_is_a_config_map_that_goes_with_the_job(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster(watch=False) as cluster:
            # As large as a master lets it become, and not compressible further.
            document = os.urandom(MOST_PACKED_BYTES)
            cluster.publisher.history(b"first")
            cluster.publisher.history(document)
            assert cluster.publisher.history_period_seconds > 10.0
            await cluster.publisher.close(status="{}", report="{}")
            made = rig.get("configmaps/elasticdl-digits-history")
            packed = base64.b64decode(made["binaryData"]["history.jsonl.gz"])
            assert packed == document
            of_job = rig.get("configmaps/elasticdl-digits")["metadata"]["uid"]
            owners = made["metadata"]["ownerReferences"]
            assert [owner["uid"] for owner in owners] == [of_job]

    run(story())


def test_through_an_outage_only_the_newest_status_is_written(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster(watch=False) as cluster:
            cluster.publisher.status("first")
            await rig.until(lambda: shown(rig) == {"status.json": "first"})
            rig.link.cut()
            for number in range(50):
                cluster.publisher.status(f"number {number}")
                cluster.publisher.notice(Notice("Edited", f"number {number}"))
                await asyncio.sleep(0.01)
            closing = asyncio.create_task(
                cluster.publisher.close(status="last", report="the end")
            )
            await asyncio.sleep(0.2)
            rig.link.join()
            await closing
            assert shown(rig) == {"status.json": "last", "report.json": "the end"}
            # More at once than are allowed: the first ones count.
            messages = [one["message"] for one in events(rig)]
            assert sorted(messages) == sorted(f"number {n}" for n in range(30))

    run(story())


def test_events_are_about_the_masters_job(rig, run) -> None:
    async def story() -> None:
        rig.apply(master_job("elasticdl-digits-master"))
        await rig.until(rig.pods)
        async with rig.cluster(watch=False) as cluster:
            cluster.publisher.notice(
                Notice("ReplicaPreempted", "worker-0 ended", warning=False)
            )
            cluster.publisher.notice(Notice("JobFailed", "x" * 2000, warning=True))

            def ours():
                return [
                    one
                    for one in events(rig)
                    if one["source"].get("component") == "elasticdl-master"
                ]

            await rig.until(lambda: len(ours()) == 2)
            for one in ours():
                assert one["involvedObject"]["kind"] == "Job"
                assert one["involvedObject"]["name"] == "elasticdl-digits-master"
            types = {one["reason"]: one["type"] for one in ours()}
            assert types == {"ReplicaPreempted": "Normal", "JobFailed": "Warning"}
            assert max(len(one["message"]) for one in ours()) == 1000
            described = rig.control_plane.kubectl(
                "-n", rig.namespace, "describe", "job", "elasticdl-digits-master"
            )
            assert "worker-0 ended" in described

    run(story())


def test_without_such_a_job_they_are_about_the_config_map(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster(watch=False) as cluster:
            cluster.publisher.notice(Notice("JobRunning", "job digits is running"))
            await rig.until(lambda: events(rig))
            about = events(rig)[0]["involvedObject"]
            assert (about["kind"], about["name"]) == ("ConfigMap", "elasticdl-digits")

    run(story())
