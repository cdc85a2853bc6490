"""A release is of one commit: what git is told to ignore is in no commit."""

import subprocess

import pytest

from release import tools
from release.facts import ReleaseError


@pytest.fixture
def repository(tmp_path):
    """A committed chart, and rules by which git ignores files."""
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "Chart.yaml").write_text("name: a\n")
    (tmp_path / ".gitignore").write_text("*.edlidx\n.env\n__pycache__/\n")
    named = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*named, "commit", "-qm", "One")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("name", ["charts/.env", "charts/a.edlidx", "images/ps/.env"])
def test_it_refuses_an_ignored_file_that_would_be_published(repository, name):
    file = repository / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("PASSWORD=x")
    with pytest.raises(ReleaseError, match=f"1 files differ from it, as {name}"):
        tools.commit(repository)


@pytest.mark.parametrize(
    "name", [".env", "python/elasticdl/__pycache__/a.pyc", "model_zoo/a/b.edlidx"]
)
def test_ignored_files_that_go_nowhere_are_left_alone(repository, name):
    file = repository / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    assert len(tools.commit(repository)[0]) == 40
