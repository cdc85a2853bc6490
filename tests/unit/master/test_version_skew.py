"""Parts of another version are refused by name; nothing of two versions is mixed."""

import elasticdl
import pytest
from elasticdl.errors import ExitCode
from elasticdl.job.version_skew import skew
from elasticdl.job.words import JobState
from elasticdl.rpc import master_client


@pytest.mark.parametrize("other", ["1.0.7", "1.0.0.dev3", "1.0"])
def test_corrections_of_one_release_work_together(monkeypatch, other) -> None:
    monkeypatch.setattr("elasticdl.job.version_skew.__version__", "1.0.2")
    assert skew(other) == ""


@pytest.mark.parametrize("other", ["1.1.0", "2.0.0", "0.9", "1", ""])
def test_another_minor_version_is_refused_with_both_named(monkeypatch, other) -> None:
    monkeypatch.setattr("elasticdl.job.version_skew.__version__", "1.0.2")
    assert f"elasticdl {other or 'before 1.0'}, the master of 1.0.2" in skew(other)


def test_a_job_whose_replicas_are_of_another_version_ends_with_that_sentence(
    rig, monkeypatch
) -> None:
    async def story(rig) -> None:
        monkeypatch.setattr(master_client, "__version__", "0.9.1")
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "is refused: it is of elasticdl 0.9.1, the master of" in report.message
        assert rig.running.result().exit_code is ExitCode.SPEC
        assert rig.world.trained == []

    rig.run(story)


def test_a_worker_of_another_version_that_comes_later_ends_no_job(
    rig, monkeypatch, caplog
) -> None:
    async def story(rig) -> None:
        rig.world.pause_after = 1
        async with rig.serving() as master:
            await rig.until(lambda: master.job.parts.holder.begun and rig.world.trained)
            monkeypatch.setattr(master_client, "__version__", "0.9.1")
            rig.kill("worker-0")
            await rig.until(lambda: "worker-2 is refused: it is of" in caplog.text)
            monkeypatch.setattr(master_client, "__version__", elasticdl.__version__)
            rig.world.pause_after = 1000
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story)
