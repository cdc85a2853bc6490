"""A master in a pod: which job it goes on with, and what its exit says."""

from pathlib import Path

import pytest
from elasticdl.errors import (
    FINAL_EXITS,
    ExitCode,
    JobError,
    JournalError,
    PlatformError,
    SpecError,
)
from elasticdl.job.folder import JobLock
from elasticdl.job.in_force import put_in_force
from elasticdl.job.names import JobDir
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import load_values, write_values
from elasticdl.job.words import JobState
from elasticdl.master.job_state import JobEnding
from elasticdl.master.pod import Prepared, exit_code_of, prepare, take_over

from tests.unit.client.local.test_folder import report, values


class Volume:
    """A job's folder on its volume, and the ConfigMap that pods mount."""

    def __init__(self, root: Path) -> None:
        self.config_dir = root / "etc"
        self.config_dir.mkdir()
        self.job_dir = JobDir(root / "ml" / "digits")
        self.locks: list[JobLock] = []

    def start(self, uid: str, what: ValuesFile | None = None) -> Prepared:
        """Begin as a master of this ConfigMap does, and end at once."""
        write_values(self.config_dir / "job.yaml", what or values())
        prepared = prepare(self.config_dir, self.job_dir, uid=uid, lock_seconds=0.0)
        if prepared.lock is not None:
            prepared.lock.release()
        take_over(self.job_dir, uid)
        return prepared

    def leave(self, mark: str, ending: JobState | None) -> None:
        """Leave what a master does that trained, and perhaps ended."""
        self.job_dir.journal_dir.mkdir(exist_ok=True)
        (self.job_dir.journal_dir / "events").write_text(mark)
        if ending is not None:
            text = report(ending).model_dump_json()
            self.job_dir.report_file.write_text(text)

    @property
    def mark(self) -> str:
        events = self.job_dir.journal_dir / "events"
        return events.read_text() if events.exists() else ""


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path)


def test_the_first_master_fills_the_folder(volume: Volume) -> None:
    model = {"definition": "cnn.custom_model", "files": {"cnn.py": "x = 1\n"}}
    prepared = volume.start("a", values(model=model))
    assert prepared.launched
    assert load_values(volume.job_dir.spec_file).job == prepared.spec
    assert (volume.job_dir.model_dir / "cnn.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("ending", [None, *(s for s in JobState if s.ended)])
def test_the_next_master_of_the_same_config_map_takes_over(
    volume: Volume, ending: JobState | None
) -> None:
    volume.start("a")
    volume.leave("trained", ending)
    prepared = volume.start("a")
    assert not prepared.launched
    assert volume.mark == "trained"
    # How the job ended, if it did, is for the master to repeat.
    assert volume.job_dir.report_file.exists() == (ending is not None)


@pytest.mark.parametrize("ending", [None, JobState.FAILED, JobState.STOPPED])
def test_a_new_release_goes_on_with_an_unfinished_job(
    volume: Volume, ending: JobState | None
) -> None:
    volume.start("a")
    volume.leave("trained", ending)
    prepared = volume.start("b")
    assert prepared.launched
    assert volume.mark == "trained"
    assert not volume.job_dir.report_file.exists()


def test_a_new_release_of_a_finished_job_begins_afresh(volume: Volume) -> None:
    volume.start("a")
    volume.leave("trained", JobState.SUCCEEDED)
    assert volume.start("b").launched
    assert volume.mark == ""
    aside = volume.job_dir.root.with_name("digits~1")
    assert (aside / "journal" / "events").read_text() == "trained"


def test_a_master_that_was_killed_before_its_journal_began_counts_for_nothing(
    volume: Volume,
) -> None:
    volume.start("a")
    volume.leave("trained", JobState.STOPPED)
    for _ in range(2):
        prepared = prepare(volume.config_dir, volume.job_dir, uid="b", lock_seconds=0.0)
        assert prepared.lock is not None
        prepared.lock.release()
        assert prepared.launched
    assert volume.mark == "trained"


def test_an_edit_while_no_master_ran_does_not_touch_what_replicas_read(
    volume: Volume,
) -> None:
    model = {"definition": "cnn.custom_model", "files": {"cnn.py": "x = 1\n"}}
    volume.start("a", values(model=model))
    model["files"] = {"cnn.py": "x = 2\n"}
    prepared = volume.start("a", values(model=model))
    assert prepared.spec.model.files == {"cnn.py": "x = 2\n"}  # to be compared
    assert (volume.job_dir.model_dir / "cnn.py").read_text() == "x = 1\n"


def test_an_owner_that_cannot_be_read_is_not_taken_for_none(volume: Volume) -> None:
    """A living job that is begun anew loses all its replicas."""
    volume.start("a")
    volume.leave("first", None)
    volume.job_dir.owner_file.unlink()
    volume.job_dir.owner_file.mkdir()  # reading it is an OSError, as on a lost disk
    with pytest.raises(JournalError, match="cannot be prepared"):
        prepare(volume.config_dir, volume.job_dir, uid="a", lock_seconds=0.0)
    volume.job_dir.owner_file.rmdir()
    volume.job_dir.owner_file.write_text("")  # a crash of the machine left no more
    assert not volume.start("a").launched
    assert volume.mark == "first"


def test_another_kind_of_job_does_not_take_an_unfinished_one_over(
    volume: Volume,
) -> None:
    volume.start("a")
    other = values(type="evaluate", checkpoint={"initFrom": "x"})
    with pytest.raises(JobError, match="unfinished train job"):
        volume.start("b", other)
    JobLock(volume.job_dir).release()  # nobody holds it any more


def test_a_folder_in_which_another_jobs_master_runs_is_not_touched(
    volume: Volume,
) -> None:
    running = prepare_held(volume)
    with pytest.raises(PlatformError, match="is locked"):
        volume.start("b")
    assert volume.job_dir.owner_file.read_text() == "a"
    running.release()
    assert volume.start("b").lock is not None


def test_a_master_that_is_lost_with_its_lock_is_taken_over(volume: Volume) -> None:
    """As one on a node that nobody reaches; the journal's fence ends it."""
    lost = prepare_held(volume)
    volume.leave("trained", None)
    following = volume.start("a")
    assert following.lock is None
    assert not following.launched
    assert volume.mark == "trained"
    lost.release()
    assert volume.start("a").lock is not None


def prepare_held(volume: Volume) -> JobLock:
    volume.start("a")
    held = prepare(volume.config_dir, volume.job_dir, uid="a", lock_seconds=0.0).lock
    assert held is not None
    return held


def test_a_wrong_edit_does_not_keep_the_next_master_from_going_on(
    volume: Volume,
) -> None:
    spec = volume.start("a").spec
    put_in_force(volume.job_dir, spec)
    (volume.config_dir / "job.yaml").write_text("kind: job\njob: {workers: 3}\n")
    prepared = prepare(volume.config_dir, volume.job_dir, uid="a", lock_seconds=0.0)
    assert prepared.lock is not None
    prepared.lock.release()
    assert prepared.spec.document()["data"] == spec.document()["data"]
    assert prepared.spec.worker.replicas == spec.worker.replicas


def test_a_wrong_values_file_is_told_before_anything_is_touched(
    volume: Volume,
) -> None:
    volume.start("a")
    (volume.config_dir / "job.yaml").write_text("kind: job\njob: {workers: 3}\n")
    with pytest.raises(SpecError, match="did you mean"):
        prepare(volume.config_dir, volume.job_dir, uid="b", lock_seconds=0.0)
    assert volume.job_dir.owner_file.read_text() == "a"


# With these the batch Job has no other master, and with no others.
FINAL = {2, 3, 4, 5, 6, 10}


@pytest.mark.parametrize("code", [c for c in ExitCode if c is not ExitCode.OK])
def test_a_job_that_failed_is_never_started_again(code: ExitCode) -> None:
    assert exit_code_of(JobEnding(JobState.FAILED, "why", code)) in FINAL


def test_a_job_that_succeeded_or_was_stopped_is_done() -> None:
    done = JobEnding(JobState.SUCCEEDED, "", ExitCode.OK)
    stopped = JobEnding(JobState.STOPPED, "by hand", ExitCode.STOPPED)
    assert exit_code_of(done) == exit_code_of(stopped) == 0


def test_what_another_master_may_get_round_is_tried_again() -> None:
    assert {ExitCode.POD_JOB_FAILED, *FINAL_EXITS} == FINAL
    for code in (exit_code_of(None), ExitCode.CRASHED, ExitCode.PLATFORM):
        assert code not in {ExitCode.OK, *FINAL}
