"""Where checkpoints are is decided once, and no link leads to those of others."""

from pathlib import Path

import pytest
from elasticdl.checkpoint import shelf, store
from elasticdl.errors import CheckpointError
from elasticdl.job.names import JobDir
from elasticdl.master.model.checkpoint_place import place_of

from tests.unit.checkpoint.test_shelf import of_j, write


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    """A claim with the folders of two jobs, and one for checkpoints."""
    for name in ("own", "other"):
        (tmp_path / ".elasticdl" / "jobs" / "ml" / name).mkdir(parents=True)
    (tmp_path / "checkpoints").mkdir()
    return tmp_path


def job(claim: Path, name: str) -> JobDir:
    return JobDir(claim / ".elasticdl" / "jobs" / "ml" / name)


def test_checkpoints_are_in_the_jobs_folder_and_no_link_there_is_followed(
    claim: Path,
) -> None:
    own = job(claim, "own")
    for given in ("", str(own.root / "some")):
        assert place_of(given, own).root == own.root


def test_a_folder_that_values_name_may_be_a_link_and_is_where_that_leads(
    claim: Path,
) -> None:
    (claim / "link").symlink_to(claim / "checkpoints")
    place = place_of(str(claim / "link" / "mine"), job(claim, "own"))
    assert place.directory == (claim / "checkpoints" / "mine").resolve()


def test_no_folder_that_values_name_leads_to_another_jobs_checkpoints(
    claim: Path,
) -> None:
    other = job(claim, "other").checkpoints_dir
    write(other, 3)
    (claim / "checkpoints").rmdir()
    (claim / "checkpoints").symlink_to(other)
    with pytest.raises(CheckpointError, match="in the folder of a job"):
        place_of(str(claim / "checkpoints"), job(claim, "own"))
    assert place_of(str(other), job(claim, "own")).directory == other


@pytest.mark.parametrize("above", [False, True])
def test_a_folder_that_is_made_a_link_while_the_job_runs_is_not_followed(
    claim: Path, above: bool
) -> None:
    given = claim / "checkpoints" / "mine" if above else claim / "checkpoints"
    place = place_of(str(given), job(claim, "own"))
    for version in (1, 2, 3):
        write(given, version)
    (claim / "checkpoints").rename(claim / "aside")
    (claim / "checkpoints").symlink_to(claim / "aside")
    with pytest.raises(CheckpointError, match="link"):
        shelf.delete_old(place.directory, 1, mine=of_j, root=place.root)
    with pytest.raises(CheckpointError, match="link"):
        store.publish(given / "pending", place.directory, 4, root=place.root)
    assert len(list(given.iterdir())) == 3
