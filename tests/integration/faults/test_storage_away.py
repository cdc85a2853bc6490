"""A claim that is away for a while, as when its file server moves."""

import os
from pathlib import Path

import pytest
from elasticdl.data.making.shards import write_shards
from elasticdl.data.reader import open_reader
from elasticdl.job.spec.job import DataFormat
from elasticdl.testing.claims import check_whole

SHIM = Path(__file__).resolve().parent / "storage_away"


@pytest.fixture
def switch(tmp_path, monkeypatch):
    """The file that names the roles whose storage is away."""
    file = tmp_path / "away"
    monkeypatch.setenv("STORAGE_AWAY", str(file))
    before = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(p for p in (str(SHIM), before) if p)
    monkeypatch.setenv("PYTHONPATH", path)
    return file


@pytest.fixture
def read_often(digits, tmp_path):
    """Digits in a format of which no more than a task's records is kept."""
    reader = open_reader("data/digits/train", data_root=digits)
    records = [
        record
        for shard in reader.shards()
        for record in reader.read(
            shard.source, shard.start, shard.end, skip_bad=False
        ).values
    ]
    folder = tmp_path / "often"
    write_shards(records, folder, format=DataFormat.TFRECORD, records_per_file=500)
    return folder


@pytest.mark.soak
@pytest.mark.usefixtures("unmeasured")
def test_a_job_whose_storage_is_away_waits_for_it_and_loses_nothing(
    switch, read_often, job
):
    one = job(
        "away",
        data={"training": str(read_often)},
        training={"epochs": 10_000},
        worker={"replicas": 2},
        ps={"replicas": 1},
        checkpoint={"everySeconds": 1.0},
    )
    one.wait_for_step(50)
    switch.write_text("worker ps")
    # Each is refused what it wants to read, more often than would fail a task.
    one.wait_until(
        lambda _: all(
            one.log_text("worker", index).count("storage does not answer") >= 2
            for index in range(2)
        ),
        "workers that hand tasks back",
    )
    one.wait_until(lambda s: "storage has not answered" in s.message, "a message")
    switch.write_text("worker ps master")
    one.wait_until(
        lambda s: "cannot write the journal" in s.message, "a journal that waits"
    )
    switch.unlink()
    step = one.status_now().progress.steps
    one.wait_for_step(step + 100)
    one.wait_until(lambda s: not s.message, "nothing to complain of")
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.master_restarts == 0
    assert not report.relaunches
