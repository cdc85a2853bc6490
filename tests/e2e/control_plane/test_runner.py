"""Pods of a job on a real API server: made, replaced, deleted, seen."""

import asyncio
import json

import pytest
from elasticdl.errors import PlatformError
from elasticdl.job.names import ANNOTATION_STATE, ANNOTATION_STOP, Role
from elasticdl.job.words import ExitReason
from elasticdl.kube.api import MERGE_PATCH, ApiServer
from elasticdl.kube.errors import ApiError
from elasticdl.kube.list_and_watch import _follow
from elasticdl.runner.base import Phase, ReplicaKey
from elasticdl.runner.publisher import Notice

from tests.chart.rendering import job, objects, of_kind
from tests.e2e.control_plane.conftest import TEMPLATE

RUNNING = {"running": {"startedAt": "2026-11-21T10:00:00Z"}}


def uid(pod):
    return pod and pod["metadata"]["uid"]


def test_a_replica_is_started_seen_and_ends(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            launch = rig.launch()
            await cluster.runner.start(launch)
            await rig.until(
                lambda: (
                    launch.key in rig.states
                    and rig.states[launch.key].pending_reason.startswith(
                        "Unschedulable"
                    )
                )
            )
            assert rig.states[launch.key].phase is Phase.PENDING
            pod = rig.pod("worker-0")
            assert pod["metadata"]["labels"]["elasticdl-generation"] == "1"
            config_map = rig.get("configmaps/elasticdl-digits")
            assert pod["metadata"]["ownerReferences"][0]["uid"] == uid(config_map)
            rig.say("worker-0", "Running", RUNNING)
            await rig.until_phase(launch, Phase.RUNNING)
            crash = {
                "exitCode": 1,
                "reason": "Error",
                "message": "ValueError: bad shape",
                "startedAt": "2026-11-21T10:00:00Z",
                "finishedAt": "2026-11-21T10:00:01Z",
            }
            rig.say("worker-0", "Failed", {"terminated": crash})
            state = await rig.until_phase(launch, Phase.FAILED)
            assert (state.reason, state.exit_code) == (ExitReason.ERROR, 1)
            assert state.message == "ValueError: bad shape"

    run(story())


def test_starting_a_generation_twice_makes_one_pod(rig, run) -> None:
    async def story() -> None:
        launch = rig.launch()
        async with rig.cluster() as cluster:
            await cluster.runner.start(launch)
            await cluster.runner.start(launch)
            await rig.until_pending(launch, "Unschedulable: ")
            before = uid(rig.pod("worker-0"))
            await cluster.runner.start(launch)
            await rig.until(cluster.runner._wishes[launch.key].task.done)
        # Another master, which does not know what the first one did.
        async with rig.cluster() as cluster:
            await cluster.runner.start(launch)
            await rig.until(cluster.runner._wishes[launch.key].task.done)
        assert uid(rig.pod("worker-0")) == before
        assert len(rig.pods()) == 1

    run(story())


def test_a_ps_of_a_newer_generation_takes_the_name_of_the_older(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            old, new = rig.launch(Role.PS), rig.launch(Role.PS)
            await cluster.runner.start(old)
            await rig.until_pending(old, "Unschedulable: ")
            # On a node that is lost: a deletion with grace would never end.
            rig.place("ps-0")
            rig.delete_pod("ps-0", grace_seconds=300)
            await cluster.runner.start(new)
            await rig.until(lambda: rig.states[new.key].generation == new.generation)
            pod = rig.pod("ps-0")
            assert pod["metadata"]["labels"]["elasticdl-generation"] == "2"
            gone = [s for s in rig.seen if s.generation == old.generation]
            assert gone[-1].reason is ExitReason.DELETED

    run(story())


def test_a_stop_before_a_newer_start_does_not_take_the_newer_one(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            old, new = rig.launch(Role.PS), rig.launch(Role.PS)
            await cluster.runner.start(old)
            await rig.until_pending(old, "Unschedulable: ")
            await cluster.runner.stop(old.key, grace_seconds=0.0, reason="silent")
            await cluster.runner.start(new)
            await rig.until(lambda: rig.states[new.key].generation == new.generation)
            assert rig.states[new.key].phase is Phase.PENDING

    run(story())


def test_an_older_master_does_not_replace_a_newer_generation(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            old, new = rig.launch(Role.PS), rig.launch(Role.PS)
            await cluster.runner.start(new)
            await rig.until_pending(new, "Unschedulable: ")
            before = uid(rig.pod("ps-0"))
        async with rig.cluster(watch=False) as cluster:
            await cluster.runner.start(old)
            wish = cluster.runner._wishes[old.key]
            await rig.until(lambda: "another master has taken over" in wish.trouble)
        assert uid(rig.pod("ps-0")) == before

    run(story())


def test_a_pod_of_somebody_else_is_not_touched(rig, run) -> None:
    async def story() -> None:
        stranger = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "elasticdl-digits-worker-0"},
            "spec": {"containers": [{"name": "x", "image": "x"}]},
        }
        rig.apply(stranger)
        async with rig.cluster() as cluster:
            launch = rig.launch()
            await cluster.runner.start(launch)
            await rig.until_pending(launch, "is not of this job")
        assert "elasticdl-generation" not in rig.pod("worker-0")["metadata"].get(
            "labels", {}
        )

    run(story())


def test_pods_of_an_earlier_job_of_the_name_make_room(rig, run) -> None:
    async def story() -> None:
        launch = rig.launch(Role.PS)
        async with rig.cluster() as cluster:
            await cluster.runner.start(launch)
            await rig.until_pending(launch, "Unschedulable: ")
        before = uid(rig.pod("ps-0"))
        # Uninstalled without its pods, and installed again: the journal begins anew.
        rig.control_plane.kubectl(
            *("-n", rig.namespace, "delete", "configmap", "elasticdl-digits"),
            "--cascade=orphan",
        )
        rig.make_config_map()
        rig.states.clear()
        async with rig.cluster() as cluster:
            await cluster.runner.start(launch)
            await rig.until(lambda: uid(rig.pod("ps-0")) not in (None, before))

    run(story())


def test_stopping_deletes_with_grace_or_at_once(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            launch = rig.launch()
            await cluster.runner.start(launch)
            await rig.until_pending(launch, "Unschedulable: ")
            rig.place("worker-0")
            rig.say("worker-0", "Running", RUNNING)
            await cluster.runner.stop(launch.key, grace_seconds=20.0, reason="scaled")
            await rig.until(
                lambda: "deletionTimestamp" in rig.pod("worker-0")["metadata"]
            )
            metadata = rig.pod("worker-0")["metadata"]
            assert metadata["deletionGracePeriodSeconds"] == 20
            await cluster.runner.stop(launch.key, grace_seconds=0.0, reason="overdue")
            state = await rig.until_phase(launch, Phase.FAILED)
            assert state.reason is ExitReason.DELETED
            assert rig.pods() == {}

    run(story())


def test_stopping_what_is_not_there_is_no_error(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            key = ReplicaKey(Role.WORKER, 9)
            await cluster.runner.stop(key, grace_seconds=0.0, reason="unknown")
            await rig.until(lambda: key not in cluster.runner._wishes)

    run(story())


def test_deleting_by_hand_is_seen(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            launch = rig.launch()
            await cluster.runner.start(launch)
            await rig.until_pending(launch, "Unschedulable: ")
            rig.say("worker-0", "Running", RUNNING)
            await rig.until_phase(launch, Phase.RUNNING)
            rig.delete_pod("worker-0")
            state = await rig.until_phase(launch, Phase.FAILED)
            assert state.reason is ExitReason.DELETED

    run(story())


def test_an_image_name_that_can_never_be_pulled_ends_and_removes_the_pod(
    rig, run
) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            launch = rig.launch()
            await cluster.runner.start(launch)
            await rig.until_pending(launch, "Unschedulable: ")
            waiting = {"reason": "InvalidImageName", "message": "couldn't parse 'X Y'"}
            rig.say("worker-0", "Pending", {"waiting": waiting})
            state = await rig.until_phase(launch, Phase.FAILED)
            ends = [s for s in rig.seen if s.reason is ExitReason.CANNOT_START]
            assert ends[0].message == "InvalidImageName: couldn't parse 'X Y'"
            assert state.generation == launch.generation
            await rig.until(lambda: rig.pods() == {})

    run(story())


def test_of_many_ended_workers_the_newest_are_kept(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            launches = [rig.launch(index=index) for index in range(53)]
            for launch in launches:
                await cluster.runner.start(launch)
            for launch in launches:
                await rig.until_pending(launch, "Unschedulable: ")
                end = {"exitCode": 0, "reason": "Completed"}
                rig.say(f"worker-{launch.key.index}", "Succeeded", {"terminated": end})
            await rig.until(lambda: len(rig.pods()) == 50)
            assert rig.pod("worker-2") is None
            assert rig.pod("worker-3") is not None

    run(story())


def test_an_old_version_cannot_be_watched_and_the_server_says_so(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            # What happened before its start an API server does not know.
            rig.control_plane.end_api_server()
            await cluster._api.insist("GET", f"{rig.path}/pods")
            selector = {"labelSelector": "elasticdl-job-name=digits"}
            with pytest.raises(ApiError) as gone:
                async for _ in _follow(cluster._api, f"{rig.path}/pods", selector, "1"):
                    pass
            assert gone.value.status == 410

    run(story())


# -- refusals ---------------------------------------------------------------------


def test_what_the_server_would_refuse_is_known_before_anything_is_made(
    rig, run
) -> None:
    unknown = TEMPLATE.replace("spec:\n", "spec:\n  priorityClassName: no-such-class\n")

    async def story() -> None:
        rig.edit_config_map({"data": {"worker.yaml": unknown}})
        async with rig.cluster(watch=False) as cluster:
            with pytest.raises(PlatformError) as refused:
                await cluster.runner.check([rig.launch(Role.PS), rig.launch()])
            assert str(refused.value).startswith(
                "Kubernetes refuses pod elasticdl-digits-worker-0: "
            )
            assert "no PriorityClass with name no-such-class" in str(refused.value)
        rig.edit_config_map({"data": {"worker.yaml": TEMPLATE}})
        async with rig.cluster(watch=False) as cluster:
            await cluster.runner.check([rig.launch(Role.PS), rig.launch()])
            assert rig.pods() == {}

    run(story())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("image: elasticdl/worker:1", "image: ''", "spec.containers[0].image"),
        ('limits: {cpu: "1"', 'limits: {cpu: "0.5"', "must be less than or equal to"),
        (
            "spec:\n",
            "spec:\n  serviceAccountName: nobody\n",
            "error looking up service account digits/nobody",
        ),
        ('cpu: "1", memory: 64Mi}\n      l', 'cpu: "lots"}\n      l', "quantities"),
        (
            "spec:\n",
            "spec:\n  tolerations: [{keey: spot, operator: Exists}]\n",
            'unknown field "spec.tolerations[0].keey"',
        ),
    ],
)
def test_a_bad_template_is_refused_in_the_servers_words(
    rig, run, old, new, message
) -> None:
    async def story() -> None:

        assert old in TEMPLATE
        rig.edit_config_map({"data": {"worker.yaml": TEMPLATE.replace(old, new)}})
        async with rig.cluster(watch=False) as cluster:
            with pytest.raises(PlatformError) as refused:
                await cluster.runner.check([rig.launch()])
        wanted = message.replace("digits/", f"{rig.namespace}/")
        assert wanted in str(refused.value)

    run(story())


def quota(pods: str):
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": pods}},
    }


def test_a_quota_refuses_a_job_and_later_only_keeps_replicas_waiting(rig, run) -> None:
    async def story() -> None:
        rig.apply(quota("0"))
        await rig.until(lambda: rig.get("resourcequotas/few").get("status"))
        async with rig.cluster() as cluster:
            with pytest.raises(PlatformError, match="exceeded quota: few"):
                await cluster.runner.check([rig.launch()])
            launch = rig.launch()
            await cluster.runner.start(launch)
            state = await rig.until_pending(launch, "exceeded quota: few")
            assert "used: pods=0, limited: pods=0" in state.pending_reason
            rig.apply(quota("1"))
            await rig.until(lambda: rig.pod("worker-0"))
            await rig.until_pending(launch, "Unschedulable: ")

    run(story())


def test_restricted_pod_security_refuses_a_template_that_breaks_it(rig, run) -> None:
    async def story() -> None:
        label = "pod-security.kubernetes.io/enforce=restricted"
        rig.control_plane.kubectl("label", "namespace", rig.namespace, label)
        async with rig.cluster(watch=False) as cluster:
            with pytest.raises(PlatformError, match="violates PodSecurity"):
                await cluster.runner.check([rig.launch()])

    run(story())


# -- outages ----------------------------------------------------------------------


def test_an_outage_is_waited_out_and_nothing_is_lost(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            going, staying = rig.launch(index=0), rig.launch(index=1)
            for launch in (going, staying):
                await cluster.runner.start(launch)
                await rig.until_pending(launch, "Unschedulable: ")
            rig.link.cut()
            # Asked for while nobody hears: answered at once, done later.
            coming, unwanted = rig.launch(index=2), rig.launch(index=3)
            await cluster.runner.start(coming)
            await cluster.runner.start(unwanted)
            await cluster.runner.stop(
                ReplicaKey(Role.WORKER, 1), grace_seconds=0.0, reason="scaled down"
            )
            await rig.until_pending(coming, "gives no answer")
            await cluster.runner.stop(unwanted.key, grace_seconds=0.0, reason="scaled")
            rig.delete_pod("worker-0")
            rig.link.join()
            await rig.until(
                lambda: set(rig.pods()) == {"elasticdl-digits-worker-2"}, "one pod"
            )
            # Missed deletions are found by comparison, which the flag allows.
            await rig.until(lambda: going.key not in rig.states)
            resyncs = [o for o in rig.observations if o.resync]
            assert len(resyncs) >= 2
            listed = {state.key for state in resyncs[-1].states}
            assert going.key not in listed
            assert coming.key in listed
            await rig.until_pending(coming, "Unschedulable: ")

    run(story())


def test_the_api_server_itself_may_be_killed(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            before = rig.launch(index=0)
            await cluster.runner.start(before)
            await rig.until_pending(before, "Unschedulable: ")
            rig.control_plane.end_api_server()
            after = [rig.launch(index=index) for index in range(1, 20)]
            for launch in after:
                await cluster.runner.start(launch)
            for launch in after:
                await rig.until_pending(launch, "Unschedulable: ")
            assert len(rig.pods()) == 20
            assert before.key in rig.states

    run(story())


def test_at_the_end_what_was_to_go_goes_through_an_outage(rig, run) -> None:
    async def story() -> None:
        async with rig.cluster() as cluster:
            launch, late = rig.launch(index=0), rig.launch(index=1)
            await cluster.runner.start(launch)
            await rig.until_pending(launch, "Unschedulable: ")
            rig.link.cut()
            await cluster.runner.start(late)
            await cluster.runner.stop(launch.key, grace_seconds=0.0, reason="over")
            finishing = asyncio.create_task(cluster.finish())
            await asyncio.sleep(0.5)
            assert not finishing.done()
            rig.link.join()
            await finishing
        assert rig.pods() == {}

    run(story())


# -- rights -----------------------------------------------------------------------


def of_the_platform():
    """Return the rules that the platform's release gives all masters."""
    return of_kind(objects(), "Role")["rules"]


def of_its_own():
    """Return those of a job whose master has an account of its own."""
    return of_kind(objects(job(serviceAccounts={"perJob": True})), "Role")["rules"]


def use_service_account(rig, rules) -> None:
    """Let the link's user be a ServiceAccount with these rights."""
    rbac = "rbac.authorization.k8s.io"
    named = {"metadata": {"name": "master"}}
    account = {"kind": "ServiceAccount", "name": "master", "namespace": rig.namespace}
    rig.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", **named},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "rules": rules, **named},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "master"},
            "subjects": [account],
            **named,
        },
    )
    token = rig.control_plane.kubectl("-n", rig.namespace, "create", "token", "master")
    config = json.loads(rig.link.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    rig.link.kubeconfig.write_text(json.dumps(config))


@pytest.mark.parametrize("rules", [of_the_platform, of_its_own])
def test_the_rights_that_the_chart_gives_are_enough(rules, rig, run, tmp_path) -> None:
    async def story() -> None:
        use_service_account(rig, rules())
        annotated = {"metadata": {"annotations": {ANNOTATION_STOP: "meant before"}}}
        rig.edit_config_map(annotated)
        work = of_kind(objects(job(), namespace=rig.namespace), "Job")
        rig.apply(work)

        def of_the_job():
            path = f"/apis/batch/v1/namespaces/{rig.namespace}/jobs/"
            return rig.admin.call("GET", path + work["metadata"]["name"])["metadata"]

        async with rig.cluster() as cluster:
            await cluster.config.forget_stop()
            edits: list[str] = []

            async def edit(text: str) -> None:
                edits.append(text)

            following = asyncio.create_task(
                cluster.follow(
                    tmp_path / "job.yaml",
                    known="",
                    on_edit=edit,
                    on_stop=print,
                    on_deleted=lambda: None,
                )
            )
            launches = [rig.launch(Role.PS), rig.launch(Role.PS), rig.launch()]
            await cluster.runner.check(launches)
            for launch in launches:
                await cluster.runner.start(launch)
            await rig.until_pending(launches[1], "Unschedulable: ")
            await rig.until_pending(launches[2], "Unschedulable: ")
            await cluster.runner.stop(launches[2].key, grace_seconds=0, reason="over")
            await rig.until_phase(launches[2], Phase.FAILED)
            cluster.publisher.status("{}")
            cluster.publisher.headline("running", "")
            cluster.publisher.notice(Notice("JobRunning", "it runs"))
            await cluster.publisher.close(status="{}", report="{}")
            await rig.until(lambda: len(edits) == 1)
            assert (tmp_path / "job.yaml").read_text() == edits[0]
            await rig.until(lambda: ANNOTATION_STATE in of_the_job()["annotations"])
            kept = rig.get("configmaps/elasticdl-digits")["metadata"]
            assert ANNOTATION_STOP not in kept.get("annotations", {})
            assert rig.get("configmaps/elasticdl-digits-status")["data"]
            assert [one["reason"] for one in rig.get("events")["items"]].count(
                "JobRunning"
            ) == 1
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    run(story())


def test_a_master_with_an_account_of_its_own_cannot_touch_another_jobs_objects(
    rig, run
) -> None:
    rig.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}})

    async def story() -> None:
        use_service_account(rig, of_its_own())
        api = ApiServer.from_kubeconfig(str(rig.link.kubeconfig))
        jobs = f"/apis/batch/v1/namespaces/{rig.namespace}/jobs/other"
        maps = f"{rig.path}/configmaps"
        for method, path in (
            ("GET", f"{maps}/other"),
            ("GET", maps),
            ("PATCH", f"{maps}/other"),
            ("DELETE", f"{maps}/elasticdl-digits"),
            ("PATCH", jobs),
            ("GET", f"{rig.path}/secrets"),
        ):
            body = {"metadata": {"annotations": {"a": "b"}}}
            change = {"body": body, "content_type": MERGE_PATCH}
            with pytest.raises(ApiError, match="cannot"):
                await api.request(method, path, **(change if method == "PATCH" else {}))
        await api.close()

    run(story())


def test_a_namespace_without_rights_says_so(rig, run) -> None:
    async def story() -> None:
        use_service_account(rig, of_the_platform()[1:])
        async with rig.cluster(watch=False) as cluster:
            with pytest.raises(PlatformError, match='cannot create resource "pods"'):
                await cluster.runner.check([rig.launch()])
            with pytest.raises(PlatformError, match='cannot list resource "pods"'):
                async for _ in cluster.runner.watch():
                    pass

    run(story())
