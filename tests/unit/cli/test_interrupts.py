"""Ctrl-C at moments in which no job watches for it: an exit code, and no trace."""

import signal
import subprocess
import sys

from elasticdl import client
from elasticdl.cli import main as command
from elasticdl.errors import ExitCode

# A thread of the job keeps Python for a while after the command has ended.
ENDING = """
import os, signal, threading, time
from elasticdl.cli import main as command
signal.signal(signal.SIGINT, signal.default_int_handler)
command.main = lambda _: 130
threading.Thread(target=time.sleep, args=(20.0,)).start()
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
command.run()
"""


def test_one_more_ctrl_c_as_the_command_ends_changes_nothing():
    ended = subprocess.run(
        [sys.executable, "-c", ENDING],
        check=False,
        capture_output=True,
        text=True,
        timeout=60.0,
    )
    assert (ended.returncode, ended.stderr) == (ExitCode.STOPPED, "")


# Ctrl-C as soon as Python imports what the command is made of.
BEGINNING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from elasticdl.cli import run

class Interrupting:
    def find_spec(self, name, *_):
        if name == "elasticdl.cli.train":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
run()
"""


def test_ctrl_c_while_the_command_is_imported_leaves_no_trace():
    ended = subprocess.run(
        [sys.executable, "-c", BEGINNING],
        check=False,
        capture_output=True,
        text=True,
        timeout=60.0,
    )
    assert ended.returncode == ExitCode.STOPPED
    assert ended.stderr == "stopped before the command began\n"


def test_ctrl_c_while_a_job_is_launched_says_so(monkeypatch, capsys, tmp_path):
    file = tmp_path / "small.yaml"
    model = "{definition: net.f, files: {net.py: x = 1}}"
    file.write_text(
        f"kind: job\njob: {{name: small, model: {model}, data: {{training: d}}}}\n"
    )

    def interrupted(*_, **__):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(client, "launch", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = command.main(["train", "-f", str(file)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == ExitCode.STOPPED
    assert capsys.readouterr().err == "job small stopped: while it was launched\n"
