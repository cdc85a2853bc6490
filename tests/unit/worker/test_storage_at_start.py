"""A PS or worker that begins while its volume is away is no end of the job.

Reading `/proc/self/mem` from its start is refused with EIO, as by a network disk. It is
no file, so that of a specification has its opening refused in the process itself.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from elasticdl.errors import ExitCode, exit_code_of
from elasticdl.job.folder import fill
from elasticdl.job.in_force import put_in_force
from elasticdl.job.names import JobDir
from elasticdl.model.user_code import import_module, locate

from tests.unit.client.local.test_folder import values

AWAY = "/proc/self/mem"
REFUSED = """
import errno, os

def refused(path, *rest, real=os.open, **keywords):
    if path == "in-force.yaml":
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return real(path, *rest, **keywords)

os.open = refused
"""


@pytest.fixture
def job_dir(tmp_path: Path) -> JobDir:
    made = JobDir(tmp_path / "digits")
    fill(made, values())
    put_in_force(made, values().job)
    (tmp_path / "sitecustomize.py").write_text(REFUSED)
    return made


@pytest.mark.parametrize("role", ["ps", "worker"])
def test_a_specification_that_cannot_be_read_now_is_not_a_wrong_one(
    job_dir: JobDir, role: str
) -> None:
    told = {
        "ELASTICDL_JOB_DIR": str(job_dir.root),
        "ELASTICDL_ROLE": role,
        "ELASTICDL_INDEX": "0",
        "ELASTICDL_GENERATION": "1",
        "ELASTICDL_MASTER_ADDRESS": "127.0.0.1:9",
        "ELASTICDL_TOKEN": "token",
        "PYTHONPATH": os.pathsep.join(
            (str(job_dir.root.parent), os.environ.get("PYTHONPATH", ""))
        ),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", f"elasticdl.{role}.main"],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == ExitCode.STORAGE_AWAY, done.stderr
    assert "Input/output error" in done.stderr


def test_a_module_that_cannot_be_read_now_is_not_a_wrong_one(tmp_path: Path) -> None:
    text = f"with open({AWAY!r}, 'rb') as file:\n    file.read(1)\n"
    (tmp_path / "net.py").write_text(text)
    code, _ = locate(tmp_path, "net.custom_model")
    with pytest.raises(Exception, match="Input/output") as caught:
        import_module(code, code.main_file)
    assert exit_code_of(caught.value) is ExitCode.STORAGE_AWAY


def test_a_module_whose_own_server_refuses_it_is(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("raise ConnectionRefusedError(111, 'refused')\n")
    code, _ = locate(tmp_path, "net.custom_model")
    with pytest.raises(Exception, match="refused") as caught:
        import_module(code, code.main_file)
    assert exit_code_of(caught.value) is ExitCode.USER_CODE
