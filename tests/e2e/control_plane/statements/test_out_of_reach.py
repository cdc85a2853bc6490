"""Statements with `-n` on a real API server that is out of reach for a moment.

No pod ever runs here; what a master would write, the tests write.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.e2e.control_plane.conftest import Link
from tests.e2e.control_plane.test_cli import REPORT, User

_TRAIN = "SELECT * FROM 'rows.csv' LABEL y INTO m"
_numbers = count(1)


@pytest.fixture
def user(control_plane: Any, priority_classes: None, tmp_path: Any) -> Iterator[User]:
    del priority_classes
    namespace = f"sql{next(_numbers)}"
    control_plane.kubectl("create", "namespace", namespace)
    yield User(control_plane, namespace, tmp_path)
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


def _read_until(process: "subprocess.Popen[str]", words: str) -> str:
    assert process.stderr is not None
    said = ""
    while words not in (line := process.stderr.readline()):
        said += line
        assert line, said
    return line


def _steps(user: User) -> list[str]:
    """Return what pods of statements are there to do."""
    pods = user.get("pods", "-l", "app.kubernetes.io/component=sql")["items"]
    args = [pod["spec"]["containers"][0]["args"] for pod in pods]
    return [json.loads(one[one.index("--step") + 1])["do"] for one in args]


@pytest.mark.soak
def test_a_statement_outlives_an_api_server_that_is_away(
    user: User, control_plane: Any
) -> None:
    user.install_platform()
    link = Link(control_plane)
    link.join()
    env = {**user.env, "KUBECONFIG": str(link.kubeconfig)}
    words = ["sql", "-n", user.namespace, "--set", "images.registry=r", _TRAIN]
    with subprocess.Popen(
        [sys.executable, "-m", "elasticdl.cli.main", *words],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            job = _read_until(process, "submitted job").split()[2]
            link.cut()
            _read_until(process, "does not answer")
            link.join()
            user.write_as_master(job, report={**REPORT, "name": job})
            while process.poll() is None and not (steps := _steps(user)):
                pass
            assert steps == ["finish"]
        finally:
            process.kill()
            link.cut()
