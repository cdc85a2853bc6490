"""What a statement leaves behind that is stopped while it reads its rows."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_ENDLESS = "SELECT i AS x, i % 2 AS y FROM range(1_000_000_000_000) t(i) LABEL y INTO m"


# SIGINT counts though the tests run in the background, where shells have it ignored.
_PROGRAM = """\
import signal
from elasticdl.cli.main import run
signal.signal(signal.SIGINT, signal.default_int_handler)
run()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_statement_that_is_stopped_leaves_no_rows_and_no_trace(
    tmp_path: Path, number: signal.Signals
) -> None:
    models = tmp_path / "models"
    words = ["-c", _PROGRAM, "sql", "--models-dir", str(models), _ENDLESS]
    with subprocess.Popen(
        [sys.executable, *words],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        # The last thing that it says before it reads all rows.
        while "x: integer: standardised" not in (line := process.stderr.readline()):
            assert line, "it ended early"
        assert (models / "m" / "1").is_dir()
        process.send_signal(number)
        told = process.stderr.read()
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in told
    assert not list(models.iterdir())


def test_a_prompt_that_is_told_to_end_ends(tmp_path: Path) -> None:
    """It took SIGTERM for Ctrl-C, which drops a line, and went on."""
    pid, terminal = pty.fork()
    if not pid:
        environ = {**os.environ, "HOME": str(tmp_path), "TERM": "dumb"}
        words = [sys.executable, "-m", "elasticdl.cli.main", "sql"]
        os.execve(sys.executable, words, environ)
    said = b""
    while b"sql>" not in said:
        said += os.read(terminal, 1000)
    os.kill(pid, signal.SIGTERM)
    with contextlib.suppress(OSError):  # of a terminal that nobody has open any more
        while os.read(terminal, 1000):
            pass
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGINT
