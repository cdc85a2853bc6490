"""What a statement leaves behind that is stopped while it reads its rows."""

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
