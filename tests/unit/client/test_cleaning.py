"""Old folders of ended jobs go; nothing else does."""

import os
import re
from pathlib import Path

import pytest
from elasticdl.cli.clean import words_there
from elasticdl.cli.main import main, make_parser
from elasticdl.errors import ExitCode
from elasticdl.job.folder import JobLock, fill
from elasticdl.job.names import JobDir
from elasticdl.job.words import JobState

from tests.unit.client.local.test_folder import report, values
from tests.unit.test_beneath import nested

DAY = 86_400.0


class Jobs:
    """Folders of jobs, as old as is wanted."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(
        self, name: str, ending: JobState | None, *, days: float, init_from: str = ""
    ) -> Path:
        job_dir = JobDir(self.root / name)
        changes = {"checkpoint": {"initFrom": init_from}} if init_from else {}
        fill(job_dir, values(**changes))
        (job_dir.checkpoints_dir / "version-4").mkdir(parents=True)
        (job_dir.checkpoints_dir / "version-4" / "shard").write_bytes(b"x" * 5000)
        if ending is not None:
            job_dir.report_file.write_text(report(ending).model_dump_json())
        self.age(job_dir.root, days)
        return job_dir.root

    def age(self, path: Path, days: float) -> None:
        then = path.stat().st_ctime - days * DAY
        for one in [*path.rglob("*"), path]:
            os.utime(one, (then, then))

    def there(self) -> set[str]:
        return {one.name for one in self.root.iterdir() if one.is_dir()}

    def clean(self, *words: str) -> int:
        return main(["jobs", "clean", "--jobs-dir", str(self.root), *words])


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path / "jobs")


def test_ended_jobs_that_are_old_go_and_all_others_stay(jobs, capsys) -> None:
    jobs.make("old", JobState.SUCCEEDED, days=40)
    jobs.make("old~1", JobState.SUCCEEDED, days=50)
    jobs.make("failed", JobState.FAILED, days=40)
    jobs.make("young", JobState.SUCCEEDED, days=20)
    jobs.make("interrupted", None, days=400)
    (jobs.root / "notes").mkdir()  # no job's folder
    assert jobs.clean("--older-than", "30d") == ExitCode.OK
    assert jobs.there() == {"young", "interrupted", "notes"}
    said = capsys.readouterr().out
    assert re.search(r"young: succeeded, \d KiB", said)
    assert "kept, it is younger" in said
    assert said.splitlines()[-1].startswith("3 folders removed (")
    assert said.splitlines()[-1].endswith("), 2 kept")


def test_a_dry_run_removes_nothing_and_tells_the_same(jobs, capsys) -> None:
    jobs.make("old", JobState.STOPPED, days=40)
    assert jobs.clean("--older-than", "30d", "--dry-run") == ExitCode.OK
    assert jobs.there() == {"old"}
    assert "1 folder would be removed" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["report.json", "job.yaml"])
def test_what_a_jobs_code_left_in_its_folder_keeps_no_other_one(
    jobs, capsys, name
) -> None:
    """Who reads a pipe waits for ever."""
    jobs.make("old", JobState.SUCCEEDED, days=40)
    file = jobs.make("another", JobState.SUCCEEDED, days=40) / name
    file.unlink()
    os.mkfifo(file)
    large = jobs.make("large", JobState.SUCCEEDED, days=40) / name
    os.truncate(large, 1 << 40)
    assert jobs.clean("--older-than", "30d") == ExitCode.OK
    assert jobs.there() == {"another", "large"}
    said = capsys.readouterr().out
    assert f"its {name} is no file" in said
    assert f"its {name} is too large to be read" in said


def test_only_the_states_that_are_asked_for_go(jobs) -> None:
    jobs.make("good", JobState.SUCCEEDED, days=40)
    jobs.make("bad", JobState.FAILED, days=40)
    jobs.make("killed", None, days=40)
    jobs.clean("--older-than", "1d", "--state", "failed,interrupted")
    assert jobs.there() == {"good"}


def test_a_folder_that_a_job_holds_stays(jobs, capsys) -> None:
    path = jobs.make("running", JobState.STOPPED, days=40)  # launched again just now
    lock = JobLock(JobDir(path))
    jobs.clean("--older-than", "1d")
    assert "kept, it runs now" in capsys.readouterr().out
    assert (path / "checkpoints" / "version-4" / "shard").exists()
    lock.release()
    jobs.clean("--older-than", "1d")
    assert jobs.there() == set()


def test_a_checkpoint_that_an_unfinished_job_begins_with_stays(jobs, capsys) -> None:
    base = jobs.make("base", JobState.SUCCEEDED, days=40)
    source = str(base / "checkpoints")
    user = jobs.make("tuned", None, days=1, init_from=source)
    jobs.clean("--older-than", "30d")
    assert "kept, job tuned begins with its checkpoint" in capsys.readouterr().out
    (user / "report.json").write_text(report(JobState.SUCCEEDED).model_dump_json())
    jobs.clean("--older-than", "30d")
    assert jobs.there() == {"tuned"}


def test_a_checkpoint_stays_that_a_job_of_the_cluster_waits_to_begin_with(
    jobs, capsys
) -> None:
    """It has no folder yet: its master waits for room, or for its turn in a queue."""
    jobs.make("old", JobState.SUCCEEDED, days=40)
    jobs.make("other", JobState.SUCCEEDED, days=40)
    begins = f"tuned={jobs.root}/old/checkpoints/version-4"
    assert jobs.clean("--older-than", "30d", "--to-come", begins) == ExitCode.OK
    assert jobs.there() == {"old"}
    assert "kept, job tuned begins with its checkpoint" in capsys.readouterr().out


def test_files_behind_a_link_are_not_touched(jobs, tmp_path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "records").write_text("mine")
    path = jobs.make("old", JobState.SUCCEEDED, days=40)
    (path / "link").symlink_to(data)
    (jobs.root / "linked").symlink_to(path)
    jobs.age(path, 40)
    jobs.clean("--older-than", "30d")
    assert not path.exists()
    assert (data / "records").read_text() == "mine"


def test_what_a_removal_that_was_cut_off_has_left_goes_with_the_next(jobs) -> None:
    path = jobs.make("old", JobState.SUCCEEDED, days=40)
    path.rename(jobs.root / ".old.removing")
    jobs.clean("--older-than", "30d", "--dry-run")
    assert jobs.there() == {".old.removing"}
    jobs.clean("--older-than", "30d")
    assert jobs.there() == set()


def test_what_only_looks_like_a_removal_keeps_no_other_from_going(jobs) -> None:
    jobs.make("old", JobState.SUCCEEDED, days=40)
    data = jobs.root.parent / "data"
    data.mkdir()
    (data / "records").write_text("mine")
    (jobs.root / ".a.removing").symlink_to(data)
    (jobs.root / ".b.removing").write_text("")
    jobs.clean("--older-than", "30d")
    assert jobs.there() == set()
    assert (data / "records").read_text() == "mine"


@pytest.mark.parametrize(("depth", "name"), [(1500, "d"), (100, "d" * 50)])
def test_folders_that_a_jobs_code_nests_deeply_keep_no_other_from_going(
    jobs, capsys, depth, name
) -> None:
    jobs.make("old", JobState.SUCCEEDED, days=40)
    deep = jobs.make("deep", JobState.SUCCEEDED, days=40)
    with (
        nested(jobs.root / ".gone.removing", 1500),
        nested(deep / "logs" / "deep", depth, name),
    ):
        for _ in range(2):
            jobs.clean("--older-than", "0s")
        assert not (jobs.root / "old").exists()
    said = capsys.readouterr()
    assert "nested too deeply" in said.err
    assert "folders in it are nested too deeply" in said.out + said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--older-than", "30"], "got '30', expected a number and a unit"),
        (["--older-than", "-3d"], "expected"),
        (["--older-than", "1d", "--state", "running"], "got 'running', expected some"),
        ([], "--older-than"),
    ],
)
def test_a_wrong_argument_is_named(jobs, capsys, words, message) -> None:
    with pytest.raises(SystemExit) as caught:
        jobs.clean(*words)
    assert caught.value.code == ExitCode.USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("given", ["30d", "0s", "1.5h", "520w"])
@pytest.mark.parametrize("more", [[], ["--dry-run", "--state", "failed,interrupted"]])
def test_a_pod_in_the_cluster_is_asked_for_the_same(given, more) -> None:
    words = ["jobs", "clean", "--older-than", given, *more]
    here = make_parser().parse_args(words)
    begin = {"tuned": "/data/.elasticdl/jobs/ml/old/checkpoints"}
    there = make_parser().parse_args(words_there(here, Path("/data/jobs"), begin))
    assert there.jobs_dir == "/data/jobs"
    assert there.to_come == ["tuned=/data/.elasticdl/jobs/ml/old/checkpoints"]
    for asked in ("older_than", "state", "dry_run"):
        assert getattr(there, asked) == getattr(here, asked)


def test_nothing_to_clean_is_said(jobs, capsys) -> None:
    assert jobs.clean("--older-than", "1d") == ExitCode.OK
    assert capsys.readouterr().out == "0 folders removed (0 B), 0 kept\n"
