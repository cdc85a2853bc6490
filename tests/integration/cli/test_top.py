"""`elasticdl top` in a real terminal, on a job whose master only pretends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl import client
from elasticdl.cli.main import main
from elasticdl.client.local.launcher import Launcher, Timing
from elasticdl.errors import ExitCode
from elasticdl.job.names import Role
from elasticdl.job.values.file import load_values

BOUND_SECONDS = 30.0
VALUES = """
kind: job
job:
  name: digits
  model: {definition: digits.cnn.custom_model}
  data: {training: train, validation: test}
  master: {env: {SCRIPT_SECONDS: "1000"}}
"""
PROGRAM = """
import os, signal
os.login_tty(0)  # so that Ctrl-C means this program
# What a script runs in the background ignores it, and so do all below.
signal.signal(signal.SIGINT, signal.default_int_handler)
from elasticdl.cli.main import run
run()
"""
LEAVES_SCREEN = "\x1b[?1049l"


def scripted(role: Role) -> tuple[str, ...]:
    assert role is Role.MASTER
    return (sys.executable, "-m", "elasticdl.testing.scripted_master")


@pytest.fixture
def jobs_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTICDL_JOBS_DIR", str(tmp_path / "jobs"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path / "jobs"


@pytest.fixture
def job(jobs_dir: Path, tmp_path: Path) -> Iterator[Launcher]:
    file = tmp_path / "digits.yaml"
    file.write_text(VALUES)
    launcher = client.launch(
        load_values(file),
        environ=os.environ,
        jobs_dir=jobs_dir,
        command=scripted,
        timing=Timing(probe=0.1),
    )
    try:
        end = time.monotonic() + BOUND_SECONDS
        while client.find("digits", jobs_dir).view().status is None:
            assert time.monotonic() < end, "the job never ran"
            time.sleep(0.02)
        yield launcher
    finally:
        launcher.kill()
        launcher.wait(BOUND_SECONDS)


def plain(written: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)


class Terminal:
    """A program in a terminal of its own, 80 by 24."""

    def __init__(self, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
        self.mode = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color"},
        )
        self.written = ""

    @property
    def text(self) -> str:
        """All that was written, without colours and cursor movements."""
        return plain(self.written)

    def until(self, pattern: str, *, after: int = 0) -> None:
        """Wait until something is shown, `after` so many characters of `text`."""
        end = time.monotonic() + BOUND_SECONDS
        while not re.search(pattern, self.text[after:], re.DOTALL):
            assert time.monotonic() < end, self.text
            ready, _, _ = select.select([self._ours], [], [], 0.1)
            if ready:
                self.written += os.read(self._ours, 65536).decode(errors="replace")

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def end(self) -> int:
        """Wait for the program's end; its exit code."""
        end = time.monotonic() + BOUND_SECONDS
        while self.program.poll() is None or select.select([self._ours], [], [], 0)[0]:
            assert time.monotonic() < end, self.text
            if select.select([self._ours], [], [], 0.05)[0]:
                self.written += os.read(self._ours, 65536).decode(errors="replace")
        return self.program.wait()

    def close(self) -> None:
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.fixture
def watched(job: Launcher, terminals: list[Terminal]) -> Terminal:
    terminals.append(Terminal("top", "digits", "--every", "0.2"))
    terminals[0].until(r"workers +1 running of 3 wanted.*q: end   every 0\.2 s")
    return terminals[0]


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_q_and_ctrl_c_leave_the_terminal_as_it_was(
    key: bytes, watched: Terminal
) -> None:
    watched.press(key)
    assert watched.end() == ExitCode.OK
    assert LEAVES_SCREEN in watched.written
    assert "Traceback" not in watched.text
    assert termios.tcgetattr(watched.theirs) == watched.mode


def test_a_job_that_ends_leaves_its_report(job: Launcher, watched: Terminal) -> None:
    job.stop()
    assert watched.end() == ExitCode.OK
    report = plain(watched.written.rpartition(LEAVES_SCREEN)[2])
    assert "status      stopped" in report
    assert "job digits stopped in " in report


def test_a_master_that_is_away_is_told_and_its_last_word_stays(
    job: Launcher, watched: Terminal, jobs_dir: Path
) -> None:
    client.find("digits", jobs_dir).kill("master", signal.SIGSTOP)
    seen = len(watched.text)
    watched.until("its master does not answer now", after=seen)
    watched.until(r"all figures are \d.* old.*workers +1 running of 3", after=seen)
    client.find("digits", jobs_dir).kill("master", signal.SIGKILL)
    seen = len(watched.text)
    watched.until(r"running for [^!]*progress", after=seen)


def test_a_job_that_is_removed_ends_it(
    job: Launcher, watched: Terminal, jobs_dir: Path
) -> None:
    (jobs_dir / "digits" / "job.yaml").unlink()
    assert watched.end() == ExitCode.OK
    assert LEAVES_SCREEN in watched.written


def test_one_frame_is_for_scripts(
    job: Launcher, jobs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "digits"]) == ExitCode.OK  # no terminal
    frame = capsys.readouterr().out
    assert frame.startswith("digits  train, parameterServer  running for ")
    assert "\x1b" not in frame
    assert "pending    waiting for CPU: 2 of 2 in use" in frame
    assert "CPUs, workers hold 0; memory" in frame
    assert main(["top", "--once"]) == ExitCode.OK
    table = capsys.readouterr().out
    assert table.startswith("1 of 1 job running · workers 1 of 3, 1 pending · ")
    assert re.search(r"\ndigits +running +1/3, 1 waits ", table)


def test_a_job_that_has_ended_is_its_report(
    job: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    job.stop()
    job.wait(BOUND_SECONDS)
    assert main(["top", "digits", "--once"]) == ExitCode.OK
    assert "job digits stopped in " in capsys.readouterr().out


def test_what_is_not_there_is_an_error(
    jobs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top"]) == ExitCode.OK
    assert f"no jobs in {jobs_dir}; `elasticdl top -A`" in capsys.readouterr().out
    assert main(["top", "digits"]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        f"error: no job 'digits' in {jobs_dir}; no job was started there yet\n"
    )
    with pytest.raises(SystemExit):
        main(["top", "--every", "soon"])
    assert "got 'soon', expected seconds, 0.2 or more" in capsys.readouterr().err
