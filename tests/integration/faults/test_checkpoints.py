"""Checkpoints of others, damaged ones, and none that can be written."""

import re
import shutil
import signal
from pathlib import Path

import pytest
from elasticdl.checkpoint import shelf
from elasticdl.job.values.file import edit_values
from elasticdl.testing.claims import check_whole, relaunched

LONG = {"epochs": 10_000}


def damage(checkpoint):
    """Change a bit or more in each of its shards; its size stays."""
    for shard in checkpoint.glob("shard-*"):
        bytes_of = bytearray(shard.read_bytes())
        bytes_of[len(bytes_of) // 2] ^= 0xFF
        shard.write_bytes(bytes_of)


def test_a_run_neither_reports_nor_loads_the_checkpoints_of_another(job, tmp_path):
    place = tmp_path / "ckpt"
    settings = {"training": {"epochs": 3}, "checkpoint": {"dir": str(place)}}
    first = job("first", **settings)
    report = first.finish()
    assert Path(report.checkpoint).parent == place
    before = sorted(path.name for path in place.iterdir())
    # The same job trained again, and another one with a copied values file.
    for name in ("first", "second"):
        again = job(name, **settings)
        assert again.wait_for_exit() == 6
        assert "holds checkpoints of others" in again.output
        assert "job.checkpoint.initFrom" in again.output
        assert "Traceback" not in again.output
        assert again.processes() == []
    assert sorted(path.name for path in place.iterdir()) == before
    other = job(
        "second",
        training={"epochs": 1},
        checkpoint={"dir": str(tmp_path / "other"), "initFrom": str(place)},
    )
    report = other.finish()
    check_whole(other, report, least_accuracy=0.5)
    assert Path(report.checkpoint).parent == tmp_path / "other"


@pytest.mark.soak
def test_a_job_whose_checkpoints_cannot_be_written_fails_and_goes_on_afterwards(
    job, tmp_path
):
    blocked = tmp_path / "blocked"
    blocked.touch()  # a file where a folder should be
    settings = {
        "training": {"epochs": 3},
        "checkpoint": {"dir": str(blocked)},
        "master": {"journalWaitSeconds": 2.0},
    }
    one = job("unsaved", **settings)
    assert one.wait_for_exit() == 6
    assert "the trained model could not be saved" in one.output
    assert "launch the job again" in one.output
    assert one.processes() == []
    blocked.unlink()
    again = job("unsaved", **settings)
    report = again.finish()
    check_whole(again, report, least_accuracy=0.5)
    assert Path(report.checkpoint).parent == blocked
    assert str(shelf.resolve(blocked)[0]) == report.checkpoint


def test_a_damaged_newest_checkpoint_falls_back_to_an_older_one_while_running(job):
    one = job("damaged", training=LONG, checkpoint={"everySeconds": 3.0, "keep": 5})
    status = one.wait_until(
        lambda s: (s.checkpoint_version or 0) > 0, "a checkpoint later than version 0"
    )
    edit_values(one.job_dir.spec_file, {"job.paused": True})
    status = one.wait_until(
        lambda s: s.state == "paused" and s.checkpoint_version == s.progress.version,
        "a checkpoint of a paused job",
    )
    newest = one.job_dir.checkpoints_dir / f"version-{status.checkpoint_version}"
    damage(newest)
    one.handle.kill("ps-0", signal.SIGKILL)
    relaunched(one, "ps-0", reason="killed")
    one.wait_until(lambda s: s.rewinds, "a rewind")
    edit_values(one.job_dir.spec_file, {"job.paused": False})
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.rewinds >= 1
    assert "could not load" in one.log_text("master", 0)


@pytest.mark.parametrize(
    "how", ["damaged", pytest.param("gone", marks=pytest.mark.soak)]
)
def test_a_job_without_any_checkpoint_of_its_own_begins_when_one_is_put_back(
    job, how, tmp_path
):
    few = {"worker": {"replicas": 1}, "ps": {"replicas": 1}, "training": LONG}
    one = job(f"none-{how}", **few)
    one.wait_until(
        lambda s: (s.checkpoint_version or 0) > 0, "a checkpoint later than version 0"
    )
    one.interrupt()
    assert one.wait_for_exit() == 130
    place = one.job_dir.checkpoints_dir
    found = list(place.glob("version-*"))
    assert found
    kept = tmp_path / "kept"
    shutil.copytree(place, kept)
    for checkpoint in found:
        if how == "gone":
            shutil.rmtree(checkpoint)
        else:
            damage(checkpoint)
    again = job(f"none-{how}", **few)
    assert again.wait_for_exit() == 6
    assert "no checkpoint of this job can be loaded any more" in again.output
    assert "put one back" in again.output
    assert "--restart" in again.output
    assert "Traceback" not in again.output
    assert again.processes() == []

    # What the message says: from damaged ones the job went back to the next older.
    version = max(int(path.name.removeprefix("version-")) for path in found)
    if how == "damaged":
        says = re.search(r"put one back \(version (\d+) or older", again.output)
        assert says
        version = int(says[1])
    shutil.copytree(kept / f"version-{version}", place / f"version-{version}")
    once_more = job(f"none-{how}", **few)
    once_more.wait_for_step(version + 10)
    once_more.end_after_this_epoch()
    check_whole(once_more, once_more.finish())
