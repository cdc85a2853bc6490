"""All that a master has to do with Kubernetes, wired together for one job.

Owns nothing but the wiring. Made by `master.main` in a pod, and by tests.

    cluster = await Cluster.connect(ApiServer.in_cluster(), namespace="ml",
                                    config_map="elasticdl-digits", job="digits")
    following = asyncio.create_task(
        cluster.follow(spec_file, on_stop=..., on_deleted=...))
    ... assemble(..., lambda: cluster.platform, ...) ...
    await cluster.finish()  # when the job has ended, after Master.run
    await cluster.close()  # always; alone when the job is handed over to another master
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from elasticdl.job import names
from elasticdl.kube.api import ApiServer
from elasticdl.runner.kubernetes.batch_job import BatchJob
from elasticdl.runner.kubernetes.config_map import JobConfigMap
from elasticdl.runner.kubernetes.pod_calls import Enrol
from elasticdl.runner.kubernetes.publishing import StatusPublisher
from elasticdl.runner.kubernetes.runner import KubernetesRunner
from elasticdl.runner.publisher import Platform


class Cluster:
    """One job in its namespace; belongs to one event loop."""

    def __init__(
        self,
        api: ApiServer,
        config: JobConfigMap,
        *,
        namespace: str,
        job: str,
        priority_classes: Mapping[str, str],
        run: int,
        enrol: Enrol,
    ) -> None:
        """Take the parts; use `connect`."""
        self._api = api
        self.config = config
        self.runner = KubernetesRunner(
            api,
            namespace=namespace,
            job=job,
            config=config,
            priority_classes=priority_classes,
            enrol=enrol,
        )
        master_job = names.master_job_name(job, run)
        self.publisher = StatusPublisher(
            api,
            namespace=namespace,
            job=job,
            config=config,
            master_job=master_job,
        )
        self.batch_job = BatchJob(api, namespace=namespace, master_job=master_job)

    @staticmethod
    async def connect(
        api: ApiServer,
        *,
        namespace: str,
        config_map: str,
        job: str,
        priority_classes: Mapping[str, str] | None = None,
        run: int = 1,
        enrol: Enrol = lambda _: {},
    ) -> Cluster:
        """Read the job's ConfigMap; waits while the API server is away.

        `priority_classes`: what a priority of a replica (`high`) is called there.
        `run`: which one of the job this is; by that its master's Job is named.
        `enrol`: what a pod is given for its certificate, where calls are encrypted.

        Raises PlatformError if it is not there, lacks a key or may not be read.
        """
        config = await JobConfigMap.load(api, namespace, config_map)
        return Cluster(
            api,
            config,
            namespace=namespace,
            job=job,
            priority_classes=priority_classes or {},
            run=run,
            enrol=enrol,
        )

    async def follow(
        self,
        spec_file: Path,
        *,
        known: str,
        on_edit: Callable[[str], Awaitable[None]],
        on_stop: Callable[[str], None],
        on_deleted: Callable[[], None],
        on_grant: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Keep the job's folder and the templates current, for ever.

        A changed `job.yaml` is written to `spec_file`, and its text given to `on_edit`,
        if it is another one than `known`, which the master began with. `on_stop` gets
        the reason of the annotation `elasticdl.org/stop`; `on_deleted` is called when
        the ConfigMap is gone, and all pods with it. `on_grant` gets the text of
        `elasticdl.org/workers`.
        """
        await self.config.follow(
            spec_file,
            known=known,
            on_edit=on_edit,
            on_stop=on_stop,
            on_deleted=on_deleted,
            on_grant=on_grant,
        )

    @property
    def platform(self) -> Platform:
        """Return the platform for `master.assembly`."""
        return Platform(self.runner, self.publisher)

    async def finish(self) -> None:
        """Finish the deletions of an ended job, even through an outage."""
        await self.runner.finish()

    async def close(self) -> None:
        """End all tasks and the connection; pods stay as they are."""
        await self.runner.close()
        await self.publisher.stop()
        await self._api.close()
