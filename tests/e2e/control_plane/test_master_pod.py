"""Whole jobs whose master runs as in its pod, on a real API server.

Master, PS and workers are the real programs, with the environment of pods: their own
addresses and fixed ports, the job's token, no launcher. A kubelet of a few lines runs
the pods as processes.
"""

import asyncio
import json
import signal
import time
import urllib.request
from pathlib import Path

import grpc
import pytest
from elasticdl.data.making.datasets import make_dataset
from elasticdl.errors import ExitCode
from elasticdl.job.in_force import in_force
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import dump_values
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.proto import master_pb2, master_pb2_grpc

from tests.e2e.control_plane.conftest import Rig
from tests.e2e.control_plane.kubelet import HIGH, LOW, Kubelet
from tests.integration.conftest import MLP

BOUND_SECONDS = 120.0


def digits_job(*, epochs: int, log_file: Path | None = None) -> str:
    """The values file of a small job, as the ConfigMap has it."""
    job = {
        "name": "digits",
        "model": {"definition": "net.custom_model", "files": {"net.py": MLP}},
        "data": {"training": "data/digits/train", "validation": "data/digits/test"},
        "training": {"epochs": epochs, "batchSize": 16, "batchesPerTask": 10},
        "evaluation": {"atEpochEnd": False},
        "checkpoint": {"everySeconds": 2.0},
        "ps": {"replicas": 2},
        "worker": {"replicas": 2, "threads": 1, "graceSeconds": 5.0},
        "log": {"file": str(log_file or "")},
    }
    return dump_values(ValuesFile.model_validate({"kind": "job", "job": job}))


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("volume")
    make_dataset("digits", root / "data")
    return root


@pytest.fixture(scope="module")
def priority_class(control_plane) -> None:
    for name, value in ((HIGH, "1000000"), (LOW, "1000")):
        control_plane.kubectl("create", "priorityclass", name, f"--value={value}")


@pytest.fixture
def kubelet(priority_class, control_plane, tmp_path, digits):
    namespace = f"pod-{time.monotonic_ns()}"
    control_plane.kubectl("create", "namespace", namespace)
    rig = Rig(control_plane, namespace, "digits")
    one = Kubelet(rig, tmp_path, digits)
    yield one
    one.close()
    rig.close()
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


def until(kubelet, condition, what):
    end = time.monotonic() + BOUND_SECONDS
    while not condition():
        if time.monotonic() > end or kubelet.problem:
            log = kubelet.log("master")
            pytest.fail(f"{what} did not come about: {kubelet.problem}\n{log}")
        time.sleep(0.1)


def shown(kubelet) -> dict[str, str]:
    """What is in the ConfigMap with the job's status."""
    names = [c["metadata"]["name"] for c in kubelet.rig.get("configmaps")["items"]]
    if "elasticdl-digits-status" not in names:
        return {}
    return kubelet.rig.get("configmaps/elasticdl-digits-status")["data"]


def status(kubelet) -> JobStatus | None:
    text = shown(kubelet).get("status.json")
    return JobStatus.model_validate_json(text) if text else None


def steps(kubelet) -> int:
    seen = status(kubelet)
    return seen.progress.version if seen else 0


def pods(kubelet) -> dict[str, dict]:
    found = kubelet.rig.pods().items()
    return {name.removeprefix("elasticdl-digits-"): pod for name, pod in found}


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def address_of(kubelet, name: str) -> str:
    pid = kubelet.process(name).pid
    environ = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(e.split("=", 1) for e in environ if e)["ELASTICDL_POD_IP"]


RENEWED = "New certificate until"


