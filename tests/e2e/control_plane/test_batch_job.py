"""How the batch Job of a master goes on, by Kubernetes' own Job controller."""

import asyncio

NAME = "elasticdl-digits-master"


def master_job():
    container = {"name": "main", "image": "elasticdl/master:1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME},
        "spec": {
            # As the chart has it.
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": {
                "metadata": {"labels": {"elasticdl-replica-type": "master"}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def job_of(rig):
    path = f"/apis/batch/v1/namespaces/{rig.namespace}/jobs/{NAME}"
    return rig.admin.call("GET", path)


def masters(rig):
    return {name for name in rig.pods() if name.startswith(NAME)}


def fail(rig, name: str) -> None:
    """Write what a kubelet would of a container that ended with 3."""
    ended = {"terminated": {"exitCode": 3, "reason": "Error"}}
    rig.say(name.removeprefix("elasticdl-digits-"), "Failed", ended)


async def first_master(rig) -> str:
    rig.apply(master_job())
    await rig.until(lambda: masters(rig))
    (name,) = masters(rig)
    return name


def test_the_next_master_starts_while_the_pod_before_cannot_be_ended(rig, run) -> None:
    """As on a node that is cut off: no kubelet ever says that the pod is gone."""

    async def story() -> None:
        lost = await first_master(rig)
        rig.place(lost.removeprefix("elasticdl-digits-"))
        rig.delete_named(lost, grace_seconds=30)
        await rig.until(lambda: masters(rig) - {lost}, "another master")
        assert rig.pods()[lost]["metadata"]["deletionTimestamp"]

    run(story())


def test_a_master_that_says_so_has_no_successor_and_fails_the_batch_job(
    rig, run
) -> None:
    async def story() -> None:
        first = await first_master(rig)
        async with rig.cluster(watch=False) as cluster:
            await cluster.batch_job.allow_no_more()
        fail(rig, first)
        await rig.until(
            lambda: any(
                one["type"] == "Failed" and one["status"] == "True"
                for one in job_of(rig)["status"].get("conditions", [])
            ),
            "the Job's end",
        )
        assert masters(rig) == {first}

    run(story())


def test_a_master_that_works_makes_the_losses_before_it_not_count(rig, run) -> None:
    async def story() -> None:
        first = await first_master(rig)
        assert job_of(rig)["spec"]["backoffLimit"] == 6  # Kubernetes' own
        fail(rig, first)
        await rig.until(lambda: job_of(rig)["status"].get("failed") == 1)
        async with rig.cluster(watch=False) as cluster:
            rig.link.cut()
            allowing = asyncio.create_task(cluster.batch_job.allow_more())
            rig.link.join()
            await allowing
            assert job_of(rig)["spec"]["backoffLimit"] == 51
            await rig.until(lambda: masters(rig) - {first}, "another master")
            (second,) = masters(rig) - {first}
            await cluster.batch_job.allow_no_more()
            fail(rig, second)
            await rig.until(lambda: job_of(rig)["status"].get("failed") == 2)
            await rig.until(lambda: job_of(rig)["status"].get("conditions"))
        assert masters(rig) == {first, second}

    run(story())
