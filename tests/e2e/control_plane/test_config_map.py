"""The job's ConfigMap on a real API server: edits, stop, deletion."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from elasticdl.errors import PlatformError
from elasticdl.job.names import Role
from elasticdl.kube.api import ApiServer
from elasticdl.kube.list_and_watch import Listing, WatchEvent, reflect
from elasticdl.runner.kubernetes.cluster import Cluster

from tests.e2e.control_plane.conftest import TEMPLATE, VALUES


class Asked:
    """What the ConfigMap asked of the master."""

    def __init__(self) -> None:
        self.edits: list[str] = []
        self.stops: list[str] = []
        self.deleted = asyncio.Event()


@asynccontextmanager
async def following(cluster, spec_file):
    asked = Asked()

    async def edit(text: str) -> None:
        asked.edits.append(text)

    task = asyncio.create_task(
        cluster.follow(
            spec_file,
            known=VALUES,
            on_edit=edit,
            on_stop=asked.stops.append,
            on_deleted=asked.deleted.set,
        )
    )
    try:
        yield asked
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_an_edit_reaches_the_jobs_folder_and_later_pods(rig, run, tmp_path) -> None:
    spec_file = tmp_path / "job.yaml"

    async def story() -> None:
        async with (
            rig.cluster() as cluster,
            following(cluster, spec_file) as asked,
        ):
            await rig.until(spec_file.exists)
            assert spec_file.read_text() == VALUES
            written = spec_file.stat().st_mtime_ns
            edited = VALUES + "  worker: {replicas: 4}\n"
            template = TEMPLATE.replace("elasticdl/worker:1", "elasticdl/worker:2")
            rig.edit_config_map({"data": {"worker.yaml": template}})
            await rig.until(
                lambda: cluster.config.current.templates[Role.WORKER] == template
            )
            assert spec_file.stat().st_mtime_ns == written, "nothing new was written"
            launch = rig.launch()
            await cluster.runner.start(launch)
            await rig.until_pending(launch, "Unschedulable: ")
            image = rig.pod("worker-0")["spec"]["containers"][0]["image"]
            assert image == "elasticdl/worker:2"
            # An edit made while the server is away arrives when it is back.
            rig.link.cut()
            rig.edit_config_map({"data": {"job.yaml": edited}})
            rig.link.join()
            await rig.until(lambda: asked.edits == [edited])
            assert spec_file.read_text() == edited
            assert asked.stops == []
            assert list(tmp_path.iterdir()) == [spec_file]

    run(story())


def test_the_stop_annotation_ends_the_job_with_its_reason(rig, run, tmp_path) -> None:
    async def story() -> None:
        async with (
            rig.cluster(watch=False) as cluster,
            following(cluster, tmp_path / "job.yaml") as asked,
        ):
            annotations = {"elasticdl.org/stop": "elasticdl stop by ann"}
            rig.edit_config_map({"metadata": {"annotations": annotations}})
            await rig.until(lambda: asked.stops)
            assert asked.stops[0] == "elasticdl stop by ann"

    run(story())


def test_a_new_run_forgets_that_the_one_before_was_stopped(rig, run, tmp_path) -> None:
    async def story() -> None:
        annotations = {"elasticdl.org/stop": "elasticdl stop", "example.org/a": "b"}
        rig.edit_config_map({"metadata": {"annotations": annotations}})
        async with rig.cluster(watch=False, run=2) as cluster:
            assert cluster.config.current.stop
            await cluster.config.forget_stop()
            async with following(cluster, tmp_path / "job.yaml") as asked:
                await rig.until((tmp_path / "job.yaml").exists)
                assert asked.stops == []
        left = rig.get("configmaps/elasticdl-digits")["metadata"]["annotations"]
        assert left == {"example.org/a": "b"}

    run(story())


@pytest.mark.parametrize("again", [False, True])
def test_deleting_it_ends_the_master_also_if_another_takes_its_name(
    rig, run, tmp_path, again
) -> None:
    async def story() -> None:
        async with (
            rig.cluster(watch=False) as cluster,
            following(cluster, tmp_path / "job.yaml") as asked,
        ):
            await rig.until((tmp_path / "job.yaml").exists)
            rig.link.cut()
            path = f"{rig.path}/configmaps/elasticdl-digits"
            rig.admin.call("DELETE", path)
            if again:
                rig.make_config_map()
            assert not asked.deleted.is_set()
            rig.link.join()
            await asyncio.wait_for(asked.deleted.wait(), 20)

    run(story())


def test_an_edit_without_a_key_changes_nothing(rig, run, tmp_path, caplog) -> None:
    spec_file = tmp_path / "job.yaml"

    async def story() -> None:
        async with (
            rig.cluster(watch=False) as cluster,
            following(cluster, spec_file),
        ):
            await rig.until(spec_file.exists)
            rig.edit_config_map({"data": {"ps.yaml": None, "job.yaml": "x"}})
            await rig.until(lambda: "has no key ps.yaml" in caplog.text)
            assert spec_file.read_text() == VALUES
            assert cluster.config.current.job == VALUES

    run(story())


def test_a_config_map_that_is_not_there_is_an_error(rig, run) -> None:
    async def story() -> None:
        api = ApiServer.from_kubeconfig(str(rig.link.kubeconfig))
        try:
            with pytest.raises(PlatformError, match='"elasticdl-x" not found'):
                await Cluster.connect(
                    api, namespace=rig.namespace, config_map="elasticdl-x", job="x"
                )
        finally:
            await api.close()

    run(story())


def test_all_pages_of_a_list_are_there_and_what_comes_after_them(rig, run) -> None:
    names = {f"many-{number}" for number in range(120)}
    labels = {"labels": {"of": "many"}}
    maps = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **labels}}
        for name in sorted(names)
    ]
    rig.apply(*maps)

    async def story() -> None:
        seen = reflect(
            rig.admin, f"{rig.path}/configmaps", {"labelSelector": "of=many"}
        )
        first = await anext(seen)
        assert isinstance(first, Listing)
        assert {one["metadata"]["name"] for one in first.items} == names
        rig.patch("configmaps/many-7", {"data": {"a": "b"}})
        event = await anext(seen)
        assert isinstance(event, WatchEvent)
        assert event.item["data"] == {"a": "b"}
        await seen.aclose()

    run(story())
