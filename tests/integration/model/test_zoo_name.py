"""A module finds its own zoo under the name `model_zoo`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from elasticdl.model import user_code


def imported(tmp_path, zoo, *, path=()):
    """What a module prints as it is imported by a process of its own.

    In this one another folder called model_zoo may have been found.
    """
    program = (
        "import pathlib; from elasticdl.model import user_code as u;"
        f"code = u.ModelCode(pathlib.Path({str(zoo)!r}),"
        f" pathlib.Path({str(zoo / 'net' / 'cnn.py')!r}));"
        "u.import_module(code, code.main_file)"
    )
    package = Path(user_code.__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [package, *path]))},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout or done.stderr


def write_zoo(folder, **files):
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


_ASKS = "from model_zoo.other import parts\nprint(parts.WIDTH)"


def test_a_module_may_call_its_zoo_model_zoo_whatever_the_folder_is_called(tmp_path):
    zoo = write_zoo(tmp_path / "of_mine", net__cnn=_ASKS, other__parts="WIDTH = 7")
    assert imported(tmp_path, zoo) == "7\n"


@pytest.mark.parametrize("packages", [False, True], ids=["folders", "packages"])
def test_model_zoo_is_the_jobs_own_zoo_also_where_another_is_called_so(
    tmp_path, packages
):
    """As beside the copy that `elasticdl sql --dry-run -o .` writes."""
    for folder, width in (("zoo", 7), ("model_zoo", 8)):
        write_zoo(tmp_path / folder, net__cnn=_ASKS, other__parts=f"WIDTH = {width}")
        if packages:
            (tmp_path / folder / "__init__.py").write_text(f"WIDTH = {width}\n")
    write_zoo(tmp_path / "model_zoo", more__parts="WIDTH = 9")
    assert imported(tmp_path, tmp_path / "zoo", path=[tmp_path]) == "7\n"
    assert imported(tmp_path, tmp_path / "model_zoo") == "8\n"
    if packages:
        write_zoo(tmp_path / "zoo", net__cnn="import model_zoo\nprint(model_zoo.WIDTH)")
        assert imported(tmp_path, tmp_path / "zoo") == "7\n"
    # What only the other one has is found behind it.
    write_zoo(tmp_path / "zoo", net__cnn=_ASKS.replace("other", "more"))
    assert imported(tmp_path, tmp_path / "zoo") == "9\n"


def test_a_folder_model_zoo_in_the_jobs_zoo_is_that_zoo(tmp_path):
    zoo = tmp_path / "zoo"
    write_zoo(zoo, net__cnn=_ASKS, other__parts="WIDTH = 7")
    write_zoo(zoo, model_zoo__other__parts="WIDTH = 8")
    assert imported(tmp_path, zoo) == "8\n"