@pytest.mark.soak
def test_a_job_outlives_its_master_and_a_worker_and_leaves_no_pod(
    kubelet,
) -> None:
    kubelet.install(digits_job(epochs=60))
    first = kubelet.start_master()
    until(kubelet, lambda: steps(kubelet) > 30, "training")
    assert set(kubelet.seen) == {"ps-0", "ps-1", "worker-0", "worker-1"}

    classes = {n: p["spec"].get("priorityClassName") for n, p in pods(kubelet).items()}
    assert classes == {"ps-0": HIGH, "ps-1": HIGH, "worker-0": LOW, "worker-1": LOW}

    # Each under its own address and the ports that the chart names.
    for name in ("ps-0", "worker-1"):
        base = f"http://{address_of(kubelet, name)}:8080"
        assert fetch(f"{base}/readyz") == fetch(f"{base}/healthz") == "ok\n"
    master = kubelet._master_address
    assert fetch(f"http://{master}:8080/healthz") == "ok\n"
    with grpc.insecure_channel(f"{master}:50001") as stranger:
        stub = master_pb2_grpc.MasterStub(stranger)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Stop(master_pb2.StopRequest(reason="mine"), timeout=10)
        # It shows no certificate: nobody answers.
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    # A drained node: the master leaves, all others go on.
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == ExitCode.HANDED_OVER
    before = steps(kubelet)
    assert len(pods(kubelet)) == 4
    second = kubelet.start_master()
    until(kubelet, lambda: steps(kubelet) > before + 20, "training goes on")
    assert status(kubelet).master_generation == 2
    # Certificates are good for 14 s here: each is renewed while the job goes on.
    for name in ("master", "ps-0", "ps-1", "worker-0", "worker-1"):
        until(kubelet, lambda n=name: RENEWED in kubelet.log(n), "a new certificate")
    assert set(kubelet.seen) == {"ps-0", "ps-1", "worker-0", "worker-1"}

    kubelet.process("worker-0").kill()
    until(kubelet, lambda: "worker-2" in kubelet.seen, "a replacement")
    assert second.wait(BOUND_SECONDS) == ExitCode.OK, kubelet.log("master")

    # The last lines of its log, and the API, say how it ended; no pod is left.
    *_, final, report_line = [
        line for line in kubelet.log("master").splitlines() if " master-0 " in line
    ]
    assert "job digits succeeded" in final or "job digits succeeded" in report_line
    assert "report: {" in report_line
    assert status(kubelet).state == "succeeded"
    report = JobReport.model_validate_json(shown(kubelet)["report.json"])
    assert (report.status, report.master_restarts) == ("succeeded", 1)
    assert [r.reason for r in report.relaunches] == ["killed"]
    assert audit(kubelet.job_dir.journal_dir).ok
    until(kubelet, lambda: not pods(kubelet), "no pod")

    # A batch Job that starts it once more hears the same, and nothing begins anew.
    before = list(kubelet.seen)
    again = kubelet.start_master()
    assert again.wait(60) == ExitCode.OK
    assert kubelet.seen == before


def test_a_stop_annotation_ends_a_job_in_good_order(kubelet) -> None:
    kubelet.install(digits_job(epochs=0))
    master = kubelet.start_master()
    until(kubelet, lambda: steps(kubelet) > 10, "training")
    change = {"metadata": {"annotations": {"elasticdl.org/stop": "enough"}}}
    kubelet.rig.edit_config_map(change)
    assert master.wait(60) == ExitCode.OK
    seen = status(kubelet)
    assert (seen.state, seen.message) == ("stopped", "enough")
    report = json.loads(shown(kubelet)["report.json"])
    assert Path(report["checkpoint"]).is_dir()
    until(kubelet, lambda: not pods(kubelet), "no pod")


def test_workers_and_ps_write_the_log_file_and_the_master_none(
    kubelet, tmp_path
) -> None:
    """A master sees other jobs' folders, of which a values file may name a file."""
    # So many that the other worker does not make them all while one still starts.
    kubelet.install(digits_job(epochs=20, log_file=tmp_path / "all.log"))
    assert kubelet.start_master().wait(BOUND_SECONDS) == ExitCode.OK
    lines = (tmp_path / "all.log").read_text().splitlines()
    said = {line.split(" ")[3] for line in lines if line.startswith("20")}
    assert said == {"ps-0", "ps-1", "worker-0", "worker-1"}
    assert "master-0" in kubelet.log("master")


def test_a_job_that_cannot_begin_says_why_where_people_look(kubelet) -> None:
    kubelet.install(digits_job(epochs=3).replace("epochs: 3", "epoch: 3"))
    master = kubelet.start_master()
    assert master.wait(60) == ExitCode.SPEC
    seen = status(kubelet)
    assert seen.state == "failed"
    assert "did you mean" in seen.message
    assert "did you mean" in kubelet.log("master").splitlines()[-1]
    assert not pods(kubelet)
    events = kubelet.rig.get("events")["items"]
    assert any(
        e["type"] == "Warning" and "job.training.epoch" in e["message"] for e in events
    )


def test_what_a_worker_writes_into_its_jobs_journal_is_not_run_by_the_master(
    kubelet, tmp_path
) -> None:
    kubelet.install(digits_job(epochs=20))
    first = kubelet.start_master()
    until(kubelet, lambda: steps(kubelet) > 10, "training")
    # As a worker's code can: the journal is in its job's folder, and who begins the
    # next segment ends the master that has the one before.
    planted = tmp_path / "planted"
    job = in_force(kubelet.job_dir).document()
    job["onEnd"] = {"command": ["touch", str(planted)]}
    asyncio.run(note(kubelet.job_dir.journal_dir, job))
    first.wait(60)
    kubelet.start_master()
    until(kubelet, lambda: "report.json" in shown(kubelet), "the end")
    report = JobReport.model_validate_json(shown(kubelet)["report.json"])
    assert report.status == "succeeded"
    assert not planted.exists()


async def note(journal_dir: Path, job: dict) -> None:
    ledger = Ledger.open(journal_dir, now=time.time(), wait_seconds=5.0)
    ledger.record(facts.SpecificationFact(job=job))
    await ledger.commit()
    ledger.close()
