"""Prometheus's list of a job's targets: who serves metrics now, and nobody else."""

import asyncio
import errno
import json
import os
import threading

import pytest
from elasticdl.job.status import JobStatus, ReplicaStatus
from elasticdl.job.words import JobState
from elasticdl.runner.local import targets as module
from elasticdl.runner.local.targets import TargetsFile


def status(*replicas, port=9000):
    return JobStatus(
        name="digits",
        type="train",
        strategy="parameterServer",
        state=JobState.RUNNING,
        started=0.0,
        time=1.0,
        master_generation=1,
        master_metrics_port=port,
        workers_wanted=2,
        replicas=[
            ReplicaStatus(
                name=f"{role}-{index}",
                role=role,
                index=index,
                generation=1,
                state=state,
                metrics_port=port,
            )
            for role, index, state, port in replicas
        ],
    ).model_dump_json()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "targets.json"


@pytest.fixture
def targets(file):
    return TargetsFile(file, job="digits")


def shows(targets, *documents):
    """Let each status be shown, and return when it is written."""

    async def shown():
        for document in documents:
            targets.status(document)
            await targets._writing

    asyncio.run(shown())


def test_every_process_that_serves_is_a_target_with_the_labels_of_all_jobs(
    file, targets
):
    shows(
        targets,
        status(
            ("ps", 0, "running", 9001),
            ("worker", 0, "draining", 9002),
            ("worker", 1, "running", 0),  # has not said its port yet
            ("worker", 2, "pending", 0),
            ("worker", 3, "ended", 9004),
        ),
    )
    assert json.loads(file.read_text()) == [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {
                "namespace": "local",
                "training_job": "digits",
                "role": role,
                "index": "0",
            },
        }
        for role, port in [("master", 9000), ("ps", 9001), ("worker", 9002)]
    ]


def test_the_file_is_written_only_when_membership_or_a_port_changes(file, targets):
    shows(targets, status(("worker", 0, "running", 9002)))
    os.utime(file, (1, 1))
    shows(targets, status(("worker", 0, "running", 9002)))
    assert file.stat().st_mtime == 1
    shows(targets, status(("worker", 0, "running", 9003)))
    assert "127.0.0.1:9003" in file.read_text()
    assert "127.0.0.1:9002" not in file.read_text()


def test_at_the_end_nothing_is_scraped(file, targets):
    async def ends():
        targets.status(status(("worker", 0, "running", 9002)))
        await targets.close(status="", report="")

    asyncio.run(ends())
    assert json.loads(file.read_text()) == []


def test_a_folder_that_cannot_be_written_is_told_and_no_reason_to_stop(
    tmp_path, caplog
):
    targets = TargetsFile(tmp_path / "gone" / "targets.json", job="digits")
    shows(targets, status())
    assert "targets.json: cannot be written: No such file" in caplog.text


def test_nobody_waits_for_ever_for_a_disk_that_takes_no_targets(targets, monkeypatch):
    answers = threading.Event()
    monkeypatch.setattr(module, "write_whole", lambda *_, **__: answers.wait(60.0))
    monkeypatch.setattr(module, "_CLOSE_SECONDS", 0.2)

    async def ends():
        targets.status(status(("worker", 0, "running", 9002)))
        await targets.close(status="", report="")
        was_asked_in_vain = not answers.is_set()
        answers.set()
        return was_asked_in_vain

    assert asyncio.run(ends())


def test_an_end_that_a_disk_refuses_once_is_written_all_the_same(
    file, targets, monkeypatch
):
    real, tries = module.write_whole, []

    def write(*given, **more):
        tries.append(given)
        if len(tries) == 1:
            under_way.set()
            closing.wait(60.0)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(*given, **more)

    under_way, closing = threading.Event(), threading.Event()
    monkeypatch.setattr(module, "write_whole", write)

    async def ends():
        targets.status(status(("worker", 0, "running", 9002)))
        await asyncio.to_thread(under_way.wait, 60.0)
        asyncio.get_running_loop().call_later(0.1, closing.set)
        await targets.close(status="", report="")

    asyncio.run(ends())
    assert json.loads(file.read_text()) == []
