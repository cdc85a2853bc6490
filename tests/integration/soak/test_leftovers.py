"""The soak sees whatever a job leaves behind, however it got away."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]

# A child leaves by what stands for `{escape}` and says which process is left; then the
# soak's process looks for what is left of it.
SOAK = """
import json, pathlib, subprocess, sys, time
from tests.soak.leftovers import Leftovers, adopt_orphans

folder = pathlib.Path(sys.argv[1])
adopt_orphans()
leftovers = Leftovers(folder, folder / "tmp", look_seconds=0.01)
child = subprocess.Popen(
    [sys.executable, "-c", sys.argv[2], str(folder)],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
)
child.stdout.readline()
end = time.monotonic() + 20
while time.monotonic() < end and not all(leftovers.seen[w] for w in sys.argv[3:]):
    time.sleep(0.01)
child.stdin.close()
child.wait()
found = leftovers.find()
leftovers.end_all()
print(json.dumps(found))
"""

DAEMON = """
import os, signal, socket, sys
if os.fork():
    sys.stdin.read()
    sys.exit()
os.setsid()
{what}
print("ready", flush=True)
os.close(1)
signal.pause()
"""

PLAIN = """
import pathlib, sys
{what}
print("ready", flush=True)
sys.stdin.read()
"""


def found_after(tmp_path: Path, code: str, *seen: str) -> list[str]:
    """Return what is found after such a process, once so much of it was seen."""
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SOAK, str(tmp_path), code, *seen],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(done.stdout)
    return found


def test_a_process_that_left_its_session_and_environment_is_found(
    tmp_path: Path,
) -> None:
    found = found_after(tmp_path, DAEMON.format(what="os.environ.clear()"))
    assert [line.split()[0] for line in found] == ["process"]


def test_a_port_that_is_still_open_is_found(tmp_path: Path) -> None:
    listens = "s = socket.create_server(('127.0.0.1', 0))"
    found = found_after(tmp_path, DAEMON.format(what=listens), "ports")
    assert [line.split()[0] for line in found] == ["process", "port"]


def test_a_memory_file_that_is_still_held_is_found(tmp_path: Path) -> None:
    holds = "os.memfd_create('elasticdl')"
    found = found_after(tmp_path, DAEMON.format(what=holds), "memory files")
    assert [line.split()[0] for line in found] == ["process", "1"]
    assert found[1].startswith("1 memory files in ")


@pytest.mark.parametrize(
    "name", ["tmp/left.py", "jobs/j/checkpoints/pending-3/shard", "jobs/j/.x.tmp"]
)
def test_a_temporary_file_is_found(tmp_path: Path, name: str) -> None:
    writes = (
        f"f = pathlib.Path(sys.argv[1], {name!r})\n"
        "f.parent.mkdir(parents=True, exist_ok=True); f.touch()"
    )
    found = found_after(tmp_path, PLAIN.format(what=writes))
    assert {line.split()[0] for line in found} == {"file"}


def test_nothing_is_found_after_a_process_that_took_all_along(tmp_path: Path) -> None:
    assert found_after(tmp_path, PLAIN.format(what=""), "processes") == []
