"""The cloud tutorial with its own numbers: cpu=2 pods, preempted by serving pods.

One job goes through it from beginning to end, as a reader of the tutorial does.
"""

import time

from elasticdl.job.words import JobState

from tests.e2e import figures
from tests.e2e.jobs import mnist, serving
from tests.e2e.jobs.job import JobInCluster
from tests.e2e.kube import wait_until

RESOURCES = "cpu=2,memory=2048Mi"
FLAGS = (
    "--model_zoo=model_zoo",
    "--model_def=mnist.functional_api.custom_model",
    "--dataset_fn=dataset_fn",
    "--training_data=/data/mnist/train",
    "--validation_data=/data/mnist/test",
    "--num_epochs=500",  # until the test has seen everything; it lowers it then
    f"--master_resource_request={RESOURCES}",
    f"--master_resource_limit={RESOURCES}",
    "--master_pod_priority=high",
    f"--worker_resource_request={RESOURCES}",
    f"--worker_resource_limit={RESOURCES}",
    "--worker_pod_priority=low",
    f"--ps_resource_request={RESOURCES}",
    f"--ps_resource_limit={RESOURCES}",
    "--ps_pod_priority=high",
    "--minibatch_size=64",
    "--num_minibatches_per_task=4",  # the tutorial's 64 is for the whole of MNIST
    "--num_ps_pods=2",
    "--num_workers=4",
    "--evaluation_steps=200",
    "--grads_to_wait=1",
    "--job_name=test-mnist",
    "--log_level=INFO",
    "--image_pull_policy=IfNotPresent",
    "--volume=mount_path=/data,claim_name=fileserver-claim",
    "--distribution_strategy=ParameterServerStrategy",
)


def test_the_cloud_tutorial(kube, helm, elasticdl, zoo_image, images, tmp_path):
    # "Copy the training data to the claim."
    mnist.copy_to_claim(kube, mnist.make(tmp_path), image=images.ps)

    # "Submit the training job."
    submitted = time.monotonic()
    elasticdl("train", f"--image_name={zoo_image}", *FLAGS)
    job = JobInCluster(kube, helm, helm.values("test-mnist"))
    assert job.wait_running("worker", 4) == {f"worker-{i}" for i in range(4)}
    assert job.wait_running("ps", 2) == {"ps-0", "ps-1"}
    assert len(job.in_phase("master")) == 1
    job.wait_steps(1)
    figures.record("submit_to_first_step_seconds", time.monotonic() - submitted)
    listing = elasticdl("list")
    assert "test-mnist" in listing
    assert "running" in listing

    # "Check the logs": grep Loss, grep Evaluation.
    job.wait_status("an evaluation", lambda s: s.last_evaluation, seconds=300)
    assert "Evaluation" in job.master_log()
    wait_until("a loss in a log", lambda: "Loss" in job.log("worker-1"), seconds=60)

    # "Delete a worker": another one takes its place under the next index.
    job.delete_pod("worker-0")
    deleted = time.monotonic()
    wait_until("worker-4 exists", lambda: "worker-4" in job.pods("worker"), seconds=30)
    figures.record("relaunch_pod_seconds", time.monotonic() - deleted)
    job.wait_status("worker-4 trains", lambda s: _trains(s, "worker-4"))
    figures.record("relaunch_to_first_step_seconds", time.monotonic() - deleted)
    assert job.in_phase("worker") == {f"worker-{i}" for i in range(1, 5)}

    # "Serving needs the CPUs": five pods above training push out three workers.
    serving.deploy(kube, image=images.ps, replicas=5)
    began = time.monotonic()
    wait_until("5 serving pods", lambda: serving.num_running(kube) == 5, seconds=60)
    figures.record("preempt_to_serving_seconds", time.monotonic() - began)
    (left,) = job.wait_running("worker", 1)
    pending = wait_until(
        "three replacements wait",
        lambda: _three(job.in_phase("worker", "Pending")),
        seconds=60,
    )
    status = job.wait_status(
        "the reason why they wait",
        lambda s: (
            all("cpu" in r.reason for r in s.replicas if r.name in pending)
            and len(pending & {r.name for r in s.replicas}) == 3
        ),
    )
    assert status.state is JobState.RUNNING
    preempted = [r for r in status.relaunches if r.reason == "preempted"]
    assert len(preempted) == 3, status.relaunches
    job.wait_steps(20)
    assert job.in_phase("worker") == {left}

    # "Serving needs less": the waiting workers start and train.
    serving.deploy(kube, image=images.ps, replicas=1)
    wait_until("free CPUs", lambda: serving.num_there(kube) == 1, seconds=60)
    freed, freed_at = time.monotonic(), time.time()
    job.wait_running("worker", 4)
    figures.record("regrow_to_running_seconds", time.monotonic() - freed)
    started = job.started("worker")
    figures.record("regrow_seconds", [started[name] - freed_at for name in pending])
    job.wait_status(
        "all four train", lambda s: all(_trains(s, name) for name in {left, *pending})
    )
    figures.record("regrow_to_first_step_seconds", time.monotonic() - freed)

    # The end: every record of every epoch was trained.
    job.end_after_this_epoch()
    report = job.wait_succeeded()
    assert report.records == report.epochs * mnist.NUM_TRAIN
    assert "every record" in elasticdl("audit", "test-mnist")


def _trains(status, name: str) -> bool:
    return any(r.name == name and r.step > 0 for r in status.replicas)


def _three(names: set[str]) -> set[str]:
    return names if len(names) == 3 else set()
