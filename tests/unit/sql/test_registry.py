"""Claims about the registry's folders."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from elasticdl.errors import JobError, SpecError
from elasticdl.job.values.document import ValuesFile
from elasticdl.sql.plan import Head, Kind, LabelPlan, Schema
from elasticdl.sql.registry import (
    Description,
    ModelVersion,
    Registry,
    write_description,
)
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.statements import run
from elasticdl.sql.running.train import described, prepare, write_files

from tests.unit.sql.ready import read

_ABOUT = Description((), LabelPlan("y", Kind.INTEGER, Head.BINARY), Schema(()), "x")


@pytest.mark.parametrize("there", [False, True])
def test_a_first_version_that_fails_leaves_no_registry_that_was_not_there(
    tmp_path: Path, there: bool
) -> None:
    root = tmp_path / "deep" / "models"
    if there:
        root.mkdir(parents=True)
    with pytest.raises(JobError), Registry(root).adding("m"):
        raise JobError("failed")
    assert root.exists() == there
    assert root.parent.exists() == there


def test_a_version_that_is_trained_outlives_the_drop_of_all_others(
    tmp_path: Path,
) -> None:
    registry = Registry(tmp_path)
    with registry.adding("m") as first:
        write_description(first, _ABOUT)
    with registry.adding("m") as second:
        registry.drop("m@1")
        assert second.folder.is_dir()
        write_description(second, _ABOUT)
    assert [one.reference for one in registry.all()] == ["m@2"]
    registry.drop("m")
    assert not (tmp_path / "m").exists()


def _added(registry: Registry, name: str = "m") -> str:
    with registry.adding(name) as version:
        write_description(version, _ABOUT)
    return version.reference


def test_the_number_of_a_dropped_version_never_comes_back(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    assert [_added(registry) for _ in range(3)] == ["m@1", "m@2", "m@3"]
    registry.drop("m@3")
    registry.drop("m@1")
    assert _added(registry) == "m@4"
    registry.drop("m")
    assert registry.names() == []
    assert _added(registry) == "m@5"
    assert registry.run("m", "job").version == 6
    assert _added(registry, "m-2") == "m-2@1"
    assert len(list((tmp_path / ".dropped").iterdir())) == 1


def test_a_version_that_is_trained_outlives_a_run_that_failed(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.run("m", "job")
    with registry.adding("m") as other:
        registry.discard("m", "job")
        assert other.folder.is_dir()
        write_description(other, _ABOUT)
    registry.run("n", "job")
    registry.discard("n", "job")
    assert not (tmp_path / "n").exists()


def test_what_a_killed_process_left_of_a_version_is_gone_with_the_next(
    tmp_path: Path,
) -> None:
    registry = Registry(tmp_path)
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from elasticdl.sql.registry import Registry\n"
        "with Registry(Path(sys.argv[1])).adding('m') as version:\n"
        "    (version.folder / 'rows.parquet').write_text('many')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "m" / "1" / "rows.parquet").exists()
    assert registry.all() == []
    mark = tmp_path / "m" / "1" / ".making"
    here = mark.read_text()
    mark.write_text("another machine")  # whose locks are perhaps not seen
    _added(registry, "first")
    assert mark.exists()
    mark.write_text(here)
    with registry.adding("other") as version:
        assert not (tmp_path / "m" / "1").exists()
        with registry.adding("other") as second:
            assert version.folder.is_dir()  # Its process lives.
            write_description(second, _ABOUT)
        write_description(version, _ABOUT)
    assert [one.reference for one in registry.all()] == [
        "first@1",
        "other@1",
        "other@2",
    ]
    assert _added(registry) == "m@1"
    assert sorted(p.name for p in (tmp_path / "m" / "1").iterdir()) == ["model.json"]


def test_a_registry_may_be_moved_with_its_large_vocabularies(
    session: Session, tmp_path: Path
) -> None:
    """A PREDICT's job looked for them where the registry had been."""
    text = (
        "SELECT 'user ' || i // 2 AS user, i % 2 AS y FROM range(6000) t(i) TO TRAIN "
        "DNNClassifier COLUMN VOCABULARIZE(user) LABEL y INTO m"
    )
    version = ModelVersion("m", 1, tmp_path / "before" / "m" / "1")
    made = prepare(session, read(text), text, version)
    write_files(version, read(text), made)
    write_description(version, described(made, "duckdb"))
    (tmp_path / "before").rename(tmp_path / "now")
    asked: list[ValuesFile] = []

    def run_job(values: ValuesFile) -> NoReturn:
        asked.append(values)
        raise JobError("no job is run here")

    moved = replace(session, registry=Registry(tmp_path / "now"), run_job=run_job)
    for verb in ("PREDICT USING m", "EVALUATE m WITH validation.metrics = 'AUC'"):
        with pytest.raises(JobError):
            list(run(moved, f"SELECT 'user 1' AS user, 1 AS y TO {verb}"))
        module = asked[-1].job.model.files["sql/m.py"]
        (place,) = re.findall(r'^VOCABULARIES = "(.*)"$', module, re.MULTILINE)
        assert any(Path(place).iterdir())


def test_a_registry_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """It was a bare number of an error and a path, without what to do."""
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SpecError, match=r"cannot be made there: .*--models-dir"),
        Registry(tmp_path / "file" / "models").adding("m"),
    ):
        pass


def test_a_disk_that_is_full_is_named_and_nothing_stays(tmp_path: Path) -> None:
    """The mark of a version was not written: `[Errno 28]`, and the mark stayed."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    taken = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with (
            pytest.raises(SpecError, match=r"models: .*cannot be made there"),
            Registry(tmp_path / "models").adding("m"),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, taken)
    assert not (tmp_path / "models").exists()


def test_a_registry_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    place = tmp_path / "models"
    place.mkdir()
    place.chmod(0)
    before = os.geteuid()
    if before == 0:  # may read all
        os.seteuid(65534)
    try:
        with pytest.raises(SpecError, match="models: its models cannot be read: Perm"):
            Registry(place).names()
    finally:
        os.seteuid(before)
        place.chmod(0o700)


def test_a_file_in_the_place_of_the_registry_is_no_registry_without_models(
    tmp_path: Path,
) -> None:
    place = tmp_path / "models"
    place.write_text("")
    with pytest.raises(SpecError, match="models is a file; expected a folder"):
        Registry(place).names()
