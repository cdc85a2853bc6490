"""What the runner of a cluster shows of pods listed and pods still to be made."""

import asyncio

from elasticdl.job.names import Role
from elasticdl.runner.base import Launch, Phase, ReplicaKey
from elasticdl.runner.kubernetes.api import ApiServer
from elasticdl.runner.kubernetes.config_map import JobConfig, JobConfigMap
from elasticdl.runner.kubernetes.reflecting import Listing
from elasticdl.runner.kubernetes.runner import KubernetesRunner
from kubernetes.client import Configuration

PS = ReplicaKey(Role.PS, 0)
NOBODY = "http://127.0.0.1:9"  # no API server answers there

TERMINATING = {
    "metadata": {
        "name": "elasticdl-digits-ps-0",
        "creationTimestamp": "2026-11-21T09:59:50Z",
        "deletionTimestamp": "2026-11-21T10:00:30Z",
        "ownerReferences": [{"uid": "u-1"}],
        "labels": {
            "elasticdl-job-name": "digits",
            "elasticdl-replica-type": "ps",
            "elasticdl-replica-index": "0",
            "elasticdl-generation": "1",
        },
    },
    "spec": {"containers": [{"name": "main"}]},
    "status": {"phase": "Running"},
}


def test_a_list_shows_the_new_pod_behind_the_old_one_of_its_name() -> None:
    async def story() -> None:
        api = ApiServer(Configuration(host=NOBODY))
        config = JobConfig("elasticdl-digits", "u-1", "", {}, "")
        runner = KubernetesRunner(
            api, namespace="ml", job="digits", config=JobConfigMap(api, "ml", config)
        )
        await runner.start(
            Launch(
                key=PS,
                generation=2,
                cpu=1.0,
                memory="1Gi",
                priority="",
                grace_seconds=1.0,
            )
        )
        whole = runner._whole(Listing([TERMINATING], began=0.0))
        await runner.close()
        assert whole.resync
        new = [s for s in whole.states if (s.key, s.generation) == (PS, 2)]
        assert [s.phase for s in new] == [Phase.PENDING]
        assert {s.generation for s in whole.states} == {1, 2}

    asyncio.run(story())
