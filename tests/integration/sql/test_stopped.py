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
    assert not models.exists()


class _Prompt:
    """`elasticdl sql` in a terminal of its own."""

    def __init__(self, home: Path) -> None:
        self._said = b""
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            environ = {**os.environ, "HOME": str(home), "TERM": "dumb"}
            words = [sys.executable, "-c", _PROGRAM, "sql"]
            os.execve(sys.executable, words, environ)

    def write(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def read_to(self, word: str) -> str:
        """Return what it says up to a word."""
        while word.encode() not in self._said:
            self._said += os.read(self._terminal, 1000)
        before, _, self._said = self._said.partition(word.encode())
        return before.decode()

    def end(self) -> int:
        """Return its exit code, once it has ended."""
        with contextlib.suppress(OSError):  # nobody has the terminal open any more
            while os.read(self._terminal, 1000):
                pass
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def _processes_of(home: Path) -> set[int]:
    """Return the processes that have a folder as their home."""
    mark = f"HOME={home}\0".encode()
    found = set()
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in file.read_bytes():
                found.add(int(file.parent.name))
    return found


def test_a_prompt_that_is_told_to_end_ends(tmp_path: Path) -> None:
    """It took SIGTERM for Ctrl-C, which drops a line, and went on."""
    prompt = _Prompt(tmp_path)
    prompt.read_to("sql>")
    os.kill(prompt.pid, signal.SIGTERM)
    assert prompt.end() == 128 + signal.SIGINT


_LONG = (
    "SELECT i AS x, i % 2 AS y FROM range(100_000) t(i) TO TRAIN DNNClassifier "
    "WITH train.epoch = 1000 LABEL y INTO m; SELECT 'behind' || 'it';\r"
)


def test_ctrl_c_stops_a_job_and_not_the_prompt(tmp_path: Path) -> None:
    prompt = _Prompt(tmp_path)
    prompt.read_to("sql>")
    prompt.write(_LONG)
    prompt.read_to("step ")  # of the job's first lines
    assert len(_processes_of(tmp_path)) > 2
    prompt.write("\x03")
    prompt.read_to("stopping: ")
    told = prompt.read_to("sql>")
    assert "error: job m did not succeed: stopped" in told
    assert "behindit" not in told
    assert _processes_of(tmp_path) == {prompt.pid}
    prompt.write("SELECT 6 * 7 AS answer;\r")
    assert "42" in prompt.read_to("42") + "42"
    prompt.write("SHOW MODELS;\r")
    prompt.read_to("evaluation")
    assert "m@1" not in prompt.read_to("sql>")
    prompt.write("exit\r")
    assert prompt.end() == 0


def test_a_prompt_that_is_told_to_end_while_a_job_runs_ends_behind_it(
    tmp_path: Path,
) -> None:
    """It stopped the job, and asked for the next statement."""
    prompt = _Prompt(tmp_path)
    prompt.read_to("sql>")
    prompt.write(_LONG)
    prompt.read_to("step ")
    os.kill(prompt.pid, signal.SIGTERM)
    assert prompt.end() == 128 + signal.SIGINT
    assert not _processes_of(tmp_path)
